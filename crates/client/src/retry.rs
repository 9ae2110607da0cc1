//! The waits before a call is tried again.
//!
//! Waits have full jitter: each is a random time between nothing and a limit that doubles with each
//! attempt, so that many clients which lost the same server do not come back together. A
//! `Retry-After` is a lower bound.

use std::time::Duration;

use crate::random;

/// The bounds for repeated calls. [`Client`](crate::Client) says which calls are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// The most times a call is sent, the first one included.
    pub attempts: u32,
    /// After this time, counted from the start of the call, nothing is sent again. What a call asks
    /// the server to wait (`wait_seconds`) comes on top.
    pub total: Duration,
    /// The limit of the first wait; it doubles with each.
    pub first: Duration,
    /// The limit of any wait.
    pub longest: Duration,
}

impl Retry {
    /// Sends each call once.
    pub const NONE: Self = Self {
        attempts: 1,
        total: Duration::ZERO,
        first: Duration::ZERO,
        longest: Duration::ZERO,
    };

    /// Returns the time to wait after `failures` failures in a row.
    pub(crate) fn wait(&self, failures: u32, retry_after: Option<Duration>) -> Duration {
        let doublings = failures.saturating_sub(1).min(16);
        let limit = self
            .first
            .saturating_mul(1 << doublings)
            .min(self.longest.max(self.first));
        let jitter = random::part_of(limit);
        retry_after.map_or(jitter, |least| least.saturating_add(jitter))
    }
}

impl Default for Retry {
    /// Allows five attempts within thirty seconds, with waits of up to 0.1 s, 0.2 s, 0.4 s and 0.8 s.
    fn default() -> Self {
        Self {
            attempts: 5,
            total: Duration::from_secs(30),
            first: Duration::from_millis(100),
            longest: Duration::from_secs(5),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_longest() {
        let retry = Retry {
            first: Duration::from_millis(100),
            longest: Duration::from_millis(400),
            ..Retry::default()
        };
        for (failures, limit) in [(1, 100), (2, 200), (3, 400), (4, 400), (1_000, 400)] {
            let waits: Vec<_> = (0..200).map(|_| retry.wait(failures, None)).collect();
            let most = waits.iter().max().copied().unwrap();
            assert!(most < Duration::from_millis(limit), "{failures}: {most:?}");
            assert!(
                most > Duration::from_millis(limit / 2),
                "{failures}: {most:?}"
            );
        }
    }

    #[test]
    fn the_server_says_how_long_at_least() {
        let least = Duration::from_secs(2);
        let wait = Retry::default().wait(1, Some(least));
        assert!(wait >= least && wait < least + Duration::from_millis(100));
    }
}
