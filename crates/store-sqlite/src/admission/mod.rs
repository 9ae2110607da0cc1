//! Admission in the file.
//!
//! It does not implement `asyncgate_store::Plane`: its rule asks for rows one by one, so a change is a closure over the
//! connection. It shares the writer's queue, clock and commits with tasks and messages.
//!
//! Fleeting limits are the exception: they are decided in memory and written behind (`hot.rs`). A question
//! that asks about anything else too goes to the writer as a whole.

mod domains;
mod hot;
mod registry;
mod rows;

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, ClientTier, Decision, DomainState, LimitCheck, Limited, Name, Revocation, Row, Rule,
        Subject, Verdicts, decide,
    },
};
use asyncgate_store::{
    Answer, Error, Health, Job, Store, Tasks,
    admission::{Admission, Backend, DecideDomain, Host, Reply, check_by_admit},
};
use rusqlite::Result;

use crate::{SqliteStore, db::Db, writer::Queued};

pub use self::hot::HotLimits;
pub(crate) use self::hot::{End, HotCells, Taken};

/// The tenant whose turn is taken by what is done for no tenant.
pub(crate) const NOBODY: TenantId = TenantId::from_bytes([0; 16]);

/// A change to be made in a transaction.
pub(crate) struct Change {
    /// Absent if the rows are no tenant's.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) now: Timestamp,
    pub(crate) weight: usize,
    /// The most rows that it touches.
    pub(crate) rows: usize,
    run: Run,
}

/// The change itself. It is given the connection, the tenant's number (0 for none) and the time, and returns what it wrote.
/// It may run more than once; the last time counts.
type Run = Box<dyn FnMut(&mut Db, i64, Timestamp) -> Result<Wrote> + Send>;

/// The number of rows that a change wrote.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wrote {
    /// All rows.
    pub(crate) rows: usize,
    /// The cells among them that are new, less those that were forgotten.
    pub(crate) cells: i64,
}

impl Wrote {
    /// Counts rows that are no cells.
    const fn beside_cells(rows: usize) -> Self {
        Self { rows, cells: 0 }
    }
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Change")
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}

