//! The cells of limits that were used lately, in memory. A check of a fleeting limit is decided here at once, and the
//! writer writes what it changed soon after (`hot/unwritten.rs`).
//!
//! Invariants: a cell that stands here is what its row would give, or newer. It leaves only when its row is the same and
//! nobody is about to use it. What the open transaction has looked at is held (`hot/held.rs`): nobody else decides about
//! it before the transaction has ended. Nothing here waits for the disk.

mod held;
#[cfg(test)]
mod tests;
mod unwritten;

use std::{
    collections::VecDeque,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, LimitCheck, Limited, Name, Row, Verdicts, decide, limit},
};
use asyncgate_store::Error;
use foldhash::HashMap;

use self::{held::Held, unwritten::Unwritten};

pub(crate) use self::{held::End, unwritten::Taken};

/// What callers and operators are told while limits cannot be written.
const LATE: &str = "the limits in memory could not be written for too long: check the disk";
/// The most cells that are looked at to make room for one. If none of them may go, the question takes the writer's way.
const LOOKS: usize = 16;

/// How limits are kept in memory and written behind.
#[derive(Debug, Clone, Copy)]
pub struct HotLimits {
    /// The most limits that are kept in memory.
    pub max_cells: usize,
    /// The time after which a change is written.
    pub write_after: Duration,
    /// The time without success after which no check passes any more.
    pub refuse_after: Duration,
}

impl Default for HotLimits {
    fn default() -> Self {
        Self {
            // Each takes about 150 bytes.
            max_cells: 1 << 16,
            // Half of the second that a crash may cost; the disk has the other half.
            write_after: Duration::from_millis(500),
            refuse_after: Duration::from_secs(5),
        }
    }
}

/// The cells, behind one lock: a decision takes less than a microsecond, and one question may ask about many cells.
#[derive(Debug)]
pub(crate) struct HotCells {
    cells: Mutex<Cells>,
}

#[derive(Debug)]
struct Cells {
    slots: HashMap<Name, Slot>,
    /// The cells in the order in which they are looked at to make room.
    order: VecDeque<Name>,
    /// The number of callers who wait for a cell to be read, or have not yet decided since.
    pins: HashMap<Name, u32>,
    held: HashMap<Name, Held>,
    unwritten: Unwritten,
    last_time: Timestamp,
    options: HotLimits,
}

#[derive(Debug)]
struct Slot {
    tenant: TenantId,
    row: Option<Row>,
    /// The number of changes, up to now and in the file.
    changes: u32,
    written: u32,
    /// True while it stands in the list of what is to be written, or is being written.
    is_listed: bool,
    /// True if somebody asked since it was last looked at to make room.
    was_used: bool,
}

impl Slot {
    const fn new(tenant: TenantId, row: Option<Row>) -> Self {
        Self {
            tenant,
            row,
            changes: 0,
            written: 0,
            is_listed: false,
            was_used: true,
        }
    }
}

/// A cell that a question needs is not here, or is held.
struct Missing;

impl HotCells {
    pub(crate) fn new(options: HotLimits) -> Self {
        Self {
            cells: Mutex::new(Cells {
                slots: HashMap::default(),
                order: VecDeque::new(),
                pins: HashMap::default(),
                held: HashMap::default(),
                unwritten: Unwritten::default(),
                last_time: Timestamp::default(),
                options,
            }),
        }
    }

    fn cells(&self) -> MutexGuard<'_, Cells> {
        self.cells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the latest time of a decision.
    pub(crate) fn last_time(&self) -> Timestamp {
        self.cells().last_time
    }

    /// Decides, unless a cell is missing and may be read. The question must be about fleeting limits.
    pub(crate) fn admit(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asks: &Asks,
    ) -> Option<Result<Verdicts, Error>> {
        let mut cells = self.cells();
        let now = cells.tick(now);
        let Ok(decision) = decide(tenant, now, asks, |name| cells.get(name)) else {
            // While the disk is late, nobody waits for it in vain.
            return cells.answer(true, ()).err().map(Err);
        };
        for (name, row) in decision.rows {
            cells.put(name, row);
        }
        let passed = decision.verdicts.passed();
        Some(cells.answer(passed, decision.verdicts))
    }

