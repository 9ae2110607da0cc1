//! One limit: a rule, whose it is, and what it says.

use std::sync::Arc;

use super::{Bucket, Delay, Name, Progress, Row, Window};
use crate::{TenantId, Timestamp};

/// How something is limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A burst, and then so many a minute.
    Bucket(Bucket),
    /// So many in each window.
    Window(Window),
    /// Attempts in stages.
    Delay(Arc<Delay>),
}

impl Rule {
    /// The rule's name in settings.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Bucket(_) => "token_bucket",
            Self::Window(_) => "fixed_window",
            Self::Delay(_) => "sequential_delay",
        }
    }

    /// The most that can be had at once.
    pub fn limit(&self) -> u64 {
        match self {
            Self::Bucket(bucket) => bucket.capacity(),
            Self::Window(window) => window.limit,
            Self::Delay(delay) => delay.stages().len() as u64,
        }
    }
}

/// A limit to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitCheck {
    /// The name that the rule has in the settings. Rows of rules with other names are others.
    pub policy: Arc<str>,
    /// Whose limit it is, 1 to 256 bytes.
    pub key: String,
    /// The rule.
    pub rule: Rule,
    /// How much is wanted. Zero only looks; negative gives back.
    pub cost: i64,
    /// Whether a refusal is only counted, and the call allowed all the same.
    pub shadow: bool,
}

/// What a limit says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// Whether the call may happen.
    pub allowed: bool,
    /// Whether it would have been refused, were the rule not only tried out.
    pub shadowed: bool,
    /// The most that can be had at once.
    pub limit: u64,
    /// How much is left.
    pub remaining: u64,
    /// When all is there again, in seconds since 1970; for delays, when the next attempt is allowed.
    pub reset_at: i64,
    /// When the same call would be allowed; absent when it is, or never will be.
    pub retry_after_secs: Option<u64>,
    /// What the rule's kind has to say beyond that.
    pub standing: Standing,
}

/// How a limit stands after the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A bucket, in parts of a token.
    Bucket {
        /// How many there are; negative when overdrawn.
        level: i64,
        /// How many make a token.
        unit: u64,
    },
    /// A window.
    Window,
    /// A sequence of delays.
    Delay(Progress),
}

impl LimitCheck {
    /// Where the limit's row stands.
    pub fn name(&self, tenant: TenantId, now: Timestamp) -> Name {
        match &self.rule {
            Rule::Bucket(_) => Bucket::name(tenant, &self.policy, &self.key),
            Rule::Window(window) => window.name(tenant, now, &self.policy, &self.key),
            Rule::Delay(_) => Delay::name(tenant, &self.policy, &self.key),
        }
    }
}

/// What a limit says of a call, and the row to write. What is only asked about is not written.
pub fn limit(check: &LimitCheck, now: Timestamp, stored: Option<Row>) -> (Limited, Option<Row>) {
    let stored = stored.filter(|row| row.until > now);
    let (mut limited, row) = match &check.rule {
        Rule::Bucket(bucket) => bucket.decide(now, check.cost, stored),
        Rule::Window(window) => window.decide(now, check.cost, stored),
        Rule::Delay(delay) => delay.decide(now, check.cost, stored),
    };
    if check.shadow && !limited.allowed {
        limited.allowed = true;
        limited.shadowed = true;
    }
    (limited, row)
}
