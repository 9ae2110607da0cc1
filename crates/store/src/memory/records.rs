//! Records and audit logs in memory.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    convert::Infallible,
};

use asyncgate_core::{
    TenantId, Timestamp,
    identity::{
        Changes, Find, Record, RecordKey, RecordKind, TenantRecord,
        audit::{Cut, Draft, Entry, Log},
    },
};

use super::{Map, MemoryStore, State, ready};
use crate::{
    Answer, Records, Rows,
    identity::{AuditFilter, AuditPage, Identity, PLATFORM_KEYS, Reads, RecordFilter, Snapshot},
};

/// All records and logs.
#[derive(Debug)]
pub struct RecordRows {
    records: BTreeMap<RecordKey, Record>,
    names: Map<(RecordKind, String), RecordKey>,
    forget: BTreeSet<(Timestamp, RecordKey)>,
    platform: BTreeSet<(Timestamp, RecordKey)>,
    logs: BTreeMap<Option<TenantId>, Entries>,
}

/// The entries of a log that are kept.
#[derive(Debug, Default)]
struct Entries {
    log: Log,
    kept: VecDeque<Entry>,
}

impl Default for RecordRows {
    fn default() -> Self {
        let mut rows = Self {
            records: BTreeMap::new(),
            names: Map::default(),
            forget: BTreeSet::new(),
            platform: BTreeSet::new(),
            logs: BTreeMap::new(),
        };
        rows.put(&Record::Tenant(TenantRecord::built_in()));
        rows
    }
}

impl RecordRows {
    fn put(&mut self, record: &Record) {
        let key = record.key();
        self.remove(key);
        if let Some(name) = record.name() {
            let other = self.names.insert((key.kind, name), key);
            debug_assert_eq!(other, None, "a decision gave two records one name");
        }
        if let Some(at) = record.forget_at() {
            self.forget.insert((at, key));
        }
        if let Some(until) = record.platform_until() {
            self.platform.insert((until, key));
        }
        self.records.insert(key, record.clone());
    }

    fn remove(&mut self, key: RecordKey) {
        let Some(record) = self.records.remove(&key) else {
            return;
        };
        if let Some(name) = record.name() {
            self.names.remove(&(key.kind, name));
        }
        if let Some(at) = record.forget_at() {
            self.forget.remove(&(at, key));
        }
        if let Some(until) = record.platform_until() {
            self.platform.remove(&(until, key));
        }
    }

    /// Returns one record.
    pub fn find(&self, find: &Find) -> Option<&Record> {
        match find {
            Find::Id { key, within } => {
                let found = self.records.get(key)?;
                let is_there = within.is_none_or(|tenant| tenant == found.tenant());
                is_there.then_some(found)
            }
            Find::Name { kind, name } => {
                let key = self.names.get(&(*kind, name.clone()))?;
                self.records.get(key)
            }
        }
    }

    /// Loads the rows that a job declared.
    pub fn load(&self, reads: &Reads, now: Timestamp) -> Snapshot {
        let mut snapshot = Snapshot {
            records: reads
                .records
                .iter()
                .map(|find| self.find(find).cloned())
                .collect(),
            over: self
                .forget
                .iter()
                .take_while(|(at, _)| *at <= now)
                .take(reads.over)
                .filter_map(|(_, key)| self.records.get(key).cloned())
                .collect(),
            ..Snapshot::default()
        };
        if reads.platform_keys {
            let live = self.platform.iter().rev();
            let live = live.take_while(|(until, _)| *until > now);
            for (_, key) in live.take(PLATFORM_KEYS) {
                if let Some(Record::ApiKey(key)) = self.records.get(key) {
                    snapshot.platform_keys.push(key.clone());
                }
            }
        }
        if let Some(oldest) = reads.oldest
            && let Some(entries) = self.logs.get(&oldest.tenant)
        {
            snapshot.oldest = entries.kept.iter().take(oldest.limit).cloned().collect();
        }
        snapshot
    }

    fn apply(&mut self, changes: &Changes) {
        self.apply_records(changes);
        changes.audit.iter().for_each(|draft| self.append(draft));
        if let Some(cut) = changes.cut {
            self.cut(cut);
        }
    }

    /// Writes the records that a decision wants written, and leaves the audit logs as they are.
    pub fn apply_records(&mut self, changes: &Changes) {
        // First what goes, so that its name can be given again.
        for key in &changes.removed {
            self.remove(*key);
        }
        changes.put.iter().for_each(|record| self.put(record));
    }

    fn append(&mut self, draft: &Draft) {
        let entries = self.logs.entry(draft.tenant).or_default();
        let entry = entries.log.append(draft);
        entries.kept.push_back(entry);
    }

    /// Takes back a record that was kept elsewhere.
    pub fn restore(&mut self, record: &Record) {
        self.put(record);
    }

    /// Returns records that match, in the order of their ids.
    pub fn list(&self, filter: &RecordFilter) -> Vec<Record> {
        let found = self.records.values();
        let found = found.filter(|record| filter.matches(record));
        found.take(filter.limit).cloned().collect()
    }

    fn cut(&mut self, cut: Cut) {
        let entries = self.logs.entry(cut.tenant).or_default();
        while entries
            .kept
            .front()
            .is_some_and(|entry| entry.seq <= cut.through.seq)
        {
            entries.kept.pop_front();
        }
        entries.log.cut = cut.through;
    }

    fn audit(&self, filter: &AuditFilter) -> AuditPage {
        let mut page = AuditPage::default();
        let Some(entries) = self.logs.get(&filter.tenant) else {
            return page;
        };
        for entry in entries
            .kept
            .iter()
            .rev()
            .filter(|entry| filter.matches(entry))
        {
            if page.entries.len() == filter.limit {
                page.next = page.entries.last().map(|entry| entry.seq);
                break;
            }
            page.entries.push(entry.clone());
        }
        page
    }
}

impl Rows<Records> for State {
    fn load(&mut self, _: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot, Infallible> {
        Ok(self.records.load(reads, now))
    }

    fn apply(&mut self, _: TenantId, changes: &Changes) -> Result<(), Infallible> {
        self.records.apply(changes);
        changes.outbox.iter().for_each(|sent| self.outbox.add(sent));
        Ok(())
    }
}

impl Identity for MemoryStore {
    fn record(&self, find: Find) -> Answer<'_, Option<Record>> {
        ready(self.state().records.find(&find).cloned())
    }

    fn records(&self, filter: RecordFilter) -> Answer<'_, Vec<Record>> {
        ready(self.state().records.list(&filter))
    }

    fn audit_log(&self, tenant: Option<TenantId>) -> Answer<'_, Log> {
        let state = self.state();
        let log = state.records.logs.get(&tenant).map(|entries| entries.log);
        drop(state);
        ready(log.unwrap_or_default())
    }

    fn audit(&self, filter: AuditFilter) -> Answer<'_, AuditPage> {
        ready(self.state().records.audit(&filter))
    }

    fn audit_logs_from_before(
        &self,
        time: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<Option<TenantId>>> {
        let state = self.state();
        let is_old = |entries: &Entries| {
            let oldest = entries.kept.front();
            oldest.is_some_and(|entry| entry.said.at < time)
        };
        let logs = state.records.logs.iter();
        let old = logs.filter(|(_, entries)| is_old(entries));
        let old = old.map(|(tenant, _)| *tenant).take(limit).collect();
        drop(state);
        ready(old)
    }
}
