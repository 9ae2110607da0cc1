//! Inside a transaction: load what a job declared, decide, write what it decided.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::PoisonError,
};

use asyncgate_core::{Changes, Class, Link, Placement, Reach, Task, TaskWrite, Timestamp};
use asyncgate_store::{IdempotencyKey, Job, ReadSet, Snapshot, fits};
use rusqlite::{OptionalExtension, Result, params};

use crate::{
    admission::{self, Admitted},
    classes::Classes,
    codec::{self, Key},
    db::Db,
    ledgers::Ledgers,
    mailbox::Post,
    query,
    rows::{receipt, task},
    writer::{Work, Written},
};

/// The writer's side of the file: one connection, and what is kept in memory beside it.
#[derive(Debug)]
pub(crate) struct Writable {
    pub(crate) db: Db,
    pub(crate) ledgers: Ledgers,
    pub(crate) post: Post,
    /// Absent after a rollback, until the next transaction reads them again.
    classes: Option<Classes>,
    last_time: Timestamp,
    /// How many cells the open transaction has added, or taken away.
    pub(crate) cells: i64,
}

impl Writable {
    pub(crate) fn new(db: Db, last_time: Timestamp) -> Self {
        Self {
            db,
            ledgers: Ledgers::default(),
            post: Post::new(0),
            classes: None,
            last_time,
            cells: 0,
        }
    }

    /// Forgets what was kept in memory, after a rollback: it may speak of rows that are gone.
    pub(crate) fn forget(&mut self) {
        self.db.forget();
        self.ledgers = Ledgers::default();
        self.post.roll_back();
        self.classes = None;
        self.cells = 0;
    }

    fn classes(&mut self) -> Result<(&mut Classes, &Db)> {
        let classes = match self.classes.take() {
            Some(classes) => classes,
            None => Classes::load(&self.db)?,
        };
        Ok((self.classes.insert(classes), &self.db))
    }

    /// Runs one job. Answers what it wrote, if anything. A decision that panics is a defect of that
    /// job alone, not a reason for the writer to die.
    pub(crate) fn run(&mut self, work: &mut Work) -> Result<Option<Written>> {
        match work {
            Work::Tasks(job) => Ok(self.run_task(job)?.map(Written::Tasks)),
            Work::Mailbox(job) => Ok(self.run_mailbox(job)?.map(Written::Mailbox)),
            Work::Admission(job) => {
                let wrote = self.run_admission(job)?;
                Ok(wrote.then_some(Written::Admission))
            }
            Work::Admitted(admitted) => self.run_admitted(admitted),
        }
    }

    fn run_admission(&mut self, job: &mut admission::Job) -> Result<bool> {
        let tenant = match job.tenant {
            Some(tenant) => self.ledgers.of(&self.db, tenant)?.tenant,
            None => 0,
        };
        let now = job.now.max(self.last_time);
        let ran = catch_unwind(AssertUnwindSafe(|| job.run(&mut self.db, tenant, now)));
        let wrote = ran.map_err(|_| rusqlite::Error::UnwindingPanic)??;
        if wrote.rows == 0 {
            return Ok(false);
        }
        self.last_time = now;
        self.cells += wrote.cells;
        Ok(true)
    }

    /// Asks admission, and lets the tasks be written if it allows that.
    fn run_admitted(&mut self, admitted: &mut admission::Admitted) -> Result<Option<Written>> {
        let Admitted {
            asks,
            job,
            verdicts,
        } = admitted;
        let tenant = self.ledgers.of(&self.db, job.tenant)?.tenant;
        let now = job.now.max(self.last_time);
        let weighed = admission::weigh(&self.db, (job.tenant, tenant), now, asks)?;
        let passed = weighed.decision.verdicts.passed();
        let told = Some(weighed.decision.verdicts.clone());
        *verdicts.lock().unwrap_or_else(PoisonError::into_inner) = told;
        let tasks = if passed { self.run_task(job)? } else { None };
        if passed && tasks.is_none() {
            return Ok(None);
        }
        let mut wrote = weighed.write(&self.db, tenant)?;
        admission::forget(&self.db, now, &mut wrote)?;
        let written = match tasks {
            Some(changes) => Some(Written::Tasks(changes)),
            None => (wrote.rows > 0).then_some(Written::Admission),
        };
        if written.is_some() {
            self.last_time = now;
            self.cells += wrote.cells;
        }
        Ok(written)
    }

