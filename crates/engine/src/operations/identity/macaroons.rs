//! Macaroons.

use asyncgate_api::{
    CreateMacaroon, CreatedMacaroon, RevokeMacaroon, RevokedMacaroon, Secret,
    bounds::{MAX_CAVEAT_BYTES, MAX_CAVEATS},
};
use asyncgate_core::{
    RecordId,
    identity::{
        Find, Record, RecordKind, Role,
        manage::macaroons::{self, NewMacaroon},
    },
};
use asyncgate_credentials::{Caveat, macaroon::LOCATION};

use super::{Execute, Executed, keys::named, reading, rights};
use crate::{Caller, Engine, Fault, input};

impl Execute for CreateMacaroon {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let role = input.role.as_deref().unwrap_or(Role::Agent.as_str());
        let rights = rights(input.principal, role, None)?;
        let mut caveats = input.caveats;
        let times = check(&caveats)?;
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let tenant = tenant.await?;
        let actor = Engine::actor(caller);
        macaroons::check(&actor, tenant, &rights).map_err(|it| caller.told(it.into()))?;
        let now = engine.now();
        let expires_at = macaroons::life(now, input.expires_in_secs, times)?;
        caveats.push(Caveat::Before(expires_at).to_string());
        let id = engine.ids(now).record();
        let minted = engine.keyring()?.macaroon(id, &caveats)?;
        let new = NewMacaroon {
            id,
            tenant,
            rights,
            root_key: minted.root_key,
            created_at: now,
            expires_at,
        };
        let reads = reading(vec![Find::tenant(tenant)]);
        let made = engine.manage(caller, reads, move |env, snapshot| {
            let tenant = snapshot.first_record();
            macaroons::mint(&actor, env, tenant, new.clone())
        });
        let made = made.await?;
        Ok(CreatedMacaroon {
            macaroon_id: made.id.to_string(),
            macaroon: Secret(minted.secret.reveal().to_owned()),
            identifier: minted.identifier,
            location: LOCATION.to_owned(),
            caveats,
            expires_at: made.expires_at.to_string(),
        })
    }

    fn created(_: &CreatedMacaroon) -> bool {
        true
    }
}

impl Execute for RevokeMacaroon {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id: RecordId = input::id("macaroon_id", &input.macaroon_id)?;
        let tenant_id = input.tenant_id.as_deref();
        let find = named(caller, tenant_id, RecordKind::Macaroon, id)?;
        let actor = Engine::actor(caller);
        let revoked = engine.manage(caller, reading(vec![find]), move |env, snapshot| {
            let found = snapshot.first_record();
            macaroons::revoke(&actor, env, found)
        });
        let macaroon = revoked.await?;
        engine.forget([Record::Macaroon(macaroon.clone())])?;
        Ok(RevokedMacaroon {
            macaroon_id: macaroon.id.to_string(),
            revoked_at: macaroon.revoked_at.unwrap_or_default().to_string(),
        })
    }
}

/// Refuses caveats that nobody could meet because nobody understands them. Returns the ends among them.
fn check(caveats: &[String]) -> Result<Vec<asyncgate_core::Timestamp>, Fault> {
    if caveats.len() > MAX_CAVEATS {
        let message = format!("caveats must have at most {MAX_CAVEATS} entries");
        return Err(Fault::bad_request(message).with("field", "caveats"));
    }
    let mut ends = Vec::new();
    for (index, text) in caveats.iter().enumerate() {
        let caveat = Caveat::parse(text);
        if text.len() > MAX_CAVEAT_BYTES || !caveat.is_understood() {
            let fault = Fault::bad_request("a caveat is not understood");
            return Err(fault.with("field", "caveats").with("index", index));
        }
        if let Caveat::Before(end) = caveat {
            ends.push(end);
        }
    }
    Ok(ends)
}
