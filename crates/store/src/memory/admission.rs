//! Admission in memory: plain maps behind one lock.

mod expiry;

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    ops::Bound,
    sync::{Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, ClientTier, Decision, DomainState, LimitCheck, Limited, Name, Revocation, Row,
        Subject, SubjectKind, Verdicts, decide, limit,
    },
};

pub use self::expiry::Expiry;
use super::{MemoryStore, ready};
use crate::{
    Answer, Error, Job, Tasks,
    admission::{Admission, Backend, DecideDomain, Host, Reply},
};

/// The number of maps that the rows are spread over. A map that grows holds everyone up while it moves its rows; a small
/// one not for long.
const PARTS: usize = 64;
/// The most rows that one call looks at to forget them. It adds fewer, so forgetting keeps up.
const FORGET_AT_ONCE: usize = 4;
/// The most rows that are kept unless somebody says otherwise. Each takes about a hundred bytes.
const MAX_ROWS: usize = 10_000_000;
/// The capacity from which on a map gives memory back when most of it is empty.
const SHRINK_FROM: usize = 4_096;

/// The rows of admission. They have locks of their own, so that a check of a limit waits for no transaction.
#[derive(Debug)]
pub(super) struct Gate {
    rows: Mutex<Rows>,
    registry: Mutex<Registry>,
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(MAX_ROWS)
    }
}

impl Gate {
    pub(super) fn new(max_rows: usize) -> Self {
        let mut parts = Vec::new();
        parts.resize_with(PARTS, HashMap::new);
        Self {
            rows: Mutex::new(Rows {
                parts,
                count: 0,
                max_rows,
                expiry: Expiry::default(),
                last_time: Timestamp::default(),
            }),
            registry: Mutex::default(),
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Rows {
    parts: Vec<HashMap<Name, Row>>,
    count: usize,
    max_rows: usize,
    expiry: Expiry,
    last_time: Timestamp,
}

impl Rows {
    fn part(&mut self, name: Name) -> &mut HashMap<Name, Row> {
        // A map hashes the first bytes of a name, so the last byte is free to choose the map.
        let part = usize::from(name.to_bytes()[15]) % PARTS;
        &mut self.parts[part]
    }

    fn get(&mut self, name: Name) -> Option<Row> {
        self.part(name).get(&name).copied()
    }

    fn put(&mut self, name: Name, row: Row) {
        if self.part(name).insert(name, row).is_none() {
            self.count += 1;
            self.expiry.add(name, row.until, self.last_time);
        }
    }

    /// Moves time on and forgets some rows whose time is over. Returns the time.
    fn tick(&mut self, now: Timestamp) -> Timestamp {
        self.last_time = self.last_time.max(now);
        let now = self.last_time;
        for _ in 0..FORGET_AT_ONCE {
            let Some(name) = self.expiry.next(now) else {
                break;
            };
            let part = self.part(name);
            match part.get(&name).map(|row| row.until) {
                Some(until) if until > now => self.expiry.add(name, until, now),
                Some(_) => {
                    part.remove(&name);
                    if part.capacity() >= SHRINK_FROM && part.len() < part.capacity() / 8 {
                        part.shrink_to(part.len() * 2);
                    }
                    self.count -= 1;
                }
                None => {}
            }
        }
        now
    }

    /// Fails if so many more rows do not fit.
    fn has_room(&self, more: usize) -> Result<(), Error> {
        match self.count.saturating_add(more) <= self.max_rows {
            true => Ok(()),
            false => Err(Error::Unavailable(format!(
                "admission keeps {} rows, which is all it may",
                self.count
            ))),
        }
    }

    fn admit(&mut self, tenant: TenantId, now: Timestamp, asks: &Asks) -> Result<Verdicts, Error> {
        let decision = self.decide(tenant, now, asks)?;
        Ok(self.write(decision))
    }

    /// Decides, and fails if there is no room for what was decided.
    fn decide(&mut self, tenant: TenantId, now: Timestamp, asks: &Asks) -> Result<Decision, Error> {
        let now = self.tick(now);
        let load = |name| Ok::<_, Infallible>(self.get(name));
        let Ok(decision) = decide(tenant, now, asks, load);
        let known = |(name, _): &&(Name, Row)| self.get(*name).is_none();
        let new = decision.rows.iter().filter(known).count();
        if new > 0 {
            self.has_room(new)?;
        }
        Ok(decision)
    }

    fn write(&mut self, decision: Decision) -> Verdicts {
        for (name, row) in decision.rows {
            self.put(name, row);
        }
        decision.verdicts
    }

    /// Decides about one limit, without a single allocation unless the row is new.
    fn check_limit(
        &mut self,
        tenant: TenantId,
        now: Timestamp,
        check: &LimitCheck,
    ) -> Result<Limited, Error> {
        let now = self.tick(now);
        let name = check.name(tenant, now);
        if let Some(stored) = self.part(name).get_mut(&name) {
            let (limited, row) = limit(check, now, Some(*stored));
            if let Some(row) = row {
                *stored = row;
            }
            return Ok(limited);
        }
        let (limited, row) = limit(check, now, None);
        if let Some(row) = row {
            self.has_room(1)?;
            self.put(name, row);
        }
        Ok(limited)
    }
}

/// The first of all subjects.
const FIRST_SUBJECT: Subject = Subject {
    kind: SubjectKind::WarrantId,
    hash: [0; 32],
};

#[derive(Debug, Default)]
struct Registry {
    revoked: BTreeMap<(TenantId, Subject), Revocation>,
    tiers: BTreeMap<(TenantId, String), ClientTier>,
    domains: HashMap<[u8; 32], DomainState>,
}

impl MemoryStore {
    /// Makes an empty store that keeps at most so many rows of admission.
    pub fn with_admission_rows(max_rows: usize) -> Self {
        Self {
            gate: Gate::new(max_rows),
            ..Self::default()
        }
    }

    /// Runs a job if what is asked passes. The rows stay locked until the tasks are written, so that both happen at once.
    fn run_admitted(&self, asks: &Asks, job: Job<Tasks>) -> Result<Verdicts, Error> {
        let mut rows = self.gate.rows();
        let decision = rows.decide(job.tenant, job.now, asks)?;
        if decision.verdicts.passed() && !self.run(job.into()) {
            return Ok(decision.verdicts);
        }
        Ok(rows.write(decision))
    }
}

impl Host for MemoryStore {
    fn backend(&self) -> Backend {
        "memory"
    }

    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        Reply::Now(Some(self.gate.rows().admit(tenant, now, &asks)))
    }

    fn check_limit<'a>(
        &'a self,
        tenant: TenantId,
        now: Timestamp,
        check: &LimitCheck,
    ) -> Reply<'a, Limited> {
        Reply::Now(Some(self.gate.rows().check_limit(tenant, now, check)))
    }

