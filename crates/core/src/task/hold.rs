//! The moves of a lease's holder before the end: renew, release, start, report progress.
//!
//! The lease is a fencing token: a call under any lease but the current one changes nothing.

use crate::{
    Decision, Env, Json, LeaseId, Ledger, Principal, ReceiptType, Rejection, Seq, Task, TaskWrite,
    identity::QuotaName,
    ledger::Draft,
    receipt::Body,
    task::{Lease, Progress, Standing, State, batch::alone, claim::lease_end},
};

/// A worker's statement that it holds a task under a lease.
#[derive(Debug, Clone)]
pub struct Hold {
    /// The worker that calls.
    pub worker: Principal,
    /// The lease it says it holds.
    pub lease_id: LeaseId,
}

impl Hold {
    /// Returns the current lease of `task` if this hold is on it and neither its time nor the task's is
    /// over.
    pub(super) fn check<'a>(&self, env: &Env, task: &'a Task) -> Result<&'a Lease, Rejection> {
        task.lease()
            .filter(|lease| lease.id == self.lease_id && lease.worker.is(&self.worker))
            // A lease counts until its grace is over, even if no sweep has ended it yet; not a moment longer.
            .filter(|lease| env.now < lease.expires_at.plus_millis(env.policy.lease_grace_ms))
            .filter(|_| !task.is_too_late(env.now))
            .ok_or(Rejection::LeaseInvalid)
    }
}

/// Extends a lease, counted from now. A lease never gets shorter. One that is renewed very often
/// records one anomaly.
pub fn renew(
    env: Env,
    head: Seq,
    hold: &Hold,
    task: Task,
    extend_by_ms: Option<i64>,
) -> Result<Decision<Lease>, Rejection> {
    alone(env, head, |env, ledger| {
        extend(env, ledger, hold, task, extend_by_ms)
    })
}

/// Does the work of [`renew`] behind what was decided before.
pub(super) fn extend(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    mut task: Task,
    extend_by_ms: Option<i64>,
) -> Result<Lease, Rejection> {
    let mut lease = hold.check(env, &task)?.clone();
    let before = task.standing();
    // A worker that asks for less than it has keeps what it has.
    lease.expires_at = lease_end(env, extend_by_ms).max(lease.expires_at);
    lease.renewals += 1;
    // The state carries the lease, so both states must be rebuilt around the new one.
    let running = matches!(task.state, State::Running(_));
    task.state = if running {
        State::Running(lease.clone())
    } else {
        State::Leased(lease.clone())
    };
    // Equality, not `>`: each lease records the anomaly once, not with every further renewal.
    if lease.renewals == env.policy.renewals_before_anomaly + 1 {
        anomaly(env, ledger, &task, Some(lease.id), Anomaly::ManyRenewals);
    }
    put(env, ledger, task, before);
    Ok(lease)
}

/// Gives a task back: it can be claimed at once, and no attempt is counted.
pub fn release(
    mut env: Env,
    head: Seq,
    hold: &Hold,
    mut task: Task,
) -> Result<Decision<()>, Rejection> {
    hold.check(&env, &task)?;
    let before = task.standing();
    let mut ledger = Ledger::after(head);
    let body = Body::new().with("attempt", task.attempt);
    report(
        &mut env,
        &mut ledger,
        hold,
        &task,
        ReceiptType::LeaseReleased,
        body,
    );
    task.state = State::Ready;
    // Ready at once: giving back is cooperative, so there is no jitter as after an expiry.
    task.next_eligible_at = env.now;
    Ok(write(env, ledger, task, before, ()))
}

/// Records that the work began. Repeating the call changes nothing.
pub fn start(
    mut env: Env,
    head: Seq,
    hold: &Hold,
    mut task: Task,
) -> Result<Decision<()>, Rejection> {
    let lease = hold.check(&env, &task)?.clone();
    if matches!(task.state, State::Running(_)) {
        return Ok(Decision {
            changes: Default::default(),
            output: (),
        });
    }
    let before = task.standing();
    let mut ledger = Ledger::after(head);
    let body = Body::new().with("attempt", task.attempt);
    report(
        &mut env,
        &mut ledger,
        hold,
        &task,
        ReceiptType::TaskStarted,
        body,
    );
    task.state = State::Running(lease);
    Ok(write(env, ledger, task, before, ()))
}

