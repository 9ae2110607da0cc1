//! What counts for each tenant now: its quotas, and how many calls it made since it was metered.
//!
//! A tenant's record is read from the store at most every 30 seconds, and at once after a change on this instance.
//!
//! Invariant: whoever was let in has an entry here before a rule decides for it, and the entry stays for as long as a
//! call can last. So a decision finds its quotas without waiting.

use std::sync::{
    Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic::{AtomicU64, Ordering},
};

use asyncgate_core::{
    TenantId, Timestamp,
    identity::{Find, Quota, QuotaName, Quotas, Record, TenantRecord, TenantTier},
};
use foldhash::HashMap;

use crate::{Engine, Fault};

/// The time for which a record that was read counts. Other instances may change it.
const KEPT_MS: i64 = 30_000;
/// The number of entries above which those that nobody needed lately are dropped.
const MAX_KEPT: usize = 65_536;
/// The time after which nobody needs an entry: longer than any call.
const UNUSED_MS: i64 = 3_600_000;

/// The operator's settings about tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSettings {
    /// True if hourly quotas count.
    pub limits_rates: bool,
    /// The tier of a tenant that is made without one.
    pub default_tier: TenantTier,
    /// The quotas of the tiers, in the order of [`TenantTier::ALL`]. What is not among them is as built in.
    pub tiers: [Quotas; TenantTier::ALL.len()],
}

impl Default for TenantSettings {
    fn default() -> Self {
        Self {
            limits_rates: true,
            default_tier: TenantTier::Free,
            tiers: [Quotas::default(); TenantTier::ALL.len()],
        }
    }
}

impl TenantSettings {
    /// Returns the quotas that the settings give a tier.
    pub const fn of_tier(&self, tier: TenantTier) -> Quotas {
        self.tiers[tier as usize]
    }
}

/// The quotas of a tenant at some time.
#[derive(Debug, Clone)]
pub(crate) struct InForce {
    /// All of them; absent if nothing has a bound.
    pub(crate) quotas: Option<Arc<Quotas>>,
    /// True if calls are limited by the hour.
    pub(crate) is_rated: bool,
}

impl InForce {
    fn new(quotas: Quotas, settings: &TenantSettings) -> Self {
        Self {
            quotas: (!quotas.is_unlimited()).then(|| Arc::new(quotas)),
            is_rated: settings.limits_rates && quotas.has_hourly(),
        }
    }
}

/// What counts for a tenant.
#[derive(Debug)]
pub(crate) struct Standing {
    /// Absent for a tenant without a record. Nobody outside of tests belongs to one.
    record: Option<TenantRecord>,
    usual: InForce,
    /// What counts until a time, if an exception is made.
    excepted: Option<(Timestamp, InForce)>,
    /// The calls since the tenant was metered last.
    calls: Arc<AtomicU64>,
}

impl Standing {
    fn new(record: Option<TenantRecord>, settings: &TenantSettings, calls: Arc<AtomicU64>) -> Self {
        let usual = |record: &TenantRecord| {
            let of_tier = settings.of_tier(record.tier);
            record.tenant().quotas(of_tier)
        };
        let quotas = record.as_ref().map(usual).unwrap_or_default();
        let exception = record.as_ref().and_then(|record| record.exception.as_ref());
        let excepted = exception.map(|exception| {
            let quotas = exception.effect.apply(quotas);
            (exception.until, InForce::new(quotas, settings))
        });
        Self {
            usual: InForce::new(quotas, settings),
            excepted,
            record,
            calls,
        }
    }

    /// Returns the quotas that count now.
    pub(crate) fn at(&self, now: Timestamp) -> &InForce {
        match &self.excepted {
            Some((until, in_force)) if now < *until => in_force,
            Some(_) | None => &self.usual,
        }
    }

