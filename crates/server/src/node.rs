//! A node: the data directory, the clock, the store, and the engine on top. `serve` and `mcp` share it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use asyncgate_admission::Minimal;
use asyncgate_auth::{Auth, ServerKeyring};
use asyncgate_core::{Locatability, Policy, Timestamp};
use asyncgate_courier::{Destination, HttpCourier, Secret};
use asyncgate_engine::{BILLING, Bodies, Clock, CryptoMetrics, Durability, Engine, background};
use asyncgate_host_redis::RedisHost;
use asyncgate_store::Store;
use asyncgate_store::memory::MemoryStore;
use asyncgate_store_sqlite::{Options, SqliteStore};
use futures_util::future::join_all;
use prometheus_client::metrics::counter::Counter;
use tokio::task::JoinHandle;

use crate::clock::{GuardedClock, Random};
use crate::config::{Backend, Settings, StoreKind};
use crate::data_dir::DataDir;
use crate::domains::for_domains;
use crate::ledger_key::LedgerKey;
use crate::memory;
use crate::readiness::Monitor;
use crate::secrets;
use crate::supervise::keep;

/// The name of the database in the data directory. It holds everything but the secrets of the server.
pub const DATABASE: &str = "asyncgate.db";

/// A running engine with its store and clock.
pub struct Node {
    pub engine: Arc<Engine>,
    pub clock: Arc<dyn Clock>,
    keyring: Arc<ServerKeyring>,
    store: Arc<dyn Store>,
    courier: Arc<HttpCourier>,
    /// Counts how often background work had to begin again.
    pub restarts: Counter,
    // Fields are dropped in order. The lock on the directory must be the last: the store writes until
    // it is dropped.
    _data_dir: Option<DataDir>,
}

impl Node {
    /// Opens the store that the settings name and starts an engine on it. Must run within a runtime, and
    /// may block on the disk.
    pub fn open(settings: &Settings, crypto: CryptoMetrics) -> anyhow::Result<Self> {
        // Files that cannot be used stop the start before anything is made.
        let for_auth = secrets::for_auth(settings)?;
        let (store, data_dir, signer): (Arc<dyn Store>, _, _) = match settings.store {
            StoreKind::Memory => {
                tracing::warn!(
                    profile = settings.profile.as_str(),
                    dlq_profile = Durability::None.dlq_profile(),
                    "store = memory: everything is forgotten when the process ends"
                );
                let store = MemoryStore::with_admission_rows(settings.admission_max_rows);
                (Arc::new(store), None, LedgerKey::fresh()?)
            }
            StoreKind::Sqlite => {
                let data_dir = DataDir::open(&settings.data_dir)?;
                let signer = LedgerKey::in_dir(&settings.data_dir)?;
                let store = Arc::new(open_sqlite(&data_dir, settings)?);
                (store, Some(data_dir), signer)
            }
        };
        let clock = Arc::new(start_clock(store.as_ref()));
        let entropy = Arc::new(Random::seed()?);
        store.mailbox().set_weights(settings.weights.clone());
        let courier = HttpCourier::new(destinations(settings)).context("billing.webhook_url")?;
        let courier = Arc::new(courier);
        let keyring = ServerKeyring::open(
            store.clone(),
            clock.clone(),
            secrets::files(settings),
            secrets::machine(),
            &for_auth,
        )?;
        let engine = Engine::new(store.clone(), clock.clone(), entropy, for_engine(settings))
            .with_crypto_metrics(crypto)
            .with_signer(Arc::new(signer))
            .with_keyring(keyring.clone())
            .with_courier(courier.clone());
        let engine = match &settings.admission_backend {
            Backend::Store => engine,
            Backend::Minimal => {
                tracing::warn!(
                    "admission.backend = minimal: nothing is limited, and no nonce is remembered"
                );
                engine.with_host(Arc::new(Minimal))
            }
            Backend::Redis(address) => {
                let host = RedisHost::new(address.clone());
                engine.with_host(Arc::new(host.context("admission.backend = redis")?))
            }
            #[cfg(feature = "dynamodb")]
            Backend::Dynamo(address) => {
                let env = |name: &str| std::env::var(name).ok();
                let host =
                    asyncgate_host_dynamodb::DynamoHost::new(address, env, crate::clock::wall);
                engine.with_host(Arc::new(host.context("admission.backend = dynamodb")?))
            }
        };
        Ok(Self {
            engine: Arc::new(engine),
            clock,
            keyring,
            store,
            courier,
            restarts: Counter::default(),
            _data_dir: data_dir,
        })
    }

