//! The rows of admission, and how they are written and read back.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    ops::Bound,
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, ClientTier, Decision, DomainState, Name, Revocation, Row, Subject, SubjectKind,
        decide,
    },
};
use asyncgate_store::{Error, memory::Expiry};

use super::Wrote;
use crate::{
    memory::Memory,
    pack::{self, damaged},
    records::SERVER,
    shards,
    table::{Stored, Table},
};

/// The first of all subjects.
const FIRST_SUBJECT: Subject = Subject {
    kind: SubjectKind::WarrantId,
    hash: [0; 32],
};

/// All rows of admission.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The rows, each with the number of its tenant.
    cells: HashMap<Name, (Row, i64)>,
    expiry: Expiry,
    max_cells: usize,
    revoked: BTreeMap<(TenantId, Subject), Revocation>,
    tiers: BTreeMap<(TenantId, String), ClientTier>,
    domains: HashMap<[u8; 32], DomainState>,
}

impl Gate {
    pub(crate) fn new(max_cells: usize) -> Self {
        Self {
            cells: HashMap::new(),
            expiry: Expiry::default(),
            max_cells,
            revoked: BTreeMap::new(),
            tiers: BTreeMap::new(),
            domains: HashMap::new(),
        }
    }

    pub(crate) fn cell(&self, name: Name) -> Option<Row> {
        self.cells.get(&name).map(|(row, _)| *row)
    }

