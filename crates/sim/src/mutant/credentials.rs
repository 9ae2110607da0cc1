//! Defects of who is let in, and for how long.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use asyncgate_core::{
    Timestamp,
    identity::{ApiKey, Changes, DEFAULT_TENANT, Record, RecordKind},
};
use asyncgate_engine::{Authenticator, Caller, Clock, Fault, Keyring, RequestContext};
use asyncgate_store::{
    Answer, Job, Store,
    identity::{Owner, RecordFilter, Records},
};
use futures_util::{FutureExt, future::BoxFuture};

use super::{Mutant, Mutated, lock, take};
use crate::store::at_once;

impl Mutant {
    /// Returns the time for which what was read of a record is trusted, instead of `usual`.
    pub fn proof_ttl(self, usual: Duration) -> Duration {
        match self {
            Self::NeverReadsAgain => Duration::from_secs(86_400 * 365),
            _ => usual,
        }
    }

    /// Returns the clock for the authenticator to use instead of `clock`.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Arc<dyn Clock> {
        match self {
            Self::RoundsExpiry => Arc::new(WholeSeconds(clock)),
            _ => clock,
        }
    }

    /// Returns the authenticator to use instead of `auth`.
    pub fn authenticator(self, auth: Arc<dyn Authenticator>) -> Arc<dyn Authenticator> {
        match self {
            Self::TakesForAnother => Arc::new(Forgetful {
                auth,
                calls: AtomicU64::new(0),
                last: Arc::default(),
            }),
            Self::ListensOn => Arc::new(Patient(auth)),
            _ => auth,
        }
    }

    /// Returns true if the authenticator is told of changes that were made on its own instance.
    pub fn tells_of_changes(self) -> bool {
        self != Self::KeepsToItself
    }

    /// Waits for the end of a caller's credential.
    pub fn until_ended(self, real: &dyn Keyring, caller: &Caller) -> BoxFuture<'static, ()> {
        match self {
            Self::OutlivesCredential => Box::pin(std::future::pending()),
            Self::WaitsThroughSuspension => real.until_ended(&Caller {
                // This tenant is never suspended.
                tenant: DEFAULT_TENANT,
                ..caller.clone()
            }),
            _ => real.until_ended(caller),
        }
    }
}

/// A clock that shows no milliseconds.
struct WholeSeconds(Arc<dyn Clock>);

impl Clock for WholeSeconds {
    fn now(&self) -> Timestamp {
        let millis = self.0.now().as_millis();
        Timestamp::from_millis(millis - millis.rem_euclid(1_000))
    }
}

/// An authenticator that sometimes takes a caller for the one before.
struct Forgetful {
    auth: Arc<dyn Authenticator>,
    calls: AtomicU64,
    last: Arc<Mutex<Option<Caller>>>,
}

impl Authenticator for Forgetful {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        let confused = self
            .calls
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(16);
        let found = self.auth.authenticate(request);
        async move {
            let caller = found.await?;
            let last = lock(&self.last).replace(caller.clone());
            Ok(last.filter(|_| confused).unwrap_or(caller))
        }
        .boxed()
    }

    fn until_ended(&self, request: &RequestContext<'_>) -> BoxFuture<'static, ()> {
        self.auth.until_ended(request)
    }
}

/// An authenticator that never tells of the end of a credential.
struct Patient(Arc<dyn Authenticator>);

impl Authenticator for Patient {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        self.0.authenticate(request)
    }

    fn until_ended(&self, _: &RequestContext<'_>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Mutated {
    /// Runs a transaction over records.
    pub(super) fn transact_records(&self, mut job: Job<Records>) -> Answer<'_, ()> {
        if self.mutant == Mutant::RevokesAnother {
            let mut decide = take(&mut job);
            // The rows are read before, because a decision cannot ask the store.
            let all = keys(self.store.as_ref());
            job.decide =
                Box::new(move |now, snapshot| Some(also_revoking(decide(now, snapshot)?, &all)));
        }
        self.store.transact(job.into())
    }
}

fn keys(store: &dyn Store) -> Vec<ApiKey> {
    let filter = RecordFilter {
        kind: RecordKind::ApiKey,
        owner: Owner::Anyone,
        after: None,
        limit: usize::MAX,
    };
    let found = at_once(store.identity().records(filter)).unwrap_or_default();
    let keys = found.into_iter().filter_map(|record| match record {
        Record::ApiKey(key) => Some(key),
        _ => None,
    });
    keys.collect()
}

/// Also revokes the next key of the same tenant.
fn also_revoking(mut changes: Changes, all: &[ApiKey]) -> Changes {
    let revoked = changes.put.iter().find_map(|record| match record {
        Record::ApiKey(key) if key.revoked_at.is_some() => Some(key.clone()),
        _ => None,
    });
    let Some(revoked) = revoked else {
        return changes;
    };
    let mut others = all.iter().filter(|key| key.tenant == revoked.tenant);
    let other = others.find(|key| key.id > revoked.id && key.revoked_at.is_none());
    changes.put.extend(other.map(|key| {
        Record::ApiKey(ApiKey {
            revoked_at: revoked.revoked_at,
            ..key.clone()
        })
    }));
    changes
}
