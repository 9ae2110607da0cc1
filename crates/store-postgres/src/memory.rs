//! The owner's memory: what it decides from, and what the open batch will write.
//!
//! A decision reads nothing but memory, and changes nothing but memory. So a job that cannot be decided yet, or whose
//! decision fails, leaves no trace; and whatever goes wrong with a batch, memory is dropped whole and read again.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::PoisonError,
};

use asyncgate_core::{TenantId, Timestamp, identity::audit::Log};
use asyncgate_store::{
    Error, HotTasks, Transaction, Work, Written,
    fair::{Flow, Lane},
    flow,
    memory::{DispatchRows, MessageRows, RecordRows},
};
use foldhash::HashMap;

use crate::{
    admission::{self, Admitted, Change, Gate},
    ledgers::{Key, Ledgers},
    outgoing::Outgoing,
    payloads::HotPayloads,
    ready::Ready,
    recent::{Recent, Wanted},
    shards,
};

/// What the owner keeps in memory.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) ledgers: Ledgers,
    pub(crate) ready: Ready,
    pub(crate) hot: HotTasks<Key>,
    pub(crate) recent: Recent,
    /// All messages that are stored, without their payloads.
    pub(crate) mail: MessageRows,
    pub(crate) payloads: HotPayloads,
    pub(crate) records: RecordRows,
    /// The ends of audit logs.
    pub(crate) logs: HashMap<Option<TenantId>, Log>,
    pub(crate) dispatches: DispatchRows,
    pub(crate) gate: Gate,
    pub(crate) out: Outgoing,
    pub(crate) last_time: Timestamp,
    shards: i32,
}

/// The reason why a job is not decided.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It needs rows that are not in memory.
    Missing,
    /// It fails, and no other job with it.
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Transaction for Memory {
    type Error = Stop;

    fn last_time(&mut self) -> &mut Timestamp {
        &mut self.last_time
    }

    fn panicked(_: Box<dyn Any + Send>) -> Stop {
        // The panic has been reported where it happened. Only its own job may fail of it.
        Stop::Failed(Error::Corrupt("the decision panicked".to_owned()))
    }
}

/// The kinds of work for the owner. All of them share the commits.
pub(crate) enum Queued {
    /// A job of a plane.
    Work(Work),
    /// A change of admission's rows.
    Admission(Change),
    /// Tasks that admission is asked about.
    Admitted(Admitted),
    /// A look at rows that are kept in memory.
    Look(Look),
}

/// A look at rows that are kept in memory. What it sees is told once it is durable.
pub(crate) struct Look {
    /// Absent if the rows are no tenant's.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) run: Box<dyn FnMut(&mut Memory) + Send>,
}

/// The tenant whose turn is taken by what is done for no tenant.
pub(crate) const NOBODY: TenantId = TenantId::from_bytes([0; 16]);

impl std::fmt::Debug for Queued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Queued").field(&self.tenant()).finish()
    }
}

impl Queued {
    /// Returns the tenant that it counts for.
    pub(crate) fn tenant(&self) -> TenantId {
        match self {
            Self::Work(work) => work.tenant(),
            Self::Admission(change) => change.tenant.unwrap_or(NOBODY),
            Self::Admitted(admitted) => admitted.job.tenant,
            Self::Look(look) => look.tenant.unwrap_or(NOBODY),
        }
    }

    /// Returns its place in the queue: whose turn it takes, and how much of it.
    pub(crate) fn flow(&self) -> Flow {
        let (lane, rows) = match self {
            Self::Work(work) => return work.flow(),
            Self::Admission(change) => (Lane::Admission, change.rows),
            Self::Admitted(admitted) => (Lane::Tasks, admitted.asks.len()),
            Self::Look(_) => (Lane::Reads, 1),
        };
        flow(self.tenant(), lane, rows, self.weight())
    }

