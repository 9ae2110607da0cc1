//! The rows of one tenant in memory.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, VecDeque},
};

use asyncgate_core::{
    Changes, Class, ClassesInUse, Head, Link, ObligationKey, Placement, PrincipalKey, Reach,
    Receipt, ReceiptId, ReceiptType, Relationship, Seq, Tally, Task, TaskId, TenantId, Timestamp,
    Usage,
    metering::{Metered, Metering, UsageEvent},
};

use super::Map;
use crate::{
    DeliveredReceipt, Depths, IdempotencyKey, Parties, ReadSet, ReceiptFilter, SeqPage, Snapshot,
    TaskFilter, TaskPage,
    classes::{LiveClasses, Turnover},
    fits,
};

type Queue = BTreeSet<(Reverse<i32>, Seq)>;

/// A tenant's tasks, receipts and obligations.
#[derive(Debug, Default)]
pub(super) struct Tenant {
    tasks: BTreeMap<Seq, Task>,
    keys: Map<IdempotencyKey, TaskId>,
    ready: BTreeMap<Class, Queue>,
    live: LiveClasses,
    /// The receipt at place `n` is element `n - 1`.
    receipts: Vec<(Receipt, Link)>,
    listed: Map<ReceiptFilter, Vec<Seq>>,
    delivered: Map<Seq, Timestamp>,
    open: BTreeSet<ObligationKey>,
    relationships: Map<PrincipalKey, Relationship>,
    pub(super) depths: Depths,
    tally: Tally,
    /// The usage events that are kept, in order.
    events: VecDeque<UsageEvent>,
}

impl Tenant {
    pub(super) fn load(&self, reads: &ReadSet, now: Timestamp) -> Snapshot {
        Snapshot {
            head: self.receipts.len() as Seq,
            ledger: self.head(),
            usage: self.usage(now),
            tasks: reads.tasks.iter().filter_map(|id| self.task(*id)).collect(),
            keyed: reads
                .keyed
                .iter()
                .filter_map(|key| self.task(*self.keys.get(key)?))
                .collect(),
            claimable: reads
                .claimable
                .as_ref()
                .map(|(reach, limit)| self.claimable(reach, *limit))
                .unwrap_or_default(),
            receipt: reads.receipt.and_then(|id| Some(self.receipt(id)?.receipt)),
            acknowledgement: reads
                .receipt
                .zip(reads.acknowledged_by.as_ref())
                .and_then(|(id, by)| self.acknowledgement(id, by)),
            relationship: reads
                .relationship
                .as_ref()
                .and_then(|key| self.relationship(key)),
            classes: match reads.classes.is_empty() {
                true => ClassesInUse::default(),
                false => self.live.load(&reads.classes),
            },
            receipts_about: reads
                .receipts_about
                .map_or(0, |(id, most)| self.receipts_about(id).min(most)),
            metered: reads
                .metered
                .map(|oldest| self.metered(oldest))
                .unwrap_or_default(),
        }
    }

    fn receipts_about(&self, id: TaskId) -> u64 {
        let seqs = self.listed.get(&ReceiptFilter::Task(id));
        seqs.map_or(0, Vec::len) as u64
    }

    fn metered(&self, oldest: usize) -> Metered {
        Metered {
            last: self.events.back().copied(),
            oldest: self.events.iter().take(oldest).copied().collect(),
        }
    }

    pub(super) fn usage_events(&self, before: Option<Seq>, limit: usize) -> Vec<UsageEvent> {
        let newest = self.events.iter().rev();
        let chosen = newest.filter(|event| before.is_none_or(|before| event.seq < before));
        chosen.take(limit).copied().collect()
    }

    fn add_event(&mut self, metering: &Metering) {
        let is_gone = |event: &UsageEvent| event.seq <= metering.forget_through;
        while self.events.front().is_some_and(is_gone) {
            self.events.pop_front();
        }
        self.events.push_back(metering.event);
    }

