//! The state that should be stored, learnt commit by commit, and the rules that every commit must keep.
//!
//! The model never asks the store. It starts empty, checks each commit against the history so far
//! (`ledger`, `moves`), predicts the answers to calls (`oracle`), compares answers with what was committed
//! (`answers`, `lists`) and is compared with the store from time to time (`audit`).

mod answers;
mod audit;
mod credentials;
mod ledger;
mod lists;
mod mail;
mod moves;
mod oracle;
mod quotas;
mod times;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use asyncgate_core::{
    Changes, LeaseId, ObligationKey, Placement, Policy, Principal, PrincipalKey, PrincipalKind,
    Reach, Receipt, ReceiptId, ReceiptType, Relationship, Seq, Task, TaskId, Timestamp,
    identity::{self, Quota, QuotaName, Quotas, Record},
    task::{Deadline, State},
};

use crate::{
    cast::{TENANTS, number_of, tenant_number},
    deed::Place,
    hash::{Map, Set},
    store::{Commit, Origin, Wrote},
    violation::{Checked, hold},
};

pub use answers::{Answered, Gains};
pub use audit::Journal;
pub use credentials::{Credentials, Reception};
pub use lists::{DEFAULT_LIMIT, MAX_LIMIT};
pub use mail::{AnsweredMail, Mail, Notes};
pub use oracle::{Question, Verdict};
pub use quotas::Eras;

/// Everything that was committed, for all tenants.
#[derive(Debug)]
pub struct Model {
    policy: Policy,
    quotas: [Eras; TENANTS],
    tenants: [Tenant; TENANTS],
    due: BTreeSet<(Timestamp, usize, TaskId)>,
    last_time: Timestamp,
    /// The messages.
    pub mail: Mail,
    /// The tenants and credentials.
    pub credentials: Credentials,
}

/// One tenant's history.
#[derive(Debug, Default)]
struct Tenant {
    ledger: Vec<Receipt>,
    /// The number of receipts that were compared with the store.
    audited: usize,
    tasks: BTreeMap<Seq, Story>,
    changed: BTreeSet<Seq>,
    ready: BTreeSet<(Reverse<i32>, Seq)>,
    leases: Set<LeaseId>,
    delivered: Map<Seq, Timestamp>,
    /// The principals in the order of their first appearance. They are so few that a linear search is the
    /// fastest way to find one.
    parties: Vec<Party>,
}

/// The part of the history that concerns one principal.
#[derive(Debug)]
struct Party {
    who: PrincipalKey,
    inbox: Vec<Seq>,
    open: BTreeSet<Seq>,
    keys: Map<String, TaskId>,
    known: Option<Relationship>,
}

impl Party {
    fn is(&self, kind: PrincipalKind, id: &str) -> bool {
        self.who.kind == kind && &*self.who.id == id
    }
}

/// A task with its history.
#[derive(Debug)]
struct Story {
    task: Task,
    receipts: Vec<Seq>,
    counts: [u32; ReceiptType::ALL.len()],
    /// True if it ended while a worker held it, by somebody else.
    cut_off: bool,
}

impl Story {
    fn count(&self, receipt_type: ReceiptType) -> u32 {
        self.counts[receipt_type as usize]
    }
}

impl Model {
    /// Creates the model of an empty store under a policy, with tenants that have these quotas.
    pub fn new(policy: Policy, quotas: Quotas) -> Self {
        Self {
            mail: Mail::new(policy.mailbox.clone()),
            policy,
            quotas: std::array::from_fn(|_| Eras::new(quotas)),
            tenants: Default::default(),
            due: BTreeSet::new(),
            last_time: Timestamp::default(),
            credentials: Credentials::default(),
        }
    }

    /// Checks a commit against everything before it, and learns it. Writes of messages are also compared
    /// with the `call` behind them, and recorded in its `notes`. Those of tasks count with quotas from `oldest` on.
    pub fn learn(
        &mut self,
        commit: Commit,
        oldest: usize,
        call: Option<&Question<'_>>,
        notes: Option<&mut Notes>,
    ) -> Checked {
        // The simulated store decides some transactions twice, because a real store may have to.
        hold(commit.repeatable, "repeatable decisions", || {
            format!("two calls on the same rows differ: {:?}", commit.wrote)
        })?;
        let writes = match &commit.wrote {
            Wrote::Tasks { changes, .. } => changes.as_ref().is_some_and(|c| !c.is_empty()),
            Wrote::Mail(wrote) => wrote.changes.as_ref().is_some_and(|c| !c.is_empty()),
            Wrote::Records(changes) => changes.as_ref().is_some_and(|c| !c.is_empty()),
        };
        if writes {
            hold(commit.now >= self.last_time, "time", || {
                format!("a commit at {} after one at {}", commit.now, self.last_time)
            })?;
            self.last_time = commit.now;
        }
        match commit.wrote {
            Wrote::Records(changes) => {
                let place = match commit.origin {
                    Origin::Operator(place) => place,
                    Origin::Call(..) | Origin::Server => Place::Elsewhere,
                };
                let changes = changes.unwrap_or_default();
                self.learn_records(&changes, place, commit.now);
                Ok(())
            }
            Wrote::Mail(ref wrote) => self.mail.learn(call, &commit, wrote, notes),
            Wrote::Tasks { claim, changes } => {
                let number = tenant_number(commit.tenant);
                self.check_claim(number, commit.now, oldest, claim.as_ref(), changes.as_ref())?;
                let Some(changes) = changes.filter(|_| writes) else {
                    return Ok(());
                };
                self.check_receipts(number, commit.now, &changes)?;
                self.check_moves(number, commit.now, &changes)?;
                self.write(number, changes);
                Ok(())
            }
        }
    }

