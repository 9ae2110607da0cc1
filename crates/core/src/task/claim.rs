//! Taking tasks: each task gets one lease, and a receipt says which worker took it.

use crate::{
    Decision, Env, Ledger, Principal, ReceiptType, Seq, Task, TaskWrite, Timestamp,
    ledger::Draft,
    receipt::Body,
    task::{Lease, State},
};

/// A worker's request for work.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The worker that will hold the leases.
    pub worker: Principal,
    /// The worker's capabilities, for the receipt.
    pub capabilities: Vec<String>,
    /// The length of the leases; absent means the default.
    pub lease_ttl_ms: Option<i64>,
}

/// Leases every candidate that is ready. A store offers candidates by priority, then age; a
/// candidate that is not ready, or no longer, is skipped.
pub fn claim(mut env: Env, head: Seq, claim: &Claim, candidates: Vec<Task>) -> Decision<Vec<Task>> {
    let mut ledger = Ledger::after(head);
    let mut leased = Vec::with_capacity(candidates.len());
    for mut task in candidates {
        // A store may offer rows that changed after it listed them; the rule decides by the row itself.
        if task.state != State::Ready || task.next_eligible_at > env.now {
            continue;
        }
        let before = task.standing();
        let lease = Lease {
            // The lease's id carries the place of its acceptance, which is the next receipt.
            id: env.ids.lease(ledger.next_seq()),
            worker: claim.worker.clone(),
            created_at: env.now,
            expires_at: lease_end(&env, claim.lease_ttl_ms),
            renewals: 0,
        };
        ledger.append(
            &mut env,
            Draft {
                receipt_type: ReceiptType::TaskAccepted,
                from: &claim.worker,
                to: &Principal::system(),
                task_id: Some(task.id),
                lease_id: Some(lease.id),
                body: accepted_body(claim, &task),
            },
        );
        task.state = State::Leased(lease);
        task.updated_at = env.now;
        ledger.changes.tasks.push(TaskWrite {
            task: task.clone(),
            before: Some(before),
        });
        leased.push(task);
    }
    Decision {
        changes: ledger.changes,
        output: leased,
    }
}

fn accepted_body(claim: &Claim, task: &Task) -> crate::Json {
    let offered = (!claim.capabilities.is_empty()).then_some(&claim.capabilities);
    Body::new()
        .with("attempt", task.attempt)
        .with_some("worker_capabilities", offered)
        .finish(|| task.how_to_retrieve())
}

/// Returns the end of a lease or extension that begins now: the requested length, at most the
/// maximum.
pub(super) fn lease_end(env: &Env, wished_ms: Option<i64>) -> Timestamp {
    let wished = wished_ms.unwrap_or(env.policy.default_lease_ttl_ms);
    env.now.plus_millis(wished.min(env.policy.max_lease_ttl_ms))
}
