//! Admission: decides if something may happen now.
//!
//! A question is answered from small rows that are found by a [`Name`]: nonces that were seen,
//! calls that were counted, tokens that are left, delays that run. Each row carries the time until
//! which it matters; a store may forget it from then on, and must not before.
//!
//! Invariants: the same row and the same question give the same answer on every backend; a question
//! of several parts is answered in one step, all or nothing; all figures are integers, so that
//! rounding neither loses nor gains anything.

mod asks;
mod bucket;
mod call_limits;
mod delay;
mod descriptors;
mod domain;
mod limits;
mod name;
mod nonce;
mod revocation;
mod rule;
mod window;

pub use asks::{Asks, Decision, Together, Verdicts, decide};
pub use bucket::{Bucket, MILLIONTHS};
pub use call_limits::{CallCheck, SERVER_TENANT, Scope, hourly_checks};
pub use delay::{Attempt, Delay, Progress, Stage, attempt};
pub use domain::DomainState;
pub use limits::{
    ClientTier, DOMAINS_POLICY, Flaw, Limits, Policy, Resolved, Tier, Tiered, UnknownPolicy,
};
pub use name::Name;
pub use nonce::{MAX_NONCE_BYTES, NonceCheck, NonceResult};
pub use revocation::{
    Freshness, NotAKind, Protected, Revocation, RevocationCache, Subject, SubjectKind, sha256,
};
pub use rule::{LimitCheck, Limited, Rule, Standing, limit};
pub use window::{Counted, Increment, Window};

use crate::Timestamp;

/// The longest window and life that can be asked for: 90 days.
pub const MAX_SECS: u64 = 7_776_000;

/// The memory kept under one [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The content.
    pub cell: Cell,
    /// The end of its life. From this time on, the row counts as absent.
    pub until: Timestamp,
}

/// The content of a [`Row`]. Its sort is part of the name, so no row is ever read as another sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A nonce that was seen.
    Nonce {
        /// The time of its first use, in seconds since 1970.
        first_seen: i64,
    },
    /// Calls in one window.
    Window {
        /// The number of calls.
        count: u64,
    },
    /// The content of a bucket.
    Bucket {
        /// The content, in parts of a token; negative when overdrawn.
        level: i64,
        /// The number of parts in a token.
        unit: u64,
        /// The time of this content, in milliseconds since 1970.
        at: i64,
    },
    /// The progress through a sequence of delays.
    Delay {
        /// The number of accepted attempts.
        counter: u64,
        /// The start of the next delay, in seconds since 1970.
        timer: i64,
    },
}

/// The end of a row that matters for ever.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// Returns whole seconds since 1970.
const fn seconds(now: Timestamp) -> i64 {
    now.as_millis().div_euclid(1_000)
}

/// Returns the first moment of a second.
const fn at_second(second: i64) -> Timestamp {
    Timestamp::from_millis(second.saturating_mul(1_000))
}
