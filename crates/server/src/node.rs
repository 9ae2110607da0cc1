//! What every way of running shares: the data directory, the clock and the store.

use std::sync::Arc;

use anyhow::Context as _;
use asyncgate_store::Store;
use asyncgate_store::memory::MemoryStore;
use asyncgate_store_sqlite::{Options, SqliteStore};

use crate::clock::{Clock as _, GuardedClock};
use crate::config::{Settings, StoreKind};
use crate::data_dir::DataDir;

/// The file in the data directory that holds everything but the keys.
const DATABASE: &str = "asyncgate.db";

/// The parts under the engine.
pub struct Node {
    pub clock: Arc<GuardedClock>,
    pub store: Arc<dyn Store>,
    /// Last, so that the directory is given free only after the store has let go of it.
    _data_dir: Option<DataDir>,
}

impl Node {
    /// Opens what the settings name. May block on the disk.
    pub fn open(settings: &Settings) -> anyhow::Result<Self> {
        let clock = Arc::new(GuardedClock::start());
        let (store, data_dir): (Arc<dyn Store>, _) = match settings.store {
            StoreKind::Memory => {
                tracing::warn!("store = memory: everything is forgotten when the process ends");
                (Arc::new(MemoryStore::new()), None)
            }
            StoreKind::Sqlite => {
                let data_dir = DataDir::open(&settings.data_dir)?;
                (Arc::new(open_sqlite(&data_dir, settings)?), Some(data_dir))
            }
        };
        let started = clock.now();
        clock.raise_to(store.last_time());
        let behind_ms = clock.now().millis_since(started);
        if behind_ms > 1_000 {
            tracing::warn!(
                behind_ms,
                "the machine's clock is behind the last commit; time goes on from there"
            );
        }
        Ok(Self {
            clock,
            store,
            _data_dir: data_dir,
        })
    }
}

fn open_sqlite(data_dir: &DataDir, settings: &Settings) -> anyhow::Result<SqliteStore> {
    let path = data_dir.file(DATABASE)?;
    let options = Options {
        max_queued_jobs: settings.writer_queue_jobs,
        max_queued_bytes: settings.writer_queue_bytes,
        readers: settings.sqlite_readers,
    };
    SqliteStore::open(&path, &options).with_context(|| format!("{}", path.display()))
}
