//! Credentials that are API keys with a stored record.
//!
//! A key that was proved stays proved as long as its record does not change. After the time to live of a proof the
//! records are read again. So a revoked key stops working within that time, and the hot path is one lookup in a map
//! and one hash.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use asyncgate_api::Code;
use asyncgate_engine::{Caller, Client, Clock, Fault};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Mutex, watch};
use tokio::time::sleep;

use super::file::KeyFile;
use super::record::Record;
use super::token::lookup_id;
use super::verify::{Refusal, Secret, Verifier};
use super::{Error, refused};
use crate::reloadable::Reloadable;

/// The shortest sleep of those who wait for the end of a key, whatever the time to live of a proof.
const SHORTEST_WATCH_MS: i64 = 100;

/// The records by lookup id.
type Entries = HashMap<String, Arc<Entry>>;

/// The stored keys.
pub struct StoredKeys {
    file: Option<KeyFile>,
    clock: Arc<dyn Clock>,
    pub verifier: Verifier,
    known: RwLock<Entries>,
    read_at_ms: AtomicI64,
    reading: Mutex<()>,
    /// The time for which proofs are trusted before the records are read again.
    proof_ttl: Reloadable<Duration>,
    /// Wakes those who wait for the end of a key whenever proofs were forgotten.
    forgotten: watch::Sender<()>,
    /// Counts the proofs that are remembered.
    pub entries: Gauge,
    /// Counts the proofs that were forgotten.
    pub evictions: Family<Evicted, Counter>,
}

/// The reason why proofs were forgotten, as a label.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Evicted {
    reason: &'static str,
}

/// The record of the key was removed or changed. A proof is forgotten for no other reason.
const REVOKED: Evicted = Evicted { reason: "revoked" };

/// Makes the counter of forgotten proofs. The one label exists from the start, so that it shows as 0.
pub fn evictions() -> Family<Evicted, Counter> {
    let evictions = Family::default();
    drop(evictions.get_or_create(&REVOKED));
    evictions
}

struct Entry {
    record: Record,
    caller: Caller,
    secret: Arc<Secret>,
}

impl StoredKeys {
    /// Makes the keys from records. They are read again from the file, if there is one.
    pub fn new(
        records: Vec<Record>,
        file: Option<KeyFile>,
        clock: Arc<dyn Clock>,
        verifier: Verifier,
        proof_ttl: Reloadable<Duration>,
    ) -> Result<Self, Error> {
        let read_at_ms = AtomicI64::new(clock.now().as_millis());
        Ok(Self {
            file,
            clock,
            verifier,
            known: RwLock::new(index(records, &Entries::new())?),
            read_at_ms,
            reading: Mutex::new(()),
            proof_ttl,
            forgotten: watch::Sender::new(()),
            entries: Gauge::default(),
            evictions: evictions(),
        })
    }

    /// Returns the caller behind the credential.
    pub async fn authenticate(
        self: &Arc<Self>,
        client: Client,
        credential: &str,
    ) -> Result<Caller, Fault> {
        self.freshen().await;
        // An unknown lookup id is refused by a lookup, and a wrong secret mostly by a digest: lookup ids are no
        // secret, so the time of the answer may tell that one does not exist.
        let entry = self
            .entry(credential)
            .ok_or_else(|| refused("no key has this id"))?;
        let was_proved = entry.secret.is_proved();
        let verified = self.verifier.verify(client, credential, &entry.secret);
        verified.await.map_err(fault)?;
        if !was_proved {
            self.count_entries();
        }
        Ok(entry.caller.clone())
    }

    /// Waits until the credential is not that of a caller any more.
    pub fn until_ended(self: &Arc<Self>, credential: &str) -> impl Future<Output = ()> + use<> {
        let (keys, credential) = (Arc::clone(self), credential.to_owned());
        let mut forgotten = self.forgotten.subscribe();
        async move {
            while keys.is_proved(&credential) {
                // Nobody else may come who would have the records read again.
                let left = keys.proof_ttl_ms().saturating_sub(keys.age_ms());
                let left = u64::try_from(left.max(SHORTEST_WATCH_MS)).unwrap_or_default();
                tokio::select! {
                    // The sender lives as long as `keys`.
                    _ = forgotten.changed() => {}
                    () = sleep(Duration::from_millis(left)) => keys.freshen().await,
                }
            }
        }
    }

