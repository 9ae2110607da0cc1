//! Comparing the whole history with the store, and checking the laws of conservation.

use asyncgate_core::{
    Link, MessageId, Principal, Receipt, ReceiptType, Seq, TaskId, Timestamp, Usage, mailbox::Kind,
    obligation, task::Status,
};
use asyncgate_store::{Depths, ReceiptFilter, SeqPage, Store};

use super::{Mail, Model, Party, Story, Tenant};
use crate::{
    cast::{TENANTS, tenant_id},
    store::at_once,
    violation::{Checked, broken, hold},
};

const EVERYTHING: SeqPage = SeqPage {
    after: 0,
    limit: usize::MAX,
};

/// The number of receipts that are compared at once.
const PAGE: usize = 64;

/// The promises made to clients. They must hold in the store for ever, independent of the model.
#[derive(Debug, Default)]
pub struct Journal {
    tasks: Vec<(usize, TaskId)>,
    receipts: Vec<(usize, Seq)>,
    ends: Vec<(usize, TaskId, Status)>,
    sent: Vec<(usize, MessageId)>,
    acked: Vec<(usize, MessageId)>,
}

impl Journal {
    pub(super) fn task(&mut self, number: usize, id: TaskId) {
        self.tasks.push((number, id));
    }

    pub(super) fn receipt_at(&mut self, number: usize, seq: Seq) {
        self.receipts.push((number, seq));
    }

    pub(super) fn ended(&mut self, number: usize, id: TaskId, status: Status) {
        self.ends.push((number, id, status));
    }

    pub(super) fn sent(&mut self, number: usize, id: MessageId) {
        self.sent.push((number, id));
    }

    pub(super) fn acked(&mut self, number: usize, id: MessageId) {
        self.acked.push((number, id));
    }

    /// Looks for every promise in the store. A message that was sent may have been ended since; an
    /// acknowledged message must never appear again.
    pub fn check(&self, store: &dyn Store, mail: &Mail) -> Checked {
        let stored = |number: usize, id| {
            let stored = store.mailbox().message(tenant_id(number), id);
            at_once(stored).ok().flatten()
        };
        for (number, id) in &self.sent {
            let kept = mail.keeps(*number, *id, stored(*number, *id).as_ref());
            hold(kept, "nothing acknowledged is lost", || {
                format!("message {id} of tenant {number}")
            })?;
        }
        for (number, id) in &self.acked {
            let kind = stored(*number, *id).map(|message| message.standing().kind);
            hold(
                kind.is_none_or(|kind| kind == Kind::Gone),
                "acknowledged is final",
                || format!("message {id} of tenant {number} is {kind:?}"),
            )?;
        }
        let heads: [Seq; TENANTS] = std::array::from_fn(|number| {
            at_once(store.head(tenant_id(number))).map_or(0, |head| head.seq)
        });
        for (number, seq) in &self.receipts {
            hold(
                *seq <= heads[*number],
                "nothing acknowledged is lost",
                || format!("receipt {seq} of tenant {number}"),
            )?;
        }
        let ends = self
            .ends
            .iter()
            .map(|(n, id, status)| (n, id, Some(*status)));
        let tasks = self.tasks.iter().map(|(n, id)| (n, id, None));
        for (number, id, status) in tasks.chain(ends) {
            let stored = at_once(store.task(tenant_id(*number), *id)).ok().flatten();
            let stands = stored.is_some_and(|task| status.is_none_or(|s| s == task.status()));
            hold(stands, "nothing acknowledged is lost", || {
                format!("task {id} of tenant {number}, {status:?}")
            })?;
        }
        Ok(())
    }
}

impl Model {
    /// Compares everything that changed since the last audit with the store; a `whole` audit compares
    /// everything.
    pub fn audit(&mut self, store: &dyn Store, whole: bool) -> Checked {
        let mut depths = Depths::default();
        for number in 0..TENANTS {
            if whole {
                self.tenants[number].forget_audit();
            }
            self.tenants[number].audit_ledger(number, store, whole)?;
            self.tenants[number].audit_obligations(number, store, whole)?;
            self.tenants[number].audit_tasks(number, store)?;
            if whole {
                self.tenants[number].audit_usage(number, store, self.last_time)?;
            }
            for story in self.tenants[number].tasks.values() {
                depths.count(None, story.task.status());
            }
        }
        let stored = at_once(store.depths()).unwrap_or_default();
        hold(stored == depths, "depths", || {
            format!("{stored:?}, should be {depths:?}")
        })?;
        self.audit_deadlines(store)
    }

    fn audit_deadlines(&self, store: &dyn Store) -> Checked {
        let end = Timestamp::from_millis(i64::MAX);
        let stored = at_once(store.due(end, usize::MAX)).unwrap_or_default();
        let known = self
            .due
            .iter()
            .map(|(_, number, id)| (tenant_id(*number), *id));
        hold(stored.iter().copied().eq(known), "deadlines", || {
            format!("{} stored, {} known", stored.len(), self.due.len())
        })?;
        hold(store.last_time() == self.last_time, "time", || {
            format!("last {}, should be {}", store.last_time(), self.last_time)
        })
    }

