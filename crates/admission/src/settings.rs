//! The settings of a guard.

use std::time::Duration;

use asyncgate_core::admission::{Protected, RevocationCache};

/// The treatment of calls when the host does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureMode {
    /// Everything is refused.
    Closed,
    /// Everything is allowed.
    Open,
    /// Kept answers count, for a while; without a kept answer, the call is refused.
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

    /// Returns the mode with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// The parts of a host that can fail independently.
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

/// The settings of a guard. They can be changed while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The time after which a call counts as failed.
    pub timeout: Duration,
    /// The failure mode of nonces.
    pub nonces: FailureMode,
    /// The failure mode of counters and limits.
    pub counters: FailureMode,
    /// The failure mode of revocations.
    pub revocations: FailureMode,
    /// The times for which answers about revocations are kept.
    pub cache: RevocationCache,
    /// Keys that cannot be revoked.
    pub protected: Protected,
}

impl Settings {
    /// Returns the failure mode of a part.
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
            // An accepted replay is an attack, so nonces fail closed. A limit that does not hold for a while
            // harms less than an outage, so counters fail open.
            nonces: FailureMode::Closed,
            counters: FailureMode::Open,
            revocations: FailureMode::StaleCache,
            cache: RevocationCache::default(),
            protected: Protected::default(),
        }
    }
}