    fn entry(&self, credential: &str) -> Option<Arc<Entry>> {
        let id = lookup_id(credential)?;
        self.read_known(|known| known.get(id).cloned())
    }

    fn is_proved(&self, credential: &str) -> bool {
        let digest = self.verifier.digester.digest(credential);
        let entry = self.entry(credential);
        entry.is_some_and(|entry| entry.secret.is_proved_by(&digest))
    }

    fn count_entries(&self) {
        let proved = |known: &Entries| known.values().filter(|it| it.secret.is_proved()).count();
        self.entries.set(self.read_known(proved) as i64);
    }

    fn age_ms(&self) -> i64 {
        self.clock.now().as_millis() - self.read_at_ms.load(Ordering::Relaxed)
    }

    fn proof_ttl_ms(&self) -> i64 {
        i64::try_from(self.proof_ttl.get().as_millis()).unwrap_or(i64::MAX)
    }

    fn is_stale(&self) -> bool {
        self.file.is_some() && self.age_ms() >= self.proof_ttl_ms()
    }

    /// Reads the records again if that is due, and forgets the proofs whose record is gone or changed.
    async fn freshen(self: &Arc<Self>) {
        if !self.is_stale() {
            return;
        }
        let _one = self.reading.lock().await;
        let Some(file) = self.file.clone().filter(|_| self.is_stale()) else {
            return;
        };
        let keys = Arc::clone(self);
        // A thread of its own also keeps the request that came first out of the log lines, since it has
        // nothing to do with them.
        let read = tokio::task::spawn_blocking(move || keys.read(&file)).await;
        match read {
            Ok(Ok(())) => {}
            // An unreadable file revokes nobody: the disk may be full or the file half edited.
            Ok(Err(error)) => tracing::error!(%error, "the keys stay as they were"),
            Err(error) => tracing::error!(%error, "the keys stay as they were"),
        }
        self.read_at_ms
            .store(self.clock.now().as_millis(), Ordering::Relaxed);
    }

    fn read(&self, file: &KeyFile) -> Result<(), Error> {
        let records = file.load()?.unwrap_or_default();
        let fresh = self.read_known(|known| index(records, known))?;
        let old = std::mem::replace(
            &mut *self.known.write().unwrap_or_else(PoisonError::into_inner),
            fresh,
        );
        self.read_known(|known| {
            for (id, entry) in old {
                let now = known.get(&id);
                if now.is_some_and(|now| Arc::ptr_eq(now, &entry)) {
                    continue;
                }
                log_revoked(&entry, now.is_some());
                if entry.secret.is_proved() {
                    self.evictions.get_or_create(&REVOKED).inc();
                }
            }
        });
        self.count_entries();
        self.forgotten.send_replace(());
        Ok(())
    }

    fn read_known<T>(&self, look: impl FnOnce(&Entries) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Logs that a key is not good any more. Its id is no secret.
fn log_revoked(entry: &Entry, changed: bool) {
    tracing::info!(
        event = "auth.revoked",
        key_id = entry.record.id,
        tenant = %entry.caller.tenant,
        principal = %entry.caller.principal.key(),
        reason = if changed { "changed" } else { "removed" },
        "a key is not valid any more"
    );
}

/// Makes entries of records. One whose record has not changed stays, with what was proved of it.
fn index(records: Vec<Record>, known: &Entries) -> Result<Entries, Error> {
    let entry = |record: Record| {
        let same = known.get(&record.id).filter(|it| it.record == record);
        let entry = match same {
            Some(entry) => Arc::clone(entry),
            None => Arc::new(Entry {
                caller: record.caller()?,
                secret: Arc::new(record.secret()?),
                record,
            }),
        };
        Ok((entry.record.id.clone(), entry))
    };
    records.into_iter().map(entry).collect()
}

fn fault(refusal: Refusal) -> Fault {
    match refusal {
        Refusal::Wrong => refused("the secret of the key is wrong"),
        Refusal::TooManyGuesses { retry_after_secs } => Fault::new(
            Code::RateLimit,
            "too many wrong secrets for this key came from this address; try again later",
        )
        .retry_after(retry_after_secs),
        Refusal::Busy => Fault::new(
            Code::Unavailable,
            "too many credentials are being verified; try again shortly",
        )
        .retry_after(1),
    }
}