    /// Decides about one limit, unless its cell is missing, without a single allocation. The limit must be fleeting.
    pub(crate) fn check_limit(
        &self,
        tenant: TenantId,
        now: Timestamp,
        check: &LimitCheck,
    ) -> Option<Result<Limited, Error>> {
        let mut cells = self.cells();
        let now = cells.tick(now);
        let name = check.name(tenant, now);
        let stored = cells.get(name).ok()?;
        let (limited, row) = limit(check, now, stored);
        if let Some(row) = row {
            cells.put(name, row);
        }
        Some(cells.answer(limited.allowed, limited))
    }

    /// Pins the cells of a question, so that none of them leaves before it is decided.
    pub(crate) fn pin(self: &Arc<Self>, tenant: TenantId, now: Timestamp, asks: &Asks) -> Pinned {
        let mut cells = self.cells();
        let now = cells.tick(now);
        let names: Vec<Name> = asks.names(tenant, now).collect();
        for name in &names {
            *cells.pins.entry(*name).or_default() += 1;
        }
        drop(cells);
        Pinned {
            cells: Arc::clone(self),
            tenant,
            names,
        }
    }
}

/// Cells that stay once they are here. So what was read of them after they were pinned is either the newest, or they are
/// here by the time when the reader returns.
pub(crate) struct Pinned {
    cells: Arc<HotCells>,
    tenant: TenantId,
    names: Vec<Name>,
}

impl Pinned {
    pub(crate) fn names(&self) -> &[Name] {
        &self.names
    }

    /// Keeps what was read of the cells, in their order, as far as they are not here and there is room.
    pub(crate) fn keep(&self, found: Vec<Option<Row>>) {
        let mut cells = self.cells.cells();
        for (name, row) in self.names.iter().zip(found) {
            if !cells.slots.contains_key(name) && cells.make_room() {
                cells.slots.insert(*name, Slot::new(self.tenant, row));
                cells.order.push_back(*name);
            }
        }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut cells = self.cells.cells();
        for name in &self.names {
            if let Some(pins) = cells.pins.get_mut(name) {
                *pins -= 1;
                if *pins == 0 {
                    cells.pins.remove(name);
                }
            }
        }
    }
}

impl Cells {
    /// Moves time on. Returns the time, which never runs back.
    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.last_time = self.last_time.max(now);
        self.last_time
    }

    fn get(&mut self, name: Name) -> Result<Option<Row>, Missing> {
        if self.held.contains_key(&name) {
            return Err(Missing);
        }
        let slot = self.slots.get_mut(&name).ok_or(Missing)?;
        slot.was_used = true;
        Ok(slot.row)
    }

    /// Changes a cell that is here, and lists it to be written.
    fn put(&mut self, name: Name, row: Row) {
        if let Some(slot) = self.slots.get_mut(&name) {
            slot.row = Some(row);
            slot.changes = slot.changes.wrapping_add(1);
            if !mem::replace(&mut slot.is_listed, true) {
                self.unwritten.list(name);
            }
        }
    }

    /// Returns an answer, unless it lets somebody pass whom a crash might forget. A refusal is good however late the
    /// disk is.
    fn answer<T>(&self, passed: bool, answer: T) -> Result<T, Error> {
        match passed && self.unwritten.is_late(self.options.refuse_after) {
            false => Ok(answer),
            true => Err(Error::Unavailable(LATE.to_owned())),
        }
    }

    /// Lets cells go whose rows are the same, those first that nobody asked about lately. Returns true if there is room.
    fn make_room(&mut self) -> bool {
        for _ in 0..LOOKS {
            if self.slots.len() < self.options.max_cells {
                return true;
            }
            let Some(name) = self.order.pop_front() else {
                return false;
            };
            let Some(slot) = self.slots.get_mut(&name) else {
                continue;
            };
            let was_used = mem::take(&mut slot.was_used);
            let is_needed = self.pins.contains_key(&name) || self.held.contains_key(&name);
            if was_used || is_needed || slot.changes != slot.written {
                self.order.push_back(name);
            } else {
                self.slots.remove(&name);
            }
        }
        self.slots.len() < self.options.max_cells
    }
}