    /// Learns tenants and credentials.
    pub fn learn_records(&mut self, changes: &identity::Changes, place: Place, now: Timestamp) {
        self.credentials.learn(changes, place, now);
        for record in &changes.put {
            if let Record::Tenant(tenant) = record
                && let Some(number) = number_of(tenant.id)
            {
                self.quotas[number].put(tenant.own_quotas, place, now);
            }
        }
    }

    /// Restarts the process: it goes by nothing that it has not read since.
    pub fn restart(&mut self) {
        self.mail.restart();
        self.credentials.restart();
        self.quotas.iter_mut().for_each(Eras::restart);
    }

    /// Returns the quotas of a tenant.
    pub const fn quotas(&self, number: usize) -> &Eras {
        &self.quotas[number]
    }

    /// Checks that a claim takes the best tasks that the worker can serve, as many as its limit and the tenant's quota
    /// allow.
    fn check_claim(
        &self,
        number: usize,
        now: Timestamp,
        oldest: usize,
        claim: Option<&(Reach, usize)>,
        changes: Option<&Changes>,
    ) -> Checked {
        let Some((reach, limit)) = claim else {
            return Ok(());
        };
        let claimed = changes.iter().flat_map(|changes| &changes.tasks);
        let claimed: Vec<Seq> = claimed.map(|write| write.task.id.seq()).collect();
        // Exactly these: a claim that skips a better task, or leaves one behind, breaks the order.
        let quotas = self.quotas[number].since(oldest);
        let best = |quotas: &Quotas| self.best(number, now, quotas, reach, *limit);
        let is_best = quotas.iter().any(|quotas| claimed == best(quotas));
        hold(is_best, "claim order", || {
            let best: Vec<_> = quotas.iter().map(best).collect();
            format!("claimed {claimed:?}, should be {best:?}")
        })
    }

    /// Returns the tasks that a claim changes: those that are too late end, and others are leased until no more leases may
    /// be held.
    fn best(
        &self,
        number: usize,
        now: Timestamp,
        quotas: &Quotas,
        reach: &Reach,
        limit: usize,
    ) -> Vec<Seq> {
        let tenant = &self.tenants[number];
        let is_late = |seq: &Seq| {
            let story = tenant.tasks.get(seq);
            let deadline = story.and_then(|story| deadline(&story.task));
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let mut room = self.room(number, quotas);
        let offered = self.servable(number, reach).take(limit);
        let taken = offered.map_while(|seq| match is_late(&seq) {
            true => Some(seq),
            false => {
                room = room.checked_sub(1)?;
                Some(seq)
            }
        });
        taken.collect()
    }

    /// Returns the number of leases that a tenant may have besides those that it holds.
    fn room(&self, number: usize, quotas: &Quotas) -> u64 {
        let Quota::AtMost(most) = quotas.get(QuotaName::ConcurrentLeases) else {
            return u64::MAX;
        };
        let held = self.tenants[number].tasks.values();
        let held = held.filter(|story| story.task.lease().is_some()).count();
        most.saturating_sub(held as u64)
    }

    /// Returns the ready tasks that a worker can serve: by priority, then age.
    fn servable<'a>(&'a self, number: usize, reach: &'a Reach) -> impl Iterator<Item = Seq> + 'a {
        let tenant = &self.tenants[number];
        tenant.ready.iter().map(|(_, seq)| *seq).filter(move |seq| {
            tenant.tasks.get(seq).is_some_and(|story| {
                let spec = &story.task.spec;
                let types = reach.accept_types.as_ref();
                types.is_none_or(|types| types.contains(&spec.task_type))
                    && spec
                        .requirements
                        .capabilities
                        .iter()
                        .all(|needed| reach.capabilities.contains(needed))
            })
        })
    }

    fn write(&mut self, number: usize, changes: Changes) {
        let tenant = &mut self.tenants[number];
        for write in changes.tasks {
            let seq = write.task.id.seq();
            let before = tenant.tasks.get(&seq).map(|story| story.task.placement());
            tenant.place(&mut self.due, number, seq, before, &write.task);
            tenant.changed.insert(seq);
            match tenant.tasks.get_mut(&seq) {
                Some(story) => {
                    let by_nobody = write.task.end().is_some_and(|end| end.by.is_none());
                    // A lease that ran out has a receipt of its own.
                    let ran_out = write.task.expiries > story.task.expiries;
                    story.cut_off |= by_nobody && !ran_out && story.task.lease().is_some();
                    story.task = write.task;
                }
                None => tenant.begin(write.task),
            }
        }
        for receipt in changes.receipts {
            tenant.append(receipt);
        }
        for opened in &changes.opened {
            let owner = tenant.party_mut(opened.owner.kind, &opened.owner.id);
            owner.open.insert(opened.seq);
        }
        for closed in &changes.closed {
            let owner = tenant.party_mut(closed.owner.kind, &closed.owner.id);
            owner.open.remove(&closed.seq);
        }
        if let Some(delivery) = changes.delivered {
            for seq in delivery.seqs {
                // Only the first delivery counts.
                tenant.delivered.entry(seq).or_insert(delivery.at);
            }
        }
        if let Some(known) = changes.relationship {
            let party = tenant.party_mut(known.principal.kind, &known.principal.id);
            party.known = Some(known);
        }
    }

    /// Returns the task with this id, if the tenant has it.
    fn task(&self, number: usize, id: &str) -> Option<&Story> {
        let id: TaskId = id.parse().ok()?;
        let story = self.tenants[number].tasks.get(&id.seq())?;
        (story.task.id == id).then_some(story)
    }

    /// Returns the receipt with this id, if the tenant has it.
    fn receipt(&self, number: usize, id: &str) -> Option<&Receipt> {
        let id: ReceiptId = id.parse().ok()?;
        self.tenants[number].receipt(id)
    }
}

/// Returns the time by which a task must have ended. The model computes it by itself.
fn deadline(task: &Task) -> Option<Timestamp> {
    match task.spec.contract.as_ref()?.deadline? {
        Deadline::After { seconds } => Some(task.created_at.plus_millis(seconds * 1_000)),
        Deadline::At(at) => Some(at),
    }
}

impl Tenant {
    fn receipt(&self, id: ReceiptId) -> Option<&Receipt> {
        let index = usize::try_from(id.seq().checked_sub(1)?).ok()?;
        self.ledger.get(index).filter(|receipt| receipt.id == id)
    }

