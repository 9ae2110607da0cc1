//! The outbox in the owner's memory, which holds all dispatches.

use asyncgate_core::{
    TenantId, Timestamp,
    outbox::{Changes, Dispatch, NewDispatch},
};
use asyncgate_store::{
    Answer, Dispatches, Error, Rows,
    outbox::{DispatchFilter, Outbox, OutboxLoad, Reads, Snapshot},
};
use tokio_postgres::Row;

use crate::{
    PostgresStore,
    memory::{Memory, Stop},
    pack::{self, damaged},
    records::SERVER,
    shards,
    table::{Stored, Table, number_key},
};

/// The key of the last number that was given to a dispatch.
const LAST_DISPATCH: &[u8] = b"dispatch";

impl Rows<Dispatches> for Memory {
    fn load(&mut self, _: TenantId, reads: &Reads, now: Timestamp) -> Result<Snapshot, Stop> {
        self.out.look(shards::SERVER);
        Ok(self.dispatches.load(reads, now))
    }

    fn apply(&mut self, _: TenantId, changes: &Changes) -> Result<(), Stop> {
        self.out.change(shards::SERVER);
        let before = self.dispatches.last();
        self.dispatches.apply(changes);
        for id in &changes.gone {
            self.out.remove(Table::Dispatch, SERVER, number_key(*id));
            self.out
                .remove(Table::DispatchBody, SERVER, number_key(*id));
        }
        for dispatch in &changes.changed {
            let body = pack::pack_dispatch(dispatch);
            self.out
                .put(Table::Dispatch, SERVER, number_key(dispatch.id), body);
        }
        self.write_new(before);
        Ok(())
    }
}

impl Memory {
    /// Adds what other systems are told of a change.
    pub(crate) fn send(&mut self, sent: &[NewDispatch]) {
        if sent.is_empty() {
            return;
        }
        self.out.change(shards::SERVER);
        let before = self.dispatches.last();
        sent.iter().for_each(|sent| self.dispatches.add(sent));
        self.write_new(before);
    }

    /// Writes the dispatches that have numbers behind `before`.
    fn write_new(&mut self, before: u64) {
        let last = self.dispatches.last();
        for id in before + 1..=last {
            let Some(dispatch) = self.dispatches.get(id) else {
                continue;
            };
            let (state, body) = (pack::pack_dispatch(dispatch), dispatch.sent.body.to_vec());
            let key = || number_key(id);
            self.out.put(Table::DispatchBody, SERVER, key(), body);
            self.out.put(Table::Dispatch, SERVER, key(), state);
        }
        if last > before {
            let key = LAST_DISPATCH.to_vec();
            self.out.put(Table::Counter, SERVER, key, number_key(last));
        }
    }

    /// Takes back all dispatches. The rows of both tables have the same keys in the same order.
    pub(crate) fn restore_dispatches(
        &mut self,
        states: &[Row],
        bodies: &[Row],
        counters: &[Row],
    ) -> Result<(), Error> {
        if states.len() != bodies.len() {
            return Err(damaged("a dispatch has lost a part"));
        }
        let mut all = Vec::with_capacity(states.len());
        for (state, body) in states.iter().zip(bodies) {
            let (state, body) = (Stored::of(state), Stored::of(body));
            if state.key != body.key {
                return Err(damaged("a dispatch has lost a part"));
            }
            all.push(pack::unpack_dispatch(
                state.number(),
                &state.body,
                &body.body,
            )?);
        }
        let mut counters = counters.iter().map(Stored::of);
        let last = counters.find(|counter| counter.key == LAST_DISPATCH);
        let last = last.and_then(|counter| counter.body.try_into().ok());
        self.dispatches
            .restore(last.map_or(0, u64::from_be_bytes), all);
        Ok(())
    }
}

impl Outbox for PostgresStore {
    fn next_try(&self) -> Answer<'_, Option<Timestamp>> {
        self.look(None, |memory| memory.dispatches.next_try())
    }

    fn dispatches(&self, filter: DispatchFilter) -> Answer<'_, Vec<Dispatch>> {
        self.look(None, move |memory| memory.dispatches.list(&filter))
    }

    fn outbox_load(&self) -> Answer<'_, OutboxLoad> {
        self.look(None, |memory| memory.dispatches.count())
    }
}
