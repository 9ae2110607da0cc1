//! The pace at which bytes must move between a client and the server, in either direction.
//!
//! Signs of life are no progress: a client that moves a byte now and then holds what it holds for as long as it likes.
//! So every transfer has some patience, which waiting uses up and bytes renew.

use std::time::Duration;

/// The most patience, as a multiple of the grace. Buffers on the way move in bursts: an honest client on a bad line
/// takes nothing for a while and then much at once.
const MOST_GRACES: u32 = 4;

/// The slowest pace that is borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The bytes that renew a second of patience.
    pub bytes_per_second: usize,
    /// The patience with which a transfer begins.
    pub grace: Duration,
}

/// The patience with one transfer.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    pace: Pace,
    left: Duration,
}

impl Patience {
    /// Returns the patience of a transfer that begins.
    pub fn new(pace: Pace) -> Self {
        Self {
            pace,
            left: pace.grace,
        }
    }

    /// Returns how long nothing may move from now on.
    pub fn left(&self) -> Duration {
        self.left
    }

    /// Returns true when nothing is left.
    pub fn is_over(&self) -> bool {
        self.left.is_zero()
    }

    /// Notes that so many bytes moved.
    pub fn moved(&mut self, bytes: usize) {
        let seconds = bytes as f64 / self.pace.bytes_per_second.max(1) as f64;
        let most = self.pace.grace * MOST_GRACES;
        let earned = Duration::try_from_secs_f64(seconds).unwrap_or(most);
        self.left = self.left.saturating_add(earned).min(most);
    }

    /// Notes that the client was waited for.
    pub fn waited(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const PACE: Pace = Pace {
        bytes_per_second: 1_000,
        grace: Duration::from_secs(5),
    };

    /// Returns the seconds that a transfer lasts, up to a hundred, if so many bytes move every so many seconds.
    fn lasts(bytes: usize, every: usize) -> usize {
        let mut patience = Patience::new(PACE);
        (1..=100)
            .find(|second| {
                if second % every == 0 {
                    patience.moved(bytes);
                }
                patience.waited(SECOND);
                patience.is_over()
            })
            .unwrap_or(100)
    }

    #[test]
    fn bytes_per_second_count_and_signs_of_life_do_not() {
        for (bytes, every, seconds) in [
            (0, 1, 5),
            (1, 1, 6),
            (20, 2, 6),
            (500, 1, 10),
            (1_000, 1, 100),
            // The same pace, in bursts.
            (16_000, 4, 100),
            (100_000, 15, 5),
            (usize::MAX, 1, 100),
        ] {
            assert_eq!(lasts(bytes, every), seconds, "{bytes} every {every} s");
        }
    }

    #[test]
    fn who_was_quick_may_rest_but_not_for_long() {
        let mut patience = Patience::new(PACE);
        patience.moved(1 << 40);
        assert_eq!(patience.left(), PACE.grace * MOST_GRACES);
        patience.waited(19 * SECOND);
        assert!(!patience.is_over());
        patience.waited(SECOND);
        assert!(patience.is_over());
    }
}