    /// Merges the heads of the queues that the worker can serve.
    fn claimable(&self, reach: &Reach, limit: usize) -> Vec<Task> {
        let served = self.ready.iter().filter(|(class, _)| reach.serves(class));
        let heads: BTreeSet<_> = served
            .flat_map(|(_, queue)| queue.iter().take(limit))
            .collect();
        let tasks = heads
            .into_iter()
            .take(limit)
            .filter_map(|(_, seq)| self.tasks.get(seq));
        let mut taken = 0;
        tasks
            .take_while(|task| fits(&mut taken, task))
            .cloned()
            .collect()
    }

    pub(super) fn usage(&self, now: Timestamp) -> Usage {
        self.depths.usage(&self.tally, now)
    }

    pub(super) fn apply(&mut self, tenant: TenantId, changes: &Changes) {
        self.tally.count(changes);
        for write in &changes.tasks {
            let task = &write.task;
            if let Some(before) = write.before {
                self.unplace(task, before.placement);
            }
            self.place(task);
            match Turnover::of(write) {
                Turnover::Began => self.live.add(task.class(), 1),
                Turnover::Ended => self.live.remove(&task.class()),
                Turnover::None => {}
            }
            self.depths
                .count(write.before.map(|before| before.status), task.status());
            if let (Some(key), None) = (&task.spec.idempotency_key, write.before) {
                let owner = task.created_by.key();
                let key = key.clone();
                self.keys.insert(IdempotencyKey { owner, key }, task.id);
            }
            self.tasks.insert(task.id.seq(), task.clone());
        }
        for receipt in &changes.receipts {
            self.append(tenant, receipt.clone());
        }
        self.open.extend(changes.opened.iter().cloned());
        for closed in &changes.closed {
            self.open.remove(closed);
        }
        if let Some(delivery) = &changes.delivered {
            for seq in &delivery.seqs {
                self.delivered.entry(*seq).or_insert(delivery.at);
            }
        }
        if let Some(metering) = &changes.metering {
            self.add_event(metering);
        }
        if let Some(relationship) = &changes.relationship {
            self.relationships
                .insert(relationship.principal.key(), relationship.clone());
        }
    }

    fn place(&mut self, task: &Task) {
        if let Placement::Ready { priority, .. } = task.placement() {
            let queue = self.ready.entry(task.class()).or_default();
            queue.insert((Reverse(priority), task.id.seq()));
        }
    }

    fn unplace(&mut self, task: &Task, placement: Placement) {
        let Placement::Ready { priority, .. } = placement else {
            return;
        };
        let class = task.class();
        if let Some(queue) = self.ready.get_mut(&class) {
            queue.remove(&(Reverse(priority), task.id.seq()));
            if queue.is_empty() {
                self.ready.remove(&class);
            }
        }
    }

    fn append(&mut self, tenant: TenantId, receipt: Receipt) {
        debug_assert_eq!(receipt.seq(), self.receipts.len() as Seq + 1);
        let filters = [
            Some(ReceiptFilter::To(receipt.to.key())),
            Some(ReceiptFilter::Type(receipt.receipt_type)),
            receipt.task_id.map(ReceiptFilter::Task),
        ];
        for filter in filters.into_iter().flatten() {
            self.listed.entry(filter).or_default().push(receipt.seq());
        }
        let link = self.head().link.then(tenant, &receipt);
        self.receipts.push((receipt, link));
    }

    pub(super) fn task(&self, id: TaskId) -> Option<Task> {
        self.find(id).cloned()
    }

    pub(super) fn parties(&self, id: TaskId) -> Option<Parties> {
        self.find(id).map(Parties::of)
    }