    /// Counts a call.
    pub(crate) fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// An entry, and when it was read.
#[derive(Debug)]
struct Kept {
    standing: Arc<Standing>,
    /// The time at which it was read. Whoever needs it later reads it again.
    read_at: Timestamp,
    /// True if the tenant was changed since.
    is_outdated: bool,
}

/// The tenants that were needed lately.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    kept: RwLock<HashMap<TenantId, Kept>>,
    /// The number of changes made here. What was read before a change is not kept.
    epoch: AtomicU64,
}

impl Tenants {
    fn kept(&self) -> RwLockReadGuard<'_, HashMap<TenantId, Kept>> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn kept_mut(&self) -> RwLockWriteGuard<'_, HashMap<TenantId, Kept>> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what was read of a tenant, however long ago.
    pub(crate) fn known(&self, tenant: TenantId) -> Option<Arc<Standing>> {
        let kept = self.kept();
        kept.get(&tenant).map(|kept| Arc::clone(&kept.standing))
    }

    /// Returns what was read of a tenant, unless that is too long ago.
    fn fresh(&self, tenant: TenantId, now: Timestamp) -> Option<Arc<Standing>> {
        let kept = self.kept();
        let found = kept.get(&tenant)?;
        let is_fresh = !found.is_outdated && now.millis_since(found.read_at) < KEPT_MS;
        is_fresh.then(|| Arc::clone(&found.standing))
    }

    fn put(
        &self,
        tenant: TenantId,
        now: Timestamp,
        epoch: u64,
        record: Option<TenantRecord>,
        settings: &TenantSettings,
    ) -> Arc<Standing> {
        let mut kept = self.kept_mut();
        if kept.len() >= MAX_KEPT && !kept.contains_key(&tenant) {
            drop_unused(&mut kept, now);
        }
        let before = kept.get(&tenant);
        let calls = before.map(|kept| Arc::clone(&kept.standing.calls));
        let standing = Standing::new(record, settings, calls.unwrap_or_default());
        let standing = Arc::new(standing);
        // Checked under the lock that `changed` also takes: otherwise an old answer could be put back right after a
        // change.
        let entry = Kept {
            standing: Arc::clone(&standing),
            read_at: now,
            is_outdated: epoch != self.epoch.load(Ordering::Acquire),
        };
        kept.insert(tenant, entry);
        standing
    }

    /// Notes that a tenant's record was changed: it is read again before the next call.
    pub(crate) fn changed(&self, tenant: TenantId) {
        let mut kept = self.kept_mut();
        self.epoch.fetch_add(1, Ordering::Release);
        if let Some(kept) = kept.get_mut(&tenant) {
            kept.is_outdated = true;
        }
    }

    /// Counts with other settings from now on.
    pub(crate) fn reload(&self, settings: &TenantSettings) {
        for kept in self.kept_mut().values_mut() {
            let Standing { record, calls, .. } = &*kept.standing;
            let standing = Standing::new(record.clone(), settings, Arc::clone(calls));
            kept.standing = Arc::new(standing);
        }
    }

    /// Returns the calls of a tenant that were not metered yet.
    pub(crate) fn unmetered_calls(&self, tenant: TenantId) -> u64 {
        let standing = self.known(tenant);
        standing.map_or(0, |standing| standing.calls.load(Ordering::Relaxed))
    }

    /// Takes the calls of a tenant that were not metered yet. If they cannot be metered, give them back.
    pub(crate) fn take_calls(&self, tenant: TenantId) -> u64 {
        let standing = self.known(tenant);
        standing.map_or(0, |standing| standing.calls.swap(0, Ordering::Relaxed))
    }

    /// Gives calls back that could not be metered.
    pub(crate) fn give_back_calls(&self, tenant: TenantId, calls: u64) {
        if let Some(standing) = self.known(tenant) {
            standing.calls.fetch_add(calls, Ordering::Relaxed);
        }
    }

    /// Returns the tenants that made calls since they were metered last.
    pub(crate) fn callers(&self) -> Vec<TenantId> {
        let kept = self.kept();
        let called = |kept: &Kept| kept.standing.calls.load(Ordering::Relaxed) > 0;
        let callers = kept.iter().filter(|(_, kept)| called(kept));
        callers.map(|(tenant, _)| *tenant).collect()
    }
}

