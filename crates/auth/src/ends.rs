//! Waits for the end of a credential: its expiry, its revocation, or the suspension of its tenant.

use std::sync::Arc;
use std::time::Duration;

use asyncgate_core::Timestamp;
use asyncgate_core::identity::{Find, KeyStanding, Record, RecordKind};
use asyncgate_engine::{Caller, Clock, CredentialKind};
use asyncgate_store::Error;
use tokio::time::sleep;

use crate::records::Records;

/// The pause before the records are looked at again while the store cannot say how they stand.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The shortest pause between two looks into the store, whatever the time to live.
const SHORTEST_WATCH_MS: i64 = 100;

/// Returns a future that ends when the caller's credential does: at once if that happens here, within the time to
/// live if it happens elsewhere.
pub(crate) fn until_ended(
    records: Arc<Records>,
    clock: Arc<dyn Clock>,
    caller: &Caller,
) -> impl Future<Output = ()> + Send + use<> {
    let watched = Watched::of(caller);
    // Subscribed at once, so that no change falls between the request and the first look.
    let mut changes = records.changes();
    async move {
        loop {
            changes.borrow_and_update();
            let now = clock.now();
            let left = match watched.look(&records, now).await {
                Ok(Some(left_ms)) => Duration::from_millis(left_ms.unsigned_abs()),
                Ok(None) => return,
                Err(_) => LOOK_AGAIN,
            };
            tokio::select! {
                // The sender lives as long as `records`.
                _ = changes.changed() => {}
                () = sleep(left) => {}
            }
        }
    }
}

/// The things that a credential ends with.
struct Watched {
    /// The record of the credential and that of its tenant, as far as they matter.
    finds: Vec<Find>,
    expires_at: Option<Timestamp>,
}

impl Watched {
    fn of(caller: &Caller) -> Self {
        let credential = &caller.credential;
        let own = match credential.kind {
            CredentialKind::ApiKey => RecordKind::ApiKey,
            CredentialKind::Jwt => RecordKind::TokenFamily,
            CredentialKind::Macaroon => RecordKind::Macaroon,
            // They end with the process.
            CredentialKind::SharedKey | CredentialKind::Dev | CredentialKind::Server => {
                return Self {
                    finds: Vec::new(),
                    expires_at: None,
                };
            }
        };
        // A token without a family has no record of its own.
        let own = credential.id.map(|id| Find::id(own, id));
        // Whoever runs the platform must be able to end the suspension of its own tenant.
        let tenant = (!caller.runs_the_platform()).then(|| Find::tenant(caller.tenant));
        Self {
            finds: own.into_iter().chain(tenant).collect(),
            expires_at: credential.expires_at,
        }
    }

    /// Returns for how many milliseconds nobody has to look again; nothing if the credential has ended.
    async fn look(&self, records: &Records, now: Timestamp) -> Result<Option<i64>, Error> {
        let left = |end: Option<Timestamp>| end.map_or(i64::MAX, |end| end.millis_since(now));
        let (mut trusted_ms, mut left_ms) = (i64::MAX, left(self.expires_at));
        for find in &self.finds {
            let Some(known) = records.find(find, now).await? else {
                return Ok(None);
            };
            let Lives::Until(end) = lives(&known.record, now) else {
                return Ok(None);
            };
            trusted_ms = trusted_ms.min(records.fresh_ms(&known, now));
            left_ms = left_ms.min(left(end));
        }
        let next_ms = left_ms.min(trusted_ms.max(SHORTEST_WATCH_MS));
        Ok((left_ms > 0).then_some(next_ms))
    }
}

/// Whether a record lets anybody in.
enum Lives {
    /// It does, until this time if nothing happens before.
    Until(Option<Timestamp>),
    /// It does not.
    No,
}

fn lives(record: &Record, now: Timestamp) -> Lives {
    let (good, end) = match record {
        Record::ApiKey(key) => (
            key.life().standing(now) == KeyStanding::Valid,
            key.expires_at,
        ),
        Record::Macaroon(macaroon) => (macaroon.revoked_at.is_none(), Some(macaroon.expires_at)),
        Record::TokenFamily(family) => (family.revoked_at.is_none(), Some(family.expires_at)),
        Record::Tenant(tenant) => (tenant.tenant().admit().is_ok(), None),
        Record::OauthClient(_)
        | Record::IdentityLink(_)
        | Record::AuthorizationCode(_)
        | Record::RefreshToken(_) => (false, None),
    };
    match good {
        true => Lives::Until(end),
        false => Lives::No,
    }
}
