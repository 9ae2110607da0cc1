//! Planes: the parts of the product that share one store and its commits.
//!
//! A plane says what a decision declares, what it is shown and what it may write. Everything else is the same
//! for every plane and stands once: the typed [`transact`](crate::transact), the [`Job`], and the job's way
//! through a backend ([`Rows`]).
//!
//! Admission shares the store too, but not this way: its questions are plain data that other hosts answer as well
//! (see [`admission`](crate::admission)), and its rule asks for rows one by one instead of declaring them.

use std::fmt::Debug;

use asyncgate_core::{Changes, TenantId, identity, mailbox, outbox};

use crate::{
    Job, Rows, Signals,
    fair::{Flow, Lane},
    identity::Records,
    mailbox::Messages,
    outbox::Dispatches,
    tasks::Tasks,
    transaction::Transaction,
};

/// A part of the product with rows, changes and refusals of its own.
pub trait Plane: Sized + Send + Sync + 'static {
    /// The rows that a decision declares.
    type Reads: Declared<Plane = Self>;
    /// The declared rows as they stand.
    type Snapshot: Send + 'static;
    /// The rows that a decision writes.
    type Changes: Send + 'static;
    /// A refusal by a rule.
    type Rejection: Send + 'static;

    /// Returns true if there is nothing to write.
    fn is_empty(changes: &Self::Changes) -> bool;

    /// Returns how many receipts the changes append to the tenant's ledger.
    fn receipts(changes: &Self::Changes) -> usize;

    /// Makes the job one of those that a store takes.
    fn work(job: Job<Self>) -> Work;
}

/// The read set of a plane. It names its plane, so that callers of [`transact`](crate::transact) need not.
pub trait Declared: Debug + Clone + Default + Send + 'static {
    /// The plane whose rows are declared.
    type Plane: Plane<Reads = Self>;

    /// Returns the lane in which a job with these reads waits for its turn.
    fn lane(&self) -> Lane;

    /// Returns how many rows are read or written at most.
    fn rows(&self) -> usize;
}

/// A job of any plane: all planes share the commits.
#[derive(Debug)]
pub enum Work {
    /// A job over tasks and receipts.
    Tasks(Job<Tasks>),
    /// A job over messages.
    Messages(Job<Messages>),
    /// A job over records of identity and audit logs.
    Records(Job<Records>),
    /// A job over the outbox.
    Dispatches(Job<Dispatches>),
}

impl<P: Plane> From<Job<P>> for Work {
    fn from(job: Job<P>) -> Self {
        P::work(job)
    }
}

impl Work {
    /// Returns the tenant whose rows the job may touch.
    pub const fn tenant(&self) -> TenantId {
        match self {
            Self::Tasks(job) => job.tenant,
            Self::Messages(job) => job.tenant,
            Self::Records(job) => job.tenant,
            Self::Dispatches(job) => job.tenant,
        }
    }

    /// Returns roughly how much memory the job holds while it waits.
    pub const fn weight(&self) -> usize {
        match self {
            Self::Tasks(job) => job.weight,
            Self::Messages(job) => job.weight,
            Self::Records(job) => job.weight,
            Self::Dispatches(job) => job.weight,
        }
    }

    /// Returns the job's place in a fair queue.
    pub fn flow(&self) -> Flow {
        match self {
            Self::Tasks(job) => job.flow(),
            Self::Messages(job) => job.flow(),
            Self::Records(job) => job.flow(),
            Self::Dispatches(job) => job.flow(),
        }
    }

    /// Runs the job in the open transaction of a backend. Returns what it wrote, if anything.
    pub fn run<B>(&mut self, rows: &mut B) -> Result<Option<Written>, <B as Transaction>::Error>
    where
        B: Rows<Tasks> + Rows<Messages> + Rows<Records> + Rows<Dispatches>,
    {
        match self {
            Self::Tasks(job) => Ok(job.run(rows)?.map(Written::Tasks)),
            Self::Messages(job) => Ok(job.run(rows)?.map(Written::Messages)),
            Self::Records(job) => Ok(job.run(rows)?.map(Written::Records)),
            Self::Dispatches(job) => Ok(job.run(rows)?.map(Written::Dispatches)),
        }
    }
}

/// The changes that a job wrote. They are kept until the commit is durable and waiters can be woken.
#[derive(Debug)]
pub enum Written {
    /// Tasks and receipts.
    Tasks(Changes),
    /// Messages.
    Messages(mailbox::Changes),
    /// Records and audit entries, for which nobody waits.
    Records(identity::Changes),
    /// What is on its way to other systems.
    Dispatches(outbox::Changes),
    /// Rows of admission, for which nobody waits.
    Admission,
}

impl Written {
    /// Returns roughly how many bytes were written.
    pub fn weight(&self) -> usize {
        match self {
            Self::Tasks(changes) => {
                let tasks = changes.tasks.iter();
                tasks.map(|write| write.task.weight()).sum()
            }
            Self::Messages(changes) => {
                let messages = changes.messages.iter();
                messages.map(|write| write.message.weight()).sum()
            }
            Self::Dispatches(changes) => {
                let new = changes.new.iter();
                new.map(|sent| sent.body.len()).sum()
            }
            // They are small, and few.
            Self::Records(_) | Self::Admission => 0,
        }
    }

    /// Wakes those who wait for what was written. Call it after the commit, never before: a waiter that is
    /// woken too early looks, finds nothing and sleeps on.
    pub fn publish(&self, signals: &Signals, tenant: TenantId) {
        match self {
            Self::Tasks(changes) => signals.publish(tenant, changes),
            Self::Messages(changes) => signals.publish_messages(tenant, changes),
            Self::Records(changes) if changes.outbox.is_empty() => {}
            Self::Dispatches(changes) if changes.new.is_empty() => {}
            Self::Records(_) | Self::Dispatches(_) => signals.publish_dispatch(),
            Self::Admission => {}
        }
    }
}

/// Returns the place in a fair queue of work that touches so many rows and holds so many bytes.
pub fn flow(tenant: TenantId, lane: Lane, rows: usize, weight: usize) -> Flow {
    // A row costs about as much as a kilobyte.
    let cost = rows.max(1).saturating_add(weight / 1_024);
    Flow {
        tenant,
        lane,
        cost: u32::try_from(cost).unwrap_or(u32::MAX),
        bytes: weight,
    }
}
