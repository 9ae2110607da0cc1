//! Proves credentials against stored secrets, wherever the records of these live.
//!
//! Argon2id is slow on purpose, so it must not run for whoever likes:
//! - A secret has a short check beside its hash, which refuses wrong credentials at once.
//! - Once a credential is proved it is known by its digest, and every other one is refused at once.
//! - Callers with the same credential wait for one hash.
//!
//! So a wrong credential costs a hash only if its secret is older than checks and was not proved since the start.
//! Then a client has few guesses at it a minute, and all clients together few at a time: others with keys of their
//! own do not wait for them.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use asyncgate_engine::{Client, Clock, Windows};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Semaphore, watch};

use crate::digest::Digest;
use crate::hash;

/// The most credentials that are tried on one secret at a time.
const TRIED_MAX: usize = 8;
/// The most wrong credentials that a client may have tried on one secret in a minute.
const GUESSES_MAX: u64 = 5;
/// The most clients and secrets whose guesses are counted. Hashes are so slow that a minute has not as many.
const COUNTED_MAX: usize = 8_192;

/// The reason why a credential was not proved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is not the secret.
    Wrong,
    /// The client tried too many others.
    TooManyGuesses { retry_after_secs: u32 },
    /// Too many others are being tried.
    Busy,
}

/// The check of a credential: 64 bits of a digest, as hexadecimal digits. It tells so little of the secret, which is
/// random and has more than 200 bits, that whoever reads it still has to find the rest through Argon2id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check(u64);

impl Check {
    pub fn of(credential: &str) -> Self {
        let digest =
            blake3::derive_key("AsyncGate 2026 check of an API key", credential.as_bytes());
        let (first, _) = digest.split_at(8);
        Self(
            first
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte)),
        )
    }

    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u64::from_str_radix(text, 16).ok());
        number.flatten().map(Self)
    }
}

impl std::fmt::Display for Check {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A stored secret, and what is known of it since the start.
pub struct Secret {
    id: String,
    hash: String,
    /// Absent if the secret is older than checks.
    check: Option<Check>,
    /// The digest of the one credential that is this secret, once it was shown.
    proved: OnceLock<Digest>,
    /// The credentials that are being tried, and where their outcome will stand.
    tried: Mutex<Vec<(Digest, Outcome)>>,
}

/// Whether a credential is the secret, once that is known.
type Outcome = watch::Receiver<Option<bool>>;

impl Secret {
    /// Takes a secret by its id, its hash in PHC form, and its check. None if the hash cannot be read.
    pub fn new(id: String, hash: String, check: Option<Check>) -> Option<Self> {
        hash::is_hash(&hash).then(|| Self {
            id,
            hash,
            check,
            proved: OnceLock::new(),
            tried: Mutex::default(),
        })
    }

    /// Returns true if a record still describes this secret.
    pub fn is(&self, hash: &str, check: Option<Check>) -> bool {
        self.hash == hash && self.check == check
    }

    /// Returns true if the credential of this digest was proved to be the secret.
    pub fn is_proved_by(&self, digest: &Digest) -> bool {
        self.proved.get().is_some_and(|proved| proved == digest)
    }

    /// Returns true if any credential was proved to be the secret.
    pub fn is_proved(&self) -> bool {
        self.proved.get().is_some()
    }

    /// Returns true if a credential cannot be the secret, as far as that is known without hashing.
    fn excludes(&self, credential: &str) -> bool {
        self.is_proved()
            || self
                .check
                .is_some_and(|check| check != Check::of(credential))
    }

    fn hashes_to(&self, credential: &str) -> bool {
        hash::matches(&self.hash, credential)
    }