    fn find(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id.seq()).filter(|task| task.id == id)
    }

    pub(super) fn tasks(&self, filter: &TaskFilter) -> TaskPage {
        let (mut page, mut taken) = (TaskPage::default(), 0);
        for task in self
            .tasks
            .values()
            .rev()
            .filter(|task| filter.matches(task))
        {
            if page.tasks.len() == filter.limit || !fits(&mut taken, task) {
                page.next = page.tasks.last().map(|task| task.id);
                break;
            }
            page.tasks.push(task.clone());
        }
        page
    }

    pub(super) fn head(&self) -> Head {
        Head {
            seq: self.receipts.len() as Seq,
            link: self.receipts.last().map_or(Link::START, |(_, link)| *link),
            open_obligations: self.open.len() as u64,
        }
    }

    pub(super) fn receipt(&self, id: ReceiptId) -> Option<DeliveredReceipt> {
        self.at(id.seq()).filter(|found| found.receipt.id == id)
    }

    fn stored(&self, seq: Seq) -> Option<&(Receipt, Link)> {
        let index = usize::try_from(seq.checked_sub(1)?).ok()?;
        self.receipts.get(index)
    }

    fn at(&self, seq: Seq) -> Option<DeliveredReceipt> {
        let (receipt, link) = self.stored(seq)?;
        Some(DeliveredReceipt {
            receipt: receipt.clone(),
            link: *link,
            delivered_at: self.delivered.get(&seq).copied(),
        })
    }

    pub(super) fn receipts(&self, filter: &ReceiptFilter, page: SeqPage) -> Vec<DeliveredReceipt> {
        if *filter == ReceiptFilter::All {
            let rest = page.after.saturating_add(1)..=self.receipts.len() as Seq;
            return rest
                .take(page.limit)
                .filter_map(|seq| self.at(seq))
                .collect();
        }
        let Some(seqs) = self.listed.get(filter) else {
            return Vec::new();
        };
        let start = seqs.partition_point(|seq| *seq <= page.after);
        let found = seqs[start..].iter().take(page.limit);
        found.filter_map(|seq| self.at(*seq)).collect()
    }

    pub(super) fn newest_receipts(&self, to: PrincipalKey, limit: usize) -> Vec<DeliveredReceipt> {
        let seqs = self.listed.get(&ReceiptFilter::To(to));
        let seqs = seqs.map_or(&[][..], Vec::as_slice);
        let newest = &seqs[seqs.len().saturating_sub(limit)..];
        newest.iter().filter_map(|seq| self.at(*seq)).collect()
    }

    /// Finds the receipt by which a principal acknowledged another one.
    fn acknowledgement(&self, id: ReceiptId, by: &PrincipalKey) -> Option<ReceiptId> {
        let of_type = ReceiptFilter::Type(ReceiptType::ReceiptAcknowledged);
        let place = self.receipt(id)?.receipt.task_id;
        // A receipt and its acknowledgements are about the same task.
        let seqs = self
            .listed
            .get(&place.map_or(of_type, ReceiptFilter::Task))?;
        let after = seqs.partition_point(|seq| *seq <= id.seq());
        let later = seqs[after..].iter().filter_map(|seq| self.stored(*seq));
        let mut found = later.map(|(receipt, _)| receipt).filter(|receipt| {
            receipt.receipt_type == ReceiptType::ReceiptAcknowledged
                && receipt.parents == [id]
                && receipt.from.key() == *by
        });
        found.next().map(|receipt| receipt.id)
    }

    pub(super) fn obligations(&self, owner: &PrincipalKey, page: SeqPage) -> Vec<DeliveredReceipt> {
        let from = ObligationKey {
            owner: owner.clone(),
            seq: page.after.saturating_add(1),
        };
        let open = self
            .open
            .range(from..)
            .take_while(|key| key.owner == *owner);
        open.take(page.limit)
            .filter_map(|key| self.at(key.seq))
            .collect()
    }

    pub(super) fn relationship(&self, principal: &PrincipalKey) -> Option<Relationship> {
        self.relationships.get(principal).cloned()
    }
}
