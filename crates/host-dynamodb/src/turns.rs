//! Callers of one process take turns at a row.
//!
//! Two that write one row at once cost one of them another try. Between processes nothing else is
//! possible; within one, waiting is cheaper. Who has a turn also knows how the last one left the row, and
//! can begin with a guess instead of a question.

use asyncgate_core::admission::Name;
use tokio::sync::{Mutex, MutexGuard};

use crate::rows::Stored;

/// How many rows can be worked at, at once. Rows that fall together wait for each other.
const SEATS: usize = 1_024;

type Seat = Option<(Name, Stored)>;

#[derive(Debug)]
pub(crate) struct Turns {
    seats: Vec<Mutex<Seat>>,
}

impl Default for Turns {
    fn default() -> Self {
        let mut seats = Vec::new();
        seats.resize_with(SEATS, Mutex::default);
        Self { seats }
    }
}

/// The right to work at some rows.
#[derive(Debug, Default)]
pub(crate) struct Turn<'a> {
    held: Vec<(usize, MutexGuard<'a, Seat>)>,
}

impl Turns {
    /// Waits for all of the rows. Everybody begins with the lowest seat, so that nobody waits for one who
    /// waits for him.
    pub(crate) async fn take(&self, names: &[Name]) -> Turn<'_> {
        let mut seats: Vec<usize> = names.iter().map(|name| seat(*name)).collect();
        seats.sort_unstable();
        seats.dedup();
        let mut held = Vec::with_capacity(seats.len());
        for seat in seats {
            held.push((seat, self.seats[seat].lock().await));
        }
        Turn { held }
    }
}

impl Turn<'_> {
    /// How this process left the row, if it was the last at this seat.
    pub(crate) fn recall(&self, name: Name) -> Option<&Stored> {
        let (_, seat) = self.held.iter().find(|(number, _)| *number == seat(name))?;
        let (of, stored) = seat.as_ref()?;
        (*of == name).then_some(stored)
    }

    /// Keeps how the row was left.
    pub(crate) fn keep(&mut self, name: Name, stored: Stored) {
        let mut held = self.held.iter_mut();
        if let Some((_, seat)) = held.find(|(number, _)| *number == seat(name)) {
            **seat = Some((name, stored));
        }
    }
}

fn seat(name: Name) -> usize {
    let [.., a, b] = name.to_bytes();
    usize::from(u16::from_be_bytes([a, b])) % SEATS
}

#[cfg(test)]
mod tests {
    use asyncgate_core::{
        Timestamp,
        admission::{Cell, Row},
    };
    use futures_util::FutureExt;

    use super::*;

    fn name(first: u8, last: u8) -> Name {
        let mut bytes = [first; 16];
        bytes[14] = 0;
        bytes[15] = last;
        Name::from_bytes(bytes)
    }

    fn stored(count: u64) -> Stored {
        Stored::new(Row {
            cell: Cell::Window { count },
            until: Timestamp::from_millis(5),
        })
    }

    #[tokio::test]
    async fn a_turn_knows_what_the_last_one_left_and_no_other_row() {
        let turns = Turns::default();
        let both = [name(1, 7), name(1, 8)];
        let mut turn = turns.take(&both).await;
        assert_eq!(turn.recall(both[0]), None);
        turn.keep(both[0], stored(1));
        drop(turn);
        // One that falls together with it.
        let other = name(2, 7);
        let mut turn = turns.take(&[other, both[0], other]).await;
        assert_eq!(turn.recall(both[0]), Some(&stored(1)));
        assert_eq!(turn.recall(other), None);
        turn.keep(other, stored(2));
        assert_eq!(turn.recall(both[0]), None);
    }

    #[tokio::test]
    async fn one_waits_for_the_other() {
        let turns = Turns::default();
        let (one, other) = (name(1, 1), name(1, 2));
        let held = turns.take(&[other, one]).await;
        assert!(turns.take(&[one]).now_or_never().is_none());
        assert!(turns.take(&[other]).now_or_never().is_none());
        drop(held);
        assert!(turns.take(&[one, other]).now_or_never().is_some());
    }
}