    const fn weight(&self) -> usize {
        match self {
            Self::Work(work) => work.weight(),
            Self::Admission(change) => change.weight,
            Self::Admitted(admitted) => admitted.job.weight,
            Self::Look(_) => 0,
        }
    }
}

impl Memory {
    /// Returns an empty memory of so many shards.
    pub(crate) fn new(shards: i32, max_hot_bytes: usize, max_cells: usize) -> Self {
        Self {
            ledgers: Ledgers::new(shards),
            ready: Ready::default(),
            hot: HotTasks::new(max_hot_bytes),
            recent: Recent::default(),
            mail: MessageRows::without_payloads(),
            payloads: HotPayloads::new(max_hot_bytes),
            records: RecordRows::default(),
            logs: HashMap::default(),
            dispatches: DispatchRows::default(),
            gate: Gate::new(max_cells),
            out: Outgoing::default(),
            last_time: Timestamp::default(),
            shards,
        }
    }

    /// Runs what has come to its turn. Returns what it wrote, if anything.
    pub(crate) fn run(&mut self, queued: &mut Queued) -> Result<Option<Written>, Stop> {
        // Whatever is answered was right only while this instance owned the shard.
        self.out
            .look(shards::shard_of(queued.tenant(), self.shards));
        match queued {
            Queued::Work(work) => work.run(self),
            Queued::Admission(change) => self.change(change),
            Queued::Admitted(admitted) => self.run_admitted(admitted),
            Queued::Look(look) => {
                if look.tenant.is_none() {
                    self.out.look(shards::SERVER);
                }
                (look.run)(self);
                Ok(None)
            }
        }
    }

    /// Adds to `wanted` what a job declares and memory does not have.
    pub(crate) fn want(&mut self, queued: &Queued, wanted: &mut Wanted) {
        match queued {
            Queued::Work(Work::Tasks(job)) => self.want_tasks(job, wanted),
            Queued::Admitted(admitted) => self.want_tasks(&admitted.job, wanted),
            Queued::Work(Work::Records(job)) => self.want_records(&job.reads, wanted),
            Queued::Work(Work::Messages(job)) => wanted.take(job.tenant, &job.reads),
            Queued::Work(Work::Dispatches(_)) | Queued::Admission(_) | Queued::Look(_) => {}
        }
    }

    /// Takes what the open batch will write, and begins the next batch.
    pub(crate) fn begin(&mut self) -> Outgoing {
        self.recent = Recent::default();
        std::mem::take(&mut self.out)
    }

    fn change(&mut self, change: &mut Change) -> Result<Option<Written>, Stop> {
        let now = self.decided_at(change.now);
        let ran = catch_unwind(AssertUnwindSafe(|| change.run(self, now)));
        let wrote = ran.map_err(Self::panicked)??;
        Ok(self.note(now, wrote).then_some(Written::Admission))
    }

    /// Asks admission, and lets the tasks be written if it allows that.
    fn run_admitted(&mut self, admitted: &mut Admitted) -> Result<Option<Written>, Stop> {
        let Admitted {
            asks,
            job,
            verdicts,
        } = admitted;
        let now = self.decided_at(job.now);
        let decision = self.gate.weigh(job.tenant, now, asks)?;
        let passed = decision.verdicts.passed();
        let told = Some(decision.verdicts.clone());
        *verdicts.lock().unwrap_or_else(PoisonError::into_inner) = told;
        let tasks = if passed { job.run(self)? } else { None };
        if passed && tasks.is_none() {
            // A job that wrote nothing uses no nonce and costs no token.
            return Ok(None);
        }
        let wrote = self.write_cells(job.tenant, now, &decision);
        let noted = self.note(now, wrote).then_some(Written::Admission);
        Ok(tasks.map(Written::Tasks).or(noted))
    }

    /// Notes that rows of admission were written at a time. Returns true if there were any.
    fn note(&mut self, now: Timestamp, wrote: admission::Wrote) -> bool {
        if wrote.0 > 0 {
            self.last_time = now;
        }
        wrote.0 > 0
    }
}
