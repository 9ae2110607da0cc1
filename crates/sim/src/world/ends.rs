//! The end of credentials: who is let in, what goes on after the end, and that nothing crosses a tenant line.

use std::task::Poll;

use asyncgate_core::identity;
use asyncgate_engine::{Clock, Fault};

use super::{Flight, Outcome, World};
use crate::{
    entrance::Answer,
    model::Reception,
    step::Op,
    store::{Commit, Origin},
    violation::{Checked, hold},
};

/// The operations that may wait. All others finish what they have begun.
const WAITS: [Op; 3] = [Op::LEASE, Op::GET, Op::RECV];

impl World {
    /// Returns the actors that wait for something, by credentials that may end.
    pub fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        let waiting = self.flights.iter().filter(|flight| flight.waits);
        waiting.map(|flight| flight.actor)
    }

    /// Checks the poll of a call that showed a credential: at first whether it was let in, and then that a wait ends with
    /// its credential and takes nothing more. `asked` is true if it asked for a transaction.
    pub(super) fn check_credential(
        &mut self,
        n: usize,
        polled: &Poll<Result<Answer, Fault>>,
        asked: bool,
    ) -> Checked {
        let (now, flight) = (self.clock.now(), &mut self.flights[n]);
        let Some(id) = flight.credential else {
            return Ok(());
        };
        let told = || format!("{} of {}", flight.op.name(), flight.label);
        if !flight.received {
            flight.received = true;
            let seen = match polled {
                Poll::Ready(result) => Reception::of(result.as_ref()),
                Poll::Pending => Reception::LetIn,
            };
            self.model.credentials.check(id, now, seen)?;
        } else if flight.waits && self.model.credentials.is_over(id, now) {
            hold(!asked, "nothing is taken after the end", told)?;
            hold(polled.is_ready(), "waits end with their credential", told)?;
        }
        let flight = &mut self.flights[n];
        flight.waits = WAITS.contains(&flight.op) && !self.store.holds(flight.label);
        Ok(())
    }

    /// Checks that a call does not wait beyond the end of its credential.
    pub(super) fn check_wait(&self, flight: &Flight) -> Checked {
        let Some(id) = flight.credential.filter(|_| flight.waits) else {
            return Ok(());
        };
        let over = self.model.credentials.is_over(id, self.clock.now());
        hold(!over, "waits end with their credential", || {
            format!("{} of {}", flight.op.name(), flight.label)
        })
    }

    /// Ends a call whose credential was refused. Its client keeps what it knows, and may try again.
    pub(super) fn shut_out(&mut self, flight: &Flight) -> Checked {
        let made = flight.receipts_made + flight.tasks_made + flight.leases_made;
        hold(
            made == 0 && flight.notes.wrote == 0,
            "refused means nothing changed",
            || format!("{} of {} was shut out", flight.op.name(), flight.label),
        )?;
        let door = self.door.as_ref();
        let newest = door.and_then(|door| door.wallets.newest(flight.actor));
        self.outcomes.push(Outcome {
            label: flight.label,
            actor: flight.actor,
            gained: None,
            refused: false,
            shut_out: newest == flight.credential,
        });
        Ok(())
    }

    /// Checks that a deed changes the records that it is about, and no others.
    pub(super) fn check_deed(&self, changes: Option<&identity::Changes>) -> Checked {
        let Some(changes) = changes else {
            return Ok(());
        };
        let put = changes.put.iter().map(identity::Record::key);
        let mut all = put.chain(changes.removed.iter().copied());
        let meant = self.meant.as_deref().unwrap_or_default();
        let stray = all.find(|key| !meant.contains(key));
        hold(stray.is_none(), "a deed changes nothing else", || {
            format!("{stray:?}, and not only {meant:?}")
        })
    }

    /// Checks that a call touches its own tenant's rows only.
    pub(super) fn check_line(&self, commit: &Commit) -> Checked {
        let Origin::Call(label, op) = commit.origin else {
            return Ok(());
        };
        let mut flights = self.flights.iter();
        let Some(flight) = flights.find(|flight| flight.label == label) else {
            return Ok(());
        };
        let own = self.actors[flight.actor].caller.tenant;
        hold(
            commit.tenant == own,
            "nothing crosses a tenant line",
            || format!("{} of {label} in {}", op.name(), commit.tenant),
        )
    }
}
