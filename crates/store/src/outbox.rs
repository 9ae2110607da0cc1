//! The plane of the outbox: the rows that its decisions declare and are shown, and its reads.
//!
//! Dispatches are written by decisions of other planes too, in their own commits.

use std::convert::Infallible;

use asyncgate_core::{
    Timestamp,
    outbox::{Changes, Dispatch},
};

use crate::{Answer, Declared, Job, MAX_ANSWER_BYTES, Plane, Work, fair::Lane};

/// What is on its way to other systems.
#[derive(Debug)]
pub enum Dispatches {}

impl Plane for Dispatches {
    type Reads = Reads;
    type Snapshot = Snapshot;
    type Changes = Changes;
    type Rejection = Infallible;

    fn is_empty(changes: &Changes) -> bool {
        changes.is_empty()
    }

    fn receipts(_: &Changes) -> usize {
        0
    }

    fn work(job: Job<Self>) -> Work {
        Work::Dispatches(job)
    }
}

/// The rows that a decision needs. What is not declared is not loaded.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Dispatches that can be tried now, and how many at most. Their bodies fit into one answer.
    pub due: usize,
    /// Dispatches by number. Those that do not exist are missing from the snapshot.
    pub dispatches: Vec<u64>,
}

impl Declared for Reads {
    type Plane = Dispatches;

    fn lane(&self) -> Lane {
        Lane::Dispatches
    }

    fn rows(&self) -> usize {
        self.due + self.dispatches.len()
    }
}

/// The rows that were declared, as they stand.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The dispatches that can be tried, the one that is due the longest first.
    pub due: Vec<Dispatch>,
    /// The declared dispatches that exist, in the order declared.
    pub dispatches: Vec<Dispatch>,
}

/// Returns true while dispatches fit into one answer. `taken` counts their bytes; it starts at 0.
pub fn fits(taken: &mut usize, dispatch: &Dispatch) -> bool {
    let first = *taken == 0;
    *taken = taken.saturating_add(dispatch.sent.body.len().max(1));
    first || *taken <= MAX_ANSWER_BYTES
}

/// Durable dispatches. They are written by [`Store::transact`](crate::Store::transact), whose contract holds for them.
/// Beyond it: a dispatch gets its number from the store, and waits behind those with its destination and order key that
/// are pending; settling the first of them lets the next one be tried.
pub trait Outbox: Send + Sync {
    /// Returns the earliest time at which something is to be tried.
    fn next_try(&self) -> Answer<'_, Option<Timestamp>>;

    /// Returns dispatches in the order of their numbers, dead ones or those that are pending.
    fn dispatches(&self, filter: DispatchFilter) -> Answer<'_, Vec<Dispatch>>;

    /// Returns how many dispatches there are.
    fn outbox_load(&self) -> Answer<'_, OutboxLoad>;
}

/// A choice of dispatches.
#[derive(Debug, Clone, Copy)]
pub struct DispatchFilter {
    /// True for those that were given up, false for those that are pending.
    pub dead: bool,
    /// Only those after this one.
    pub after: u64,
    /// The most to return.
    pub limit: usize,
}

/// How full the outbox is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OutboxLoad {
    /// The number of dispatches that wait or are tried.
    pub pending: u64,
    /// The number of those that were given up.
    pub dead: u64,
}
