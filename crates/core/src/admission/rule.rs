//! One limit: a rule, the key it applies to, and its answer.

use std::sync::Arc;

use super::{Bucket, Delay, MAX_SECS, Name, Progress, Row, Window};
use crate::{TenantId, Timestamp};

/// The way in which something is limited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// A burst at once, and then a rate per minute.
    Bucket(Bucket),
    /// A number of calls in each window.
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

    /// Returns true if the limit is fleeting: it forgets by itself, within [`MAX_SECS`], what it has counted. A store
    /// may lose the last moment of such a count in a crash. It must not lose an attempt of a sequence of delays, or a
    /// call of a quota that never begins again, because the same call would pass twice.
    pub const fn is_fleeting(&self) -> bool {
        match self {
            Self::Bucket(bucket) => bucket.fill_secs() <= MAX_SECS,
            Self::Window(window) => window.window_secs <= MAX_SECS,
            Self::Delay(_) => false,
        }
    }
}

/// A question to one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitCheck {
    /// The name of the rule in the settings. Each name has rows of its own.
    pub policy: Arc<str>,
    /// The client or thing that is limited, 1 to 256 bytes.
    pub key: String,
    /// The rule.
    pub rule: Rule,
    /// The amount wanted. Zero only looks; a negative amount gives back.
    pub cost: i64,
    /// True if a refusal is only counted and the call is allowed all the same.
    pub shadow: bool,
}

/// The answer of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// True if the call may happen.
    pub allowed: bool,
    /// True if the rule would have refused but is only on trial.
    pub shadowed: bool,
    /// The most that can be had at once.
    pub limit: u64,
    /// The amount that is left.
    pub remaining: u64,
    /// The time at which everything is there again, in seconds since 1970; for delays, the time of the
    /// next allowed attempt.
    pub reset_at: i64,
    /// The wait after which the same call would be allowed; absent if it is allowed now or never will be.
    pub retry_after_secs: Option<u64>,
    /// The details that only this kind of rule has.
    pub standing: Standing,
}

/// The state of a limit after the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// A bucket, in parts of a token.
    Bucket {
        /// The number of parts; negative when overdrawn.
        level: i64,
        /// The number of parts in a token.
        unit: u64,
    },
    /// A window.
    Window,
    /// A sequence of delays.
    Delay(Progress),
}

impl LimitCheck {
    /// Returns the name of the limit's row.
    pub fn name(&self, tenant: TenantId, now: Timestamp) -> Name {
        match &self.rule {
            Rule::Bucket(_) => Bucket::name(tenant, &self.policy, &self.key),
            Rule::Window(window) => window.name(tenant, now, &self.policy, &self.key),
            Rule::Delay(_) => Delay::name(tenant, &self.policy, &self.key),
        }
    }
}

/// Returns the limit's answer to a call, and the row to write if the call changes it.
pub fn limit(check: &LimitCheck, now: Timestamp, stored: Option<Row>) -> (Limited, Option<Row>) {
    // A store may return a row past its end; it counts as absent.
    let stored = stored.filter(|row| row.until > now);
    let (mut limited, row) = match &check.rule {
        Rule::Bucket(bucket) => bucket.decide(now, check.cost, stored),
        Rule::Window(window) => window.decide(now, check.cost, stored),
        Rule::Delay(delay) => delay.decide(now, check.cost, stored),
    };
    // The row is that of a refusal: a rule on trial counts as if it were in force.
    if check.shadow && !limited.allowed {
        limited.allowed = true;
        limited.shadowed = true;
    }
    (limited, row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Stage;

    #[test]
    fn a_fleeting_limit_forgets_within_ninety_days() {
        let bucket = |per_ms| Rule::Bucket(Bucket::new(10, 1, per_ms).unwrap());
        let window = |window_secs| {
            Rule::Window(Window {
                limit: 1,
                window_secs,
            })
        };
        let tenth_of_it = MAX_SECS * 100;
        let delay = Delay::new(vec![Stage::after(0)]).unwrap();
        for (rule, expected) in [
            (bucket(1), true),
            (bucket(tenth_of_it), true),
            (bucket(tenth_of_it + 1), false),
            (window(1), true),
            (window(MAX_SECS), true),
            // The quota of a macaroon: one window from 1970 to its end.
            (window(1_767_610_800), false),
            (Rule::Delay(Arc::new(delay)), false),
        ] {
            assert_eq!(rule.is_fleeting(), expected, "{rule:?}");
        }
    }
}