    pub(crate) fn count(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Decides from the rows as they stand. Fails if there is no room for what was decided.
    pub(crate) fn weigh(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asks: &Asks,
    ) -> Result<Decision, Error> {
        let load = |name| Ok::<_, Infallible>(self.cell(name));
        let Ok(decision) = decide(tenant, now, asks, load);
        let rows = decision.rows.iter();
        let new = rows.filter(|(name, _)| !self.cells.contains_key(name));
        match self.cells.len() + new.count() <= self.max_cells {
            true => Ok(decision),
            false => Err(Error::Unavailable(format!(
                "admission keeps {} rows, which is all it may",
                self.cells.len()
            ))),
        }
    }

    pub(crate) fn revocation(&self, tenant: TenantId, subject: Subject) -> Option<Revocation> {
        self.revoked.get(&(tenant, subject)).cloned()
    }

    pub(crate) fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Vec<Revocation> {
        let from = match after {
            Some(after) => Bound::Excluded((tenant, after)),
            None => Bound::Included((tenant, FIRST_SUBJECT)),
        };
        let found = self.revoked.range((from, Bound::Unbounded));
        let found = found.take_while(|((of, _), _)| *of == tenant).take(limit);
        found.map(|(_, revocation)| revocation.clone()).collect()
    }

    pub(crate) fn tier(&self, tenant: TenantId, client: &str) -> Option<ClientTier> {
        self.tiers.get(&(tenant, client.to_owned())).cloned()
    }

    pub(crate) fn tiers(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Vec<ClientTier> {
        let from = match after {
            Some(after) => Bound::Excluded((tenant, after)),
            None => Bound::Included((tenant, String::new())),
        };
        let found = self.tiers.range((from, Bound::Unbounded));
        let found = found.take_while(|((of, _), _)| *of == tenant).take(limit);
        found.map(|(_, tier)| tier.clone()).collect()
    }

    pub(crate) fn domain(&self, hash: &[u8; 32]) -> Option<DomainState> {
        self.domains.get(hash).copied()
    }
}

impl Memory {
    /// Returns the number of a tenant whose rows of admission are about to change.
    fn changing(&mut self, tenant: TenantId) -> i64 {
        let ledger = self.ledgers.of(tenant);
        // A tenant that has nothing else must be found by its number too.
        self.out.ledger(ledger);
        ledger.tenant
    }

    /// Writes what admission decided.
    pub(crate) fn put_cells(
        &mut self,
        tenant: TenantId,
        now: Timestamp,
        decision: &Decision,
    ) -> Wrote {
        if decision.rows.is_empty() {
            return Wrote(0);
        }
        let number = self.changing(tenant);
        for (name, row) in &decision.rows {
            let key = name.to_bytes().to_vec();
            self.out.put(Table::Cell, number, key, pack::pack_cell(row));
            let known = self.gate.cells.insert(*name, (*row, number));
            if known.is_none() {
                self.gate.expiry.add(*name, row.until, now);
            }
        }
        Wrote(decision.rows.len())
    }

    /// Writes what admission decided, and forgets some rows whose time is over.
    pub(crate) fn write_cells(
        &mut self,
        tenant: TenantId,
        now: Timestamp,
        decision: &Decision,
    ) -> Wrote {
        let wrote = self.put_cells(tenant, now, decision);
        self.forget_cells(now, wrote);
        wrote
    }

    /// Forgets some rows whose time is over: more than were added, so that forgetting keeps up.
    pub(crate) fn forget_cells(&mut self, now: Timestamp, wrote: Wrote) {
        if wrote.0 == 0 {
            return;
        }
        for _ in 0..2 * wrote.0 + 2 {
            let Some(name) = self.gate.expiry.next(now) else {
                return;
            };
            match self.gate.cells.get(&name) {
                Some((row, _)) if row.until > now => self.gate.expiry.add(name, row.until, now),
                Some((_, tenant)) => {
                    self.out.change(crate::ledgers::shard_of_number(*tenant));
                    let key = name.to_bytes().to_vec();
                    self.out.remove(Table::Cell, *tenant, key);
                    self.gate.cells.remove(&name);
                }
                None => {}
            }
        }
    }

    pub(crate) fn revoke(&mut self, tenant: TenantId, revocation: Revocation) {
        let number = self.changing(tenant);
        let key = pack::subject_key(&revocation.subject);
        let body = pack::pack_revocation(&revocation);
        self.out.put(Table::Revocation, number, key, body);
        let place = (tenant, revocation.subject);
        self.gate.revoked.insert(place, revocation);
    }

    pub(crate) fn unrevoke(&mut self, tenant: TenantId, subject: Subject) -> bool {
        if self.gate.revoked.remove(&(tenant, subject)).is_none() {
            return false;
        }
        let number = self.changing(tenant);
        self.out
            .remove(Table::Revocation, number, pack::subject_key(&subject));
        true
    }

    pub(crate) fn set_tier(&mut self, tenant: TenantId, tier: ClientTier) {
        let number = self.changing(tenant);
        let key = tier.client.clone().into_bytes();
        self.out
            .put(Table::ClientTier, number, key, pack::pack_tier(&tier));
        let place = (tenant, tier.client.clone());
        self.gate.tiers.insert(place, tier);
    }

    pub(crate) fn clear_tier(&mut self, tenant: TenantId, client: String) -> bool {
        let key = client.clone().into_bytes();
        if self.gate.tiers.remove(&(tenant, client)).is_none() {
            return false;
        }
        let number = self.changing(tenant);
        self.out.remove(Table::ClientTier, number, key);
        true
    }

    pub(crate) fn put_domain(&mut self, hash: [u8; 32], state: DomainState) {
        self.out.change(shards::SERVER);
        let body = pack::pack_domain(&state);
        self.out.put(Table::Domain, SERVER, hash.to_vec(), body);
        self.gate.domains.insert(hash, state);
    }

    /// Takes back a row of one of admission's tables.
    pub(crate) fn restore_gate(&mut self, table: Table, stored: &Stored) -> Result<(), Error> {
        let body = &stored.body;
        if table == Table::Domain {
            let hash = stored.key.as_slice().try_into();
            let hash = hash.map_err(|_| damaged("a domain has no hash"))?;
            self.gate.domains.insert(hash, pack::unpack_domain(body)?);
            return Ok(());
        }
        let tenant = self.ledgers.id(stored.tenant);
        let tenant = tenant.ok_or_else(|| damaged("a row of admission has no tenant"))?;
        if table == Table::Cell {
            let name = stored.key.as_slice().try_into();
            let name = Name::from_bytes(name.map_err(|_| damaged("a row has no name"))?);
            let row = pack::unpack_cell(body)?;
            self.gate.cells.insert(name, (row, stored.tenant));
            self.gate.expiry.add(name, row.until, self.last_time);
        } else if table == Table::Revocation {
            let revocation = pack::unpack_revocation(&stored.key, body)?;
            let place = (tenant, revocation.subject);
            self.gate.revoked.insert(place, revocation);
        } else if table == Table::ClientTier {
            let tier = pack::unpack_tier(&stored.key, body)?;
            let place = (tenant, tier.client.clone());
            self.gate.tiers.insert(place, tier);
        }
        Ok(())
    }
}
