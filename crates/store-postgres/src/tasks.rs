//! The plane of tasks in the owner's memory: how to load what a job declared, and how to apply what it decided.

use asyncgate_core::{
    Changes, Placement, PrincipalKey, Reach, Receipt, ReceiptId, ReceiptType, Task, TenantId,
    Timestamp,
};
use asyncgate_store::{IdempotencyKey, Job, ReadSet, Rows, Snapshot, Tasks, fits};

use crate::{
    ledgers::Key,
    memory::{Memory, Stop},
    pack,
    recent::Wanted,
    table::{Table, number_key},
};

impl Rows<Tasks> for Memory {
    fn load(
        &mut self,
        tenant: TenantId,
        reads: &ReadSet,
        now: Timestamp,
    ) -> Result<Snapshot, Stop> {
        let ledger = self.ledgers.of(tenant);
        let (tenant, head) = (ledger.tenant, ledger.head);
        let mut snapshot = Snapshot {
            head: head.seq,
            ledger: head,
            usage: ledger.depths.usage(&ledger.tally, now),
            ..Snapshot::default()
        };
        for id in &reads.tasks {
            // What stands behind the head does not exist.
            if id.seq() <= head.seq {
                let found = self.task(Key::new(tenant, id.seq()))?;
                snapshot.tasks.extend(found.filter(|task| task.id == *id));
            }
        }
        for key in &reads.keyed {
            snapshot.keyed.extend(self.keyed(tenant, key)?);
        }
        if let Some((reach, limit)) = &reads.claimable {
            snapshot.claimable = self.claimable(tenant, reach, *limit)?;
        }
        if let Some(id) = reads.receipt {
            snapshot.receipt = self.receipt(tenant, id)?;
        }
        if let (Some(receipt), Some(by)) = (&snapshot.receipt, &reads.acknowledged_by) {
            snapshot.acknowledgement = self.acknowledgement(tenant, receipt.id, by)?;
        }
        if let Some(principal) = &reads.relationship {
            let known = self.recent.relationships.get(&(tenant, principal.clone()));
            snapshot.relationship = known.ok_or(Stop::Missing)?.clone();
        }
        if !reads.classes.is_empty() {
            snapshot.classes = self.ready.in_use(tenant, &reads.classes);
        }
        if let Some((id, most)) = reads.receipts_about {
            let counts = self.recent.about.get(&Key::new(tenant, id.seq()));
            let count = counts.and_then(|counts| counts.get(&most));
            snapshot.receipts_about = (*count.ok_or(Stop::Missing)?).min(most);
        }
        if let Some(oldest) = reads.metered {
            let known = self.recent.metered.get(&(tenant, oldest));
            let known = known.filter(|_| !self.out.has_metered(tenant));
            snapshot.metered = known.ok_or(Stop::Missing)?.clone();
        }
        Ok(snapshot)
    }

    fn apply(&mut self, id: TenantId, changes: &Changes) -> Result<(), Stop> {
        let ledger = self.ledgers.of(id);
        let tenant = ledger.tenant;
        ledger.tally.count(changes);
        for receipt in &changes.receipts {
            let link = ledger.append(receipt);
            self.out.receipt(tenant, receipt, link);
        }
        let open = ledger.head.open_obligations + changes.opened.len() as u64;
        ledger.head.open_obligations = open.saturating_sub(changes.closed.len() as u64);
        for write in &changes.tasks {
            let before = write.before.map(|before| before.status);
            ledger.depths.count(before, write.task.status());
        }
        self.out.ledger(ledger);
        for write in &changes.tasks {
            let key = Key::new(tenant, write.task.id.seq());
            self.ready.note(key, write);
            self.hot.note(key, &write.task);
            self.out.task(key, write);
        }
        for receipt in &changes.receipts {
            self.count_about(tenant, receipt);
        }
        for opened in &changes.opened {
            let owner = pack::principal_key(&opened.owner);
            self.out.open(tenant, owner, opened.seq);
        }
        for closed in &changes.closed {
            let owner = pack::principal_key(&closed.owner);
            self.out.close(tenant, owner, closed.seq);
        }
        self.apply_more(tenant, changes);
        self.send(&changes.outbox);
        Ok(())
    }
}