/// Drops entries that nobody needs. Those with calls that were not metered stay until they are.
fn drop_unused(kept: &mut HashMap<TenantId, Kept>, now: Timestamp) {
    kept.retain(|_, kept| {
        let is_used = now.millis_since(kept.read_at) < UNUSED_MS;
        is_used || kept.standing.calls.load(Ordering::Relaxed) > 0
    });
}

impl Engine {
    /// Returns what counts for a tenant, as it was read at most 30 seconds ago. If the store does not answer, what was
    /// read before that counts.
    pub(crate) async fn tenant(&self, tenant: TenantId) -> Result<Arc<Standing>, Fault> {
        let now = self.now();
        if let Some(standing) = self.tenants.fresh(tenant, now) {
            return Ok(standing);
        }
        // Boxed, so that the futures of most calls stay small.
        Box::pin(self.read_tenant(tenant, now)).await
    }

    async fn read_tenant(&self, tenant: TenantId, now: Timestamp) -> Result<Arc<Standing>, Fault> {
        let epoch = self.tenants.epoch.load(Ordering::Acquire);
        let found = self.store.identity().record(Find::tenant(tenant)).await;
        match (found, self.tenants.known(tenant)) {
            (Ok(found), _) => {
                let record = match found {
                    Some(Record::Tenant(record)) => Some(record),
                    Some(_) | None => None,
                };
                let settings = &self.settings().tenants;
                Ok(self.tenants.put(tenant, now, epoch, record, settings))
            }
            (Err(error), Some(known)) => {
                tracing::debug!(%error, "a tenant could not be read");
                Ok(known)
            }
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Returns a quota of a tenant that was let in.
    pub(crate) fn quota(&self, tenant: TenantId, name: QuotaName) -> Quota {
        let standing = self.tenants.known(tenant);
        let quotas = standing.and_then(|standing| standing.at(self.now()).quotas.clone());
        quotas.map_or(Quota::None, |quotas| quotas.get(name))
    }

    /// Notes that a tenant was changed. What counts for it is read again before the next call, and a worker that waits
    /// for room looks again.
    pub(crate) fn tenant_changed(&self, tenant: TenantId) {
        self.tenants.changed(tenant);
        self.store.signals().publish_room(tenant);
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_core::identity::{ExceptionEffect, LimitException};

    use super::*;

    const ACME: TenantId = TenantId::from_bytes([7; 16]);

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn record(tier: TenantTier) -> TenantRecord {
        TenantRecord {
            id: ACME,
            name: "acme".to_owned(),
            tier,
            ..TenantRecord::built_in()
        }
    }

    fn bound(standing: &Standing, now: i64, name: QuotaName) -> Option<u64> {
        let quotas = standing.at(at(now)).quotas.as_ref()?;
        match quotas.get(name) {
            Quota::None => None,
            Quota::AtMost(most) => Some(most),
        }
    }

    #[test]
    fn quotas_come_from_the_record_the_settings_and_what_is_built_in() {
        let mut settings = TenantSettings::default();
        let of_free = Quotas::default().with(QuotaName::ApiCallsPerHour, Quota::AtMost(7));
        settings.tiers[TenantTier::Free as usize] = of_free;
        let standing =
            |record, settings: &TenantSettings| Standing::new(record, settings, Arc::default());
        let free = standing(Some(record(TenantTier::Free)), &settings);
        assert_eq!(bound(&free, 0, QuotaName::ApiCallsPerHour), Some(7));
        assert_eq!(bound(&free, 0, QuotaName::TasksPerHour), Some(100));
        assert!(free.at(at(0)).is_rated);
        settings.limits_rates = false;
        let unrated = standing(Some(record(TenantTier::Free)), &settings);
        assert!(!unrated.at(at(0)).is_rated);
        assert_eq!(bound(&unrated, 0, QuotaName::ConcurrentLeases), Some(10));
        for unlimited in [Some(record(TenantTier::Enterprise)), None] {
            let standing = standing(unlimited, &TenantSettings::default());
            let in_force = standing.at(at(0));
            assert!(in_force.quotas.is_none() && !in_force.is_rated);
        }
    }

    #[test]
    fn an_exception_counts_until_its_end() {
        let exception = |effect| LimitException {
            effect,
            reason: "why".to_owned(),
            since: at(0),
            until: at(100),
            approved_by: asyncgate_core::Principal::system().key(),
        };
        let standing = |tier, effect| {
            let record = TenantRecord {
                exception: Some(exception(effect)),
                ..record(tier)
            };
            Standing::new(Some(record), &TenantSettings::default(), Arc::default())
        };
        let lifted = standing(TenantTier::Free, ExceptionEffect::Bypass);
        assert!(!lifted.at(at(99)).is_rated && lifted.at(at(100)).is_rated);
        let strict = Quotas::default().with(QuotaName::ApiCallsPerHour, Quota::AtMost(1));
        let throttled = standing(TenantTier::Enterprise, ExceptionEffect::Throttle(strict));
        assert!(throttled.at(at(99)).is_rated && !throttled.at(at(100)).is_rated);
    }

    #[test]
    fn a_change_counts_at_once_even_if_an_older_answer_comes_after_it() {
        let (tenants, settings) = (Tenants::default(), TenantSettings::default());
        let free = || Some(record(TenantTier::Free));
        let epoch = || tenants.epoch.load(Ordering::Acquire);
        tenants.put(ACME, at(0), epoch(), free(), &settings);
        assert!(tenants.fresh(ACME, at(KEPT_MS - 1)).is_some());
        assert!(tenants.fresh(ACME, at(KEPT_MS)).is_none());
        assert!(tenants.known(ACME).is_some(), "it still counts meanwhile");
        let before = epoch();
        tenants.changed(ACME);
        assert!(tenants.fresh(ACME, at(1)).is_none());
        tenants.put(ACME, at(1), before, free(), &settings);
        assert!(
            tenants.fresh(ACME, at(1)).is_none(),
            "read before the change"
        );
        tenants.put(ACME, at(2), epoch(), free(), &settings);
        assert!(tenants.fresh(ACME, at(2)).is_some());
    }

    #[test]
    fn calls_are_counted_whatever_is_read_meanwhile() {
        let (tenants, settings) = (Tenants::default(), TenantSettings::default());
        let put = |now| tenants.put(ACME, at(now), 0, None, &settings);
        let first = put(0);
        first.count_call();
        let second = put(1);
        second.count_call();
        first.count_call();
        tenants.reload(&settings);
        assert_eq!(tenants.callers(), [ACME]);
        assert_eq!(tenants.unmetered_calls(ACME), 3);
        assert_eq!(tenants.take_calls(ACME), 3);
        assert_eq!((tenants.take_calls(ACME), tenants.callers().len()), (0, 0));
        tenants.give_back_calls(ACME, 3);
        assert_eq!(tenants.unmetered_calls(ACME), 3);
    }

    #[test]
    fn entries_that_nobody_needs_go_when_there_are_many() {
        let (tenants, settings) = (Tenants::default(), TenantSettings::default());
        let id = |n: usize| {
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&(n as u64).to_be_bytes());
            TenantId::from_bytes(bytes)
        };
        for n in 0..MAX_KEPT {
            tenants.put(id(n), at(0), 0, None, &settings);
        }
        tenants.known(id(5)).unwrap().count_call();
        tenants.put(id(6), at(UNUSED_MS), 0, None, &settings);
        tenants.put(ACME, at(UNUSED_MS), 0, None, &settings);
        let left = |n| tenants.known(id(n)).is_some();
        assert!(left(5) && left(6) && !left(7));
        assert_eq!(tenants.kept().len(), 3);
    }
}
