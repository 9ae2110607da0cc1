//! The order in which rows are forgotten.
//!
//! Each row stands in one slot of time: the slot after the end that the row had when it came. If its end has moved since,
//! it gets a later slot when its slot is looked at. So a call that only changes a row has nothing to do here. Slots are
//! wider the further away they are, so there are never more than a few hundred.

use std::collections::BTreeMap;

use asyncgate_core::{Timestamp, admission::Name};

/// The width of the narrowest slot.
const NARROWEST_MS: i64 = 256;

/// The rows of admission in the order in which they are forgotten.
#[derive(Debug, Default)]
pub struct Expiry {
    /// Rows by the end of their slot, in milliseconds.
    slots: BTreeMap<i64, Vec<Name>>,
}

impl Expiry {
    /// Adds a row that ends at `until`. One that matters for ever is never looked at.
    pub fn add(&mut self, name: Name, until: Timestamp, now: Timestamp) {
        let until = until.as_millis();
        if until == i64::MAX {
            return;
        }
        let away = until.saturating_sub(now.as_millis()).max(0) / 16;
        let width = away.max(NARROWEST_MS).unsigned_abs().next_power_of_two();
        let width = i64::try_from(width).unwrap_or(i64::MAX);
        let end = (until.div_euclid(width) + 1).saturating_mul(width);
        self.slots.entry(end).or_default().push(name);
    }

    /// Takes a row whose slot is over. Each is given once.
    pub fn next(&mut self, now: Timestamp) -> Option<Name> {
        loop {
            let mut first = self.slots.first_entry()?;
            if *first.key() > now.as_millis() {
                return None;
            }
            match first.get_mut().pop() {
                Some(name) => return Some(name),
                None => {
                    first.remove();
                }
            }
        }
    }

    #[cfg(test)]
    fn slots(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: u32) -> Name {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        Name::from_bytes(bytes)
    }

    #[test]
    fn every_row_comes_up_once_after_its_end_and_not_long_after() {
        for life in [0, 1, 255, 1_000, 60_000, 86_400_000, 7_776_000_000] {
            let mut expiry = Expiry::default();
            let until = Timestamp::from_millis(life);
            expiry.add(name(7), until, Timestamp::default());
            assert_eq!(expiry.next(Timestamp::from_millis(life - 1)), None);
            let late = until.plus_millis(life / 8 + 2 * NARROWEST_MS);
            assert_eq!(expiry.next(late), Some(name(7)), "{life}");
            assert_eq!(expiry.next(late), None);
            assert_eq!(expiry.slots(), 0);
        }
    }

    #[test]
    fn there_are_few_slots_however_many_rows() {
        let mut expiry = Expiry::default();
        for n in 0..100_000_u32 {
            let life = i64::from(n).pow(2) % 7_776_000_000;
            expiry.add(name(n), Timestamp::from_millis(life), Timestamp::default());
        }
        assert!(expiry.slots() < 600, "{}", expiry.slots());
        expiry.add(
            name(0),
            Timestamp::from_millis(i64::MAX),
            Timestamp::default(),
        );
        let mut count = 0;
        while expiry.next(Timestamp::from_millis(i64::MAX - 1)).is_some() {
            count += 1;
        }
        assert_eq!(count, 100_000);
    }
}