    /// Makes the authenticator of this node.
    pub fn authenticator(&self, settings: &Settings) -> anyhow::Result<Auth> {
        let for_auth = secrets::for_auth(settings)?;
        let (engine, keyring) = (self.engine.clone(), self.keyring.clone());
        Ok(Auth::new(engine, keyring, self.clock.clone(), &for_auth)?)
    }

    /// Reads the files of secrets again.
    pub fn reload_secrets(&self, settings: &Settings) {
        match secrets::for_auth(settings) {
            Ok(for_auth) => self.keyring.reload(&for_auth),
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(
                    event = "auth.reload",
                    error,
                    "the secrets stay as they were"
                );
            }
        }
    }

    /// Makes the monitor of this node.
    pub fn monitor(&self) -> Monitor {
        Monitor::new(self.engine.clone(), self.clock.clone(), self.store.clone())
    }

    /// Puts other settings in force for all calls that begin after this one.
    pub fn reload(&self, settings: &Settings) {
        if let Err(error) = self.courier.set_destinations(destinations(settings)) {
            tracing::error!(%error, "billing.webhook_url stays as it was");
        }
        self.engine.reload(for_engine(settings));
        self.store.mailbox().set_weights(settings.weights.clone());
    }

    /// Starts the background work of the engine, which ends when the engine drains.
    pub fn background(&self) -> JoinHandle<()> {
        let (engine, restarts) = (self.engine.clone(), self.restarts.clone());
        tokio::spawn(async move {
            let kept = background()
                .iter()
                .map(|(name, work)| keep(name, restarts.clone(), || work(&engine)));
            join_all(kept).await;
        })
    }
}

/// Returns the places to which something is sent, by name.
fn destinations(settings: &Settings) -> HashMap<String, Destination> {
    let billing = settings.tenants.billing.as_ref().map(|billing| {
        let destination = Destination {
            address: billing.address.clone(),
            secret: Secret::new(billing.secret.reveal()),
            patience: billing.patience,
        };
        (BILLING.to_owned(), destination)
    });
    billing.into_iter().collect()
}

fn open_sqlite(data_dir: &DataDir, settings: &Settings) -> anyhow::Result<SqliteStore> {
    let path = data_dir.file(DATABASE)?;
    let options = Options {
        max_queued_jobs: settings.writer_queue_jobs,
        max_queued_bytes: settings.writer_queue_bytes,
        max_hot_bytes: settings.writer_hot_bytes,
        readers: settings.sqlite_readers,
        ..Options::default()
    };
    SqliteStore::open(&path, &options).with_context(|| format!("{}", path.display()))
}

/// The time without a commit after which a clock that is far ahead is the likelier explanation.
const LONG_REST_MS: i64 = 30 * 86_400_000;

/// Starts a clock that is not behind the last time that was stored before the restart.
fn start_clock(store: &dyn Store) -> GuardedClock {
    let clock = GuardedClock::start();
    let wall = clock.now();
    let last = store.last_time();
    let ahead_ms = wall.millis_since(last);
    if last != Timestamp::default() && ahead_ms > LONG_REST_MS {
        tracing::warn!(
            ahead_days = ahead_ms / 86_400_000,
            "the machine's clock is far ahead of the last commit; if it is wrong, stop this server, set the \
             clock and start again: the server's time never runs back"
        );
    }
    clock.raise_to(last);
    let behind_ms = clock.now().millis_since(wall);
    if behind_ms > 1_000 {
        tracing::warn!(
            behind_ms,
            "the machine's clock is behind the last commit; time goes on from there"
        );
    }
    clock
}

