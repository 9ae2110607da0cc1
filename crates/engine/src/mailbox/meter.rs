//! Measures how fast messages leave the mailbox, so that a sender that finds it full knows when to come
//! back.

use std::sync::{Mutex, PoisonError};

use asyncgate_core::Timestamp;

const WINDOW_SECONDS: i64 = 10;
const LONGEST_SECONDS: i64 = 60;

/// The number of messages that left in each of the last ten seconds.
#[derive(Debug, Default)]
pub(crate) struct DrainMeter {
    /// Each second's number and count, at its number modulo the window.
    seconds: Mutex<[(i64, u64); WINDOW_SECONDS as usize]>,
}

impl DrainMeter {
    /// Counts messages that left.
    pub(crate) fn note(&self, now: Timestamp, messages: usize) {
        let second = now.as_millis().div_euclid(1_000);
        let place = second.rem_euclid(WINDOW_SECONDS) as usize;
        let mut seconds = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, count) = &mut seconds[place];
        if *at != second {
            (*at, *count) = (second, 0);
        }
        *count += messages as u64;
    }

    /// Estimates the seconds until the next message leaves.
    pub(crate) fn seconds_per_message(&self, now: Timestamp) -> u32 {
        let oldest = now.as_millis().div_euclid(1_000) - WINDOW_SECONDS;
        let counts = self.seconds.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = counts.iter().filter(|(at, _)| *at > oldest);
        let left: u64 = recent.map(|(_, count)| count).sum();
        let left = i64::try_from(left).unwrap_or(i64::MAX);
        match left {
            0 => LONGEST_SECONDS as u32,
            _ => seconds(WINDOW_SECONDS * 1_000 / left),
        }
    }
}

/// Returns a time to wait in whole seconds, at least one and at most a minute.
pub(super) fn seconds(millis: i64) -> u32 {
    let seconds = millis.max(0).saturating_add(999) / 1_000;
    seconds.clamp(1, LONGEST_SECONDS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_messages_leave_the_longer_the_wait() {
        let meter = DrainMeter::default();
        let at = |second: i64| Timestamp::from_millis(1_767_610_800_000 + second * 1_000);
        assert_eq!(meter.seconds_per_message(at(0)), 60, "nothing ever left");
        meter.note(at(0), 2);
        assert_eq!(meter.seconds_per_message(at(1)), 5);
        meter.note(at(1), 98);
        assert_eq!(meter.seconds_per_message(at(1)), 1);
        assert_eq!(meter.seconds_per_message(at(10)), 1, "98 are in the window");
        assert_eq!(meter.seconds_per_message(at(11)), 60, "none is");
        meter.note(at(11), 1);
        assert_eq!(
            meter.seconds_per_message(at(11)),
            10,
            "the old count is gone"
        );
    }
}
