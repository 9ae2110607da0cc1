//! The tiers of clients: the tier that was set for a client, otherwise that of the settings.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{ClientTier, Limits, Tier},
};
use asyncgate_store::{Error, Store};

use crate::cache::Recent;

/// The time for which an answer of the store counts. It is short because other servers may set tiers too.
const KEPT_MS: i64 = 30_000;

type Kept = (Option<ClientTier>, Timestamp);

/// Returns the tiers of clients without asking the store each time.
pub struct Tiers {
    store: Arc<dyn Store>,
    kept: Mutex<Recent<(TenantId, String), Kept>>,
    /// The number of changes made here. An answer that was read before a change is not kept.
    epoch: AtomicU64,
}

impl std::fmt::Debug for Tiers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiers").finish_non_exhaustive()
    }
}

impl Tiers {
    /// Creates the tiers of a store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            kept: Mutex::default(),
            epoch: AtomicU64::new(0),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Recent<(TenantId, String), Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tier that counts for a client. If the store does not answer, the kept tier counts, or
    /// that of the settings.
    pub async fn of(
        &self,
        tenant: TenantId,
        now: Timestamp,
        limits: &Limits,
        client: &str,
    ) -> Tier {
        let set = self.set_for(tenant, now, client).await;
        let set = set.filter(|set| set.holds(now)).map(|set| set.tier);
        set.unwrap_or_else(|| limits.tier(client))
    }

    async fn set_for(&self, tenant: TenantId, now: Timestamp, client: &str) -> Option<ClientTier> {
        let place = (tenant, client.to_owned());
        let kept = self.kept().get(&place).cloned();
        // That a client has no tier of its own is kept too: it is the answer for most clients.
        if let Some((set, at)) = &kept
            && now.millis_since(*at) < KEPT_MS
        {
            return set.clone();
        }
        let epoch = self.epoch.load(Ordering::Acquire);
        let found = self.store.admission().tier(tenant, client.to_owned()).await;
        match found {
            Ok(found) => {
                let mut kept = self.kept();
                // Checked under the lock that `changed` also takes: otherwise an old answer could be put back
                // right after a change removed it.
                if epoch == self.epoch.load(Ordering::Acquire) {
                    kept.put(place, (found.clone(), now));
                }
                found
            }
            Err(error) => {
                tracing::debug!(%error, "the tier of a client could not be read");
                // An old answer is better than none: a tier changes seldom.
                kept.and_then(|(set, _)| set)
            }
        }
    }

    /// Sets a client's tier, which counts at once.
    pub async fn set(
        &self,
        tenant: TenantId,
        now: Timestamp,
        tier: ClientTier,
    ) -> Result<(), Error> {
        let place = (tenant, tier.client.clone());
        let store = self.store.admission();
        store.set_tier(tenant, now, tier).await?;
        self.changed(&place);
        Ok(())
    }

    /// Removes a client's tier. Returns true if it had one.
    pub async fn clear(
        &self,
        tenant: TenantId,
        now: Timestamp,
        client: &str,
    ) -> Result<bool, Error> {
        let store = self.store.admission();
        let gone = store.clear_tier(tenant, now, client.to_owned()).await?;
        self.changed(&(tenant, client.to_owned()));
        Ok(gone)
    }

    fn changed(&self, place: &(TenantId, String)) {
        let mut kept = self.kept();
        self.epoch.fetch_add(1, Ordering::Release);
        kept.remove(place);
    }

    /// Returns the tier that was set for a client, if it still counts.
    pub async fn get(
        &self,
        tenant: TenantId,
        now: Timestamp,
        client: &str,
    ) -> Result<Option<ClientTier>, Error> {
        let store = self.store.admission();
        let found = store.tier(tenant, client.to_owned()).await?;
        Ok(found.filter(|set| set.holds(now)))
    }

    /// Returns clients whose tier was set, by name, after `after`; also those whose time is over.
    pub async fn list(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Result<Vec<ClientTier>, Error> {
        self.store.admission().tiers(tenant, after, limit).await
    }
}
