//! One record as it was read last: what it says, how old that is, and when it was used.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};

use asyncgate_core::Timestamp;
use asyncgate_core::identity::{ApiKey, Record, RecordKey, TenantRecord};
use tokio::sync::Mutex;

use crate::verify::{Check, Secret};

/// A record as it was read last.
pub(crate) struct Known {
    pub key: RecordKey,
    /// The record without what may change while it lets somebody in.
    pub record: Record,
    /// What proves an API key. Absent if the record is none, or if nothing can prove it.
    pub secret: Option<Arc<Secret>>,
    pub uses: Arc<Uses>,
    /// Held by whoever reads the record again.
    pub reading: Mutex<()>,
    /// The time at which it was last found unchanged.
    checked_ms: AtomicI64,
    /// About the time at which somebody last came with it.
    touched_ms: AtomicI64,
    /// Counts how often somebody said that it has changed.
    doubts: AtomicU64,
    /// True once the store has something else, or nobody would learn that it has.
    over: AtomicBool,
}

impl Known {
    /// Takes a record that was read at a time. `before` is what was known of it until then.
    pub(crate) fn new(record: Record, read_at: Timestamp, before: Option<&Self>) -> Self {
        let (key, secret) = (record.key(), secret_of(&record, before));
        let uses = match before {
            Some(before) => Arc::clone(&before.uses),
            None => Arc::new(Uses::of(&record)),
        };
        Self {
            key,
            record: lasting(record),
            secret,
            uses,
            reading: Mutex::new(()),
            checked_ms: AtomicI64::new(read_at.as_millis()),
            touched_ms: AtomicI64::new(read_at.as_millis()),
            doubts: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    /// Returns true if a record says the same, as far as it matters for its bearer.
    pub(crate) fn is(&self, record: &Record) -> bool {
        lasting(record.clone()) == self.record
    }

    pub(crate) fn checked_ms(&self) -> i64 {
        self.checked_ms.load(SeqCst)
    }

    pub(crate) fn doubts(&self) -> u64 {
        self.doubts.load(SeqCst)
    }

    /// Says that the record has changed, so that it is read before its next use.
    pub(crate) fn doubt(&self) {
        self.doubts.fetch_add(1, SeqCst);
        self.checked_ms.store(i64::MIN, SeqCst);
    }

    /// Says that the record was read at a time and has not changed. `doubts` is their number before the reading: what
    /// somebody doubted since then must be read once more.
    pub(crate) fn confirm(&self, read_at: Timestamp, doubts: u64) {
        self.checked_ms.store(read_at.as_millis(), SeqCst);
        if self.doubts() != doubts {
            self.checked_ms.store(i64::MIN, SeqCst);
        }
    }

    /// Notes that somebody was let in by it. Many threads share a record, so it is written at most once a second.
    pub(crate) fn touch(&self, now: Timestamp) {
        let now_ms = now.as_millis();
        if now_ms.saturating_sub(self.uses.last_ms.load(Relaxed)) >= 1_000 {
            self.touched_ms.store(now_ms, Relaxed);
            self.uses.last_ms.store(now_ms, Relaxed);
        }
    }

    pub(crate) fn touched_ms(&self) -> i64 {
        self.touched_ms.load(Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    pub(crate) fn end(&self) {
        self.over.store(true, Release);
    }

    /// Logs the end of a key that let somebody in. Its public part is no secret.
    pub(crate) fn tell_end(&self, next: Option<&Self>) {
        let Some(key) = as_key(&self.record).filter(|key| key.revoked_at.is_none()) else {
            return;
        };
        let next = next.and_then(|next| as_key(&next.record));
        let reason = match next {
            None => "removed",
            Some(next) if next.revoked_at.is_some() => "revoked",
            Some(_) => return,
        };
        tracing::info!(
            event = "auth.revoked",
            key_id = key.lookup_id,
            tenant = %key.tenant,
            principal = %key.principal,
            reason,
            "a key is not valid any more"
        );
    }
}

/// Returns what proves an API key. What was proved of it before stays proved.
fn secret_of(record: &Record, before: Option<&Known>) -> Option<Arc<Secret>> {
    let key = as_key(record)?;
    let check = match &key.check {
        // A check that cannot be read would refuse the right key, or none.
        Some(text) => Some(Check::parse(text)?),
        None => None,
    };
    let before = before.and_then(|before| before.secret.as_ref());
    if let Some(same) = before.filter(|secret| secret.is(&key.hash, check)) {
        return Some(Arc::clone(same));
    }
    Secret::new(key.lookup_id.clone(), key.hash.clone(), check).map(Arc::new)
}

/// Returns a record without what may change while it lets somebody in.
fn lasting(record: Record) -> Record {
    match record {
        Record::ApiKey(key) => Record::ApiKey(ApiKey {
            label: None,
            last_used_at: None,
            replaced_by: None,
            ..key
        }),
        // Of a tenant it only matters whether it is suspended.
        Record::Tenant(tenant) => Record::Tenant(TenantRecord {
            id: tenant.id,
            suspended_at: tenant.suspended_at,
            ..TenantRecord::built_in()
        }),
        Record::Macaroon(_)
        | Record::OauthClient(_)
        | Record::IdentityLink(_)
        | Record::AuthorizationCode(_)
        | Record::TokenFamily(_)
        | Record::RefreshToken(_) => record,
    }
}

/// When an API key was last used, and the last use that the store knows of.
pub(crate) struct Uses {
    last_ms: AtomicI64,
    noted_ms: AtomicI64,
}

impl Uses {
    fn of(record: &Record) -> Self {
        let noted = as_key(record).and_then(|key| key.last_used_at);
        let noted_ms = noted.map_or(i64::MIN, Timestamp::as_millis);
        Self {
            last_ms: AtomicI64::new(noted_ms),
            noted_ms: AtomicI64::new(noted_ms),
        }
    }

    /// Returns the last use if the store does not know of it, and if what it knows of is `pause_ms` older.
    pub(crate) fn unnoted(&self, pause_ms: i64) -> Option<Timestamp> {
        let last_ms = self.last_ms.load(Relaxed);
        let newer_ms = last_ms.saturating_sub(self.noted_ms.load(Relaxed));
        (newer_ms > 0 && newer_ms >= pause_ms).then(|| Timestamp::from_millis(last_ms))
    }

    /// Says that the store knows of a use.
    pub(crate) fn note(&self, at: Timestamp) {
        self.noted_ms.fetch_max(at.as_millis(), Relaxed);
    }
}

fn as_key(record: &Record) -> Option<&ApiKey> {
    if let Record::ApiKey(key) = record {
        return Some(key);
    }
    None
}
