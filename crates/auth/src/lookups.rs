//! Bounds what strangers cost the store.
//!
//! A key that does not exist is looked for in the store, because another instance may have made it a moment ago. A
//! client that came with many such keys in the last minute has to take turns with all others of the sort, one at a
//! time. So a flood of invented keys occupies one reader at the most, and a good key behind the same address waits a
//! little but passes.

use std::sync::{Mutex, PoisonError};

use asyncgate_core::Timestamp;
use asyncgate_engine::{Client, Windows};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::denied::{Denied, Why};

/// The unknown keys of a client in a minute after which it has to take turns.
const UNKNOWN_MAX: u64 = 60;
/// The most clients that are told apart.
const COUNTED_MAX: usize = 8_192;
/// The most callers that wait for their turn.
const WAITING_MAX: usize = 256;

/// The turns.
pub(crate) struct Lookups {
    unknown: Mutex<Windows<Client>>,
    turn: Semaphore,
    room: Semaphore,
}

impl Default for Lookups {
    fn default() -> Self {
        Self {
            unknown: Mutex::default(),
            turn: Semaphore::new(1),
            room: Semaphore::new(WAITING_MAX),
        }
    }
}

impl Lookups {
    /// Waits until a client may look. Most need not wait.
    pub(crate) async fn turn(
        &self,
        client: Client,
        now: Timestamp,
    ) -> Result<Option<SemaphorePermit<'_>>, Denied> {
        if !self.must_wait(client, now) {
            return Ok(None);
        }
        let room = self.room.try_acquire();
        let _room = room.map_err(|_| Denied::from(Why::Busy))?;
        // The semaphore is never closed.
        Ok(self.turn.acquire().await.ok())
    }

    /// Counts a key that does not exist.
    pub(crate) fn count_unknown(&self, client: Client, now: Timestamp) {
        let now_ms = now.as_millis();
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.take_over(now_ms);
        // Clients that are too many to be told apart are counted as one.
        let client = match unknown.has_room(&client, COUNTED_MAX) {
            true => client,
            false => Client::Other,
        };
        unknown.of(client, now_ms).count += 1;
    }

    fn must_wait(&self, client: Client, now: Timestamp) -> bool {
        let now_ms = now.as_millis();
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        unknown.take_over(now_ms);
        let counted = match unknown.has_room(&client, COUNTED_MAX) {
            true => client,
            false => Client::Other,
        };
        unknown.of(counted, now_ms).count > UNKNOWN_MAX
    }
}