impl Memory {
    /// Returns the task at `key`, if there is one.
    fn task(&mut self, key: Key) -> Result<Option<Task>, Stop> {
        if let Some(task) = self.out.written(key) {
            return Ok(Some(task.clone()));
        }
        if let Some(asked) = self.recent.tasks.get(&key) {
            return Ok(asked.clone());
        }
        if let Some(error) = self.recent.damaged.get(&key) {
            return Err(Stop::Failed(error.clone()));
        }
        self.hot.get(key).map(Some).ok_or(Stop::Missing)
    }

    fn keyed(&mut self, tenant: i64, key: &IdempotencyKey) -> Result<Option<Task>, Stop> {
        let found = match self.out.keyed(tenant, key) {
            Some(seq) => Some(seq),
            None => {
                let asked = self.recent.keys.get(&(tenant, key.clone()));
                *asked.ok_or(Stop::Missing)?
            }
        };
        let Some(seq) = found else {
            return Ok(None);
        };
        let task = self.task(Key { tenant, seq })?;
        let is_meant = |task: &Task| {
            task.spec.idempotency_key.as_ref() == Some(&key.key)
                && task.created_by.key() == key.owner
        };
        let wrong = || pack::damaged("the index of idempotency keys names another task");
        Ok(Some(task.filter(is_meant).ok_or_else(wrong)?))
    }

