//! Calling a task off. It ends at once; its worker, if it has one, learns this from its next call.

use crate::{
    Decision, Env, Json, Ledger, Principal, ReceiptType, Rejection, Seq, Task,
    ledger::Draft,
    receipt::Body,
    task::{End, Outcome, State, Status, finish::conclude},
};

/// Cancels a task on behalf of `by`. Cancelling it again changes nothing; a task that ended
/// otherwise cannot be cancelled.
pub fn cancel(
    mut env: Env,
    head: Seq,
    task: Task,
    by: &Principal,
    reason: Option<&str>,
) -> Result<Decision<Status>, Rejection> {
    match task.status() {
        // The owner may repeat the call when the first answer was lost.
        Status::Canceled => {
            return Ok(Decision {
                changes: Default::default(),
                output: Status::Canceled,
            });
        }
        status @ (Status::Succeeded | Status::Failed) => {
            return Err(Rejection::InvalidTransition { status });
        }
        Status::Queued | Status::Leased | Status::Running => {}
    }
    let mut ledger = Ledger::after(head);
    let draft = Draft {
        receipt_type: ReceiptType::TaskCanceled,
        from: by,
        to: &task.created_by,
        task_id: Some(task.id),
        // The receipt names the lease that the cancellation cut off, if the task was held.
        lease_id: task.lease().map(|lease| lease.id),
        body: Body::new().with_some("reason", reason).finish(String::new),
    };
    let receipt = ledger.discharge(&mut env, draft, vec![task.assignment]);
    let error = reason.and_then(reason_json);
    let end = End::without_result(Outcome::Canceled, env.now, error, receipt);
    debug_assert!(!matches!(task.state, State::Ended(_)));
    conclude(&mut env, &mut ledger, task, end);
    Ok(Decision {
        changes: ledger.changes,
        output: Status::Canceled,
    })
}

fn reason_json(reason: &str) -> Option<Json> {
    Json::from_text(serde_json::json!({ "reason": reason }).to_string())
}
