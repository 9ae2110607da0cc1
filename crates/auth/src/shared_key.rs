//! The one key that the settings give, and a bound on guesses at it.
//!
//! It is compared by its digest, so a guess costs nothing; but a short key could be found by many. A client that shows
//! many different wrong ones is locked out for the rest of the minute, even if it then shows the right one. Only a
//! client that has shown the right one before still passes, so that a neighbour behind the same address cannot keep
//! it out. The same wrong key again and again is a program with an old key, not a guess.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError, RwLock};

use asyncgate_core::Timestamp;
use asyncgate_engine::{Client, Windows};

use crate::denied::{Denied, Why};
use crate::digest::Digest;

/// The most different wrong credentials of a client in a minute.
const GUESSES_MAX: u64 = 20;
/// The most clients, and the most wrong credentials, that are told apart. Beyond that nobody is locked out.
const TOLD_APART: usize = 8_192;
/// The time for which a client is known to have the right key.
const KNOWN_MS: i64 = 3_600_000;
/// How often the time of a client's last use is renewed.
const RENEWED_MS: i64 = 60_000;

/// The shared key.
pub(crate) struct SharedKey {
    digest: Digest,
    guesses: Mutex<Guesses>,
    /// The clients that have shown the right key, and about when.
    known: RwLock<HashMap<Client, i64>>,
    /// No client is locked out from this time on.
    locked_until_ms: AtomicI64,
}

#[derive(Default)]
struct Guesses {
    seen: Windows<(Client, Digest)>,
    clients: Windows<Client>,
}

impl SharedKey {
    pub(crate) fn new(digest: Digest) -> Self {
        Self {
            digest,
            guesses: Mutex::default(),
            known: RwLock::default(),
            locked_until_ms: AtomicI64::new(i64::MIN),
        }
    }

    pub(crate) fn is(&self, digest: &Digest) -> bool {
        self.digest == *digest
    }

    /// Lets a client with the right key pass, unless it is locked out.
    pub(crate) fn admit(&self, client: Client, now: Timestamp) -> Result<(), Denied> {
        let now_ms = now.as_millis();
        if now_ms < self.locked_until_ms.load(Relaxed) && !self.is_known(client, now_ms) {
            self.check_locked(client, now_ms)?;
        }
        self.remember(client, now_ms);
        Ok(())
    }

    /// Counts a wrong credential. Refuses the client if it has shown too many.
    pub(crate) fn count_wrong(
        &self,
        client: Client,
        digest: Digest,
        now: Timestamp,
    ) -> Result<(), Denied> {
        let now_ms = now.as_millis();
        let mut guesses = self.guesses();
        guesses.seen.take_over(now_ms);
        guesses.clients.take_over(now_ms);
        let key = (client, digest);
        let has_room = guesses.seen.has_room(&key, TOLD_APART)
            && guesses.clients.has_room(&client, TOLD_APART);
        if !has_room {
            return Ok(());
        }
        let seen = guesses.seen.of(key, now_ms);
        seen.count += 1;
        let first = seen.count == 1;
        let window = guesses.clients.of(client, now_ms);
        window.count += u64::from(first);
        if window.count <= GUESSES_MAX {
            return Ok(());
        }
        let retry_after_secs = window.left_secs(now_ms);
        let until_ms = now_ms.saturating_add(i64::from(retry_after_secs) * 1_000);
        self.locked_until_ms.fetch_max(until_ms, Relaxed);
        Err(Why::TooManyGuesses { retry_after_secs }.into())
    }

    fn check_locked(&self, client: Client, now_ms: i64) -> Result<(), Denied> {
        let mut guesses = self.guesses();
        guesses.clients.take_over(now_ms);
        if !guesses.clients.has_room(&client, TOLD_APART) {
            return Ok(());
        }
        let window = guesses.clients.of(client, now_ms);
        if window.count <= GUESSES_MAX {
            return Ok(());
        }
        let retry_after_secs = window.left_secs(now_ms);
        Err(Why::TooManyGuesses { retry_after_secs }.into())
    }

    fn is_known(&self, client: Client, now_ms: i64) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let last_ms = known.get(&client);
        last_ms.is_some_and(|last_ms| now_ms.saturating_sub(*last_ms) < KNOWN_MS)
    }

    fn remember(&self, client: Client, now_ms: i64) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let last_ms = known.get(&client).copied().unwrap_or(i64::MIN);
        drop(known);
        if now_ms.saturating_sub(last_ms) < RENEWED_MS {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOLD_APART {
            known.retain(|_, last_ms| now_ms.saturating_sub(*last_ms) < KNOWN_MS);
        }
        if known.len() < TOLD_APART {
            known.insert(client, now_ms);
        }
    }

    fn guesses(&self) -> std::sync::MutexGuard<'_, Guesses> {
        self.guesses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