    fn claimable(&mut self, tenant: i64, reach: &Reach, limit: usize) -> Result<Vec<Task>, Stop> {
        'look: loop {
            let (mut tasks, mut taken) = (Vec::new(), 0);
            for key in self.ready.claimable(tenant, reach, limit) {
                let found = match self.task(key) {
                    Ok(found) => found,
                    Err(Stop::Missing) => return Err(Stop::Missing),
                    Err(Stop::Failed(_)) => None,
                };
                let is_ready = |task: &Task| matches!(task.placement(), Placement::Ready { .. });
                let Some(found) = found.filter(is_ready) else {
                    // One bad row must not block all others for ever.
                    let assignment = key.seq;
                    tracing::error!(
                        assignment,
                        "a task cannot be given out; it will not be done"
                    );
                    self.ready.drop_damaged(key);
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

    fn receipt(&self, tenant: i64, id: ReceiptId) -> Result<Option<Receipt>, Stop> {
        let mut appended = self.out.appended(tenant);
        if let Some(receipt) = appended.find(|receipt| receipt.id == id) {
            return Ok(Some(receipt.clone()));
        }
        let asked = self.recent.receipts.get(&(tenant, id));
        Ok(asked.ok_or(Stop::Missing)?.clone())
    }

    /// Finds the receipt by which a principal acknowledged another one.
    fn acknowledgement(
        &self,
        tenant: i64,
        id: ReceiptId,
        by: &PrincipalKey,
    ) -> Result<Option<ReceiptId>, Stop> {
        let asked = self.recent.acknowledged.get(&(tenant, id, by.clone()));
        if let Some(known) = asked.ok_or(Stop::Missing)? {
            return Ok(Some(*known));
        }
        let mut appended = self.out.appended(tenant);
        let found = appended.find(|receipt| acknowledges(receipt, id, by));
        Ok(found.map(|receipt| receipt.id))
    }

    fn count_about(&mut self, tenant: i64, receipt: &Receipt) {
        if self.recent.about.is_empty() {
            return;
        }
        let key = receipt.task_id.map(|id| Key::new(tenant, id.seq()));
        let counts = key.and_then(|key| self.recent.about.get_mut(&key));
        for count in counts.into_iter().flat_map(|counts| counts.values_mut()) {
            *count += 1;
        }
    }

    /// Applies what few decisions change.
    fn apply_more(&mut self, tenant: i64, changes: &Changes) {
        if let Some(delivery) = &changes.delivered {
            for seq in &delivery.seqs {
                self.out.deliver(tenant, *seq, delivery.at);
            }
        }
        if let Some(seen) = &changes.relationship {
            let key = seen.principal.key();
            let body = pack::pack_relationship(seen);
            let stored = pack::principal_key(&key);
            self.out.put(Table::Relationship, tenant, stored, body);
            let known = &mut self.recent.relationships;
            known.insert((tenant, key), Some(seen.clone()));
        }
        if let Some(metering) = &changes.metering {
            let event = &metering.event;
            let body = pack::pack_event(event);
            let key = number_key(event.seq);
            self.out.put(Table::UsageEvent, tenant, key, body);
            if metering.forget_through > 0 {
                let through = number_key(metering.forget_through);
                self.out.cut(Table::UsageEvent, tenant, Vec::new(), through);
            }
        }
    }

    /// Adds to `wanted` what a job declares and memory does not have.
    pub(crate) fn want_tasks(&mut self, job: &Job<Tasks>, wanted: &mut Wanted) {
        let reads = &job.reads;
        let ledger = self.ledgers.of(job.tenant);
        let (tenant, head) = (ledger.tenant, ledger.head.seq);
        for id in reads.tasks.iter().filter(|id| id.seq() <= head) {
            self.want_task(Key::new(tenant, id.seq()), wanted);
        }
        for key in &reads.keyed {
            let asked = (tenant, key.clone());
            if self.out.keyed(tenant, key).is_none() && !self.recent.keys.contains_key(&asked) {
                wanted.keys.insert(asked);
            }
        }
        if let Some((reach, limit)) = &reads.claimable {
            let mut claims = wanted.claims.iter_mut();
            match claims.find(|(of, alike, _)| *of == tenant && alike == reach) {
                Some((.., all)) => *all += limit,
                None => wanted.claims.push((tenant, reach.clone(), *limit)),
            }
        }
        if let Some(id) = reads.receipt {
            let asked = (tenant, id);
            if !self.recent.receipts.contains_key(&asked) {
                wanted.receipts.insert(asked);
            }
            if let Some(by) = &reads.acknowledged_by {
                let asked = (tenant, id, by.clone());
                if !self.recent.acknowledged.contains_key(&asked) {
                    wanted.acknowledged.insert(asked);
                }
            }
        }
        if let Some(principal) = &reads.relationship {
            let asked = (tenant, principal.clone());
            if !self.recent.relationships.contains_key(&asked) {
                wanted.relationships.insert(asked);
            }
        }
        if let Some((id, most)) = reads.receipts_about {
            self.want_count(Key::new(tenant, id.seq()), most, wanted);
        }
        if let Some(oldest) = reads.metered {
            let asked = (tenant, oldest);
            if !self.recent.metered.contains_key(&asked) {
                wanted.metered.insert(asked);
            }
        }
    }

    /// Adds to `wanted` the tasks that all its claims together may take, and the payloads of messages. Each claim takes the
    /// first, and leaves the next to those behind it.
    pub(crate) fn want_claimed(&mut self, wanted: &mut Wanted) {
        self.want_payloads(wanted);
        let claims = std::mem::take(&mut wanted.claims);
        for (tenant, reach, _) in &claims {
            let of_tenant = claims.iter().filter(|(of, ..)| of == tenant);
            let all = of_tenant.map(|(.., limit)| limit).sum();
            for key in self.ready.claimable(*tenant, reach, all) {
                self.want_task(key, wanted);
            }
        }
    }

    fn want_task(&mut self, key: Key, wanted: &mut Wanted) {
        let is_known = self.out.written(key).is_some()
            || self.recent.tasks.contains_key(&key)
            || self.recent.damaged.contains_key(&key);
        if is_known {
            return;
        }
        // A hot task could be forgotten before the job that needs it is decided.
        match self.hot.get(key) {
            Some(task) => drop(self.recent.tasks.insert(key, Some(task))),
            None => drop(wanted.tasks.insert(key)),
        }
    }

    /// Asks for the number of receipts about a task, unless the open batch has appended some: then the number is known
    /// once they are written.
    fn want_count(&self, key: Key, most: u64, wanted: &mut Wanted) {
        let counts = self.recent.about.get(&key);
        let is_known = counts.is_some_and(|counts| counts.contains_key(&most));
        let mut appended = self.out.appended(key.tenant);
        let seq = key.seq.cast_unsigned();
        let is_about = |receipt: &Receipt| receipt.task_id.is_some_and(|id| id.seq() == seq);
        if !is_known && !appended.any(is_about) {
            wanted.about.insert((key, most));
        }
    }
}

/// Returns true if a receipt is a principal's acknowledgement of another one.
pub(crate) fn acknowledges(receipt: &Receipt, id: ReceiptId, by: &PrincipalKey) -> bool {
    receipt.receipt_type == ReceiptType::ReceiptAcknowledged
        && receipt.parents == [id]
        && receipt.from.key() == *by
}