impl Change {
    /// Makes the change, and forgets some cells whose time is over.
    pub(crate) fn run(&mut self, db: &mut Db, tenant: i64, now: Timestamp) -> Result<Wrote> {
        let mut wrote = (self.run)(db, tenant, now)?;
        forget(db, now, &mut wrote)?;
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

/// A decision of admission, and the rows that were there before it.
pub(crate) struct Weighed {
    pub(crate) decision: Decision,
    known: HashSet<Name>,
}

/// Decides from the rows as they stand. Limits are held until the transaction ends: what is in memory of them is newer.
pub(crate) fn weigh(
    db: &Db,
    hot: &HotCells,
    (tenant, number): (TenantId, i64),
    now: Timestamp,
    asks: &Asks,
) -> Result<Weighed> {
    let limits = asks.limits.iter().map(|check| check.name(tenant, now));
    let limits: Vec<Name> = limits.collect();
    let mut known = HashSet::new();
    let decision = decide(tenant, now, asks, |name| {
        let found = rows::find(db, number, name)?;
        found.is_some().then(|| known.insert(name));
        Ok::<_, rusqlite::Error>(match limits.contains(&name) {
            true => hot.hold(tenant, name, found),
            false => found,
        })
    })?;
    Ok(Weighed { decision, known })
}

impl Weighed {
    /// Writes what was decided.
    pub(crate) fn write(&self, db: &Db, hot: &HotCells, tenant: i64) -> Result<Wrote> {
        let mut wrote = Wrote::default();
        for (name, row) in &self.decision.rows {
            rows::write(db, tenant, *name, row)?;
            hot.change_held(*name, *row);
            wrote.rows += 1;
            wrote.cells += i64::from(!self.known.contains(name));
        }
        Ok(wrote)
    }
}

/// Writes cells that were decided in memory. `number` returns the number of a tenant.
pub(crate) fn write_behind(
    db: &Db,
    taken: &Taken,
    mut number: impl FnMut(TenantId) -> Result<i64>,
) -> Result<Wrote> {
    let mut wrote = Wrote::default();
    for cell in &taken.cells {
        let tenant = number(cell.tenant)?;
        // Its row may have been forgotten since it was loaded.
        wrote.cells += i64::from(!rows::is_known(db, tenant, cell.name)?);
        rows::write(db, tenant, cell.name, &cell.row)?;
        wrote.rows += 1;
    }
    forget(db, taken.at, &mut wrote)?;
    Ok(wrote)
}

/// Forgets some cells whose time is over: more than were added, so that forgetting keeps up.
pub(crate) fn forget(db: &Db, now: Timestamp, wrote: &mut Wrote) -> Result<()> {
    if wrote.rows > 0 {
        wrote.cells -= rows::forget(db, now, 2 * wrote.rows + 2)?;
    }
    Ok(())
}

/// Returns roughly how much memory a question holds.
fn weight(asks: &Asks) -> usize {
    let limits = asks.limits.iter().map(|check| check.key.len() + 128);
    let nonces = asks.nonces.iter().map(|check| check.nonce.len() + 64);
    limits.sum::<usize>() + nonces.sum::<usize>() + 64 * asks.counters.len()
}

impl SqliteStore {
    /// Makes a change in the next commit. `run` returns the answer and what it wrote.
    fn change<T: Send + 'static>(
        &self,
        tenant: impl Into<Option<TenantId>>,
        now: Timestamp,
        (rows, weight): (usize, usize),
        mut run: impl FnMut(&mut Db, i64, Timestamp) -> Result<(T, Wrote)> + Send + 'static,
    ) -> Answer<'_, T> {
        let answer = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&answer);
        let run: Run = Box::new(move |db, tenant, now| {
            let (told, wrote) = run(db, tenant, now)?;
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

    fn hot(&self) -> &Arc<HotCells> {
        &self.writer.shared.hot
    }

    /// Decides in the next commit, and answers when it is on disk.
    fn admit_by_writer(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asks: Asks,
    ) -> Answer<'_, Verdicts> {
        let size = (asks.len(), weight(&asks));
        let hot = Arc::clone(self.hot());
        self.change(tenant, now, size, move |db, number, now| {
            let weighed = weigh(db, &hot, (tenant, number), now, &asks)?;
            let wrote = weighed.write(db, &hot, number)?;
            Ok((weighed.decision.verdicts, wrote))
        })
    }

    /// Reads the cells of a question about fleeting limits, and decides it in memory. If the writer holds one of them, or there is no
    /// room, the question takes the writer's way.
    async fn load_and_admit(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asks: Asks,
    ) -> std::result::Result<Verdicts, Error> {
        let pinned = self.hot().pin(tenant, now, &asks);
        let names = pinned.names().to_vec();
        let find = move |db: &mut Db| -> Result<Vec<Option<Row>>> {
            let Some(number) = db.tenant(tenant)? else {
                return Ok(vec![None; names.len()]);
            };
            let rows = names.iter().map(|name| rows::find(db, number, *name));
            rows.collect()
        };
        // Who has consumed is told at once, so it does not matter whether what was read is on disk yet.
        pinned.keep(self.readers.run_unsynced(tenant, find).await?);
        match self.hot().admit(tenant, now, &asks) {
            Some(answer) => answer,
            None => self.admit_by_writer(tenant, now, asks).await,
        }
    }
}

/// Takes the answer that a change has left.
fn taken<T>(slot: &Mutex<Option<T>>) -> std::result::Result<T, Error> {
    let told = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    told.ok_or_else(|| Error::Unavailable("the transaction was not decided".to_owned()))
}

impl Host for SqliteStore {
    fn backend(&self) -> Backend {
        "sqlite"
    }

    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        // Decisions beside the writer see the time of the last commit.
        let seen = now.max(self.last_time());
        if asks.is_fleeting() {
            return match self.hot().admit(tenant, seen, &asks) {
                Some(answer) => Reply::Now(Some(answer)),
                None => Reply::later(self.load_and_admit(tenant, seen, asks)),
            };
        }
        let in_file = |check: &LimitCheck| matches!(check.rule, Rule::Delay(_));
        if asks.peek && asks.limits.iter().all(in_file) {
            // It writes nothing, and nothing of it is in memory, so it need not wait for the writer.
            let now = seen;
            return Reply::Later(self.read_for(tenant, move |db| {
                let known = db.tenant(tenant)?;
                let load = |name| known.map_or(Ok(None), |known| rows::find(db, known, name));
                Ok(decide(tenant, now, &asks, load)?.verdicts)
            }));
        }
        Reply::Later(self.admit_by_writer(tenant, now, asks))
    }

