//! The outbox in memory.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use asyncgate_core::{
    TenantId, Timestamp,
    outbox::{Changes, Dispatch, NewDispatch, State as Standing},
};

use super::{Map, MemoryStore, State, ready};
use crate::{
    Answer, Dispatches, Rows,
    outbox::{DispatchFilter, Outbox, OutboxLoad, Reads, Snapshot, fits},
};

/// A destination and an order key.
type Line = (String, String);

/// All dispatches.
#[derive(Debug, Default)]
pub struct DispatchRows {
    all: BTreeMap<u64, Dispatch>,
    last: u64,
    /// Those that can be tried, by time. The others wait behind one with their order key.
    due: BTreeSet<(Timestamp, u64)>,
    /// The pending dispatches of each line.
    lines: Map<Line, BTreeSet<u64>>,
    dead: BTreeSet<u64>,
}

fn line(sent: &NewDispatch) -> Option<Line> {
    let key = sent.order_key.clone()?;
    Some((sent.destination.clone(), key))
}

impl DispatchRows {
    /// Adds a dispatch, which gets the next number.
    pub fn add(&mut self, sent: &NewDispatch) {
        self.last += 1;
        self.place(Dispatch {
            id: self.last,
            sent: sent.clone(),
            attempts: 0,
            last_error: None,
            state: Standing::Pending {
                next_try_at: sent.created_at,
            },
        });
    }

    fn place(&mut self, dispatch: Dispatch) {
        let id = dispatch.id;
        match dispatch.state {
            Standing::Pending { next_try_at } => {
                let is_first = line(&dispatch.sent).is_none_or(|line| {
                    let waiting = self.lines.entry(line).or_default();
                    waiting.insert(id);
                    waiting.first() == Some(&id)
                });
                if is_first {
                    self.due.insert((next_try_at, id));
                }
            }
            Standing::Dead { .. } => {
                self.dead.insert(id);
            }
        }
        self.all.insert(id, dispatch);
    }

    /// Takes a dispatch out of every index. Those behind it stay behind.
    fn unplace(&mut self, id: u64) -> Option<Line> {
        let dispatch = self.all.remove(&id)?;
        self.dead.remove(&id);
        let Standing::Pending { next_try_at } = dispatch.state else {
            return None;
        };
        self.due.remove(&(next_try_at, id));
        let line = line(&dispatch.sent)?;
        self.lines.get_mut(&line)?.remove(&id);
        Some(line)
    }

    /// Lets the first of a line be tried.
    fn pass_on(&mut self, line: &Line) {
        let Some(waiting) = self.lines.get(line) else {
            return;
        };
        let Some(first) = waiting.first().and_then(|first| self.all.get(first)) else {
            self.lines.remove(line);
            return;
        };
        if let Standing::Pending { next_try_at } = first.state {
            self.due.insert((next_try_at, first.id));
        }
    }

    /// Takes back dispatches that were kept elsewhere, in the order of their numbers. `last` is the last number that was
    /// ever given.
    pub fn restore(&mut self, last: u64, dispatches: Vec<Dispatch>) {
        for dispatch in dispatches {
            self.place(dispatch);
        }
        self.last = self.last.max(last);
    }

    /// Returns the last number that was given.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// Returns one dispatch.
    pub fn get(&self, id: u64) -> Option<&Dispatch> {
        self.all.get(&id)
    }

    /// Returns the earliest time at which something is to be tried.
    pub fn next_try(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns dispatches in the order of their numbers.
    pub fn list(&self, filter: &DispatchFilter) -> Vec<Dispatch> {
        let later = self.all.range(filter.after + 1..);
        let chosen = later
            .map(|(_, dispatch)| dispatch)
            .filter(|dispatch| matches!(dispatch.state, Standing::Dead { .. }) == filter.dead);
        let mut taken = 0;
        let found = chosen
            .take(filter.limit)
            .take_while(|dispatch| fits(&mut taken, dispatch));
        found.cloned().collect()
    }

    /// Returns how many dispatches there are.
    pub fn count(&self) -> OutboxLoad {
        let dead = self.dead.len() as u64;
        let pending = self.all.len() as u64 - dead;
        OutboxLoad { pending, dead }
    }

    /// Loads the rows that a job declared.
    pub fn load(&self, reads: &Reads, now: Timestamp) -> Snapshot {
        let due = self.due.iter().take_while(|(at, _)| *at <= now);
        let due = due.filter_map(|(_, id)| self.all.get(id));
        let mut taken = 0;
        Snapshot {
            due: due
                .take(reads.due)
                .take_while(|dispatch| fits(&mut taken, dispatch))
                .cloned()
                .collect(),
            dispatches: reads
                .dispatches
                .iter()
                .filter_map(|id| self.all.get(id).cloned())
                .collect(),
        }
    }

    /// Writes what a decision wants written.
    pub fn apply(&mut self, changes: &Changes) {
        for id in &changes.gone {
            if let Some(line) = self.unplace(*id) {
                self.pass_on(&line);
            }
        }
        for dispatch in &changes.changed {
            let line = self.unplace(dispatch.id);
            self.place(dispatch.clone());
            if let Some(line) = line {
                self.pass_on(&line);
            }
        }
        changes.new.iter().for_each(|sent| self.add(sent));
    }
}

impl Rows<Dispatches> for State {
    fn load(&mut self, _: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot, Infallible> {
        Ok(self.outbox.load(reads, now))
    }

    fn apply(&mut self, _: TenantId, changes: &Changes) -> Result<(), Infallible> {
        self.outbox.apply(changes);
        Ok(())
    }
}

impl Outbox for MemoryStore {
    fn next_try(&self) -> Answer<'_, Option<Timestamp>> {
        ready(self.state().outbox.next_try())
    }

    fn dispatches(&self, filter: DispatchFilter) -> Answer<'_, Vec<Dispatch>> {
        ready(self.state().outbox.list(&filter))
    }

    fn outbox_load(&self) -> Answer<'_, OutboxLoad> {
        ready(self.state().outbox.count())
    }
}
