//! Credentials that are API keys with a stored hash.
//!
//! Argon2id runs once per key and process: a key that was proved is remembered by its digest. After the
//! time to live of a proof the records are read again, and a proof is kept only if its record has not
//! changed. So a revoked key stops working within that time, and the hot path is one hash and one lookup in
//! a map.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use asyncgate_api::Code;
use asyncgate_engine::{Caller, Clock, Fault};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::sleep;

use super::file::KeyFile;
use super::record::Record;
use super::token::lookup_id;
use super::{Digester, Error, refused};
use crate::reloadable::Reloadable;

/// The shortest sleep of those who wait for the end of a key, whatever the time to live of a proof.
const SHORTEST_WATCH_MS: i64 = 100;

/// The most proofs that may wait for a turn. Each takes tens of milliseconds, so a full queue is done in
/// about a second. Further callers are told to try again.
const WAITING_MAX: usize = 32;

type Digest = [u8; 32];

/// The stored keys, and the credentials that were proved against them.
pub struct StoredKeys {
    file: Option<KeyFile>,
    clock: Arc<dyn Clock>,
    digester: Digester,
    known: RwLock<Known>,
    read_at_ms: AtomicI64,
    reading: Mutex<()>,
    /// The time for which proofs are trusted before the records are read again.
    proof_ttl: Reloadable<Duration>,
    /// Wakes those who wait for the end of a key whenever proofs were forgotten.
    forgotten: watch::Sender<()>,
    proving: Semaphore,
    waiting: AtomicUsize,
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

/// The records by lookup id, and the digests that were proved against them.
#[derive(Default)]
struct Known {
    records: HashMap<String, Arc<Entry>>,
    proved: HashMap<Digest, Arc<Entry>>,
}

struct Entry {
    record: Record,
    caller: Caller,
}

impl StoredKeys {
    /// Makes the keys from records. They are read again from the file, if there is one.
    pub fn new(
        records: Vec<Record>,
        file: Option<KeyFile>,
        clock: Arc<dyn Clock>,
        digester: Digester,
        proof_ttl: Reloadable<Duration>,
    ) -> Result<Self, Error> {
        // Half of the processors stay free: wrong keys must not slow down callers whose key is proved.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let read_at_ms = AtomicI64::new(clock.now().as_millis());
        Ok(Self {
            file,
            clock,
            digester,
            known: RwLock::new(Known {
                records: index(records)?,
                proved: HashMap::new(),
            }),
            read_at_ms,
            reading: Mutex::new(()),
            proof_ttl,
            forgotten: watch::Sender::new(()),
            proving: Semaphore::new((processors / 2).max(1)),
            waiting: AtomicUsize::new(0),
            entries: Gauge::default(),
            evictions: evictions(),
        })
    }

    /// Returns the caller behind the credential.
    pub async fn authenticate(self: &Arc<Self>, credential: &str) -> Result<Caller, Fault> {
        let digest = self.digester.digest(credential);
        self.freshen().await;
        if let Some(caller) = self.proved(&digest) {
            return Ok(caller);
        }
        // An unknown lookup id is refused at once, without Argon2id: lookup ids are no secret, so the
        // time of the answer may tell that one does not exist.
        let entry = lookup_id(credential)
            .and_then(|id| self.entry(id))
            .ok_or_else(|| refused("no key has this id"))?;
        self.prove(credential, digest, entry).await
    }

    /// Waits until the credential is not that of a caller any more.
    pub fn until_ended(self: &Arc<Self>, credential: &str) -> impl Future<Output = ()> + use<> {
        let (keys, digest) = (Arc::clone(self), self.digester.digest(credential));
        let mut forgotten = self.forgotten.subscribe();
        async move {
            while keys.proved(&digest).is_some() {
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

    fn proved(&self, digest: &Digest) -> Option<Caller> {
        self.read_known(|known| known.proved.get(digest).map(|entry| entry.caller.clone()))
    }

    fn entry(&self, id: &str) -> Option<Arc<Entry>> {
        self.read_known(|known| known.records.get(id).cloned())
    }

    async fn prove(
        &self,
        credential: &str,
        digest: Digest,
        entry: Arc<Entry>,
    ) -> Result<Caller, Fault> {
        let _place = Place::take(&self.waiting).ok_or_else(busy)?;
        let _turn = self.proving.acquire().await.map_err(|_| busy())?;
        // Another call may have proved the same key while this one waited for its turn.
        if let Some(caller) = self.proved(&digest) {
            return Ok(caller);
        }
        let (credential, candidate) = (credential.to_owned(), entry.clone());
        let holds = tokio::task::spawn_blocking(move || candidate.record.verify(&credential))
            .await
            .map_err(|e| busy().because(format!("verifying a key: {e}")))?;
        if !holds {
            return Err(refused("the secret of the key is wrong"));
        }
        let caller = entry.caller.clone();
        self.change_known(|known| {
            // The record may have been revoked while Argon2id ran; then the proof must not be kept.
            let current = known.records.get(&entry.record.id);
            if current.is_some_and(|current| current.record == entry.record) {
                known.proved.insert(digest, entry);
                self.entries.set(known.proved.len() as i64);
            }
        });
        Ok(caller)
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
        self.replace(index(file.load()?.unwrap_or_default())?);
        Ok(())
    }

    fn replace(&self, records: HashMap<String, Arc<Entry>>) {
        self.change_known(|known| {
            let stays = |entry: &Entry| {
                let fresh = records.get(&entry.record.id);
                fresh.is_some_and(|fresh| fresh.record == entry.record)
            };
            for entry in known.records.values().filter(|entry| !stays(entry)) {
                log_revoked(entry, records.contains_key(&entry.record.id));
            }
            let before = known.proved.len();
            known.proved.retain(|_, entry| stays(entry));
            let left = known.proved.len();
            known.records = records;
            self.entries.set(left as i64);
            let evicted = self.evictions.get_or_create(&REVOKED);
            evicted.inc_by((before - left) as u64);
        });
        self.forgotten.send_replace(());
    }

    fn read_known<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn change_known(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.write().unwrap_or_else(PoisonError::into_inner));
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

fn index(records: Vec<Record>) -> Result<HashMap<String, Arc<Entry>>, Error> {
    records
        .into_iter()
        .map(|record| {
            let caller = record.caller()?;
            Ok((record.id.clone(), Arc::new(Entry { record, caller })))
        })
        .collect()
}

fn busy() -> Fault {
    Fault::new(
        Code::Unavailable,
        "too many credentials are being verified; try again shortly",
    )
    .retry_after(1)
}

/// A place in the queue. It is given back when dropped, also if the caller hangs up.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(waiting: &'a AtomicUsize) -> Option<Self> {
        let place = Self(waiting);
        (waiting.fetch_add(1, Ordering::AcqRel) < WAITING_MAX).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
