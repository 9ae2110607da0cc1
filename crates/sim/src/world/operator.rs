//! Operators: they change tenants and credentials by the real operations, on this instance or on the other.

use std::sync::Arc;

use asyncgate_api::{ChangeTenant, Code, CreateKey, CreatedKey, RevokeKey, RotateKey, RotatedKey};
use asyncgate_auth::platform_admin;
use asyncgate_core::{
    RecordId, TenantId, Timestamp,
    identity::{RecordKey, RecordKind},
};
use asyncgate_engine::{Caller, Clock, Engine, Fault};
use futures_util::FutureExt;
use serde_json::json;

use super::{
    World,
    door::{Credential, Wallets},
};
use crate::{
    cast::{Actor, TENANTS, tenant_id},
    deed::{Deed, Place},
    entrance::{Answer, typed},
    step::Manner,
    store::Origin,
    violation::{Checked, broken, hold},
};

impl World {
    /// Does what an operator does, by the real operations.
    pub(super) fn manage(&mut self, deed: Deed, place: Place) -> Checked {
        let Some(door) = &self.door else {
            return broken("schedule", "nobody needs a credential here");
        };
        let engine = match place {
            Place::Here => Arc::clone(&self.engine),
            Place::Elsewhere => Arc::clone(&door.elsewhere),
        };
        let Some(order) = Order::of(deed, &self.actors, &door.wallets, self.clock.now()) else {
            return broken("schedule", format!("there is nothing to {deed}"));
        };
        let faults = self.store.faults();
        self.store.polls(Origin::Operator(place), Manner::Prompt);
        let caller = platform_admin();
        let done = order.run(&engine, &caller).now_or_never();
        self.store.polls(Origin::Server, Manner::Prompt);
        let Some(done) = done else {
            return broken("deeds", format!("{deed} waits"));
        };
        let given = match done {
            Ok(answer) => order.given(answer)?,
            Err(fault) => {
                // A key that has ended is not replaced, and a world has only so many.
                let refused = [Code::Conflict, Code::RateLimit].contains(&fault.code);
                let failed = fault.code == Code::Unavailable && self.store.faults() > faults;
                hold(refused || failed, "deeds", || {
                    format!("{deed}: {}", fault.code.as_str())
                })?;
                None
            }
        };
        let mut meant = order.about.clone();
        meant.extend(given.as_ref().map(|it| key_of(it.id)));
        self.meant = Some(meant);
        let learnt = self.learn();
        self.meant = None;
        if let (Some(given), Some(door), Some(actor)) = (given, &mut self.door, deed.actor()) {
            door.wallets.of_actors[actor].push(given);
        }
        learnt
    }
}

/// The call that does a deed.
struct Order {
    deed: Deed,
    /// The records that it changes.
    about: Vec<RecordKey>,
    input: String,
}

impl Order {
    fn of(deed: Deed, actors: &[Actor], wallets: &Wallets, now: Timestamp) -> Option<Self> {
        let (about, input) = match deed {
            Deed::Suspend(tenant) | Deed::Resume(tenant) => {
                let id = (tenant < TENANTS).then(|| tenant_id(tenant))?;
                let suspended = matches!(deed, Deed::Suspend(_));
                let input = json!({"tenant_id": id.to_string(), "suspended": suspended});
                (vec![tenant_key(id)], input)
            }
            Deed::Bound(tenant, tasks, leases) => {
                let id = (tenant < TENANTS).then(|| tenant_id(tenant))?;
                let quotas = json!({"active_tasks": tasks, "concurrent_leases": leases});
                let input = json!({"tenant_id": id.to_string(), "quotas": quotas});
                (vec![tenant_key(id)], input)
            }
            Deed::Revoke(actor) => {
                let (id, tenant) = (wallets.newest(actor)?, actors.get(actor)?.tenant);
                let tenant = tenant_id(tenant).to_string();
                let input = json!({"key_id": id.to_string(), "tenant_id": tenant});
                (vec![key_of(id)], input)
            }
            Deed::Rotate(actor, seconds) => {
                let (id, tenant) = (wallets.newest(actor)?, actors.get(actor)?.tenant);
                let tenant = tenant_id(tenant).to_string();
                let input = json!({
                    "key_id": id.to_string(), "tenant_id": tenant, "overlap_secs": seconds,
                });
                (vec![key_of(id)], input)
            }
            Deed::Issue(actor, millis) => {
                let caller = &actors.get(actor)?.caller;
                let end = (millis > 0).then(|| now.plus_millis(millis).to_string());
                let input = json!({
                    "tenant_id": caller.tenant.to_string(),
                    "principal": {
                        "kind": caller.principal.kind.as_str(), "id": &*caller.principal.id,
                    },
                    "role": caller.role.as_str(),
                    "expires_at": end,
                });
                (Vec::new(), input)
            }
        };
        let input = input.to_string();
        Some(Self { deed, about, input })
    }

    async fn run(&self, engine: &Engine, caller: &Caller) -> Result<Answer, Fault> {
        let call = match self.deed {
            Deed::Suspend(_) | Deed::Resume(_) | Deed::Bound(..) => typed::<ChangeTenant>,
            Deed::Revoke(_) => typed::<RevokeKey>,
            Deed::Rotate(..) => typed::<RotateKey>,
            Deed::Issue(..) => typed::<CreateKey>,
        };
        call(engine, caller, &self.input).await
    }

    /// Returns the credential that an answer gives away.
    fn given(&self, answer: Answer) -> Checked<Option<Credential>> {
        let given = match self.deed {
            Deed::Suspend(_) | Deed::Resume(_) | Deed::Bound(..) | Deed::Revoke(_) => {
                return Ok(None);
            }
            Deed::Rotate(..) => answer
                .output
                .read::<RotatedKey>()
                .map(|it| (it.key_id, it.key)),
            Deed::Issue(..) => answer
                .output
                .read::<CreatedKey>()
                .map(|it| (it.key_id, it.key)),
        };
        let (id, secret) = given.or_else(|error| broken("deeds", error))?;
        let id = id.parse().or_else(|_| broken("deeds", id))?;
        Ok(Some(Credential {
            id,
            secret: secret.0.into(),
        }))
    }
}

const fn tenant_key(id: TenantId) -> RecordKey {
    RecordKey {
        kind: RecordKind::Tenant,
        id: RecordId::from_bytes(*id.as_bytes()),
    }
}

const fn key_of(id: RecordId) -> RecordKey {
    RecordKey {
        kind: RecordKind::ApiKey,
        id,
    }
}
