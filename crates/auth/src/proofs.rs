//! Credentials that were proved, by their digests: the hot path is one digest and one look into this table.
//!
//! A proof says who the bearer is. Whether that still holds is said by the records that it stands on, so a proof
//! can stay for as long as they do not change.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use asyncgate_core::Timestamp;
use asyncgate_engine::Caller;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::digest::Digest;
use crate::known::Known;

/// The most proofs. Whoever has a macaroon can make any number of others of it, so they have to have a bound.
const MAX_PROOFS: usize = 65_536;

/// A credential that was proved.
pub(crate) struct Proof {
    /// Its bearer. The credential's expiry is in it.
    pub caller: Caller,
    /// The record of the credential, unless it has none.
    pub record: Option<Arc<Known>>,
    /// The record of the bearer's tenant.
    pub tenant: Arc<Known>,
    touched_ms: AtomicI64,
}

impl Proof {
    pub(crate) fn new(caller: Caller, record: Option<Arc<Known>>, tenant: Arc<Known>) -> Self {
        Self {
            caller,
            record,
            tenant,
            touched_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// Returns the records that it stands on.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Arc<Known>> {
        self.record.iter().chain([&self.tenant])
    }

    /// Returns true if it has to be made again, because a record that it stands on is not what it was.
    pub(crate) fn is_over(&self) -> bool {
        self.records().any(|known| known.is_over())
    }

    /// Returns true from the credential's expiry on.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        self.caller
            .credential
            .expires_at
            .is_some_and(|end| now >= end)
    }

    /// Returns the reason why it need not be remembered any more, if there is one: it is over, or nobody has used it
    /// since a time.
    fn is_done(&self, now: Timestamp, since: Timestamp) -> Option<Evicted> {
        if self.has_expired(now) {
            Some(Evicted::EXPIRED)
        } else if self.is_over() {
            Some(Evicted::REVOKED)
        } else if self.touched_ms.load(Relaxed) < since.as_millis() {
            Some(Evicted::UNUSED)
        } else {
            None
        }
    }

    /// Notes a use.
    pub(crate) fn touch(&self, now: Timestamp) {
        let now_ms = now.as_millis();
        if now_ms.saturating_sub(self.touched_ms.load(Relaxed)) >= 1_000 {
            self.touched_ms.store(now_ms, Relaxed);
            for known in self.records() {
                known.touch(now);
            }
        }
    }
}

/// The reason why a proof was forgotten, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct Evicted {
    reason: &'static str,
}

impl Evicted {
    /// A record that it stood on was revoked, removed or changed.
    pub(crate) const REVOKED: Self = Self { reason: "revoked" };
    /// Its time was over.
    pub(crate) const EXPIRED: Self = Self { reason: "expired" };
    /// Nobody has used it for long, or others needed its place.
    pub(crate) const UNUSED: Self = Self { reason: "unused" };
}

/// The proofs.
pub(crate) struct Proofs {
    table: RwLock<HashMap<Digest, Arc<Proof>>>,
    bound: usize,
    entries: Gauge,
    evictions: Family<Evicted, Counter>,
}

impl Default for Proofs {
    fn default() -> Self {
        Self::bounded(MAX_PROOFS)
    }
}

impl Proofs {
    fn bounded(bound: usize) -> Self {
        Self {
            table: RwLock::default(),
            bound,
            entries: Gauge::default(),
            evictions: Family::default(),
        }
    }