    fn check_limit<'a>(
        &'a self,
        tenant: TenantId,
        now: Timestamp,
        check: &LimitCheck,
    ) -> Reply<'a, Limited> {
        let seen = now.max(self.last_time());
        let is_fleeting = check.rule.is_fleeting();
        match is_fleeting.then(|| self.hot().check_limit(tenant, seen, check)) {
            Some(Some(answer)) => Reply::Now(Some(answer)),
            Some(None) | None => check_by_admit(self, tenant, now, check),
        }
    }

    fn revoked(
        &self,
        tenant: TenantId,
        subjects: Vec<Subject>,
    ) -> Reply<'_, Vec<Option<Revocation>>> {
        Reply::Later(self.read_for(tenant, move |db| {
            let Some(tenant) = db.tenant(tenant)? else {
                return Ok(vec![None; subjects.len()]);
            };
            let found = subjects.iter();
            found
                .map(|subject| registry::revocation(db, tenant, *subject))
                .collect()
        }))
    }

    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)> {
        let now = revocation.revoked_at;
        Reply::Later(self.change(tenant, now, (1, 256), move |db, tenant, _| {
            let stored = registry::revocation(db, tenant, revocation.subject)?;
            let (stands, new) = revocation.clone().over(stored);
            if new {
                registry::revoke(db, tenant, &stands)?;
            }
            Ok(((stands, new), Wrote::beside_cells(usize::from(new))))
        }))
    }

    fn unrevoke(&self, tenant: TenantId, now: Timestamp, subject: Subject) -> Reply<'_, bool> {
        Reply::Later(self.change(tenant, now, (1, 64), move |db, tenant, _| {
            let gone = registry::unrevoke(db, tenant, subject)?;
            Ok((gone, Wrote::beside_cells(usize::from(gone))))
        }))
    }

    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>> {
        Reply::Later(self.read_of(tenant, move |db, tenant| {
            registry::revocations(db, tenant, after, limit)
        }))
    }

    fn ping(&self) -> Reply<'_, ()> {
        match self.health() {
            Health::Ready => Reply::now(()),
            Health::Failing(why) => Reply::failed(Error::Unavailable(why)),
        }
    }
}

impl Admission for SqliteStore {
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
        self.read(move |db| domains::find(db, &hash))
    }

    fn decide_domain(
        &self,
        now: Timestamp,
        hash: [u8; 32],
        mut decide: DecideDomain,
    ) -> Answer<'_, ()> {
        self.change(None, now, (1, 256), move |db, _, _| {
            let state = decide(domains::find(db, &hash)?);
            if let Some(state) = state {
                domains::write(db, &hash, state)?;
            }
            Ok(((), Wrote::beside_cells(usize::from(state.is_some()))))
        })
    }

    fn set_tier(&self, tenant: TenantId, now: Timestamp, tier: ClientTier) -> Answer<'_, ()> {
        let size = (1, tier.client.len() + 256);
        self.change(tenant, now, size, move |db, tenant, _| {
            registry::set_tier(db, tenant, &tier)?;
            Ok(((), Wrote::beside_cells(1)))
        })
    }

    fn clear_tier(&self, tenant: TenantId, now: Timestamp, client: String) -> Answer<'_, bool> {
        let size = (1, client.len() + 64);
        self.change(tenant, now, size, move |db, tenant, _| {
            let gone = registry::clear_tier(db, tenant, &client)?;
            Ok((gone, Wrote::beside_cells(usize::from(gone))))
        })
    }

    fn tier(&self, tenant: TenantId, client: String) -> Answer<'_, Option<ClientTier>> {
        self.read_of(tenant, move |db, tenant| {
            registry::tier(db, tenant, &client)
        })
    }

    fn tiers(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ClientTier>> {
        self.read_of(tenant, move |db, tenant| {
            registry::tiers(db, tenant, after.as_deref(), limit)
        })
    }

    fn rows(&self) -> Answer<'_, u64> {
        self.read(rows::count)
    }
}
