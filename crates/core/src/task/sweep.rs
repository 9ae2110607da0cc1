//! Moving tasks whose time has come: leases run out, delays end, and tasks are given up that are too late
//! or lose every worker.

use crate::{
    Decision, Env, Ledger, Principal, ReceiptType, Seq, Task, TaskWrite,
    ledger::Draft,
    receipt::Body,
    task::{
        EXPIRED_WORKERS, Lease, State,
        finish::{give_up, give_up_late},
        hold::{Anomaly, anomaly, put},
    },
};

/// Moves every task whose time has come, skips the others, and counts the moves.
pub fn sweep(mut env: Env, head: Seq, tasks: Vec<Task>) -> Decision<Swept> {
    let mut ledger = Ledger::after(head);
    let mut swept = Swept::default();
    for mut task in tasks {
        let before = task.standing();
        // The same grace as in `Hold::check`: at any moment a lease either counts or can be ended.
        let grace = env.policy.lease_grace_ms;
        match &task.state {
            State::Delayed | State::Ready | State::Leased(_) | State::Running(_)
                if task.is_too_late(env.now) =>
            {
                give_up_late(&mut env, &mut ledger, task);
                swept.ended += 1;
            }
            State::Delayed if task.next_eligible_at <= env.now => {
                task.state = State::Ready;
                swept.readied += 1;
                // Becoming claimable is no change that anybody made: `updated_at` stays.
                ledger.changes.tasks.push(TaskWrite {
                    task,
                    before: Some(before),
                });
            }
            State::Leased(lease) | State::Running(lease)
                if lease.expires_at.plus_millis(grace) <= env.now =>
            {
                let lease = lease.clone();
                swept.expired += 1;
                count_expiry(&mut task, &lease);
                if is_given_up(&env, &task) {
                    expired_for_good(&mut env, &mut ledger, task, &lease);
                    swept.ended += 1;
                } else {
                    requeue(&mut env, &mut ledger, &mut task, &lease);
                    put(&env, &mut ledger, task, before);
                }
            }
            // The task changed after the store listed it as due, for example because its lease was
            // renewed. Its new deadline will be found later.
            State::Delayed
            | State::Ready
            | State::Leased(_)
            | State::Running(_)
            | State::Ended(_) => {}
        }
    }
    Decision {
        changes: ledger.changes,
        output: swept,
    }
}

/// The counts of a sweep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Swept {
    /// Delays that ended.
    pub readied: usize,
    /// Leases that ran out.
    pub expired: usize,
    /// Tasks that were given up.
    pub ended: usize,
}

/// Counts a lost worker. This is no failure of the task: no attempt is counted.
fn count_expiry(task: &mut Task, lease: &Lease) {
    task.expiries += 1;
    if task.expired_workers.len() == EXPIRED_WORKERS {
        task.expired_workers.remove(0);
    }
    task.expired_workers.push(lease.worker.id.clone());
}

/// Returns true if as many leases ran out as the task may lose.
fn is_given_up(env: &Env, task: &Task) -> bool {
    let contract = task.spec.contract.as_ref();
    let own = contract.and_then(|contract| contract.max_lease_expiries);
    let most = own.unwrap_or(env.policy.max_lease_expiries);
    most > 0 && task.expiries >= most
}

/// Ends a task whose workers were lost too often.
fn expired_for_good(env: &mut Env, ledger: &mut Ledger, task: Task, lease: &Lease) {
    record_expiry(env, ledger, &task, lease, false);
    let workers: Vec<&str> = task.expired_workers.iter().map(|id| &**id).collect();
    let error = serde_json::json!({ "code": "lease_expiries", "workers": workers });
    give_up(env, ledger, task, &error);
}

/// Queues a task again after its worker was lost. The delay is only jitter, so that many expired tasks do
/// not return at the same time.
fn requeue(env: &mut Env, ledger: &mut Ledger, task: &mut Task, lease: &Lease) {
    record_expiry(env, ledger, task, lease, true);
    // Equality, not `>`: the anomaly is recorded once per task.
    if task.expiries == env.policy.expiries_before_anomaly + 1 {
        anomaly(env, ledger, task, Some(lease.id), Anomaly::ManyExpiries);
    }
    // Only a limit of zero attempts leads here: otherwise the last failure would have ended the task.
    if task.attempt >= task.spec.max_attempts {
        anomaly(
            env,
            ledger,
            task,
            Some(lease.id),
            Anomaly::AttemptsExhausted,
        );
    }
    let jitter = jitter_ms(env);
    task.next_eligible_at = env.now.plus_millis(jitter);
    // Without jitter the task is ready at once and needs no second sweep.
    task.state = if jitter == 0 {
        State::Ready
    } else {
        State::Delayed
    };
}

fn record_expiry(env: &mut Env, ledger: &mut Ledger, task: &Task, lease: &Lease, requeued: bool) {
    let body = Body::new()
        .with("task_id", task.id.to_string())
        .with("previous_worker_id", &*lease.worker.id)
        .with("attempt", task.attempt)
        .with("requeued", requeued);
    let draft = Draft {
        receipt_type: ReceiptType::LeaseExpired,
        from: &Principal::system(),
        to: &task.created_by,
        task_id: Some(task.id),
        lease_id: Some(lease.id),
        body: body.finish(String::new),
    };
    ledger.append(env, draft);
}

fn jitter_ms(env: &mut Env) -> i64 {
    let bound = u64::try_from(env.policy.expiry_jitter_ms).unwrap_or(0) + 1;
    i64::try_from(env.ids.random() % bound).unwrap_or(0)
}
