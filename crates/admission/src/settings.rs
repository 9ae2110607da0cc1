//! What an operator can set.

use std::time::Duration;

use asyncgate_core::admission::{Protected, RevocationCache};

/// What is done when the host does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureMode {
    /// Nothing may happen.
    Closed,
    /// Everything may happen.
    Open,
    /// What was known counts, for a while; where nothing is kept, nothing may happen.
    StaleCache,
}

impl FailureMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Closed, Self::Open, Self::StaleCache];

    /// The mode's name on the wire and in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::StaleCache => "stale_cache",
        }
    }

    /// The mode with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// The parts of a host that fail apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Component {
    /// Nonces.
    Nonces,
    /// Counters and limits.
    Counters,
    /// Revocations.
    Revocations,
}

impl Component {
    /// Every part, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Nonces, Self::Counters, Self::Revocations];

    /// The part's name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nonces => "nonce_store",
            Self::Counters => "counter_store",
            Self::Revocations => "revocation_registry",
        }
    }
}

/// How a guard stands before its host. It can be changed while it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a call may take before the failure mode counts.
    pub timeout: Duration,
    /// What is done about nonces.
    pub nonces: FailureMode,
    /// What is done about counters and limits.
    pub counters: FailureMode,
    /// What is done about revocations.
    pub revocations: FailureMode,
    /// How long answers about revocations are kept.
    pub cache: RevocationCache,
    /// Keys that cannot be revoked.
    pub protected: Protected,
}

impl Settings {
    /// What is done when a part does not answer.
    pub const fn mode(&self, component: Component) -> FailureMode {
        match component {
            Component::Nonces => self.nonces,
            Component::Counters => self.counters,
            Component::Revocations => self.revocations,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_millis(100),
            nonces: FailureMode::Closed,
            counters: FailureMode::Open,
            revocations: FailureMode::StaleCache,
            cache: RevocationCache::default(),
            protected: Protected::default(),
        }
    }
}