    fn revoked(
        &self,
        tenant: TenantId,
        subjects: Vec<Subject>,
    ) -> Reply<'_, Vec<Option<Revocation>>> {
        let registry = self.gate.registry();
        let find = |subject| registry.revoked.get(&(tenant, subject)).cloned();
        Reply::now(subjects.into_iter().map(find).collect())
    }

    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)> {
        let place = (tenant, revocation.subject);
        let mut registry = self.gate.registry();
        let stored = registry.revoked.get(&place).cloned();
        let (stands, new) = revocation.over(stored);
        registry.revoked.insert(place, stands.clone());
        Reply::now((stands, new))
    }

    fn unrevoke(&self, tenant: TenantId, _: Timestamp, subject: Subject) -> Reply<'_, bool> {
        let gone = self.gate.registry().revoked.remove(&(tenant, subject));
        Reply::now(gone.is_some())
    }

    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>> {
        let registry = self.gate.registry();
        let from = match after {
            Some(after) => Bound::Excluded((tenant, after)),
            None => Bound::Included((tenant, FIRST_SUBJECT)),
        };
        let found = registry.revoked.range((from, Bound::Unbounded));
        let found = found.take_while(|((of, _), _)| *of == tenant).take(limit);
        Reply::now(found.map(|(_, revocation)| revocation.clone()).collect())
    }

    fn ping(&self) -> Reply<'_, ()> {
        Reply::now(())
    }
}

impl Admission for MemoryStore {
    fn transact_admitted(&self, asks: Asks, job: Job<Tasks>) -> Answer<'_, Verdicts> {
        let verdicts = self.run_admitted(&asks, job);
        Box::pin(std::future::ready(verdicts))
    }

    fn domain(&self, hash: [u8; 32]) -> Answer<'_, Option<DomainState>> {
        ready(self.gate.registry().domains.get(&hash).copied())
    }

    fn decide_domain(
        &self,
        _: Timestamp,
        hash: [u8; 32],
        mut decide: DecideDomain,
    ) -> Answer<'_, ()> {
        let domains = &mut self.gate.registry().domains;
        if let Some(state) = decide(domains.get(&hash).copied()) {
            domains.insert(hash, state);
        }
        ready(())
    }

    fn set_tier(&self, tenant: TenantId, _: Timestamp, tier: ClientTier) -> Answer<'_, ()> {
        let place = (tenant, tier.client.clone());
        self.gate.registry().tiers.insert(place, tier);
        ready(())
    }

    fn clear_tier(&self, tenant: TenantId, _: Timestamp, client: String) -> Answer<'_, bool> {
        let gone = self.gate.registry().tiers.remove(&(tenant, client));
        ready(gone.is_some())
    }

    fn tier(&self, tenant: TenantId, client: String) -> Answer<'_, Option<ClientTier>> {
        ready(self.gate.registry().tiers.get(&(tenant, client)).cloned())
    }

    fn tiers(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ClientTier>> {
        let registry = self.gate.registry();
        let from = match after {
            Some(after) => Bound::Excluded((tenant, after)),
            None => Bound::Included((tenant, String::new())),
        };
        let found = registry.tiers.range((from, Bound::Unbounded));
        let found = found.take_while(|((of, _), _)| *of == tenant).take(limit);
        let found = found.map(|(_, tier)| tier.clone()).collect();
        drop(registry);
        ready(found)
    }

    fn rows(&self) -> Answer<'_, u64> {
        let count = self.gate.rows().count as u64;
        ready(count)
    }
}