    fn run_mailbox(
        &mut self,
        job: &mut asyncgate_store::mailbox::Job,
    ) -> Result<Option<asyncgate_core::mailbox::Changes>> {
        let tenant = self.ledgers.of(&self.db, job.tenant)?.tenant;
        let now = job.now.max(self.last_time);
        let mut snapshot = self.post.load(&mut self.db, tenant, &job.reads, now)?;
        snapshot.last_time = self.last_time;
        let decided = catch_unwind(AssertUnwindSafe(|| (job.decide)(snapshot)));
        let changes = decided.map_err(|_| rusqlite::Error::UnwindingPanic)?;
        let Some(changes) = changes.filter(|changes| !changes.is_empty()) else {
            return Ok(None);
        };
        self.last_time = self.last_time.max(job.now);
        self.post.write(&mut self.db, tenant, &changes)?;
        Ok(Some(changes))
    }

    fn run_task(&mut self, job: &mut Job) -> Result<Option<Changes>> {
        let ledger = self.ledgers.of(&self.db, job.tenant)?;
        let (tenant, head) = (ledger.tenant, ledger.head);
        let mut snapshot = self.load(tenant, &job.reads)?;
        snapshot.head = head.seq;
        snapshot.ledger = head;
        snapshot.last_time = self.last_time;
        let decided = catch_unwind(AssertUnwindSafe(|| (job.decide)(snapshot)));
        let Some(changes) = decided.map_err(|_| rusqlite::Error::UnwindingPanic)? else {
            return Ok(None);
        };
        if changes.is_empty() {
            return Ok(None);
        }
        let ledger = self.ledgers.of(&self.db, job.tenant)?.changing();
        let links: Vec<Link> = changes
            .receipts
            .iter()
            .map(|receipt| ledger.append(job.tenant, receipt))
            .collect();
        let open = ledger.head.open_obligations + changes.opened.len() as u64;
        ledger.head.open_obligations = open.saturating_sub(changes.closed.len() as u64);
        for write in &changes.tasks {
            let before = write.before.map(|before| before.status);
            ledger.depths.count(before, write.task.status());
        }
        self.last_time = self.last_time.max(job.now);
        self.write(tenant, &changes, &links)?;
        Ok(Some(changes))
    }

    fn load(&mut self, tenant: i64, reads: &ReadSet) -> Result<Snapshot> {
        let mut snapshot = Snapshot::default();
        for id in &reads.tasks {
            snapshot
                .tasks
                .extend(task::find(&mut self.db, tenant, *id)?);
        }
        if let Some(key) = &reads.keyed
            && let Some(found) = self.keyed(tenant, key)?
        {
            snapshot.keyed = Some(task::load_keyed(&mut self.db, found, key)?);
        }
        if let Some((reach, limit)) = &reads.claimable {
            snapshot.claimable = self.claimable(tenant, reach, *limit)?;
        }
        if let Some(id) = reads.receipt {
            let found = receipt::find(&mut self.db, tenant, id)?;
            snapshot.receipt = found.map(|found| found.receipt);
        }
        if let Some(principal) = &reads.relationship {
            snapshot.relationship = query::relationship(&mut self.db, tenant, principal)?;
        }
        Ok(snapshot)
    }

