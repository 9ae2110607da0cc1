//! Taking tasks: each task gets one lease, and a receipt says which worker took it.

use crate::{
    Decision, Env, Ledger, Principal, ReceiptType, Seq, Task, TaskWrite, Timestamp,
    identity::{Quota, QuotaName},
    ledger::Draft,
    receipt::Body,
    task::{Lease, State, finish::give_up_late},
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
    /// The time that the worker expects the work to take.
    pub expected_duration_seconds: Option<u32>,
}

/// The tasks that a claim took, and what it found besides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Claimed {
    /// The tasks that the worker now holds.
    pub leased: Vec<Task>,
    /// The number of candidates whose deadline had passed. They ended, so others may stand behind them.
    pub ended: usize,
    /// True if a candidate was left because the tenant may hold no more leases.
    pub lacked_room: bool,
}

/// Leases every candidate that is ready, as long as the tenant may hold one more lease than the `held` ones.
/// A store offers candidates by priority, then age; a candidate that is not ready, or no longer, is
/// skipped, and one whose deadline has passed ends.
pub fn claim(
    mut env: Env,
    head: Seq,
    claim: &Claim,
    candidates: Vec<Task>,
    held: u64,
) -> Decision<Claimed> {
    let mut ledger = Ledger::after(head);
    let room = env.quota(QuotaName::ConcurrentLeases).room(held);
    let mut claimed = Claimed {
        leased: Vec::with_capacity(candidates.len()),
        ..Claimed::default()
    };
    for mut task in candidates {
        // A store may offer rows that changed after it listed them; the rule decides by the row itself.
        if task.state != State::Ready || task.next_eligible_at > env.now {
            continue;
        }
        // The watch over deadlines may not have come to it yet; nobody is given work that is over.
        if task.is_too_late(env.now) {
            give_up_late(&mut env, &mut ledger, task);
            claimed.ended += 1;
            continue;
        }
        if room.is_some_and(|room| claimed.leased.len() as u64 >= room) {
            claimed.lacked_room = true;
            break;
        }
        let before = task.standing();
        let lease = Lease {
            // The lease's id carries the place of its acceptance, which is the next receipt.
            id: env.ids.lease(ledger.next_seq()),
            worker: claim.worker.clone(),
            created_at: env.now,
            expires_at: lease_end(&env, claim.lease_ttl_ms.or_else(|| usual_lease_ms(&task))),
            renewals: 0,
            expected_duration_seconds: claim.expected_duration_seconds,
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
        claimed.leased.push(task);
    }
    Decision {
        changes: ledger.changes,
        output: claimed,
    }
}

fn accepted_body(claim: &Claim, task: &Task) -> crate::Json {
    let offered = (!claim.capabilities.is_empty()).then_some(&claim.capabilities);
    Body::new()
        .with("attempt", task.attempt)
        .with_some("worker_capabilities", offered)
        .with_some("expected_duration_seconds", claim.expected_duration_seconds)
        .finish(|| task.how_to_retrieve())
}

/// Returns the lease that the task's owner wants for a claim that names none.
fn usual_lease_ms(task: &Task) -> Option<i64> {
    let seconds = task.spec.contract.as_ref()?.lease_ttl_seconds?;
    Some(seconds.saturating_mul(1_000))
}

/// Returns the end of a lease or extension that begins now: the requested length, at most the
/// maximum of the settings and the tenant's quota.
pub(super) fn lease_end(env: &Env, wished_ms: Option<i64>) -> Timestamp {
    let wished = wished_ms.unwrap_or(env.policy.default_lease_ttl_ms);
    let longest = env.policy.max_lease_ttl_ms;
    let longest = match env.quota(QuotaName::LeaseTtlSecs) {
        Quota::None => longest,
        Quota::AtMost(secs) => i64::try_from(secs.saturating_mul(1_000))
            .map_or(longest, |most_ms| most_ms.min(longest)),
    };
    env.now.plus_millis(wished.min(longest))
}
