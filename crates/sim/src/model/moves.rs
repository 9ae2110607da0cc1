//! The state machine: the moves that a task may make, and the receipts that each of them leaves.

use asyncgate_core::{
    Changes, Placement, Principal, Receipt, ReceiptType, Task, Timestamp,
    task::{Lease, Outcome, State},
};

use super::{Model, Tenant, deadline};
use crate::violation::{Checked, broken, hold};

/// A move of a task, recognised by the receipts that were written with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Move {
    Created,
    Readied,
    Claimed,
    Renewed,
    Started,
    Progressed,
    Released,
    Retried,
    Expired,
    /// A lease ran out for the last time, and the server gave the task up.
    Worn,
    /// The deadline passed, and the server gave the task up.
    Late,
    Ended(Outcome),
    Proved,
}

impl Model {
    /// Checks every task of a commit against its state before.
    pub(super) fn check_moves(&self, number: usize, now: Timestamp, changes: &Changes) -> Checked {
        let tenant = &self.tenants[number];
        for write in &changes.tasks {
            let task = &write.task;
            let before = tenant.tasks.get(&task.id.seq()).map(|story| &story.task);
            let standing = before.map(Task::standing);
            hold(write.before == standing, "serializable", || {
                format!("{} stood {standing:?}, not {:?}", task.id, write.before)
            })?;
            let about = changes.receipts.iter();
            let about: Vec<&Receipt> = about.filter(|r| r.task_id == Some(task.id)).collect();
            let moved = classify(before, &about)?;
            let step = Moving {
                model: self,
                tenant,
                now,
                moved,
                about: &about,
                after: task,
            };
            match before {
                None => step.check_created()?,
                Some(before) => step.check(before)?,
            }
        }
        self.check_strays(changes)
    }

    /// Checks that receipts about a task come with the move that they prove; only notes stand alone.
    fn check_strays(&self, changes: &Changes) -> Checked {
        for receipt in &changes.receipts {
            let moved = changes
                .tasks
                .iter()
                .any(|w| Some(w.task.id) == receipt.task_id);
            let alone = matches!(
                receipt.receipt_type,
                ReceiptType::ReceiptAcknowledged | ReceiptType::LedgerSigned
            );
            hold(moved != alone, "receipts match moves", || {
                format!("{} at {}", receipt.receipt_type.as_str(), receipt.seq())
            })?;
        }
        Ok(())
    }
}

fn classify(before: Option<&Task>, about: &[&Receipt]) -> Checked<Move> {
    use ReceiptType as R;
    let kinds: Vec<R> = about.iter().map(|receipt| receipt.receipt_type).collect();
    Ok(match kinds[..] {
        [R::TaskAssigned] => Move::Created,
        [] if matches!(before, Some(task) if task.state == State::Delayed) => Move::Readied,
        // A renewal leaves no receipt, except for one anomaly.
        [] | [R::SystemAnomaly] => Move::Renewed,
        [R::TaskAccepted] => Move::Claimed,
        [R::TaskStarted] => Move::Started,
        [R::TaskProgress] => Move::Progressed,
        [R::LeaseReleased] => Move::Released,
        [R::TaskRetryScheduled] => Move::Retried,
        [R::LeaseExpired]
        | [R::LeaseExpired, R::SystemAnomaly]
        | [R::LeaseExpired, R::SystemAnomaly, R::SystemAnomaly] => Move::Expired,
        [R::TaskCompleted, R::TaskResultReady] => Move::Ended(Outcome::Succeeded),
        [R::LeaseExpired, R::TaskFailed, R::TaskResultReady] => Move::Worn,
        [R::TaskFailed, R::TaskResultReady] if about[0].from.is(&Principal::system()) => Move::Late,
        [R::TaskFailed, R::TaskResultReady] => Move::Ended(Outcome::Failed),
        [R::TaskCanceled, R::TaskResultReady] => Move::Ended(Outcome::Canceled),
        [R::TaskCompleted] => Move::Proved,
        _ => return broken("receipts match moves", format!("{kinds:?}")),
    })
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Retried {
    retry_after_seconds: Option<u64>,
}

struct Moving<'a> {
    model: &'a Model,
    tenant: &'a Tenant,
    now: Timestamp,
    moved: Move,
    about: &'a [&'a Receipt],
    after: &'a Task,
}

