//! Background work: writes down when keys were used, and forgets what nobody uses any more.

use std::sync::Arc;
use std::time::Duration;

use asyncgate_core::admission::SERVER_TENANT;
use asyncgate_core::identity::{Find, RecordKind, note_uses};
use asyncgate_core::{Decision, RecordId, Timestamp};
use asyncgate_store::identity::Reads;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use crate::auth::Auth;
use crate::known::Known;

/// How often there is a round.
const ROUND: Duration = Duration::from_secs(15);
/// The shortest time between two notes about one key.
const PAUSE_MS: i64 = 60_000;
/// The most keys of one commit.
const MAX_BATCH: usize = 128;
/// The time after which a credential or record that nobody uses is forgotten. It can be proved again.
const UNUSED_MS: i64 = 3_600_000;

impl Auth {
    /// Tends what is remembered until the engine drains.
    pub fn tend(&self) -> BoxFuture<'_, ()> {
        // Boxed, so that it is compiled here and not where it is awaited.
        Box::pin(async {
            let engine = &self.inner().engine;
            let mut draining = false;
            while !draining {
                tokio::select! {
                    () = engine.drained() => draining = true,
                    () = sleep(ROUND) => {}
                }
                // The last uses are written down before the end, however short ago the ones before them were.
                let pause_ms = if draining { 0 } else { PAUSE_MS };
                self.tend_once(pause_ms).await;
            }
        })
    }

    /// Does one round. `pause_ms` is the shortest time between two notes about one key.
    pub async fn tend_once(&self, pause_ms: i64) {
        let inner = self.inner();
        let records = inner.keyring.records.all();
        let used = records.iter().filter_map(|known| {
            let is_key = known.key.kind == RecordKind::ApiKey;
            let at = known.uses.unnoted(pause_ms).filter(|_| is_key)?;
            Some((Arc::clone(known), at))
        });
        let used: Vec<_> = used.collect();
        for batch in used.chunks(MAX_BATCH) {
            self.note(batch).await;
        }
        let now = inner.clock.now();
        let since = now.plus_millis(-UNUSED_MS);
        inner.proofs.tidy(now, since);
        inner.keyring.records.forget_unused(since);
    }

    async fn note(&self, used: &[(Arc<Known>, Timestamp)]) {
        let uses: Vec<(RecordId, Timestamp)> =
            used.iter().map(|(known, at)| (known.key.id, *at)).collect();
        let keys = uses.iter().map(|(id, _)| Find::id(RecordKind::ApiKey, *id));
        let reads = Reads {
            records: keys.collect(),
            ..Reads::default()
        };
        let decide = move |_, snapshot: asyncgate_store::identity::Snapshot| {
            let changes = note_uses(&snapshot.records, &uses);
            Ok(Decision {
                output: (),
                changes,
            })
        };
        let keyring = &self.inner().keyring;
        match keyring.transact(SERVER_TENANT, reads, decide).await {
            Ok(_) => {
                for (known, at) in used {
                    known.uses.note(*at);
                }
            }
            // The next round tries again.
            Err(error) => tracing::warn!(%error, "the last uses of keys could not be written"),
        }
    }
}