    pub(crate) fn get(&self, digest: &Digest) -> Option<Arc<Proof>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.get(digest).cloned()
    }

    pub(crate) fn insert(&self, digest: Digest, proof: Arc<Proof>) {
        self.change(|table| {
            if table.len() >= self.bound && !table.contains_key(&digest) {
                let gone = make_room(table);
                self.count(Evicted::UNUSED, gone);
            }
            table.insert(digest, proof);
        });
    }

    /// Forgets a proof, unless another one has taken its place.
    pub(crate) fn remove(&self, digest: &Digest, proof: &Arc<Proof>, why: Evicted) {
        self.change(|table| {
            let there = table.get(digest);
            if there.is_some_and(|there| Arc::ptr_eq(there, proof)) {
                table.remove(digest);
                self.count(why, 1);
            }
        });
    }

    /// Forgets what is over, and what nobody has used since a time.
    pub(crate) fn tidy(&self, now: Timestamp, since: Timestamp) {
        self.change(|table| {
            table.retain(|_, proof| {
                let why = proof.is_done(now, since);
                if let Some(why) = why {
                    self.count(why, 1);
                }
                why.is_none()
            });
        });
    }

    pub(crate) fn register_metrics(&self, registry: &mut Registry) {
        for reason in [Evicted::REVOKED, Evicted::EXPIRED, Evicted::UNUSED] {
            // Every reason shows as 0 before it first happens.
            self.count(reason, 0);
        }
        registry.register(
            "cap_cache_entries",
            "Credentials that were proved and are remembered",
            self.entries.clone(),
        );
        registry.register(
            "cap_cache_evictions",
            "Proved credentials that were forgotten",
            self.evictions.clone(),
        );
    }

    fn count(&self, why: Evicted, gone: u64) {
        self.evictions.get_or_create(&why).inc_by(gone);
    }

    fn change(&self, change: impl FnOnce(&mut HashMap<Digest, Arc<Proof>>)) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut table);
        self.entries
            .set(i64::try_from(table.len()).unwrap_or(i64::MAX));
    }
}

/// Removes the quarter that was not used for the longest time. Returns how many these are.
fn make_room(table: &mut HashMap<Digest, Arc<Proof>>) -> u64 {
    let mut times: Vec<i64> = table
        .values()
        .map(|it| it.touched_ms.load(Relaxed))
        .collect();
    let quarter = times.len() / 4;
    let (_, limit, _) = times.select_nth_unstable(quarter);
    let (limit, mut left) = (*limit, quarter);
    // Many may have the same time, so the quarter is counted too.
    table.retain(|_, proof| {
        let stays = left == 0 || proof.touched_ms.load(Relaxed) > limit;
        left -= usize::from(!stays);
        stays
    });
    u64::try_from(quarter - left).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use asyncgate_core::identity::{DEFAULT_TENANT, Record, TenantRecord};
    use asyncgate_engine::{Principal, PrincipalKind, Role};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    fn proof(expires_at: Option<Timestamp>) -> Arc<Proof> {
        let principal = Principal::new(PrincipalKind::Agent, "ann");
        let mut caller = Caller::new(DEFAULT_TENANT, principal, Role::Agent);
        caller.credential.expires_at = expires_at;
        let tenant = Record::Tenant(TenantRecord::built_in());
        let tenant = Arc::new(Known::new(tenant, at(0), None));
        Arc::new(Proof::new(caller, None, tenant))
    }

    fn digest(n: u32) -> Digest {
        blake3::hash(&n.to_le_bytes())
    }

    #[test]
    fn the_least_used_make_room() {
        let proofs = Proofs::bounded(100);
        for n in 0..100 {
            let proof = proof(None);
            // The even ones are used, each at a time of its own.
            if n % 2 == 0 {
                proof.touch(at(i64::from(n) + 1));
            }
            proofs.insert(digest(n), proof);
        }
        proofs.insert(digest(100), proof(None));
        assert_eq!(proofs.entries.get(), 76);
        let kept = |n: &u32| proofs.get(&digest(*n)).is_some();
        assert_eq!(
            (0..100).step_by(2).filter(kept).count(),
            50,
            "all that were used"
        );
        assert!(kept(&100));
        for n in 1_000..2_000 {
            proofs.insert(digest(n), proof(None));
            assert!((76..=100).contains(&proofs.entries.get()));
        }
        assert!((0..100).step_by(2).filter(kept).count() > 0);
    }

    #[test]
    fn what_is_over_goes_and_the_rest_stays() {
        let proofs = Proofs::default();
        let (good, expired, revoked) = (proof(Some(at(50))), proof(Some(at(20))), proof(None));
        for (n, proof) in [(1, &good), (2, &expired), (3, &revoked)] {
            proof.touch(at(10));
            proofs.insert(digest(n), Arc::clone(proof));
        }
        revoked.tenant.end();
        proofs.tidy(at(20), at(5));
        assert!(proofs.get(&digest(1)).is_some());
        assert_eq!(proofs.entries.get(), 1);
        proofs.tidy(at(30), at(11));
        assert_eq!(proofs.entries.get(), 0);
        for why in [Evicted::REVOKED, Evicted::EXPIRED, Evicted::UNUSED] {
            assert_eq!(proofs.evictions.get_or_create(&why).get(), 1, "{why:?}");
        }
    }
}