    fn claimable(&mut self, tenant: i64, reach: &Reach, limit: usize) -> Result<Vec<Task>> {
        'look: loop {
            let (mut tasks, mut taken) = (Vec::new(), 0);
            let (classes, db) = self.classes()?;
            for key in classes.claimable(db, tenant, reach, limit)? {
                let Some(found) = task::load_ready(&mut self.db, key)? else {
                    // One less stands in the way of what is behind it.
                    continue 'look;
                };
                if !fits(&mut taken, &found) {
                    break;
                }
                tasks.push(found);
            }
            return Ok(tasks);
        }
    }

    fn keyed(&self, tenant: i64, key: &IdempotencyKey) -> Result<Option<Key>> {
        self.db
            .conn
            .prepare_cached(
                "SELECT task FROM idempotency WHERE tenant = ?1 AND owner = ?2 AND key = ?3",
            )?
            .query_row(
                params![tenant, codec::principal_key(&key.owner), key.key],
                |row| row.get(0).map(Key),
            )
            .optional()
    }

    fn write(&mut self, tenant: i64, changes: &Changes, links: &[Link]) -> Result<()> {
        for write in &changes.tasks {
            self.write_task(tenant, write)?;
        }
        for (written, link) in changes.receipts.iter().zip(links) {
            receipt::insert(&mut self.db, tenant, written, link)?;
        }
        for opened in &changes.opened {
            self.db
                .conn
                .prepare_cached("INSERT INTO obligation (owner, receipt) VALUES (?1, ?2)")?
                .execute(params![
                    codec::principal_key(&opened.owner),
                    Key::new(tenant, opened.seq).0
                ])?;
        }
        for closed in &changes.closed {
            self.db
                .conn
                .prepare_cached("DELETE FROM obligation WHERE owner = ?1 AND receipt = ?2")?
                .execute(params![
                    codec::principal_key(&closed.owner),
                    Key::new(tenant, closed.seq).0
                ])?;
        }
        self.write_sight(tenant, changes)
    }

    /// What was handed over, and to whom.
    fn write_sight(&mut self, tenant: i64, changes: &Changes) -> Result<()> {
        if let Some(delivery) = &changes.delivered {
            let mut insert = self.db.conn.prepare_cached(
                "INSERT INTO delivery (receipt, at) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            )?;
            for seq in &delivery.seqs {
                insert.execute(params![Key::new(tenant, *seq).0, delivery.at.as_millis()])?;
            }
        }
        let Some(seen) = &changes.relationship else {
            return Ok(());
        };
        self.db
            .conn
            .prepare_cached("INSERT OR REPLACE INTO relationship VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
                tenant,
                codec::principal_key(&seen.principal.key()),
                seen.principal.instance_id,
                seen.first_seen_at.as_millis(),
                seen.last_seen_at.as_millis(),
                seen.sessions_count as i64,
            ])?;
        Ok(())
    }

    fn write_task(&mut self, tenant: i64, write: &TaskWrite) -> Result<()> {
        let task = &write.task;
        let key = Key::new(tenant, task.id.seq());
        let placement = task.placement();
        match write.before {
            None => {
                task::insert(&mut self.db, key, task)?;
                self.remember_key(tenant, key, task)?;
                self.place(tenant, key, placement, || task.class())
            }
            Some(before) => {
                task::update(&self.db, key, task)?;
                if before.placement == placement {
                    return Ok(());
                }
                self.unplace(tenant, key, before.placement, &task.class())?;
                self.place(tenant, key, placement, || task.class())
            }
        }
    }

    fn remember_key(&self, tenant: i64, key: Key, task: &Task) -> Result<()> {
        let Some(name) = &task.spec.idempotency_key else {
            return Ok(());
        };
        self.db
            .conn
            .prepare_cached("INSERT INTO idempotency VALUES (?1, ?2, ?3, ?4)")?
            .execute(params![
                tenant,
                codec::principal_key(&task.created_by.key()),
                name,
                key.0
            ])?;
        Ok(())
    }

    fn place(
        &mut self,
        tenant: i64,
        key: Key,
        placement: Placement,
        class: impl FnOnce() -> Class,
    ) -> Result<()> {
        match placement {
            Placement::Ready { priority } => {
                let (classes, db) = self.classes()?;
                let class = classes.enter(db, tenant, class())?;
                self.db
                    .conn
                    .prepare_cached("INSERT INTO ready (class, rank, task) VALUES (?1, ?2, ?3)")?
                    .execute(params![class, rank(priority), key.0])?;
            }
            Placement::Due { at } => {
                self.db
                    .conn
                    .prepare_cached("INSERT INTO due (at, task) VALUES (?1, ?2)")?
                    .execute(params![at.as_millis(), key.0])?;
            }
            Placement::Ended => {}
        }
        Ok(())
    }

    fn unplace(
        &mut self,
        tenant: i64,
        key: Key,
        placement: Placement,
        class: &Class,
    ) -> Result<()> {
        match placement {
            Placement::Ready { priority } => {
                if let Some(class) = self.classes()?.0.number(tenant, class) {
                    self.db
                        .conn
                        .prepare_cached(
                            "DELETE FROM ready WHERE class = ?1 AND rank = ?2 AND task = ?3",
                        )?
                        .execute(params![class, rank(priority), key.0])?;
                }
            }
            Placement::Due { at } => {
                self.db
                    .conn
                    .prepare_cached("DELETE FROM due WHERE at = ?1 AND task = ?2")?
                    .execute(params![at.as_millis(), key.0])?;
            }
            Placement::Ended => {}
        }
        Ok(())
    }
}

/// Higher priorities come first in ascending order.
pub(crate) const fn rank(priority: i32) -> i64 {
    -(priority as i64)
}