    fn party(&self, kind: PrincipalKind, id: &str) -> Option<&Party> {
        self.parties.iter().find(|party| party.is(kind, id))
    }

    fn party_mut(&mut self, kind: PrincipalKind, id: &str) -> &mut Party {
        let n = self.parties.iter().position(|party| party.is(kind, id));
        let n = n.unwrap_or_else(|| {
            self.parties.push(Party {
                who: PrincipalKey {
                    kind,
                    id: id.into(),
                },
                inbox: Vec::new(),
                open: BTreeSet::new(),
                keys: Map::default(),
                known: None,
            });
            self.parties.len() - 1
        });
        &mut self.parties[n]
    }

    /// Returns the places of everything that was addressed to a principal.
    fn inbox(&self, who: &Principal) -> &[Seq] {
        let party = self.party(who.kind, &who.id);
        party.map_or(&[], |party| party.inbox.as_slice())
    }

    fn is_open(&self, key: &ObligationKey) -> bool {
        let owner = self.party(key.owner.kind, &key.owner.id);
        owner.is_some_and(|owner| owner.open.contains(&key.seq))
    }

    fn open_count(&self) -> usize {
        self.parties.iter().map(|party| party.open.len()).sum()
    }

    fn begin(&mut self, task: Task) {
        if let Some(key) = &task.spec.idempotency_key {
            let owner = self.party_mut(task.created_by.kind, &task.created_by.id);
            owner.keys.insert(key.clone(), task.id);
        }
        let story = Story {
            task,
            receipts: Vec::new(),
            counts: Default::default(),
            cut_off: false,
        };
        self.tasks.insert(story.task.id.seq(), story);
    }

    fn place(
        &mut self,
        due: &mut BTreeSet<(Timestamp, usize, TaskId)>,
        number: usize,
        seq: Seq,
        before: Option<Placement>,
        task: &Task,
    ) {
        let priority = Reverse(task.spec.priority);
        match before {
            Some(Placement::Ready { .. }) => drop(self.ready.remove(&(priority, seq))),
            Some(Placement::Due { .. } | Placement::Ended) | None => {}
        }
        if let Some(at) = before.and_then(Placement::due) {
            due.remove(&(at, number, task.id));
        }
        let look = match &task.state {
            State::Ready => {
                self.ready.insert((priority, seq));
                None
            }
            State::Delayed => Some(task.next_eligible_at),
            State::Leased(lease) | State::Running(lease) => Some(lease.expires_at),
            State::Ended(_) => return,
        };
        if let Some(at) = look.into_iter().chain(deadline(task)).min() {
            due.insert((at, number, task.id));
        }
    }

    fn append(&mut self, receipt: Receipt) {
        let seq = receipt.seq();
        let addressee = self.party_mut(receipt.to.kind, &receipt.to.id);
        addressee.inbox.push(seq);
        if let Some(story) = receipt
            .task_id
            .and_then(|task| self.tasks.get_mut(&task.seq()))
        {
            story.receipts.push(seq);
            story.counts[receipt.receipt_type as usize] += 1;
        }
        if receipt.receipt_type == ReceiptType::TaskAccepted {
            self.leases.extend(receipt.lease_id);
        }
        self.ledger.push(receipt);
    }
}