    /// Checks that nothing is overdue at `now`. Leases are due when their grace is over; meanwhile the watch
    /// looks every `round_ms`.
    pub fn check_deadlines_met(&self, now: Timestamp, round_ms: i64) -> Checked {
        let (lease_ms, delay_ms) = match self.policy.lease_grace_ms {
            0 => (0, 0),
            grace => (grace + round_ms, round_ms),
        };
        for (at, number, id) in self.due.iter().take_while(|(at, ..)| *at <= now) {
            let story = self.tenants[*number].tasks.get(&id.seq());
            let leased = story.is_some_and(|story| story.task.lease().is_some());
            let last = at.plus_millis(if leased { lease_ms } else { delay_ms });
            hold(last > now, "deadlines are met", || {
                format!("task {id} of tenant {number} was due at {at}, it is {now}")
            })?;
        }
        Ok(())
    }

    /// Returns the earliest deadline.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, ..)| *at)
    }

    /// Returns true if a task has ended.
    pub fn has_ended(&self, number: usize, id: &str) -> bool {
        self.task(number, id)
            .is_some_and(|story| story.task.end().is_some())
    }

    /// Returns true if there is a ready task that a worker would be given whose call counts with quotas from `oldest`
    /// on. A worker that waits while they change is not told of that.
    pub fn has_work(&self, number: usize, oldest: usize, reach: &asyncgate_core::Reach) -> bool {
        let [quotas] = self.quotas[number].since(oldest) else {
            return false;
        };
        self.room(number, quotas) > 0 && self.servable(number, reach).next().is_some()
    }
}

impl Story {
    /// Checks the sums of a task's history, for example: leases given are leases ended or held, and
    /// attempts are reported failures.
    fn check_conservation(&self) -> Checked {
        use ReceiptType as R;
        let task = &self.task;
        let ended = u32::from(task.end().is_some());
        let by_worker = u32::from(task.end().is_some_and(|end| end.by.is_some()));
        let leased = u32::from(task.lease().is_some());
        let given = self.count(R::TaskAccepted);
        let back = self.count(R::LeaseExpired)
            + self.count(R::LeaseReleased)
            + self.count(R::TaskRetryScheduled)
            + by_worker
            + u32::from(self.cut_off);
        // A task that the server gave up has failed without another attempt.
        let given_up = task.status() == Status::Failed && by_worker == 0;
        let failures =
            self.count(R::TaskRetryScheduled) + self.count(R::TaskFailed) - u32::from(given_up);
        let late = u32::from(self.count(R::TaskCompleted) == 2);
        let outcomes =
            self.count(R::TaskCompleted) + self.count(R::TaskFailed) + self.count(R::TaskCanceled);
        let laws = [
            (self.count(R::TaskAssigned) == 1, "one assignment"),
            (given == back + leased, "leases are conserved"),
            (
                failures == task.attempt,
                "attempts only by reported failures",
            ),
            (self.count(R::LeaseExpired) == task.expiries, "expiries"),
            (self.count(R::TaskResultReady) == ended, "one result"),
            (outcomes == ended + late, "one outcome"),
        ];
        for (holds, rule) in laws {
            hold(holds, rule, || {
                format!("task {}: {:?}", task.id, self.counts)
            })?;
        }
        Ok(())
    }
}

impl Tenant {
    fn forget_audit(&mut self) {
        self.audited = 0;
        self.changed = self.tasks.keys().copied().collect();
    }

    /// Compares new receipts; a `whole` audit compares all, and recomputes the chain.
    fn audit_ledger(&mut self, number: usize, store: &dyn Store, whole: bool) -> Checked {
        let mut link = Link::START;
        // Page by page, so that the compared receipts are still in the processor's cache.
        loop {
            let page = SeqPage {
                after: self.audited as Seq,
                limit: PAGE,
            };
            let stored = at_once(store.receipts(tenant_id(number), ReceiptFilter::All, page));
            let stored = stored.unwrap_or_default();
            let known = &self.ledger[self.audited..];
            let known = &known[..known.len().min(PAGE)];
            hold(stored.len() == known.len(), "ledger", || {
                let count = stored.len();
                format!(
                    "{count} receipts after {}, should be {}",
                    page.after,
                    known.len()
                )
            })?;
            for (stored, known) in stored.iter().zip(known) {
                let told = || format!("receipt {} of tenant {number}", known.seq());
                hold(stored.receipt == *known, "receipts immutable", told)?;
                if whole {
                    link = link.then(tenant_id(number), known);
                    hold(stored.link == link, "hash chain", told)?;
                }
                let delivered = self.delivered.get(&known.seq()).copied();
                hold(stored.delivered_at == delivered, "first delivery", told)?;
            }
            self.audited += known.len();
            if known.len() < PAGE {
                break;
            }
        }
        let head = at_once(store.head(tenant_id(number))).unwrap_or_default();
        let ends = head.seq == self.ledger.len() as Seq
            && (!whole || head.link == link)
            && head.open_obligations == self.open_count() as u64;
        hold(ends, "ledger head", || {
            format!("{head:?} of tenant {number}")
        })
    }

