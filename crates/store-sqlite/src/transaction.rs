//! The writer's open transaction: the connection, what is kept in memory beside it, and how work runs in it.
//!
//! Each plane loads and writes its rows in a file of its own: `tasks.rs`, `mailbox/state.rs` and `identity/mod.rs`.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, PoisonError},
};

use asyncgate_core::{TenantId, Timestamp};
use asyncgate_store::{HotTasks, Transaction, Written};
use rusqlite::Result;

use crate::{
    admission::{self, Admitted, Change, End, HotCells, Taken, Wrote},
    classes::{Classes, Live},
    codec::Key,
    db::Db,
    ledgers::Ledgers,
    mailbox::MailboxState,
    writer::Queued,
};

/// The writer's side of the file: one connection, and what is kept in memory beside it.
#[derive(Debug)]
pub(crate) struct Writable {
    pub(crate) db: Db,
    pub(crate) ledgers: Ledgers,
    pub(crate) hot: HotTasks<Key>,
    pub(crate) mailbox: MailboxState,
    /// Absent after a rollback, until the next transaction reads them again.
    classes: Option<Classes>,
    /// Absent until tasks are written for the first time.
    live: Option<Live>,
    /// The limits in memory. The open transaction holds those that it has looked at.
    pub(crate) limits: Arc<HotCells>,
    pub(crate) last_time: Timestamp,
    /// The number of cells that the open transaction has added; negative if it took more away.
    pub(crate) cells: i64,
}

impl Transaction for Writable {
    type Error = rusqlite::Error;

    fn last_time(&mut self) -> &mut Timestamp {
        &mut self.last_time
    }

    fn panicked(_: Box<dyn Any + Send>) -> rusqlite::Error {
        // The panic has been reported where it happened. Only its own job may fail of it, not the writer.
        rusqlite::Error::UnwindingPanic
    }
}

impl Writable {
    pub(crate) fn new(
        db: Db,
        last_time: Timestamp,
        max_hot_bytes: usize,
        limits: Arc<HotCells>,
    ) -> Self {
        Self {
            db,
            ledgers: Ledgers::default(),
            hot: HotTasks::new(max_hot_bytes),
            mailbox: MailboxState::new(0),
            classes: None,
            live: None,
            limits,
            last_time,
            cells: 0,
        }
    }

    /// Forgets what was kept in memory, after a rollback: it may speak of rows that are gone. `last_time` is that of
    /// the last commit.
    pub(crate) fn forget(&mut self, last_time: Timestamp) {
        self.db.forget();
        self.ledgers = Ledgers::default();
        self.hot.clear();
        self.mailbox.roll_back();
        self.classes = None;
        if let Some(live) = &mut self.live {
            live.roll_back();
        }
        self.limits.release(End::RolledBack);
        self.last_time = last_time;
        self.cells = 0;
    }

    /// Returns the classes, with the connection that they are read from and written to.
    pub(crate) fn classes(&mut self) -> Result<(&mut Classes, &Db)> {
        let classes = match self.classes.take() {
            Some(classes) => classes,
            None => Classes::load(&self.db)?,
        };
        Ok((self.classes.insert(classes), &self.db))
    }

    /// Returns the classes in use. They are counted before the first task is written, so every later change is noted.
    pub(crate) fn live(&mut self) -> Result<&mut Live> {
        let live = match self.live.take() {
            Some(live) => live,
            None => Live::load(&self.db)?,
        };
        Ok(self.live.insert(live))
    }

    /// Keeps what the open transaction did, after its commit.
    pub(crate) fn keep(&mut self) {
        self.cells = 0;
        self.mailbox.keep();
        if let Some(live) = &mut self.live {
            live.keep();
        }
    }

    /// Runs what has come to its turn. Returns what it wrote, if anything.
    pub(crate) fn run(&mut self, queued: &mut Queued) -> Result<Option<Written>> {
        match queued {
            Queued::Work(work) => work.run(self),
            Queued::Admission(change) => self.change(change),
            Queued::Admitted(admitted) => self.run_admitted(admitted),
        }
    }

    /// Returns the number by which rows name a tenant, which is given one if it is new.
    pub(crate) fn number(&mut self, tenant: TenantId) -> Result<i64> {
        Ok(self.ledgers.of(&self.db, tenant)?.tenant)
    }

    fn change(&mut self, change: &mut Change) -> Result<Option<Written>> {
        let tenant = match change.tenant {
            Some(tenant) => self.number(tenant)?,
            None => 0,
        };
        let now = self.decided_at(change.now.max(self.limits.last_time()));
        let ran = catch_unwind(AssertUnwindSafe(|| change.run(&mut self.db, tenant, now)));
        let wrote = ran.map_err(Self::panicked)??;
        Ok(self.note(now, wrote).then_some(Written::Admission))
    }

    /// Asks admission, and lets the tasks be written if it allows that.
    fn run_admitted(&mut self, admitted: &mut Admitted) -> Result<Option<Written>> {
        let Admitted {
            asks,
            job,
            verdicts,
        } = admitted;
        let tenant = self.number(job.tenant)?;
        let now = self.decided_at(job.now.max(self.limits.last_time()));
        // The task is made at the same time.
        job.now = now;
        let weighed = admission::weigh(&self.db, &self.limits, (job.tenant, tenant), now, asks)?;
        let passed = weighed.decision.verdicts.passed();
        let told = Some(weighed.decision.verdicts.clone());
        *verdicts.lock().unwrap_or_else(PoisonError::into_inner) = told;
        let tasks = if passed { job.run(self)? } else { None };
        if passed && tasks.is_none() {
            // A job that wrote nothing uses no nonce and costs no token.
            return Ok(None);
        }
        let mut wrote = weighed.write(&self.db, &self.limits, tenant)?;
        admission::forget(&self.db, now, &mut wrote)?;
        let noted = self.note(now, wrote).then_some(Written::Admission);
        Ok(tasks.map(Written::Tasks).or(noted))
    }

    /// Writes limits that were decided in memory.
    pub(crate) fn write_behind(&mut self, taken: &Taken) -> Result<()> {
        let Self { db, ledgers, .. } = self;
        let number = |tenant| Ok(ledgers.of(db, tenant)?.tenant);
        let wrote = admission::write_behind(db, taken, number)?;
        let now = self.decided_at(taken.at);
        self.note(now, wrote);
        Ok(())
    }

    /// Notes the rows of admission that were written at a time. Returns true if there were any.
    fn note(&mut self, now: Timestamp, wrote: Wrote) -> bool {
        if wrote.rows > 0 {
            self.last_time = now;
            self.cells += wrote.cells;
        }
        wrote.rows > 0
    }
}