impl Moving<'_> {
    fn check_created(&self) -> Checked {
        let task = self.after;
        let state = match task.state {
            State::Delayed => task.next_eligible_at > self.now,
            State::Ready => task.next_eligible_at == self.now,
            State::Leased(_) | State::Running(_) | State::Ended(_) => false,
        };
        let fresh = task.attempt == 0 && task.expiries == 0 && task.created_at == self.now;
        let assigned = self
            .about
            .first()
            .is_some_and(|receipt| receipt.id == task.assignment && receipt.seq() == task.id.seq());
        self.must(
            self.moved == Move::Created && state && fresh && assigned,
            "created",
        )?;
        let key = task.spec.idempotency_key.as_ref();
        let owner = self.tenant.party(task.created_by.kind, &task.created_by.id);
        let taken = key.is_some_and(|key| owner.is_some_and(|owner| owner.keys.contains_key(key)));
        self.must(!taken, "one task per key")
    }

    fn check(&self, before: &Task) -> Checked {
        self.check_kept(before)?;
        let task = self.after;
        match self.moved {
            Move::Created => self.must(false, "created once"),
            Move::Readied => self.must(
                task.state == State::Ready && task.next_eligible_at <= self.now,
                "delays are kept",
            ),
            Move::Claimed => self.check_claimed(before),
            Move::Renewed => self.check_renewed(before),
            Move::Started => {
                self.check_held(before)?;
                let same = matches!((&before.state, &task.state),
                    (State::Leased(old), State::Running(new)) if old == new);
                self.must(same, "state machine")
            }
            Move::Progressed => {
                self.check_held(before)?;
                self.must(before.state == task.state, "state machine")
            }
            Move::Released => {
                self.check_held(before)?;
                let now = task.next_eligible_at == self.now;
                self.must(task.state == State::Ready && now, "state machine")
            }
            Move::Retried => self.check_retried(before),
            Move::Expired => self.check_expired(before),
            Move::Worn => self.check_worn(before),
            Move::Late => {
                self.must(self.is_late(before), "deadlines")?;
                self.check_given_up(before, self.about[0], "deadline")
            }
            Move::Ended(outcome) => self.check_ended(before, outcome),
            Move::Proved => self.check_proved(before),
        }
    }

    /// Checks the values that never change, and the counters that only their own move may raise.
    fn check_kept(&self, before: &Task) -> Checked {
        let task = self.after;
        self.must(before.created_by == task.created_by, "one owner")?;
        let kept = before.id == task.id
            && before.spec == task.spec
            && before.created_at == task.created_at
            && before.assignment == task.assignment
            && before.instance == task.instance;
        self.must(kept, "immutable")?;
        let failed = matches!(self.moved, Move::Retried | Move::Ended(Outcome::Failed));
        let attempts = before.attempt + u32::from(failed);
        self.must(
            task.attempt == attempts,
            "attempts only by reported failures",
        )?;
        let lost = matches!(self.moved, Move::Expired | Move::Worn);
        let expiries = before.expiries + u32::from(lost);
        self.must(task.expiries == expiries, "expiries")?;
        let waits = matches!(self.moved, Move::Retried | Move::Expired | Move::Released);
        self.must(
            waits || before.next_eligible_at == task.next_eligible_at,
            "next_eligible_at",
        )?;
        let ended = before.end().is_some();
        self.must(!ended || self.moved == Move::Proved, "terminal immutable")
    }

    fn check_claimed(&self, before: &Task) -> Checked {
        self.must(before.lease().is_none(), "at most one lease")?;
        self.must(before.state == State::Ready, "state machine")?;
        self.must(before.next_eligible_at <= self.now, "next_eligible_at")?;
        self.must(!self.is_late(before), "deadlines")?;
        let State::Leased(lease) = &self.after.state else {
            return self.must(false, "state machine");
        };
        self.must(!self.tenant.leases.contains(&lease.id), "leases are new")?;
        let longest = self.now.plus_millis(self.model.policy.max_lease_ttl_ms);
        let bounded = lease.expires_at > self.now && lease.expires_at <= longest;
        let told = self.about.first().is_some_and(|receipt| {
            receipt.lease_id == Some(lease.id)
                && receipt.from == lease.worker
                && receipt.seq() == lease.id.seq()
        });
        let fresh = lease.renewals == 0 && lease.created_at == self.now;
        self.must(bounded && told && fresh, "leases")
    }

    fn check_renewed(&self, before: &Task) -> Checked {
        let (Some(old), Some(new)) = (before.lease(), self.after.lease()) else {
            return self.must(false, "state machine");
        };
        self.must(self.is_running(old), "lease expiry")?;
        self.must(!self.is_late(before), "deadlines")?;
        let same = new.id == old.id && new.worker == old.worker && new.created_at == old.created_at;
        let running = matches!(before.state, State::Running(_));
        let still = matches!(self.after.state, State::Running(_));
        self.must(same && running == still, "lease enforcement")?;
        let longest = self.now.plus_millis(self.model.policy.max_lease_ttl_ms);
        let longest = longest.max(old.expires_at);
        let bounded = new.expires_at >= old.expires_at && new.expires_at <= longest;
        let strange = new.renewals == self.model.policy.renewals_before_anomaly + 1;
        let told = strange != self.about.is_empty();
        self.must(
            bounded && told && new.renewals == old.renewals + 1,
            "renewals",
        )
    }

    fn check_retried(&self, before: &Task) -> Checked {
        self.check_held(before)?;
        let task = self.after;
        self.must(
            task.attempt < task.spec.max_attempts,
            "attempts are bounded",
        )?;
        let factor = 1_u64.checked_shl(task.attempt - 1).unwrap_or(u64::MAX);
        let usual = u64::from(task.spec.retry_backoff_seconds).saturating_mul(factor);
        let longest = u64::from(self.model.policy.max_retry_backoff_seconds);
        let body: Retried = serde_json::from_str(self.about[0].body.text()).unwrap_or_default();
        let seconds = body.retry_after_seconds.unwrap_or(usual.min(longest));
        let delay = i64::try_from(seconds * 1_000).unwrap_or(i64::MAX);
        let at = self.now.plus_millis(delay);
        self.must(task.next_eligible_at == at, "backoff")?;
        self.must_wait_until(at)
    }

    fn check_expired(&self, before: &Task) -> Checked {
        let Some(lease) = before.lease() else {
            return self.must(false, "state machine");
        };
        self.must(!self.is_running(lease), "lease expiry")?;
        let goes_on = !self.is_late(before) && !self.is_worn();
        self.must(goes_on, "the server gives up")?;
        let told = self.about.first().is_some_and(|receipt| {
            receipt.lease_id == Some(lease.id) && &*receipt.from.id == "asyncgate"
        });
        self.must(told, "receipts match moves")?;
        let at = self.after.next_eligible_at;
        let latest = self.now.plus_millis(self.model.policy.expiry_jitter_ms);
        self.must(at >= self.now && at <= latest, "expiry delay")?;
        self.must_wait_until(at)
    }

    fn check_worn(&self, before: &Task) -> Checked {
        let Some(lease) = before.lease() else {
            return self.must(false, "state machine");
        };
        self.must(!self.is_running(lease), "lease expiry")?;
        self.must(self.is_worn(), "the server gives up")?;
        let told = self.about[0].lease_id == Some(lease.id);
        self.must(told, "receipts match moves")?;
        self.check_given_up(before, self.about[1], "lease_expiries")
    }

    /// Checks an end that the server itself put to a task.
    fn check_given_up(&self, before: &Task, receipt: &Receipt, code: &str) -> Checked {
        let Some(end) = self.after.end() else {
            return self.must(false, "state machine");
        };
        let error = end.error.as_ref().map(|error| error.text());
        let named = error.is_some_and(|error| error.contains(&format!("\"code\":\"{code}\"")));
        let right = end.outcome == Outcome::Failed
            && end.by.is_none()
            && end.discharged
            && end.at == self.now
            && end.receipt == receipt.id
            && receipt.from.is(&Principal::system())
            && receipt.lease_id == before.lease().map(|lease| lease.id)
            && receipt.parents == [before.assignment];
        self.must(right && named, "the server gives up")
    }

    /// Returns true if the task should have ended by now.
    fn is_late(&self, task: &Task) -> bool {
        deadline(task).is_some_and(|deadline| deadline <= self.now)
    }

    /// Returns true if as many leases of the task ran out as it may lose.
    fn is_worn(&self) -> bool {
        let own = self.after.spec.contract.as_ref();
        let own = own.and_then(|contract| contract.max_lease_expiries);
        let most = own.unwrap_or(self.model.policy.max_lease_expiries);
        most != 0 && self.after.expiries >= most
    }

    fn check_ended(&self, before: &Task, outcome: Outcome) -> Checked {
        let Some(end) = self.after.end() else {
            return self.must(false, "state machine");
        };
        let receipt = self.about[0];
        let told = end.outcome == outcome && end.receipt == receipt.id && end.at == self.now;
        self.must(told, "receipts match moves")?;
        let discharged = !receipt.parents.is_empty();
        self.must(end.discharged == discharged, "discharged")?;
        if outcome == Outcome::Canceled {
            let lease = before.lease().map(|lease| lease.id);
            return self.must(receipt.lease_id == lease && end.by.is_none(), "cancel");
        }
        self.check_held(before)?;
        let by = end.by.as_ref().is_some_and(|(lease, worker)| {
            Some(*lease) == receipt.lease_id && *worker == receipt.from
        });
        self.must(by, "lease enforcement")?;
        let artifacts = end.artifacts.as_ref().and_then(|json| json.array_len());
        self.must(artifacts.unwrap_or(0) <= 100, "artifact count")
    }

    fn check_proved(&self, before: &Task) -> Checked {
        let (Some(old), Some(new)) = (before.end(), self.after.end()) else {
            return self.must(false, "state machine");
        };
        let kept = old.outcome == Outcome::Succeeded
            && (old.outcome, old.at, &old.by, &old.result, &old.error)
                == (new.outcome, new.at, &new.by, &new.result, &new.error);
        self.must(
            kept && !old.discharged && new.discharged,
            "terminal immutable",
        )?;
        let receipt = self.about[0];
        let by = old.by.as_ref().is_some_and(|(lease, worker)| {
            Some(*lease) == receipt.lease_id && worker.is(&receipt.from)
        });
        let discharges = receipt.parents == [before.assignment];
        self.must(by && discharges && new.receipt == receipt.id, "late proof")
    }

    /// Checks that the receipt is from the task's holder, under its current lease, in time.
    fn check_held(&self, before: &Task) -> Checked {
        let Some(lease) = before.lease() else {
            return self.must(false, "lease enforcement");
        };
        let receipt = self.about[0];
        let holder = receipt.lease_id == Some(lease.id) && receipt.from.is(&lease.worker);
        self.must(holder, "lease enforcement")?;
        self.must(!self.is_late(before), "deadlines")?;
        self.must(self.is_running(lease), "lease expiry")
    }

    fn is_running(&self, lease: &Lease) -> bool {
        self.now
            < lease
                .expires_at
                .plus_millis(self.model.policy.lease_grace_ms)
    }

    fn must_wait_until(&self, at: Timestamp) -> Checked {
        let placed = match self.after.placement() {
            Placement::Ready { .. } => at <= self.now,
            Placement::Due { at: due } => {
                let first = deadline(self.after).map_or(at, |deadline| deadline.min(at));
                due == first && at > self.now
            }
            Placement::Ended => false,
        };
        self.must(placed && self.after.lease().is_none(), "state machine")
    }

    fn must(&self, holds: bool, rule: &'static str) -> Checked {
        hold(holds, rule, || {
            format!("{:?} of task {} at {}", self.moved, self.after.id, self.now)
        })
    }
}
