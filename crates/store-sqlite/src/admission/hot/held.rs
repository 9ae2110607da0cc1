//! The cells that the open transaction has looked at: limits that are asked about together with what must be on disk
//! before the answer, such as nonces and tasks.

use asyncgate_core::{
    TenantId,
    admission::{Name, Row},
};

use super::{Cells, HotCells, Slot};

/// A cell that the open transaction has looked at, as it was before.
#[derive(Debug)]
pub(super) struct Held {
    before: Option<Row>,
    /// True if the cell was in memory before.
    was_here: bool,
    is_changed: bool,
}

/// How a transaction has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Committed,
    RolledBack,
}

impl HotCells {
    /// Holds a cell until the open transaction ends, and returns it as that transaction has it. `in_file` is its row in
    /// the file: only the writer changes it, so it is the newest if the cell is not here.
    pub(crate) fn hold(&self, tenant: TenantId, name: Name, in_file: Option<Row>) -> Option<Row> {
        let cells = &mut *self.cells();
        let was_here = cells.slots.contains_key(&name);
        let slot = cells.slots.entry(name);
        let slot = slot.or_insert_with(|| Slot::new(tenant, in_file));
        cells.held.entry(name).or_insert(Held {
            before: slot.row,
            was_here,
            is_changed: false,
        });
        slot.row
    }

    /// Changes a cell as the open transaction has changed its row. Cells that are not held have nothing to do with
    /// limits.
    pub(crate) fn change_held(&self, name: Name, row: Row) {
        let cells = &mut *self.cells();
        if let Some(held) = cells.held.get_mut(&name)
            && let Some(slot) = cells.slots.get_mut(&name)
        {
            held.is_changed = true;
            slot.row = Some(row);
        }
    }

    /// Lets go of everything that was held, after the transaction has ended.
    pub(crate) fn release(&self, end: End) {
        let mut cells = self.cells();
        let held: Vec<(Name, Held)> = cells.held.drain().collect();
        for (name, held) in held {
            cells.release(name, &held, end);
        }
    }
}

impl Cells {
    fn release(&mut self, name: Name, held: &Held, end: End) {
        // A cell that came with the transaction goes with it, unless somebody reads it at this moment, who might not have
        // seen the commit.
        if !held.was_here && !self.pins.contains_key(&name) {
            self.slots.remove(&name);
            return;
        }
        let Some(slot) = self.slots.get_mut(&name) else {
            return;
        };
        match end {
            End::RolledBack => slot.row = held.before,
            End::Committed if held.is_changed => {
                // What was to be written stands in the file now.
                slot.changes = slot.changes.wrapping_add(1);
                slot.written = slot.changes;
            }
            End::Committed => {}
        }
        if !held.was_here {
            self.order.push_back(name);
        }
    }
}
