//! API keys.

use asyncgate_api::{
    CreateKey, CreatedKey, KeyRecord, ListKeys, ListKeysOutput, RevokeKey, RevokedKey, RotateKey,
    RotatedKey, Secret,
};
use asyncgate_core::{
    RecordId, TenantId,
    identity::{
        ApiKey, Find, Record, RecordKind,
        manage::keys::{self, KeyProof, NewKey, Rotated},
    },
};
use asyncgate_store::identity::{Owner, Reads};

use super::{Execute, Executed, effective, reading, rights, target, time};
use crate::{Caller, Engine, Fault, MintedKey, input, view};

/// The time for which both keys of a rotation work if the caller names none: a day.
const DEFAULT_OVERLAP_SECS: u64 = 86_400;

impl Execute for CreateKey {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let label = input.label.map(|label| input::name("label", label));
        let expires_at = input.expires_at.as_deref();
        let new = NewKey {
            tenant: tenant.await?,
            rights: rights(input.principal, &input.role, input.scopes)?,
            label: label.transpose()?,
            expires_at: expires_at.map(|end| time("expires_at", end)).transpose()?,
            expires_in_secs: input.expires_in_secs,
        };
        let actor = Engine::actor(caller);
        keys::check(&actor, engine.now(), &new).map_err(|refused| caller.told(refused.into()))?;
        let minted = engine.keyring()?.api_key().await?;
        let proof = proof(&minted);
        let names = vec![Find::tenant(new.tenant), Find::key(&proof.lookup_id)];
        let made = engine.manage(caller, reading(names), move |env, snapshot| {
            let [tenant, taken] = two(&snapshot.records);
            keys::create(&actor, env, tenant, taken, new.clone(), proof.clone())
        });
        Ok(created(made.await?, &minted))
    }

    fn created(_: &CreatedKey) -> bool {
        true
    }
}

impl Execute for ListKeys {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let tenant = engine.named_tenant(caller, input.tenant_id.as_deref());
        let owner = Owner::Tenant(tenant.await?);
        let page = (input.limit, input.cursor.as_deref());
        let (found, next_cursor) = engine.page_of(RecordKind::ApiKey, owner, page).await?;
        let keys = found.into_iter().filter_map(|record| {
            let Record::ApiKey(key) = record else {
                return None;
            };
            Some(shown(key))
        });
        Ok(ListKeysOutput {
            keys: keys.collect(),
            next_cursor,
        })
    }
}

impl Execute for RotateKey {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let find = find(caller, input.tenant_id.as_deref(), &input.key_id)?;
        let overlap_secs = input.overlap_secs.unwrap_or(DEFAULT_OVERLAP_SECS);
        let actor = Engine::actor(caller);
        let found = engine.store.identity().record(find.clone()).await?;
        keys::check_rotation(&actor, engine.now(), found.as_ref(), overlap_secs)
            .map_err(|refused| caller.told(refused.into()))?;
        let minted = engine.keyring()?.api_key().await?;
        let proof = proof(&minted);
        let names = vec![find, Find::key(&proof.lookup_id)];
        let rotated = engine.manage(caller, reading(names), move |env, snapshot| {
            let [old, taken] = two(&snapshot.records);
            keys::rotate(&actor, env, old, taken, overlap_secs, proof.clone())
        });
        let Rotated { old, new } = rotated.await?;
        engine.forget([Record::ApiKey(old.clone())])?;
        Ok(replaced(old, created(new, &minted)))
    }

    fn created(_: &RotatedKey) -> bool {
        true
    }
}

impl Execute for RevokeKey {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let find = find(caller, input.tenant_id.as_deref(), &input.key_id)?;
        let actor = Engine::actor(caller);
        let reads = Reads {
            platform_keys: true,
            ..reading(vec![find])
        };
        let revoked = engine.manage(caller, reads, move |env, snapshot| {
            let found = snapshot.first_record();
            keys::revoke(&actor, env, found, &snapshot.platform_keys)
        });
        let key = revoked.await?;
        engine.forget([Record::ApiKey(key.clone())])?;
        Ok(RevokedKey {
            key_id: key.id.to_string(),
            revoked_at: key.revoked_at.unwrap_or_default().to_string(),
        })
    }
}

/// Names the key of a call.
fn find(caller: &Caller, tenant_id: Option<&str>, key_id: &str) -> Result<Find, Fault> {
    let id: RecordId = input::id("key_id", key_id)?;
    named(caller, tenant_id, RecordKind::ApiKey, id)
}

/// Names a record of a call, within the tenants that the caller may act in.
pub(super) fn named(
    caller: &Caller,
    tenant_id: Option<&str>,
    kind: RecordKind,
    id: RecordId,
) -> Result<Find, Fault> {
    let tenant: Option<TenantId> = tenant_id
        .map(|text| input::id("tenant_id", text))
        .transpose()?;
    target(caller, tenant)?;
    let found = Engine::actor(caller).find(tenant, kind, id);
    found.map_err(|rejection| caller.told(rejection.into()))
}

/// Takes the two records that were declared.
pub(super) fn two(records: &[Option<Record>]) -> [Option<&Record>; 2] {
    [0, 1].map(|at| records.get(at).and_then(Option::as_ref))
}

fn proof(minted: &MintedKey) -> KeyProof {
    KeyProof {
        lookup_id: minted.lookup_id.clone(),
        hash: minted.hash.clone(),
        check: minted.check.clone(),
    }
}

fn created(key: ApiKey, minted: &MintedKey) -> CreatedKey {
    let key = shown(key);
    CreatedKey {
        key_id: key.key_id,
        key: Secret(minted.secret.reveal().to_owned()),
        tenant_id: key.tenant_id,
        principal: key.principal,
        role: key.role,
        scopes: key.scopes,
        label: key.label,
        created_at: key.created_at,
        expires_at: key.expires_at,
    }
}

fn replaced(old: ApiKey, new: CreatedKey) -> RotatedKey {
    RotatedKey {
        key_id: new.key_id,
        key: new.key,
        tenant_id: new.tenant_id,
        principal: new.principal,
        role: new.role,
        scopes: new.scopes,
        label: new.label,
        created_at: new.created_at,
        expires_at: new.expires_at,
        replaces: old.id.to_string(),
        old_expires_at: old.expires_at.unwrap_or_default().to_string(),
    }
}

fn shown(key: ApiKey) -> KeyRecord {
    KeyRecord {
        key_id: key.id.to_string(),
        tenant_id: key.tenant.to_string(),
        principal: view::principal_key(&key.principal),
        role: key.role.as_str().to_owned(),
        scopes: effective(key.role, key.scopes),
        label: key.label,
        created_at: key.created_at.to_string(),
        expires_at: key.expires_at.map(|end| end.to_string()),
        last_used_at: key.last_used_at.map(|at| at.to_string()),
        revoked_at: key.revoked_at.map(|at| at.to_string()),
        replaced_by: key.replaced_by.map(|id| id.to_string()),
    }
}
