//! Admission: may this happen now?
//!
//! What is asked is answered from small rows that are found by a [`Name`]: nonces that were seen,
//! calls that were counted, tokens that are left, delays that run. A row says itself until when it
//! matters; a store may forget it from then on, and must not before.
//!
//! Invariants: the same row and the same question give the same answer on every backend; a question
//! of several parts is answered in one step, all or nothing; all figures are integers, so that
//! nothing is lost or won by rounding.

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
pub use call_limits::{SERVER_TENANT, Scope};
pub use delay::{Attempt, Delay, Progress, Stage, attempt};
pub use domain::DomainState;
pub use limits::{ClientTier, Flaw, Limits, Policy, Resolved, Tier, Tiered, UnknownPolicy};
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

/// What is remembered under one [`Name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// What there is to know.
    pub cell: Cell,
    /// Until when it matters. At this time and after it, the row is as good as not there.
    pub until: Timestamp,
}

/// The content of a [`Row`]. Its sort is part of the name, so that none is ever read as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// A nonce that was seen.
    Nonce {
        /// When first, in seconds since 1970.
        first_seen: i64,
    },
    /// Calls in one window.
    Window {
        /// How many.
        count: u64,
    },
    /// What a bucket holds.
    Bucket {
        /// In parts of a token; negative when overdrawn.
        level: i64,
        /// How many such parts a token has.
        unit: u64,
        /// When it was so, in milliseconds since 1970.
        at: i64,
    },
    /// How far a sequence of delays has come.
    Delay {
        /// How many attempts were accepted.
        counter: u64,
        /// From when the next delay counts, in seconds since 1970.
        timer: i64,
    },
}

/// A row that matters for ever.
const FOR_EVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// Whole seconds since 1970.
const fn seconds(now: Timestamp) -> i64 {
    now.as_millis().div_euclid(1_000)
}

/// The first time of a second.
const fn at_second(second: i64) -> Timestamp {
    Timestamp::from_millis(second.saturating_mul(1_000))
}
