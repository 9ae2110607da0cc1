//! The way of a job through a backend: load, decide, apply.
//!
//! It stands here once. A backend brings its open transaction ([`Transaction`]) and, for each plane, how to load
//! declared rows and how to apply changes ([`Rows`]).

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use asyncgate_core::{TenantId, Timestamp};

use crate::{Job, Plane};

/// An open transaction of a backend.
pub trait Transaction {
    /// A failure of the backend. It ends the transaction: everything in it is rolled back.
    type Error;

    /// Returns the latest time that anything was written with, in this transaction or before it. A rollback
    /// must take it back.
    fn last_time(&mut self) -> &mut Timestamp;

    /// Turns a panic of a decision into a failure, or lets it go on.
    fn panicked(panic: Box<dyn Any + Send>) -> Self::Error;

    /// Returns the time at which a job is decided that was made at `now`. Jobs may arrive in another order than
    /// their clocks were read, and the time in a ledger never runs back. This is the only place that sees to it.
    fn decided_at(&mut self, now: Timestamp) -> Timestamp {
        now.max(*self.last_time())
    }
}

/// The rows of one plane in the open transaction of a backend.
///
/// A backend is free in where it finds rows: in a file, in a database, or in memory where the rows lately touched
/// are kept. Reads and changes are plain data, so it may also look at the reads of many waiting jobs and fetch what
/// is missing for all of them at once, and hand on the changes of many jobs as one set.
pub trait Rows<P: Plane>: Transaction {
    /// Loads the declared rows as the jobs before this one left them. `now` is the time of the decision.
    fn load(
        &mut self,
        tenant: TenantId,
        reads: &P::Reads,
        now: Timestamp,
    ) -> Result<P::Snapshot, Self::Error>;

    /// Writes what a decision about loaded rows wants written.
    fn apply(&mut self, tenant: TenantId, changes: &P::Changes) -> Result<(), Self::Error>;
}

impl<P: Plane> Job<P> {
    /// Runs the job in an open transaction. Returns its changes, unless it wrote nothing.
    pub fn run<B: Rows<P>>(&mut self, rows: &mut B) -> Result<Option<P::Changes>, B::Error> {
        let now = rows.decided_at(self.now);
        let snapshot = rows.load(self.tenant, &self.reads, now)?;
        // A decision that panics is a defect of its job alone; the jobs beside it go on.
        let decided = catch_unwind(AssertUnwindSafe(|| (self.decide)(now, snapshot)));
        let changes = decided.map_err(B::panicked)?;
        let Some(changes) = changes.filter(|changes| !P::is_empty(changes)) else {
            return Ok(None);
        };
        rows.apply(self.tenant, &changes)?;
        *rows.last_time() = now;
        Ok(Some(changes))
    }
}
