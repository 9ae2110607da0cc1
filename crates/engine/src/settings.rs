//! The settings of the engine, as its operator chose them.

use std::{sync::Arc, time::Duration};

use asyncgate_core::{Policy, admission::Limits, mailbox::TopicClasses, outbox::RetryPolicy};
use asyncgate_warrants::{Network, RevocationPolicy};

use crate::{Domains, Ingresses, MeteringSettings, TenantSettings, outbox::RETRIES};

/// The engine's settings. They can be replaced while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The name of this server among several.
    pub instance_id: Arc<str>,
    /// The operator's name for the place where it runs.
    pub environment: String,
    /// The server's version.
    pub version: &'static str,
    /// The promise of a success answer.
    pub durability: Durability,
    /// The kind of deployment: `micronode` or `macronode`.
    pub profile: &'static str,
    /// The settings of the rules.
    pub policy: Arc<Policy>,
    /// The limits of request bodies.
    pub bodies: Bodies,
    /// The proxies whose word about the client of a request counts.
    pub trusted_proxies: Vec<Network>,
    /// The page size when a list names none.
    pub default_list_limit: u32,
    /// The largest page.
    pub max_list_limit: u32,
    /// The page size when bootstrap names none.
    pub default_bootstrap_items: u32,
    /// The largest page of bootstrap.
    pub max_bootstrap_items: u32,
    /// The longest time between two checks of deadlines.
    pub sweep_interval_ms: u64,
    /// The time between two signed heads of a ledger that grows; 0 means that none are written.
    pub sign_interval_seconds: u64,
    /// The days for which entries of audit logs are kept.
    pub audit_retention_days: u32,
    /// The policies of limits.
    pub limits: Arc<Limits>,
    /// The quotas of tenants.
    pub tenants: Arc<TenantSettings>,
    /// When tenants are metered.
    pub metering: MeteringSettings,
    /// How often and for how long what goes to other systems is tried.
    pub retries: RetryPolicy,
    /// The ways in for senders that sign.
    pub ingress: Arc<Ingresses>,
    /// The settings that verify warrants.
    pub warrants: Arc<asyncgate_warrants::Policy>,
    /// The settings of domains.
    pub domains: Arc<Domains>,
    /// The settings of the guard before the host of admission.
    pub admission: asyncgate_admission::Settings,
    /// The classes of topics, for metrics, logs and rights.
    pub topic_classes: TopicClasses,
}

impl Settings {
    /// Returns the class that stands for a topic in metrics and logs.
    pub fn topic_class(&self, topic: &str) -> &str {
        self.topic_classes.first(topic).unwrap_or(OTHER)
    }

    /// Returns every class that may stand for a topic in metrics and logs.
    pub fn classes(&self) -> impl Iterator<Item = &str> {
        self.topic_classes.names().chain([OTHER])
    }
}

/// The class of topics that have no other.
const OTHER: &str = "other";

/// The limits of request bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bodies {
    /// The most times its size that a compressed body may unpack to.
    pub ratio_cap: u32,
    /// The longest pause while a body arrives.
    pub pause: Duration,
    /// The slowest pace at which a body may arrive.
    pub bytes_per_second: usize,
    /// The memory that all bodies and answers under way may take together.
    pub budget_bytes: usize,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            ratio_cap: 10,
            pause: Duration::from_secs(5),
            bytes_per_second: 1 << 10,
            budget_bytes: 1 << 30,
        }
    }
}

impl Durability {
    /// Returns the name of what happens to dead letters at a restart.
    pub const fn dlq_profile(self) -> &'static str {
        match self {
            Self::Fsync => "durable",
            Self::None => "ephemeral",
        }
    }
}

/// The promise of a success answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// The change is on disk.
    Fsync,
    /// The change lasts as long as the process.
    None,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            instance_id: "asyncgate-1".into(),
            environment: "development".to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            durability: Durability::Fsync,
            profile: "macronode",
            policy: Arc::new(Policy::default()),
            bodies: Bodies::default(),
            trusted_proxies: Vec::new(),
            default_list_limit: 50,
            max_list_limit: 200,
            default_bootstrap_items: 50,
            max_bootstrap_items: 200,
            sweep_interval_ms: 10_000,
            sign_interval_seconds: 3_600,
            audit_retention_days: 90,
            limits: Arc::new(Limits::default()),
            tenants: Arc::default(),
            metering: MeteringSettings::default(),
            retries: RETRIES,
            ingress: Arc::default(),
            warrants: Arc::new(asyncgate_warrants::Policy {
                trusted_roots: Vec::new(),
                require_pop: false,
                revocation: RevocationPolicy::Marked,
                clock_skew_secs: 30,
            }),
            domains: Arc::default(),
            admission: asyncgate_admission::Settings::default(),
            topic_classes: TopicClasses::default(),
        }
    }
}
