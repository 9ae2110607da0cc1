//! The records that credentials stand on, as they were read last.
//!
//! Invariants: nobody is let in by a record that was read longer ago than the time to live; a record that was
//! changed here ([`Records::forget`]) is read again before it lets anybody in; what is known of a record never
//! outlives its place in the table, so that a change reaches everybody who was let in by it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use asyncgate_core::Timestamp;
use asyncgate_core::identity::{Find, Record, RecordKey};
use asyncgate_engine::Clock;
use asyncgate_store::{Error, Store};
use tokio::sync::watch;

use crate::known::Known;

/// The most records that are known. The least used ones make room for others.
const MAX_KNOWN: usize = 65_536;

/// The records.
pub(crate) struct Records {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    table: RwLock<Table>,
    ttl_ms: AtomicI64,
    /// Counts how often a record was forgotten, whichever it was.
    forgets: AtomicU64,
    /// Wakes those who wait for the end of a credential.
    changed: watch::Sender<()>,
}

struct Table {
    bound: usize,
    known: HashMap<RecordKey, Arc<Known>>,
    /// The API keys by their public parts.
    lookup_ids: HashMap<String, RecordKey>,
}

impl Records {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Arc<dyn Clock>, ttl: Duration) -> Self {
        let records = Self {
            store,
            clock,
            table: RwLock::new(Table::bounded(MAX_KNOWN)),
            ttl_ms: AtomicI64::new(0),
            forgets: AtomicU64::new(0),
            changed: watch::Sender::new(()),
        };
        records.set_ttl(ttl);
        records
    }

    pub(crate) fn set_ttl(&self, ttl: Duration) {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        self.ttl_ms.store(ttl_ms, SeqCst);
    }

    /// Returns the milliseconds for which what was read of a record is trusted.
    pub(crate) fn ttl_ms(&self) -> i64 {
        self.ttl_ms.load(SeqCst)
    }

    /// Returns a receiver that is told whenever a record may have changed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Drops what is remembered of a record, because it has changed.
    pub(crate) fn forget(&self, key: RecordKey) {
        // The count comes first: whoever is reading the record now either sees it, or is found in the table.
        self.forgets.fetch_add(1, SeqCst);
        self.look(|table| {
            // Within the lock: what takes its place in the table then sees the doubt.
            if let Some(known) = table.known.get(&key) {
                known.doubt();
            }
        });
        self.changed.send_replace(());
    }

    /// Returns a record that was read lately; nothing if there is none. What was read after `began` is late enough.
    pub(crate) async fn find(
        &self,
        find: &Find,
        began: Timestamp,
    ) -> Result<Option<Arc<Known>>, Error> {
        loop {
            let known = match self.look(|table| table.get(find)) {
                Some(known) => known,
                None => match self.load(find).await? {
                    Some(known) => known,
                    None => return Ok(None),
                },
            };
            self.freshen(&known, began).await?;
            if !known.is_over() {
                return Ok(Some(known));
            }
            // Another record has taken its place, or none; the next look tells which.
            self.look_mut(|table| table.remove(&known));
        }
    }

    /// Returns true if a record was read lately.
    pub(crate) fn is_fresh(&self, known: &Known, began: Timestamp, now: Timestamp) -> bool {
        let checked_ms = known.checked_ms();
        let age_ms = now.as_millis().saturating_sub(checked_ms);
        // The second half is for a time to live of nothing.
        age_ms < self.ttl_ms() || checked_ms >= began.as_millis()
    }

    /// Returns for how many milliseconds more a record counts as read lately.
    pub(crate) fn fresh_ms(&self, known: &Known, now: Timestamp) -> i64 {
        let end_ms = known.checked_ms().saturating_add(self.ttl_ms());
        end_ms.saturating_sub(now.as_millis())
    }

    /// Reads a record again unless it was read lately. If the store has something else, what was known is over.
    pub(crate) async fn freshen(&self, known: &Arc<Known>, began: Timestamp) -> Result<(), Error> {
        let is_fresh = || known.is_over() || self.is_fresh(known, began, self.clock.now());
        if is_fresh() {
            return Ok(());
        }
        let _one = known.reading.lock().await;
        if is_fresh() {
            return Ok(());
        }
        let (doubts, now) = (known.doubts(), self.clock.now());
        let find = Find::id(known.key.kind, known.key.id);
        let found = self.store.identity().record(find).await?;
        match found {
            Some(record) if known.is(&record) => known.confirm(now, doubts),
            found => self.replace(known, found, now, doubts),
        }
        Ok(())
    }

    /// Reads a record that is not known.
    async fn load(&self, find: &Find) -> Result<Option<Arc<Known>>, Error> {
        let (forgets, now) = (self.forgets.load(SeqCst), self.clock.now());
        let Some(record) = self.store.identity().record(find.clone()).await? else {
            return Ok(None);
        };
        let known = Known::new(record, now, None);
        Ok(Some(self.look_mut(|table| {
            // Many callers may come with one key at once. They share what the first one put there.
            if let Some(there) = table.known.get(&known.key).filter(|it| !it.is_over()) {
                return Arc::clone(there);
            }
            if self.forgets.load(SeqCst) != forgets {
                known.doubt();
            }
            let known = Arc::new(known);
            table.insert(Arc::clone(&known));
            known
        })))
    }

    /// Puts what the store has now in the place of what was known.
    fn replace(&self, known: &Arc<Known>, found: Option<Record>, now: Timestamp, doubts: u64) {
        let next = found.map(|record| Arc::new(Known::new(record, now, Some(known))));
        known.tell_end(next.as_deref());
        self.look_mut(|table| {
            table.remove(known);
            if let Some(next) = next {
                // It may have changed once more since it was read.
                if known.doubts() != doubts {
                    next.doubt();
                }
                table.insert(next);
            }
        });
        self.changed.send_replace(());
    }

    /// Forgets the records that nobody has used since a time, and whose uses are written down.
    pub(crate) fn forget_unused(&self, since: Timestamp) {
        self.look_mut(|table| {
            let unused = |known: &&Arc<Known>| {
                known.touched_ms() < since.as_millis() && known.uses.unnoted(0).is_none()
            };
            let unused: Vec<_> = table.known.values().filter(unused).cloned().collect();
            for known in unused {
                table.remove(&known);
            }
        });
    }

    /// Returns what is known of all records.
    pub(crate) fn all(&self) -> Vec<Arc<Known>> {
        self.look(|table| table.known.values().cloned().collect())
    }

    fn look<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn look_mut<T>(&self, look: impl FnOnce(&mut Table) -> T) -> T {
        look(&mut self.table.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Table {
    fn bounded(bound: usize) -> Self {
        Self {
            bound,
            known: HashMap::new(),
            lookup_ids: HashMap::new(),
        }
    }

    fn get(&self, find: &Find) -> Option<Arc<Known>> {
        let key = match find {
            Find::Id { key, .. } => key,
            Find::Name { name, .. } => self.lookup_ids.get(name)?,
        };
        self.known.get(key).cloned()
    }

    fn insert(&mut self, known: Arc<Known>) {
        if self.known.len() >= self.bound {
            self.make_room();
        }
        if let Record::ApiKey(key) = &known.record {
            self.lookup_ids.insert(key.lookup_id.clone(), known.key);
        }
        if let Some(before) = self.known.insert(known.key, known) {
            before.end();
        }
    }

    /// Removes what was known, unless something else has taken its place already.
    fn remove(&mut self, known: &Arc<Known>) {
        known.end();
        let there = self.known.get(&known.key);
        if there.is_some_and(|there| Arc::ptr_eq(there, known)) {
            self.known.remove(&known.key);
            if let Record::ApiKey(key) = &known.record {
                self.lookup_ids.remove(&key.lookup_id);
            }
        }
    }

    /// Removes the quarter that was not used for the longest time.
    fn make_room(&mut self) {
        let mut all: Vec<_> = self.known.values().cloned().collect();
        let quarter = all.len() / 4;
        let (gone, _, _) = all.select_nth_unstable_by_key(quarter, |it| it.touched_ms());
        for known in gone {
            self.remove(known);
        }
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_core::TenantId;
    use asyncgate_core::identity::TenantRecord;

    use super::*;

    fn tenant(n: u8, read_at: i64) -> Arc<Known> {
        let record = TenantRecord {
            id: TenantId::from_bytes([n; 16]),
            ..TenantRecord::built_in()
        };
        let read_at = Timestamp::from_millis(read_at);
        Arc::new(Known::new(Record::Tenant(record), read_at, None))
    }

    #[test]
    fn the_least_used_make_room_and_nobody_trusts_them_any_more() {
        let mut table = Table::bounded(8);
        let all: Vec<_> = (0..8).map(|n| tenant(n, i64::from(n))).collect();
        for known in &all {
            table.insert(Arc::clone(known));
        }
        all[0].touch(Timestamp::from_millis(5_000));
        table.insert(tenant(9, 9));
        assert_eq!(table.known.len(), 7);
        let over: Vec<bool> = all.iter().map(|known| known.is_over()).collect();
        assert_eq!(over, [false, true, true, false, false, false, false, false]);
    }

    #[test]
    fn what_takes_a_place_ends_what_was_there() {
        let mut table = Table::bounded(8);
        let (one, two) = (tenant(1, 1), tenant(1, 2));
        table.insert(Arc::clone(&one));
        table.insert(Arc::clone(&two));
        assert!(one.is_over() && !two.is_over());
        table.remove(&one);
        assert_eq!(table.known.len(), 1, "another has taken the place");
        table.remove(&two);
        assert!(table.known.is_empty() && two.is_over());
    }

    #[test]
    fn a_doubt_while_a_record_is_read_is_not_lost() {
        let known = tenant(1, 1);
        let doubts = known.doubts();
        known.doubt();
        known.confirm(Timestamp::from_millis(7), doubts);
        assert_eq!(known.checked_ms(), i64::MIN);
        known.confirm(Timestamp::from_millis(8), known.doubts());
        assert_eq!(known.checked_ms(), 8);
    }
}
