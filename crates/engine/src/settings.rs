//! What an operator can set about the engine.

use std::{sync::Arc, time::Duration};

use asyncgate_core::{Policy, admission::Limits};
use asyncgate_warrants::RevocationPolicy;

use crate::Ingresses;

/// The engine's settings. They can be replaced while it runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which of several servers this is.
    pub instance_id: Arc<str>,
    /// Where it runs, as its operator calls it.
    pub environment: String,
    /// The server's version.
    pub version: &'static str,
    /// Whether answers are durable.
    pub durability: Durability,
    /// How the server is deployed: `micronode` or `macronode`.
    pub profile: &'static str,
    /// What the rules read.
    pub policy: Arc<Policy>,
    /// How bodies may come.
    pub bodies: Bodies,
    /// The page size when a list names none.
    pub default_list_limit: u32,
    /// The largest page.
    pub max_list_limit: u32,
    /// The page size when bootstrap names none.
    pub default_bootstrap_items: u32,
    /// The largest page of bootstrap.
    pub max_bootstrap_items: u32,
    /// The longest time between two looks at deadlines.
    pub sweep_interval_ms: u64,
    /// How often a signed head is written into each ledger that has grown; 0 means never.
    pub sign_interval_seconds: u64,
    /// The policies that limits can be asked by.
    pub limits: Arc<Limits>,
    /// The ways in for senders that sign.
    pub ingress: Arc<Ingresses>,
    /// What warrants are verified by.
    pub warrants: Arc<asyncgate_warrants::Policy>,
    /// How the host of admission is asked.
    pub admission: asyncgate_admission::Settings,
    /// What topics are called in metrics and logs: the class of the first prefix that fits.
    pub topic_classes: Vec<(String, String)>,
}

impl Settings {
    /// What a topic is called in metrics and logs.
    pub fn topic_class(&self, topic: &str) -> &str {
        let mut classes = self.topic_classes.iter();
        let found = classes.find(|(prefix, _)| topic.starts_with(prefix.as_str()));
        found.map_or("other", |(_, class)| class)
    }
}

/// How the bodies of requests may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bodies {
    /// How many times its size a compressed one may unpack to.
    pub ratio_cap: u32,
    /// The longest pause while one arrives.
    pub pause: Duration,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            ratio_cap: 10,
            pause: Duration::from_secs(5),
        }
    }
}

impl Durability {
    /// What becomes of dead letters.
    pub const fn dlq_profile(self) -> &'static str {
        match self {
            Self::Fsync => "durable",
            Self::None => "ephemeral",
        }
    }
}

/// What a success answer means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It is on disk.
    Fsync,
    /// It lasts as long as the process.
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
            default_list_limit: 50,
            max_list_limit: 200,
            default_bootstrap_items: 50,
            max_bootstrap_items: 200,
            sweep_interval_ms: 10_000,
            sign_interval_seconds: 3_600,
            limits: Arc::new(Limits::default()),
            ingress: Arc::default(),
            warrants: Arc::new(asyncgate_warrants::Policy {
                trusted_roots: Vec::new(),
                require_pop: false,
                revocation: RevocationPolicy::Marked,
                clock_skew_secs: 30,
            }),
            admission: asyncgate_admission::Settings::default(),
            topic_classes: Vec::new(),
        }
    }
}
