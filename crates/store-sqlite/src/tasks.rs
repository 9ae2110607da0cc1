//! The plane of tasks inside a transaction: how to load what a job declared, and how to write what it decided.

use asyncgate_core::{
    Changes, Class, Link, Placement, Reach, Task, TaskWrite, TenantId, Timestamp,
};
use asyncgate_store::{IdempotencyKey, ReadSet, Rows, Snapshot, Tasks, fits};
use rusqlite::{OptionalExtension, Result, params};

use crate::{
    codec::{self, Key},
    metering, outbox, query,
    rows::{receipt, task},
    transaction::Writable,
};

impl Rows<Tasks> for Writable {
    fn load(&mut self, tenant: TenantId, reads: &ReadSet, now: Timestamp) -> Result<Snapshot> {
        let ledger = self.ledgers.of(&self.db, tenant)?;
        let (tenant, head) = (ledger.tenant, ledger.head);
        let usage = ledger.depths.usage(&ledger.tally, now);
        let mut snapshot = Snapshot {
            head: head.seq,
            ledger: head,
            usage,
            ..Snapshot::default()
        };
        for id in &reads.tasks {
            let found = self.task(Key::new(tenant, id.seq()))?;
            snapshot.tasks.extend(found.filter(|task| task.id == *id));
        }
        for key in &reads.keyed {
            if let Some(found) = self.keyed(tenant, key)? {
                let found = self.task(found)?;
                snapshot.keyed.push(task::check_keyed(found, key)?);
            }
        }
        if let Some((reach, limit)) = &reads.claimable {
            snapshot.claimable = self.claimable(tenant, reach, *limit)?;
        }
        if let Some(id) = reads.receipt {
            let found = receipt::find(&mut self.db, tenant, id)?;
            snapshot.receipt = found.map(|found| found.receipt);
        }
        if let (Some(receipt), Some(by)) = (&snapshot.receipt, &reads.acknowledged_by) {
            snapshot.acknowledgement = query::acknowledgement(&self.db, tenant, receipt, by)?;
        }
        if let Some(principal) = &reads.relationship {
            snapshot.relationship = query::relationship(&mut self.db, tenant, principal)?;
        }
        if !reads.classes.is_empty() {
            snapshot.classes = self.live()?.of(tenant, &reads.classes);
        }
        if let Some((id, most)) = reads.receipts_about {
            snapshot.receipts_about = query::receipts_about(&self.db, tenant, id, most)?;
        }
        if let Some(oldest) = reads.metered {
            snapshot.metered = metering::metered(&self.db, tenant, oldest)?;
        }
        Ok(snapshot)
    }

    fn apply(&mut self, tenant: TenantId, changes: &Changes) -> Result<()> {
        let ledger = self.ledgers.changing(&self.db, tenant)?;
        let number = ledger.tenant;
        ledger.tally.count(changes);
        let links: Vec<Link> = changes
            .receipts
            .iter()
            .map(|receipt| ledger.append(tenant, receipt))
            .collect();
        let open = ledger.head.open_obligations + changes.opened.len() as u64;
        ledger.head.open_obligations = open.saturating_sub(changes.closed.len() as u64);
        for write in &changes.tasks {
            let before = write.before.map(|before| before.status);
            ledger.depths.count(before, write.task.status());
        }
        self.write(number, changes, &links)?;
        if let Some(metering) = &changes.metering {
            metering::add(&self.db, number, metering)?;
        }
        outbox::add(&self.db, &changes.outbox)
    }
}

impl Writable {
    /// Returns the task at `key`, if there is one.
    fn task(&mut self, key: Key) -> Result<Option<Task>> {
        if let Some(task) = self.hot.get(key) {
            return Ok(Some(task));
        }
        let found = task::load(&mut self.db, key)?;
        if let Some(task) = &found {
            self.hot.note(key, task);
        }
        Ok(found)
    }

    fn claimable(&mut self, tenant: i64, reach: &Reach, limit: usize) -> Result<Vec<Task>> {
        'look: loop {
            let (mut tasks, mut taken) = (Vec::new(), 0);
            let (classes, db) = self.classes()?;
            for key in classes.claimable(db, tenant, reach, limit)? {
                let loaded = self.task(key);
                let Some(found) = task::check_ready(&self.db, key, loaded)? else {
                    // The task is damaged and was taken out of the queue: others may stand behind it.
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

    /// Writes which receipts were handed over, and to whom.
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
            .prepare_cached(
                "INSERT OR REPLACE INTO relationship VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
            )?
            .execute(params![
                tenant,
                codec::principal_key(&seen.principal.key()),
                seen.principal.instance_id,
                seen.first_seen_at.as_millis(),
                seen.last_seen_at.as_millis(),
                seen.sessions_count as i64,
                codec::instances(&seen.instances),
            ])?;
        Ok(())
    }

    fn write_task(&mut self, tenant: i64, write: &TaskWrite) -> Result<()> {
        let task = &write.task;
        let key = Key::new(tenant, task.id.seq());
        let placement = task.placement();
        self.live()?.note(tenant, write);
        self.hot.note(key, task);
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
            Placement::Ready { priority, .. } => {
                let (classes, db) = self.classes()?;
                let class = classes.enter(db, tenant, class(), (rank(priority), key.0))?;
                self.db
                    .conn
                    .prepare_cached("INSERT INTO ready (class, rank, task) VALUES (?1, ?2, ?3)")?
                    .execute(params![class, rank(priority), key.0])?;
            }
            Placement::Due { .. } | Placement::Ended => {}
        }
        if let Some(at) = placement.due() {
            self.db
                .conn
                .prepare_cached("INSERT INTO due (at, task) VALUES (?1, ?2)")?
                .execute(params![at.as_millis(), key.0])?;
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
            Placement::Ready { priority, .. } => {
                if let Some(class) = self.classes()?.0.number(tenant, class) {
                    self.db
                        .conn
                        .prepare_cached(
                            "DELETE FROM ready WHERE class = ?1 AND rank = ?2 AND task = ?3",
                        )?
                        .execute(params![class, rank(priority), key.0])?;
                }
            }
            Placement::Due { .. } | Placement::Ended => {}
        }
        if let Some(at) = placement.due() {
            self.db
                .conn
                .prepare_cached("DELETE FROM due WHERE at = ?1 AND task = ?2")?
                .execute(params![at.as_millis(), key.0])?;
        }
        Ok(())
    }
}

/// Returns the rank of a priority: in ascending order, higher priorities come first.
pub(crate) const fn rank(priority: i32) -> i64 {
    -(priority as i64)
}
