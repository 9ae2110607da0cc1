//! Token buckets: a burst at once, and then a rate per minute.
//!
//! The content of a bucket is counted in parts of a token, so small that each millisecond brings a
//! whole number of them. So refilling is exact, however often it is computed.

use super::{Cell, Flaw, Limited, Name, Row, Standing, name::Sort};
use crate::{TenantId, Timestamp};

/// The number of millionths in a token. Refill rates are given in millionths.
pub const MILLIONTHS: u64 = 1_000_000;

/// The most parts that a bucket may hold: the largest integer that a 64-bit floating point number
/// holds exactly, because some backends run scripts that have no other numbers.
const MAX_PARTS: u64 = (1 << 53) - 1;

const MINUTE_MS: u64 = 60_000;

/// The size and rates of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bucket {
    capacity: u64,
    /// The number of parts that come back each millisecond.
    refill: u64,
    /// The number of parts in a token.
    unit: u64,
    overdraw: bool,
}

impl Bucket {
    /// Builds a bucket of `capacity` tokens, of which `refill` come back every `per_ms` milliseconds.
    pub fn new(capacity: u64, refill: u64, per_ms: u64) -> Result<Self, Flaw> {
        if capacity == 0 || refill == 0 || per_ms == 0 {
            return Err(Flaw::Zero {
                fields: "capacity and refill",
            });
        }
        // `refill` tokens in `per_ms` are `refill` parts of 1/`per_ms` token each millisecond. The
        // shortened fraction gives the fewest parts per token.
        let common = greatest_common_divisor(refill, per_ms);
        let (refill, unit) = (refill / common, per_ms / common);
        let parts = capacity.checked_mul(unit);
        if refill > MAX_PARTS || parts.is_none_or(|parts| parts > MAX_PARTS) {
            return Err(Flaw::TooFine);
        }
        Ok(Self {
            capacity,
            refill,
            unit,
            overdraw: false,
        })
    }

    /// Builds a bucket that gains `millionths` of a token each minute.
    pub fn per_minute(capacity: u64, millionths: u64) -> Result<Self, Flaw> {
        Self::new(capacity, millionths, MINUTE_MS * MILLIONTHS)
    }

    /// Sets if a refused call costs too, down to minus the capacity.
    #[must_use]
    pub const fn with_overdraw(mut self, overdraw: bool) -> Self {
        self.overdraw = overdraw;
        self
    }

    /// Returns the number of tokens in the full bucket.
    pub const fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the number of parts that come back each millisecond.
    pub const fn refill(&self) -> u64 {
        self.refill
    }

    /// Returns the number of parts in a token.
    pub const fn unit(&self) -> u64 {
        self.unit
    }

    /// Returns true if a refused call costs too.
    pub const fn overdraw(&self) -> bool {
        self.overdraw
    }

    /// Returns the seconds in which an empty bucket fills.
    pub const fn fill_secs(&self) -> u64 {
        self.full().unsigned_abs().div_ceil(self.refill * 1_000)
    }

    pub(super) fn name(tenant: TenantId, policy: &str, key: &str) -> Name {
        Name::new(tenant, Sort::Bucket, &[policy.as_bytes(), key.as_bytes()])
    }

    pub(super) fn decide(
        self,
        now: Timestamp,
        cost: i64,
        stored: Option<Row>,
    ) -> (Limited, Option<Row>) {
        let before = self.level(now, stored);
        let wanted = cost.saturating_mul(self.unit.cast_signed());
        let full = self.full();
        // More than the full bucket holds can never be allowed: no wait helps, and nothing is charged.
        let beyond = wanted > full;
        // Giving back is always allowed.
        let allowed = cost < 0 || (!beyond && before >= wanted);
        // Giving back never fills the bucket above its capacity, and overdraw ends at minus the capacity.
        let charged = before.saturating_sub(wanted).clamp(-full, full);
        let level = if allowed || (self.overdraw && !beyond) {
            charged
        } else {
            before
        };
        // From the content after the charge: an overdrawn bucket makes the next call wait longer.
        let wait = wanted.saturating_sub(level).max(1).unsigned_abs();
        let retry = wait.div_ceil(self.refill.saturating_mul(1_000)).max(1);
        let row = self.row(now, level);
        let limited = Limited {
            allowed,
            shadowed: false,
            limit: self.capacity,
            remaining: u64::try_from(level).unwrap_or(0) / self.unit,
            reset_at: row.until.as_millis().saturating_add(999).div_euclid(1_000),
            retry_after_secs: (!allowed && !beyond).then_some(retry),
            standing: Standing::Bucket {
                level,
                unit: self.unit,
            },
        };
        // A call that changes nothing writes nothing: refilling is computed from the time of the last write.
        (limited, (level != before).then_some(row))
    }

    /// Returns the content of the bucket now.
    fn level(self, now: Timestamp, stored: Option<Row>) -> i64 {
        let full = self.full();
        let Some(Row {
            cell: Cell::Bucket { level, unit, at },
            ..
        }) = stored
        else {
            return full;
        };
        // The rate may have changed since the row was written: the same tokens are now another number
        // of parts.
        let bounds = |level: i128| level.clamp(i128::from(-full), i128::from(full));
        let level = i128::from(level) * i128::from(self.unit) / i128::from(unit.max(1));
        // The clock of another instance may have been ahead when it wrote the row.
        let elapsed = now.as_millis().saturating_sub(at).max(0);
        let refilled = i128::from(elapsed) * i128::from(self.refill);
        // A smaller bucket cannot be overdrawn by more than it holds, even if a larger one was.
        let level = bounds(bounds(level) + refilled);
        i64::try_from(level).unwrap_or(full)
    }

    const fn full(&self) -> i64 {
        // `Bucket::new` has checked that this does not overflow.
        (self.capacity * self.unit).cast_signed()
    }

    fn row(self, now: Timestamp, level: i64) -> Row {
        let missing = self.full().saturating_sub(level).unsigned_abs();
        let millis = missing.div_ceil(self.refill);
        Row {
            cell: Cell::Bucket {
                level,
                unit: self.unit,
                at: now.as_millis(),
            },
            // A full bucket is the same as one that was never used, so the row may go then.
            until: now.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX)),
        }
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