/// Returns the settings of the engine.
pub fn for_engine(settings: &Settings) -> asyncgate_engine::Settings {
    let policy = Policy {
        default_lease_ttl_ms: millis(settings.default_lease_ttl),
        max_lease_ttl_ms: millis(settings.max_lease_ttl),
        lease_grace_ms: millis(settings.lease_grace),
        expiry_jitter_ms: millis(settings.expiry_jitter_max),
        default_max_attempts: settings.default_max_attempts,
        max_lease_expiries: settings.max_lease_expiries,
        default_retry_backoff_seconds: settings.default_retry_backoff_seconds,
        max_retry_backoff_seconds: settings.max_retry_backoff_seconds,
        default_priority: settings.default_priority,
        locatability: if settings.strict_locatability {
            Locatability::Strict
        } else {
            Locatability::Lenient
        },
        max_payload_bytes: settings.max_payload_bytes,
        max_task_classes: settings.max_task_classes,
        mailbox: settings.mailbox.clone(),
        ..Policy::default()
    };
    asyncgate_engine::Settings {
        instance_id: settings.instance_id.as_str().into(),
        environment: settings.environment.clone(),
        version: env!("CARGO_PKG_VERSION"),
        durability: match settings.store {
            StoreKind::Memory => Durability::None,
            StoreKind::Sqlite => Durability::Fsync,
        },
        profile: settings.profile.as_str(),
        policy: Arc::new(policy),
        bodies: Bodies {
            ratio_cap: settings.decompress_ratio_cap,
            pause: settings.read_timeout,
            bytes_per_second: settings.min_transfer_rate,
            budget_bytes: memory::budget(settings.memory_budget),
        },
        trusted_proxies: settings.trusted_proxies.clone(),
        default_list_limit: settings.default_list_limit,
        max_list_limit: settings.max_list_limit,
        default_bootstrap_items: settings.default_bootstrap_items,
        max_bootstrap_items: settings.max_bootstrap_items,
        sweep_interval_ms: settings.lease_sweep_interval.as_secs() * 1_000,
        sign_interval_seconds: settings.ledger_sign_interval.as_secs(),
        audit_retention_days: settings.audit_retention_days,
        limits: Arc::new(settings.limits.clone()),
        tenants: Arc::new(settings.tenants.quotas.clone()),
        metering: settings.tenants.metering,
        retries: settings.tenants.retries,
        ingress: Arc::new(settings.ingress.clone()),
        warrants: Arc::new(settings.warrants.clone()),
        domains: Arc::new(for_domains(&settings.domains)),
        admission: settings.admission.clone(),
        topic_classes: settings.topic_classes.clone(),
    }
}

/// Returns the options of the MCP facade.
pub fn for_mcp(settings: &Settings) -> asyncgate_mcp::Options {
    asyncgate_mcp::Options {
        allowed_origins: settings.allowed_origins.clone(),
        max_input_bytes: settings.max_body_bytes,
        tool_names: settings.tool_names,
        toolsets: settings.toolsets,
        ..asyncgate_mcp::Options::default()
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::settings;

    #[test]
    fn the_defaults_are_the_rules_own() {
        assert_eq!(*for_engine(&settings(&[])).policy, Policy::default());
    }

    #[test]
    fn each_setting_reaches_the_rule_that_reads_it() {
        let given = for_engine(&settings(&[
            ("default_lease_ttl_seconds", "11"),
            ("max_lease_ttl_seconds", "12"),
            ("lease_grace_seconds", "13"),
            ("expiry_jitter_max_seconds", "14"),
            ("default_max_attempts", "15"),
            ("max_lease_expiries", "9"),
            ("default_retry_backoff_seconds", "16"),
            ("max_retry_backoff_seconds", "17"),
            ("default_priority", "-18"),
            ("receipts.locatability", "strict"),
            ("max_payload_bytes", "1900"),
            ("max_task_classes", "1950"),
            ("default_list_limit", "20"),
            ("max_list_limit", "21"),
            ("default_bootstrap_max_items", "22"),
            ("max_bootstrap_max_items", "23"),
            ("lease_sweep_interval_seconds", "24"),
            ("instance_id", "here"),
            ("environment", "test"),
            ("store", "memory"),
        ]));
        let policy = Policy {
            default_lease_ttl_ms: 11_000,
            max_lease_ttl_ms: 12_000,
            lease_grace_ms: 13_000,
            expiry_jitter_ms: 14_000,
            default_max_attempts: 15,
            max_lease_expiries: 9,
            default_retry_backoff_seconds: 16,
            max_retry_backoff_seconds: 17,
            default_priority: -18,
            locatability: Locatability::Strict,
            max_payload_bytes: 1_900,
            max_task_classes: 1_950,
            ..Policy::default()
        };
        assert_eq!(*given.policy, policy);
        let limits = (
            given.default_list_limit,
            given.max_list_limit,
            given.default_bootstrap_items,
            given.max_bootstrap_items,
            given.sweep_interval_ms,
        );
        assert_eq!(limits, (20, 21, 22, 23, 24_000));
        assert_eq!(
            (&*given.instance_id, given.environment.as_str()),
            ("here", "test")
        );
        assert_eq!(given.durability, Durability::None);
    }
}
