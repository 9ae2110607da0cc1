//! Locks on rows, for the callers of one process.
//!
//! When two callers write one row at once, one of them has to try again. Between processes that cannot be
//! avoided; within one process waiting is cheaper. A lock also remembers how its last holder left the row, so
//! the next holder can start with that as its assumption and needs no read.

use asyncgate_core::admission::Name;
use tokio::sync::{Mutex, MutexGuard};

use crate::rows::Stored;

/// The number of locks. Rows whose names fall on the same lock wait for each other.
const LOCKS: usize = 1_024;

/// The row that was written last under a lock, and how it was left.
type LastWritten = Option<(Name, Stored)>;

#[derive(Debug)]
pub(crate) struct RowLocks {
    locks: Vec<Mutex<LastWritten>>,
}

impl Default for RowLocks {
    fn default() -> Self {
        let mut locks = Vec::new();
        locks.resize_with(LOCKS, Mutex::default);
        Self { locks }
    }
}

/// The locks that a caller holds. The default holds none.
#[derive(Debug, Default)]
pub(crate) struct RowGuard<'a> {
    held: Vec<(usize, MutexGuard<'a, LastWritten>)>,
}

impl RowLocks {
    /// Waits for the locks of all these rows.
    pub(crate) async fn lock(&self, names: &[Name]) -> RowGuard<'_> {
        // Everybody locks in ascending order, so that two callers never wait for each other.
        let mut indices: Vec<usize> = names.iter().map(|name| lock_index(*name)).collect();
        indices.sort_unstable();
        indices.dedup();
        let mut held = Vec::with_capacity(indices.len());
        for index in indices {
            held.push((index, self.locks[index].lock().await));
        }
        RowGuard { held }
    }
}

impl RowGuard<'_> {
    /// Returns how this process left the row, if no other row was written under its lock since.
    pub(crate) fn last_written(&self, name: Name) -> Option<&Stored> {
        let index = lock_index(name);
        let (_, last) = self.held.iter().find(|(held, _)| *held == index)?;
        let (of, stored) = last.as_ref()?;
        (*of == name).then_some(stored)
    }

    /// Remembers how the row was left.
    pub(crate) fn remember(&mut self, name: Name, stored: Stored) {
        let index = lock_index(name);
        let mut held = self.held.iter_mut();
        if let Some((_, last)) = held.find(|(held, _)| *held == index) {
            **last = Some((name, stored));
        }
    }
}

fn lock_index(name: Name) -> usize {
    // A name is a hash, so any of its bytes spread evenly.
    let [.., a, b] = name.to_bytes();
    usize::from(u16::from_be_bytes([a, b])) % LOCKS
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
    async fn a_holder_knows_how_the_last_one_left_the_row_and_no_other_row() {
        let locks = RowLocks::default();
        let both = [name(1, 7), name(1, 8)];
        let mut guard = locks.lock(&both).await;
        assert_eq!(guard.last_written(both[0]), None);
        guard.remember(both[0], stored(1));
        drop(guard);
        // A row that has the same lock.
        let other = name(2, 7);
        let mut guard = locks.lock(&[other, both[0], other]).await;
        assert_eq!(guard.last_written(both[0]), Some(&stored(1)));
        assert_eq!(guard.last_written(other), None);
        guard.remember(other, stored(2));
        assert_eq!(guard.last_written(both[0]), None);
    }

    #[tokio::test]
    async fn a_caller_waits_for_the_holder() {
        let locks = RowLocks::default();
        let (one, other) = (name(1, 1), name(1, 2));
        let held = locks.lock(&[other, one]).await;
        assert!(locks.lock(&[one]).now_or_never().is_none());
        assert!(locks.lock(&[other]).now_or_never().is_none());
        drop(held);
        assert!(locks.lock(&[one, other]).now_or_never().is_some());
    }
}
