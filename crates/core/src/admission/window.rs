//! Windows of time that begin at multiples of their length since 1970, and counts of calls in them.

use super::{Cell, Flaw, Limited, MAX_SECS, Name, Row, Standing, at_second, name::Sort, seconds};
use crate::{TenantId, Timestamp};

/// The longest time that a window is kept after its end: the clock of another instance may be behind.
const LINGER_SECS: i64 = 60;

/// A call to be counted. Every call counts, even one that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Increment {
    /// The name of the counter.
    pub namespace: [u8; 32],
    /// The length of a window, at least 1.
    pub window_secs: u64,
    /// The number of calls that a window may have.
    pub limit: u64,
    /// The number of calls to add.
    pub by: u64,
}

/// The answer of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// True if the count is within the limit.
    pub allowed: bool,
    /// The count, this call included. It stops at the largest number instead of overflowing.
    pub count: u64,
    /// The number of calls that are left.
    pub remaining: u64,
    /// The number of the window since 1970.
    pub bucket: u64,
    /// The end of the window, in seconds since 1970.
    pub reset_at: i64,
    /// Seconds to the end of the window, at least 1.
    pub retry_after_secs: u64,
}

impl Increment {
    pub(super) fn name(&self, tenant: TenantId, now: Timestamp) -> Name {
        // The window is part of the name, so each window starts with a row of its own and nothing is reset.
        let bucket = Frame::at(now, self.window_secs).bucket;
        let parts: [&[u8]; 3] = [
            &self.namespace,
            &self.window_secs.to_be_bytes(),
            &bucket.to_be_bytes(),
        ];
        Name::new(tenant, Sort::Counter, &parts)
    }

    pub(super) fn decide(&self, now: Timestamp, stored: Option<Row>) -> (Row, Counted) {
        let frame = Frame::at(now, self.window_secs);
        let count = count(stored).saturating_add(self.by);
        let counted = Counted {
            allowed: count <= self.limit,
            count,
            remaining: self.limit.saturating_sub(count),
            bucket: frame.bucket,
            reset_at: frame.end,
            retry_after_secs: frame.left(now),
        };
        (frame.row(count), counted)
    }
}

/// A limit on calls in one window. A refusal costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The number of calls that a window may have.
    pub limit: u64,
    /// The length of a window, at least 1.
    pub window_secs: u64,
}

impl Window {
    /// Builds a limit of `limit` calls in `window_secs` seconds.
    pub fn new(limit: u64, window_secs: u64) -> Result<Self, Flaw> {
        if limit == 0 {
            return Err(Flaw::Zero { fields: "limit" });
        }
        if !(1..=MAX_SECS).contains(&window_secs) {
            return Err(Flaw::WindowLength { max: MAX_SECS });
        }
        Ok(Self { limit, window_secs })
    }

    pub(super) fn name(self, tenant: TenantId, now: Timestamp, policy: &str, key: &str) -> Name {
        let bucket = Frame::at(now, self.window_secs).bucket;
        let parts: [&[u8]; 4] = [
            policy.as_bytes(),
            key.as_bytes(),
            &self.window_secs.to_be_bytes(),
            &bucket.to_be_bytes(),
        ];
        Name::new(tenant, Sort::Window, &parts)
    }

    pub(super) fn decide(
        self,
        now: Timestamp,
        cost: i64,
        stored: Option<Row>,
    ) -> (Limited, Option<Row>) {
        let frame = Frame::at(now, self.window_secs);
        let before = count(stored);
        let wanted = u64::try_from(cost).unwrap_or(0);
        let after = if cost < 0 {
            before.saturating_sub(cost.unsigned_abs())
        } else {
            before.saturating_add(wanted)
        };
        // The limit may have been lowered since, so the count may stay above it; giving back is always
        // allowed.
        let allowed = after <= self.limit || cost < 0;
        let count = if allowed { after } else { before };
        // A wait only helps if the whole cost fits into an empty window.
        let retry = (wanted <= self.limit).then(|| frame.left(now));
        let limited = Limited {
            allowed,
            shadowed: false,
            limit: self.limit,
            remaining: self.limit.saturating_sub(count),
            reset_at: frame.end,
            retry_after_secs: retry.filter(|_| !allowed),
            standing: Standing::Window,
        };
        let write = (allowed && count != before).then(|| frame.row(count));
        (limited, write)
    }
}

fn count(stored: Option<Row>) -> u64 {
    match stored {
        Some(Row {
            cell: Cell::Window { count },
            ..
        }) => count,
        _ => 0,
    }
}

/// One window of time.
struct Frame {
    bucket: u64,
    end: i64,
    linger: i64,
}

impl Frame {
    fn at(now: Timestamp, window_secs: u64) -> Self {
        let window = i64::try_from(window_secs.max(1)).unwrap_or(i64::MAX);
        let bucket = seconds(now).max(0) / window;
        Self {
            bucket: bucket.unsigned_abs(),
            end: bucket.saturating_add(1).saturating_mul(window),
            linger: window.min(LINGER_SECS),
        }
    }

    fn left(&self, now: Timestamp) -> u64 {
        // At least a second, because a client that is told 0 would try again in the same window.
        u64::try_from(self.end.saturating_sub(seconds(now))).map_or(1, |left| left.max(1))
    }

    fn row(&self, count: u64) -> Row {
        Row {
            cell: Cell::Window { count },
            until: at_second(self.end.saturating_add(self.linger)),
        }
    }
}