/// Records the progress of the work. `receipts` is the number of receipts that the task has, counted at least up
/// to the tenant's quota: a worker can report any number of times, and so this is where the quota stands.
pub fn progress(
    mut env: Env,
    head: Seq,
    hold: &Hold,
    mut task: Task,
    value: Json,
    receipts: u64,
) -> Result<Decision<()>, Rejection> {
    let limit = env.policy.max_payload_bytes;
    if value.len() > limit {
        let what = "progress";
        return Err(Rejection::TooLarge { what, limit });
    }
    hold.check(&env, &task)?;
    if let Some(quotas) = &env.quotas {
        quotas.check(QuotaName::ReceiptsPerTask, receipts)?;
    }
    let before = task.standing();
    let mut ledger = Ledger::after(head);
    let body = Body::new().with_content("progress", Some(&value));
    report(
        &mut env,
        &mut ledger,
        hold,
        &task,
        ReceiptType::TaskProgress,
        body,
    );
    let at = env.now;
    task.progress = Some(Progress { value, at });
    Ok(write(env, ledger, task, before, ()))
}

/// Appends a receipt from the worker to the server.
fn report(
    env: &mut Env,
    ledger: &mut Ledger,
    hold: &Hold,
    task: &Task,
    receipt_type: ReceiptType,
    body: Body,
) {
    let draft = Draft {
        receipt_type,
        from: &hold.worker,
        to: &Principal::system(),
        task_id: Some(task.id),
        lease_id: Some(hold.lease_id),
        body: body.finish(|| task.how_to_retrieve()),
    };
    ledger.append(env, draft);
}

/// The things that look wrong about a task.
#[derive(Debug, Clone, Copy)]
pub(super) enum Anomaly {
    /// It is queued although no attempt is left.
    AttemptsExhausted,
    /// Its leases keep running out.
    ManyExpiries,
    /// Its lease is renewed again and again.
    ManyRenewals,
}

/// Tells the owner that something looks wrong. The task itself does not change.
pub(super) fn anomaly(
    env: &mut Env,
    ledger: &mut Ledger,
    task: &Task,
    lease_id: Option<LeaseId>,
    anomaly: Anomaly,
) {
    let (kind, advice) = match anomaly {
        Anomaly::AttemptsExhausted => (
            "attempts_exhausted",
            "Cancel the task, or create it again with a higher max_attempts.",
        ),
        Anomaly::ManyExpiries => (
            "repeated_lease_expiry",
            "Check that the workers stay alive and renew, or ask for a longer lease.",
        ),
        Anomaly::ManyRenewals => (
            "excessive_lease_renewals",
            "Check that the worker makes progress, or ask for a longer lease.",
        ),
    };
    let details = serde_json::json!({
        "attempt": task.attempt,
        "max_attempts": task.spec.max_attempts,
        "expiries": task.expiries,
        "renewals": task.lease().map_or(0, |lease| lease.renewals),
    });
    let draft = Draft {
        receipt_type: ReceiptType::SystemAnomaly,
        from: &Principal::system(),
        to: &task.created_by,
        task_id: Some(task.id),
        lease_id,
        body: Body::new()
            .with("kind", kind)
            .with("details", details)
            .with("recommended_action", advice)
            .finish(String::new),
    };
    ledger.append(env, draft);
}

/// Replaces one task.
pub(super) fn put(env: &Env, ledger: &mut Ledger, mut task: Task, before: Standing) {
    task.updated_at = env.now;
    ledger.changes.tasks.push(TaskWrite {
        task,
        before: Some(before),
    });
}

/// Builds a decision that replaces one task.
pub(super) fn write<T>(
    env: Env,
    mut ledger: Ledger,
    task: Task,
    before: Standing,
    output: T,
) -> Decision<T> {
    put(&env, &mut ledger, task, before);
    Decision {
        changes: ledger.changes,
        output,
    }
}
