//! What was changed in memory and is not on disk yet.
//!
//! Invariant: a changed cell stands in the list, is being written, or is in a commit that is not synced yet, until it is on
//! disk. How long the oldest change has waited says what a crash would cost.

use std::{collections::VecDeque, time::Duration};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Name, Row},
};
use asyncgate_store::{Health, Stopwatch};

use super::{HotCells, LATE};

#[derive(Debug, Default)]
pub(super) struct Unwritten {
    /// The changed cells, and since when.
    listed: VecDeque<(Name, Stopwatch)>,
    /// The oldest change of those that are being written.
    writing: Option<Stopwatch>,
    /// The oldest change in the commit that is not on disk yet, and the number of that commit.
    unsynced: Option<(Stopwatch, u64)>,
}

impl Unwritten {
    pub(super) fn list(&mut self, name: Name) {
        self.listed.push_back((name, Stopwatch::start()));
    }

    /// Returns true if a change has waited for longer than that.
    pub(super) fn is_late(&self, longest: Duration) -> bool {
        let listed = self.listed.front().map(|(_, since)| since);
        let unsynced = self.unsynced.as_ref().map(|(since, _)| since);
        let waiting = [listed, self.writing.as_ref(), unsynced];
        let mut waiting = waiting.into_iter().flatten();
        waiting.any(|since| since.elapsed() > longest)
    }
}

/// Cells that are written in one commit.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) cells: Vec<TakenCell>,
    /// The time of the latest decision about them.
    pub(crate) at: Timestamp,
    begun: Stopwatch,
}

#[derive(Debug)]
pub(crate) struct TakenCell {
    pub(crate) tenant: TenantId,
    pub(crate) name: Name,
    pub(crate) row: Row,
    changes: u32,
    since: Stopwatch,
}

impl HotCells {
    /// Returns whether changes are written in time.
    pub(crate) fn health(&self) -> Health {
        let cells = self.cells();
        match cells.unwritten.is_late(cells.options.refuse_after) {
            false => Health::Ready,
            true => Health::Failing(LATE.to_owned()),
        }
    }

    /// Returns the time until something is to be written; absent if nothing was changed.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let cells = self.cells();
        let listed = &cells.unwritten.listed;
        let (_, since) = listed.front()?;
        // Changed cells cannot leave. They must not fill the memory.
        let is_full = listed.len() > cells.options.max_cells / 2;
        let due_in = cells.options.write_after.saturating_sub(since.elapsed());
        Some(if is_full { Duration::ZERO } else { due_in })
    }

    /// Takes up to `most` changed cells, the oldest change first. No transaction may be open.
    pub(crate) fn take(&self, most: usize) -> Taken {
        let cells = &mut *self.cells();
        let mut taken = Taken {
            cells: Vec::new(),
            at: cells.last_time,
            begun: Stopwatch::start(),
        };
        while taken.cells.len() < most
            && let Some((name, since)) = cells.unwritten.listed.pop_front()
        {
            let Some(slot) = cells.slots.get_mut(&name) else {
                continue;
            };
            match slot.row {
                Some(row) if slot.changes != slot.written => taken.cells.push(TakenCell {
                    tenant: slot.tenant,
                    name,
                    row,
                    changes: slot.changes,
                    since,
                }),
                // A transaction has written it meanwhile.
                _ => slot.is_listed = false,
            }
        }
        cells.unwritten.writing = taken.cells.first().map(|cell| cell.since);
        taken
    }

    /// Notes that cells were written in a commit. Those that were changed since are listed again.
    pub(crate) fn written(&self, taken: &Taken, commit: u64) {
        let cells = &mut *self.cells();
        let oldest = cells.unwritten.writing.take();
        // The commit before this one was synced before this one was written.
        cells.unwritten.unsynced = oldest.map(|oldest| (oldest, commit));
        for cell in &taken.cells {
            let Some(slot) = cells.slots.get_mut(&cell.name) else {
                continue;
            };
            slot.written = cell.changes;
            slot.is_listed = slot.changes != slot.written;
            if slot.is_listed {
                let again = (cell.name, taken.begun);
                cells.unwritten.listed.push_back(again);
            }
        }
    }

    /// Lists cells again that could not be written, before all others.
    pub(crate) fn put_back(&self, taken: &Taken) {
        let unwritten = &mut self.cells().unwritten;
        unwritten.writing = None;
        for cell in taken.cells.iter().rev() {
            unwritten.listed.push_front((cell.name, cell.since));
        }
    }

    /// Notes that a commit and all before it are on disk.
    pub(crate) fn synced(&self, commit: u64) {
        let unsynced = &mut self.cells().unwritten.unsynced;
        if unsynced.as_ref().is_some_and(|(_, of)| *of <= commit) {
            *unsynced = None;
        }
    }
}