    /// Checks that the index and the model agree on what is open; a `whole` audit asks the ledger, too.
    /// Checks what the store counted as it happened against what the ledger tells of it.
    fn audit_usage(&self, number: usize, store: &dyn Store, now: Timestamp) -> Checked {
        const ENDS: [ReceiptType; 6] = [
            ReceiptType::LeaseExpired,
            ReceiptType::LeaseReleased,
            ReceiptType::TaskRetryScheduled,
            ReceiptType::TaskCompleted,
            ReceiptType::TaskFailed,
            ReceiptType::TaskCanceled,
        ];
        let (mut held, mut held_ms, mut active) = (0, 0, 0);
        for story in self.tasks.values() {
            let mut since = None;
            for seq in &story.receipts {
                let receipt = &self.ledger[*seq as usize - 1];
                if receipt.receipt_type == ReceiptType::TaskAccepted {
                    since = Some(receipt.created_at);
                } else if ENDS.contains(&receipt.receipt_type)
                    && let Some(begun) = since.take()
                {
                    held_ms += receipt.created_at.millis_since(begun);
                }
            }
            if let Some(begun) = since {
                held += 1;
                held_ms += now.millis_since(begun);
            }
            active += u64::from(!story.task.status().is_terminal());
        }
        let told = Usage {
            active_tasks: active,
            concurrent_leases: held,
            receipt_storage_bytes: self.ledger.iter().map(Receipt::stored_bytes).sum(),
            tasks_created: self.tasks.len() as u64,
            lease_seconds: held_ms.unsigned_abs() / 1_000,
        };
        let stored = at_once(store.usage(tenant_id(number), now)).unwrap_or_default();
        hold(stored == told, "usage", || {
            format!("{stored:?}, should be {told:?}")
        })
    }

    fn audit_obligations(&self, number: usize, store: &dyn Store, whole: bool) -> Checked {
        if whole {
            let open = obligation::open(&self.ledger);
            let all_known = open.iter().all(|key| self.is_open(key));
            let known = self.open_count();
            hold(all_known && open.len() == known, "obligations", || {
                format!("{known} known, {} by the ledger", open.len())
            })?;
        }
        for Party { who, open, .. } in &self.parties {
            let stored = at_once(store.obligations(tenant_id(number), who.clone(), EVERYTHING));
            let seqs = stored.unwrap_or_default();
            let seqs: Vec<Seq> = seqs.iter().map(|found| found.receipt.seq()).collect();
            hold(open.iter().eq(&seqs), "obligations", || {
                format!("of {who} in tenant {number}: {seqs:?}")
            })?;
        }
        Ok(())
    }

    fn audit_tasks(&mut self, number: usize, store: &dyn Store) -> Checked {
        let system = Principal::system();
        let tenant = tenant_id(number);
        for (n, seq) in std::mem::take(&mut self.changed).into_iter().enumerate() {
            let Some(story) = self.tasks.get(&seq) else {
                return broken("tasks", format!("{seq} is unknown"));
            };
            story.check_conservation()?;
            let id = story.task.id;
            let stored = at_once(store.task(tenant, id)).ok().flatten();
            hold(stored.as_ref() == Some(&story.task), "tasks", || {
                format!("{id} is stored as {:?}", stored.map(|task| task.standing()))
            })?;
            // The indexes of the ledger are slow to compare, so samples must do.
            if n % 16 == 0 {
                let filter = ReceiptFilter::Task(id);
                let listed = at_once(store.receipts(tenant, filter, EVERYTHING));
                let listed = listed.unwrap_or_default();
                let seqs = listed.iter().map(|found| found.receipt.seq());
                hold(
                    seqs.eq(story.receipts.iter().copied()),
                    "ledger index",
                    || format!("receipts of {id}"),
                )?;
            }
        }
        let page = SeqPage {
            after: (self.ledger.len() as Seq).saturating_sub(64),
            limit: usize::MAX,
        };
        let inbox = at_once(store.receipts(tenant, ReceiptFilter::To(system.key()), page));
        let seqs = inbox.unwrap_or_default();
        let seqs: Vec<Seq> = seqs.iter().map(|found| found.receipt.seq()).collect();
        let known = self.inbox(&system);
        let start = known.partition_point(|seq| *seq <= page.after);
        hold(seqs == known[start..], "ledger index", || {
            format!("inbox of the server: {seqs:?}")
        })
    }
}
