//! Incidents: all credentials of a tenant or a principal end.

use asyncgate_api::{KeptKey, RevokeAllCredentials, RevokedAll, RotateAllKeys, RotatedAll};
pub(super) use asyncgate_core::identity::manage::incident::End;
use asyncgate_core::{
    PrincipalKey, RecordId, TenantId, Timestamp,
    identity::{
        Record, RecordKind,
        manage::incident::{Incident, Step},
    },
};
use asyncgate_store::identity::{Owner, Reads, RecordFilter};
use serde_json::json;

use super::{Execute, Executed, principal_key, reading};
use crate::{Caller, Engine, Event, Fault};

/// The most records of one step. Others get their turn between two of them.
const STEP: usize = 100;
/// The most keys that an answer names as left alone.
const MAX_KEPT: usize = 100;
/// The time for which keys still work if the caller names none: a day.
const DEFAULT_OVERLAP_SECS: u64 = 86_400;

/// Everything that lets somebody in and can be revoked.
const CREDENTIALS: &[RecordKind] = &[
    RecordKind::ApiKey,
    RecordKind::Macaroon,
    RecordKind::TokenFamily,
];

impl Execute for RevokeAllCredentials {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let whose = Whose {
            tenant: tenant.await?,
            principal: input.principal.map(principal_key).transpose()?,
        };
        let ended = engine.end_credentials(caller, &whose, CREDENTIALS, End::Now);
        let ended = ended.await?;
        engine.announce(caller, &whose, "credentials_revoked", &ended);
        Ok(RevokedAll {
            keys: ended.keys,
            macaroons: ended.macaroons,
            tokens: ended.tokens,
            kept: ended.kept,
        })
    }
}

impl Execute for RotateAllKeys {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let whose = Whose {
            tenant: tenant.await?,
            principal: input.principal.map(principal_key).transpose()?,
        };
        let overlap_secs = input.overlap_secs.unwrap_or(DEFAULT_OVERLAP_SECS);
        let end = End::After { overlap_secs };
        let ended = engine.end_credentials(caller, &whose, &[RecordKind::ApiKey], end);
        let ended = ended.await?;
        engine.announce(caller, &whose, "keys_expiring", &ended);
        // The store decides at a time of its own, so the keys know best.
        let last_end = ended.last_end.unwrap_or_else(|| end.at(engine.now()));
        Ok(RotatedAll {
            keys: ended.keys,
            expires_at: last_end.to_string(),
            kept: ended.kept,
        })
    }
}

/// The tenant whose credentials end, and the principal if it is only one.
pub(super) struct Whose {
    pub(super) tenant: TenantId,
    pub(super) principal: Option<PrincipalKey>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(super) struct Ended {
    keys: u64,
    macaroons: u64,
    pub(super) tokens: u64,
    /// The end of the key that is valid the longest.
    last_end: Option<Timestamp>,
    kept: Vec<KeptKey>,
}

impl Ended {
    fn add(&mut self, step: &Step) {
        for record in &step.ended {
            match record {
                Record::Macaroon(_) => self.macaroons += 1,
                Record::TokenFamily(_) => self.tokens += 1,
                Record::ApiKey(key) => {
                    self.keys += 1;
                    self.last_end = self.last_end.max(key.expires_at);
                }
                Record::Tenant(_)
                | Record::OauthClient(_)
                | Record::IdentityLink(_)
                | Record::AuthorizationCode(_)
                | Record::RefreshToken(_) => self.keys += 1,
            }
        }
        let room = MAX_KEPT.saturating_sub(self.kept.len());
        let kept = step.kept.iter().take(room).map(|(id, why)| KeptKey {
            key_id: id.to_string(),
            reason: why.as_str().to_owned(),
        });
        self.kept.extend(kept);
    }
}

impl Engine {
    /// Ends all credentials of these kinds, step by step. What a step has ended stays ended if a later one fails,
    /// and to call it again is fine.
    pub(super) async fn end_credentials(
        &self,
        caller: &Caller,
        whose: &Whose,
        kinds: &[RecordKind],
        end: End,
    ) -> Result<Ended, Fault> {
        let mut ended = Ended::default();
        for kind in kinds {
            let mut after = None;
            loop {
                let filter = RecordFilter {
                    kind: *kind,
                    owner: whose.owner(),
                    after,
                    limit: STEP,
                };
                let found = self.store.identity().records(filter).await?;
                let Some(last) = found.len().checked_sub(1) else {
                    break;
                };
                let step = self.end_some(caller, &found, end).await?;
                ended.add(&step);
                let seen = step.seen.clamp(1, last + 1);
                after = found.get(seen - 1).map(|record| record.key().id);
                // Those that had ended before, too: a call that broke off may not have come as far as this.
                let is_kept = |record: &Record| {
                    let id = record.key().id;
                    step.kept.iter().any(|(kept, _)| *kept == id)
                };
                let over = found.into_iter().take(seen);
                self.forget(over.filter(|record| !is_kept(record)))?;
            }
        }
        Ok(ended)
    }

    /// Ends the credentials of one step, as they stand when it is decided.
    async fn end_some(&self, caller: &Caller, found: &[Record], end: End) -> Result<Step, Fault> {
        let names = found.iter().map(|record| {
            let key = record.key();
            asyncgate_core::identity::Find::within(record.tenant(), key.kind, key.id)
        });
        let reads = Reads {
            platform_keys: true,
            ..reading(names.collect())
        };
        let actor = Self::actor(caller);
        let own: Option<RecordId> = caller.credential.id;
        self.manage(caller, reads, move |env, snapshot| {
            let incident = Incident {
                actor: &actor,
                own,
                end,
                platform_keys: &snapshot.platform_keys,
            };
            incident.step(env, &snapshot.records)
        })
        .await
    }

    /// Tells the admins of the tenant who listen to its events, and the log.
    fn announce(&self, caller: &Caller, whose: &Whose, event: &'static str, ended: &Ended) {
        let principal = whose.principal.as_ref().map(ToString::to_string);
        tracing::warn!(
            event,
            tenant = %whose.tenant,
            principal,
            keys = ended.keys,
            macaroons = ended.macaroons,
            tokens = ended.tokens,
            "credentials were ended"
        );
        let body = json!({
            "event": event,
            "tenant_id": whose.tenant.to_string(),
            "principal": principal,
            "by": caller.principal.key().to_string(),
            "keys": ended.keys,
            "macaroons": ended.macaroons,
            "tokens": ended.tokens,
        });
        self.events.publish(Event {
            tenant: Some(whose.tenant),
            topic: "identity.incident",
            body,
        });
    }
}

impl Whose {
    fn owner(&self) -> Owner {
        match &self.principal {
            Some(principal) => Owner::Principal(self.tenant, principal.clone()),
            None => Owner::Tenant(self.tenant),
        }
    }
}
