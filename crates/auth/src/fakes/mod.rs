//! The fixtures of tests: random bytes that never repeat within a process, quick hashes, and two ready-made keys for
//! tokens, since a real one takes a second to be made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use asyncgate_core::Decision;
use asyncgate_core::identity::{Changes, DEFAULT_TENANT, Record};
use asyncgate_engine::fakes::{Counter, FakeClock};
use asyncgate_engine::{Engine, Settings as EngineSettings};
use asyncgate_store::identity::Reads;
use asyncgate_store::memory::MemoryStore;

use crate::{Auth, Files, HashCost, Machine, ServerKeyring, Settings};

/// A cost that tests can afford.
pub const CHEAP: HashCost = HashCost {
    time: 1,
    memory_kib: 16,
    parallelism: 1,
};

/// Keys of 2048 bits, in PKCS #8.
pub const SIGNING_KEYS: [&[u8]; 2] = [
    include_bytes!("signing-1.pk8"),
    include_bytes!("signing-2.pk8"),
];

/// Returns a machine whose random bytes are hashes of a counter, and which makes the two keys in turn.
pub fn machine() -> Machine {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    static MADE: AtomicUsize = AtomicUsize::new(0);
    Machine {
        fill_random: |bytes| {
            let n = DRAWN.fetch_add(1, Relaxed);
            let mut reader = blake3::Hasher::new()
                .update(&n.to_le_bytes())
                .finalize_xof();
            reader.fill(bytes);
            Ok(())
        },
        make_signing_key: || Ok(SIGNING_KEYS[MADE.fetch_add(1, Relaxed) % 2].to_vec()),
    }
}

/// Returns settings with quick hashes and a key for tokens.
pub fn settings() -> Settings {
    Settings {
        hash_cost: CHEAP,
        signing_key: Some(SIGNING_KEYS[0].to_vec()),
        ..Settings::default()
    }
}

/// An engine with its authenticator, on a store in memory.
#[derive(Debug, Clone)]
pub struct TestAuth {
    /// The engine.
    pub engine: Arc<Engine>,
    /// Its store.
    pub store: Arc<MemoryStore>,
    /// Its clock.
    pub clock: Arc<FakeClock>,
    /// The server's secrets.
    pub keyring: Arc<ServerKeyring>,
    /// The authenticator.
    pub auth: Auth,
}

impl TestAuth {
    /// Sets up an authenticator on a store that may have a past, beside others on the same store.
    ///
    /// # Panics
    /// If the settings or the files are not good.
    pub fn over(
        store: &Arc<MemoryStore>,
        clock: &Arc<FakeClock>,
        files: Arc<dyn Files>,
        settings: &Settings,
    ) -> Self {
        let (store, clock) = (Arc::clone(store), Arc::clone(clock));
        let keyring = ServerKeyring::open(
            Arc::<MemoryStore>::clone(&store),
            Arc::<FakeClock>::clone(&clock),
            files,
            machine(),
            settings,
        );
        #[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
        let keyring = keyring.unwrap();
        let engine = Engine::new(
            Arc::<MemoryStore>::clone(&store),
            Arc::<FakeClock>::clone(&clock),
            Arc::new(Counter::default()),
            EngineSettings::default(),
        );
        let engine = Arc::new(engine.with_keyring(Arc::<ServerKeyring>::clone(&keyring)));
        let auth = Auth::new(
            Arc::clone(&engine),
            Arc::clone(&keyring),
            Arc::<FakeClock>::clone(&clock),
            settings,
        );
        #[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
        let auth = auth.unwrap();
        Self {
            engine,
            store,
            clock,
            keyring,
            auth,
        }
    }

    /// Writes records without telling anybody.
    ///
    /// # Panics
    /// If the store refuses.
    pub async fn put(&self, records: Vec<Record>) {
        let decide = move |_, _| {
            let changes = Changes {
                put: records.clone(),
                ..Changes::default()
            };
            Ok(Decision {
                output: (),
                changes,
            })
        };
        let done = self
            .keyring
            .transact(DEFAULT_TENANT, Reads::default(), decide);
        assert_eq!(done.await, Ok(Ok(())));
    }
}
