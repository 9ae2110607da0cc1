//! Moving tasks whose time has come: leases run out, delays end.

use crate::{
    Decision, Env, Ledger, Principal, ReceiptType, Seq, Task, TaskWrite,
    ledger::Draft,
    receipt::Body,
    task::{
        Lease, State,
        hold::{Anomaly, anomaly},
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
            State::Delayed if task.next_eligible_at <= env.now => {
                task.state = State::Ready;
                swept.readied += 1;
            }
            State::Leased(lease) | State::Running(lease)
                if lease.expires_at.plus_millis(grace) <= env.now =>
            {
                let lease = lease.clone();
                expire(&mut env, &mut ledger, &mut task, &lease);
                swept.expired += 1;
            }
            // The task changed after the store listed it as due, for example because its lease was
            // renewed. Its new deadline will be found later.
            State::Delayed
            | State::Ready
            | State::Leased(_)
            | State::Running(_)
            | State::Ended(_) => {
                continue;
            }
        }
        ledger.changes.tasks.push(TaskWrite {
            task,
            before: Some(before),
        });
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
}

/// Queues a task again after its worker was lost. This is no failure of the task: no attempt is
/// counted, and the delay is only jitter, so that many expired tasks do not return at the same time.
fn expire(env: &mut Env, ledger: &mut Ledger, task: &mut Task, lease: &Lease) {
    task.expiries += 1;
    let body = Body::new()
        .with("task_id", task.id.to_string())
        .with("previous_worker_id", &*lease.worker.id)
        .with("attempt", task.attempt)
        .with("requeued", true);
    let draft = Draft {
        receipt_type: ReceiptType::LeaseExpired,
        from: &Principal::system(),
        to: &task.created_by,
        task_id: Some(task.id),
        lease_id: Some(lease.id),
        body: body.finish(String::new),
    };
    ledger.append(env, draft);
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
    task.updated_at = env.now;
}

fn jitter_ms(env: &mut Env) -> i64 {
    let bound = u64::try_from(env.policy.expiry_jitter_ms).unwrap_or(0) + 1;
    i64::try_from(env.ids.random() % bound).unwrap_or(0)
}
