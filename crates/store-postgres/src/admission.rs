//! Admission in the owner's memory, which holds all its rows.
//!
//! It does not implement `asyncgate_store::Plane`: its rule asks for rows one by one, so a change is a closure over the
//! memory. It shares the owner's queue, clock and commits with tasks and messages.

mod gate;

use std::sync::{Arc, Mutex, PoisonError};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, ClientTier, DomainState, Revocation, Subject, Verdicts, decide},
};
use asyncgate_store::{
    Answer, Error, Health, Job, Store, Tasks,
    admission::{Admission, Backend, DecideDomain, Host, Reply},
};

use crate::{
    PostgresStore,
    memory::{Memory, Queued, Stop},
};

pub(crate) use gate::Gate;

/// A change to be made in a batch.
pub(crate) struct Change {
    /// Absent if the rows are no tenant's.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) now: Timestamp,
    pub(crate) weight: usize,
    /// The most rows that it touches.
    pub(crate) rows: usize,
    run: Run,
}

/// The change itself. It is given the time, and returns how much it wrote.
type Run = Box<dyn FnMut(&mut Memory, Timestamp) -> Result<Wrote, Error> + Send>;

/// The number of rows that a change wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wrote(pub(crate) usize);

impl Change {
    /// Makes the change, and forgets some rows whose time is over.
    pub(crate) fn run(&mut self, memory: &mut Memory, now: Timestamp) -> Result<Wrote, Stop> {
        let wrote = (self.run)(memory, now)?;
        memory.forget_cells(now, wrote);
        Ok(wrote)
    }
}

/// A job over tasks that runs if what is asked passes.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) asks: Asks,
    pub(crate) job: Job<Tasks>,
    pub(crate) verdicts: Arc<Mutex<Option<Verdicts>>>,
}

/// Returns roughly how much memory a question holds.
fn weight(asks: &Asks) -> usize {
    let limits = asks.limits.iter().map(|check| check.key.len() + 128);
    let nonces = asks.nonces.iter().map(|check| check.nonce.len() + 64);
    limits.sum::<usize>() + nonces.sum::<usize>() + 64 * asks.counters.len()
}

impl PostgresStore {
    /// Makes a change in the next batch. `run` returns the answer and how much it wrote.
    fn change<T: Send + 'static>(
        &self,
        tenant: impl Into<Option<TenantId>>,
        now: Timestamp,
        (rows, weight): (usize, usize),
        mut run: impl FnMut(&mut Memory, Timestamp) -> Result<(T, Wrote), Error> + Send + 'static,
    ) -> Answer<'_, T> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let run: Run = Box::new(move |memory, now| {
            let (told, wrote) = run(memory, now)?;
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
            Ok(wrote)
        });
        let submitted = self.submit(Queued::Admission(Change {
            tenant: tenant.into(),
            now,
            weight,
            rows,
            run,
        }));
        Box::pin(async move {
            submitted.await?;
            taken(&answer)
        })
    }
}

/// Takes the answer that was left in a slot.
pub(crate) fn taken<T>(slot: &Mutex<Option<T>>) -> Result<T, Error> {
    let told = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    told.ok_or_else(|| Error::Unavailable("the transaction was not decided".to_owned()))
}

impl Host for PostgresStore {
    fn backend(&self) -> Backend {
        "postgres"
    }

    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        if asks.peek {
            return Reply::Later(self.look(tenant, move |memory| {
                let now = now.max(memory.last_time);
                let load = |name| Ok::<_, std::convert::Infallible>(memory.gate.cell(name));
                let Ok(decision) = decide(tenant, now, &asks, load);
                decision.verdicts
            }));
        }
        let size = (asks.len(), weight(&asks));
        Reply::Later(self.change(tenant, now, size, move |memory, now| {
            let decision = memory.gate.weigh(tenant, now, &asks)?;
            let wrote = memory.put_cells(tenant, now, &decision);
            Ok((decision.verdicts, wrote))
        }))
    }

    fn revoked(
        &self,
        tenant: TenantId,
        subjects: Vec<Subject>,
    ) -> Reply<'_, Vec<Option<Revocation>>> {
        Reply::Later(self.look(tenant, move |memory| {
            let find = |subject: &Subject| memory.gate.revocation(tenant, *subject);
            subjects.iter().map(find).collect()
        }))
    }

    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)> {
        let now = revocation.revoked_at;
        Reply::Later(self.change(tenant, now, (1, 256), move |memory, _| {
            let stored = memory.gate.revocation(tenant, revocation.subject);
            let (stands, new) = revocation.clone().over(stored);
            if new {
                memory.revoke(tenant, stands.clone());
            }
            Ok(((stands, new), Wrote(usize::from(new))))
        }))
    }

    fn unrevoke(&self, tenant: TenantId, now: Timestamp, subject: Subject) -> Reply<'_, bool> {
        Reply::Later(self.change(tenant, now, (1, 64), move |memory, _| {
            let gone = memory.unrevoke(tenant, subject);
            Ok((gone, Wrote(usize::from(gone))))
        }))
    }

    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>> {
        Reply::Later(self.look(tenant, move |memory| {
            memory.gate.revocations(tenant, after, limit)
        }))
    }

    fn ping(&self) -> Reply<'_, ()> {
        match self.health() {
            Health::Ready => Reply::now(()),
            Health::Failing(why) => Reply::failed(Error::Unavailable(why)),
        }
    }
}

impl Admission for PostgresStore {
    fn transact_admitted(&self, asks: Asks, job: Job<Tasks>) -> Answer<'_, Verdicts> {
        let verdicts = Arc::new(Mutex::new(None));
        let submitted = self.submit(Queued::Admitted(Admitted {
            asks,
            job,
            verdicts: Arc::clone(&verdicts),
        }));
        Box::pin(async move {
            submitted.await?;
            taken(&verdicts)
        })
    }

    fn domain(&self, hash: [u8; 32]) -> Answer<'_, Option<DomainState>> {
        self.look(None, move |memory| memory.gate.domain(&hash))
    }

    fn decide_domain(
        &self,
        now: Timestamp,
        hash: [u8; 32],
        mut decide: DecideDomain,
    ) -> Answer<'_, ()> {
        self.change(None, now, (1, 256), move |memory, _| {
            let state = decide(memory.gate.domain(&hash));
            if let Some(state) = state {
                memory.put_domain(hash, state);
            }
            Ok(((), Wrote(usize::from(state.is_some()))))
        })
    }

    fn set_tier(&self, tenant: TenantId, now: Timestamp, tier: ClientTier) -> Answer<'_, ()> {
        let size = (1, tier.client.len() + 256);
        self.change(tenant, now, size, move |memory, _| {
            memory.set_tier(tenant, tier.clone());
            Ok(((), Wrote(1)))
        })
    }

    fn clear_tier(&self, tenant: TenantId, now: Timestamp, client: String) -> Answer<'_, bool> {
        let size = (1, client.len() + 64);
        self.change(tenant, now, size, move |memory, _| {
            let gone = memory.clear_tier(tenant, client.clone());
            Ok((gone, Wrote(usize::from(gone))))
        })
    }

    fn tier(&self, tenant: TenantId, client: String) -> Answer<'_, Option<ClientTier>> {
        self.look(tenant, move |memory| memory.gate.tier(tenant, &client))
    }

    fn tiers(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ClientTier>> {
        self.look(tenant, move |memory| {
            memory.gate.tiers(tenant, after.clone(), limit)
        })
    }

    fn rows(&self) -> Answer<'_, u64> {
        self.look(None, |memory| memory.gate.count())
    }
}