    fn tried(&self) -> MutexGuard<'_, Vec<(Digest, Outcome)>> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Proves credentials.
pub struct Verifier {
    clock: Arc<dyn Clock>,
    hashing: Arc<Semaphore>,
    /// The credentials that clients had tried on secrets, the right ones left out.
    guesses: Mutex<Windows<(Client, String)>>,
    /// Counts the hashes.
    pub hashes: Counter,
}

impl Verifier {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        // Half of the processors stay free: hashing must not slow down callers whose key is proved.
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            clock,
            hashing: Arc::new(Semaphore::new((processors / 2).max(1))),
            guesses: Mutex::default(),
            hashes: Counter::default(),
        }
    }

    /// Returns whether a credential is the secret. If that takes a hash, a client may hang up: the hash is finished
    /// for the others who wait for it.
    pub async fn verify(
        &self,
        client: Client,
        credential: &str,
        digest: Digest,
        secret: &Arc<Secret>,
    ) -> Result<(), Refusal> {
        if secret.is_proved_by(&digest) {
            return Ok(());
        }
        if secret.excludes(credential) {
            return Err(Refusal::Wrong);
        }
        let mut outcome = self.join_or_try(client, credential, digest, secret)?;
        // The sender goes without an outcome only if the server ends.
        let known = outcome.wait_for(Option::is_some).await;
        match known.ok().and_then(|known| *known) {
            Some(true) => {
                self.forgive(client, secret);
                Ok(())
            }
            Some(false) => Err(Refusal::Wrong),
            None => Err(Refusal::Busy),
        }
    }

    /// Returns where the outcome of a credential will stand. Has it tried unless it is being tried already.
    fn join_or_try(
        &self,
        client: Client,
        credential: &str,
        digest: Digest,
        secret: &Arc<Secret>,
    ) -> Result<Outcome, Refusal> {
        let mut tried = secret.tried();
        if let Some((_, outcome)) = tried.iter().find(|(other, _)| *other == digest) {
            return Ok(outcome.clone());
        }
        // A credential leaves the list after it was proved, so this look decides.
        if let Some(proved) = secret.proved.get() {
            return Ok(watch::channel(Some(*proved == digest)).1);
        }
        // The check leaves no doubt that the credential is right, so it is no guess.
        if secret.check.is_none() {
            if tried.len() >= TRIED_MAX {
                return Err(Refusal::Busy);
            }
            self.charge(client, secret)?;
        }
        let (sender, outcome) = watch::channel(None);
        tried.push((digest, outcome.clone()));
        drop(tried);
        let (hashing, hashes) = (Arc::clone(&self.hashing), self.hashes.clone());
        let (secret, credential) = (Arc::clone(secret), credential.to_owned());
        tokio::spawn(async move {
            let _turn = hashing.acquire_owned().await;
            hashes.inc();
            let hashed = Arc::clone(&secret);
            let holds = tokio::task::spawn_blocking(move || hashed.hashes_to(&credential)).await;
            if let Ok(true) = holds {
                secret.proved.get_or_init(|| digest);
            }
            secret.tried().retain(|(other, _)| *other != digest);
            sender.send_replace(holds.ok());
        });
        Ok(outcome)
    }

    /// Counts a guess, and refuses it if its client had too many.
    fn charge(&self, client: Client, secret: &Secret) -> Result<(), Refusal> {
        let now_ms = self.clock.now().as_millis();
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.take_over(now_ms);
        let key = (client, secret.id.clone());
        if !guesses.has_room(&key, COUNTED_MAX) {
            return Err(Refusal::Busy);
        }
        let window = guesses.of(key, now_ms);
        if window.count >= GUESSES_MAX {
            let retry_after_secs = window.left_secs(now_ms);
            return Err(Refusal::TooManyGuesses { retry_after_secs });
        }
        window.count += 1;
        Ok(())
    }

    /// Forgets the guesses of a client that has shown the secret.
    fn forgive(&self, client: Client, secret: &Secret) {
        let mut guesses = self.guesses.lock().unwrap_or_else(PoisonError::into_inner);
        guesses.forget(&(client, secret.id.clone()));
    }
}
