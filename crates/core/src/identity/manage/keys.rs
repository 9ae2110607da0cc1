//! API keys: made, replaced, revoked.

use super::{Actor, Managed, Rights, decided, must_be_free, the_tenant, unchanged};
use crate::{
    Env, TenantId, Timestamp,
    identity::{ApiKey, KeyLife, KeyStanding, Record, Rejection, audit::Event, expiry},
};

/// The wish for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// The tenant of its bearer.
    pub tenant: TenantId,
    /// What it lets its bearer do.
    pub rights: Rights,
    /// A word for people.
    pub label: Option<String>,
    /// Its end, if it is named by a time.
    pub expires_at: Option<Timestamp>,
    /// Its end, if it is named by a length.
    pub expires_in_secs: Option<u64>,
}

/// What is kept of a key that was drawn at random. The key itself is told once and not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyProof {
    /// The public part of the key, by which it is found.
    pub lookup_id: String,
    /// The slow hash of the whole key.
    pub hash: String,
    /// The short digest by which most wrong keys are refused without the slow hash.
    pub check: String,
}

/// A key that took the place of another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The key that ends.
    pub old: ApiKey,
    /// The key that takes its place.
    pub new: ApiKey,
}

/// Refuses a wish that cannot be fulfilled whatever the store holds. Drawing a key is slow, so this is asked
/// first; [`create`] asks again.
pub fn check(actor: &Actor, now: Timestamp, new: &NewKey) -> Result<(), Rejection> {
    actor.target(Some(new.tenant))?;
    actor.may_give(&new.rights)?;
    expiry(now, new.expires_at, new.expires_in_secs)?;
    Ok(())
}

/// Makes a key. `tenant` is the record of its tenant, `taken` the key that has its public part already.
pub fn create(
    actor: &Actor,
    env: &mut Env,
    tenant: Option<&Record>,
    taken: Option<&Record>,
    new: NewKey,
    proof: KeyProof,
) -> Managed<ApiKey> {
    check(actor, env.now, &new)?;
    the_tenant(tenant)?;
    must_be_free(taken)?;
    let life = KeyLife::begin(
        env.now,
        expiry(env.now, new.expires_at, new.expires_in_secs)?,
    );
    let key = ApiKey {
        id: env.ids.record(),
        lookup_id: proof.lookup_id,
        tenant: new.tenant,
        principal: new.rights.principal,
        role: new.rights.role,
        scopes: new.rights.scopes,
        label: new.label,
        hash: proof.hash,
        check: Some(proof.check),
        created_at: life.created_at,
        expires_at: life.expires_at,
        last_used_at: None,
        revoked_at: None,
        replaced_by: None,
    };
    let said = Said::of(&key);
    let audit = actor.tell(env, key.tenant, Event::KeyCreated, &said.details());
    Ok(decided(key.clone(), vec![Record::ApiKey(key)], audit))
}

/// Replaces a key by a new one with the same rights. Both are valid for `overlap_secs` more.
pub fn rotate(
    actor: &Actor,
    env: &mut Env,
    found: Option<&Record>,
    taken: Option<&Record>,
    overlap_secs: u64,
    proof: KeyProof,
) -> Managed<Rotated> {
    let old = check_rotation(actor, env.now, found, overlap_secs)?;
    must_be_free(taken)?;
    let rotation = old.life().rotate(env.now, overlap_secs)?;
    let new = ApiKey {
        id: env.ids.record(),
        lookup_id: proof.lookup_id,
        hash: proof.hash,
        check: Some(proof.check),
        created_at: rotation.new.created_at,
        expires_at: rotation.new.expires_at,
        last_used_at: None,
        ..old.clone()
    };
    let old = ApiKey {
        expires_at: rotation.old.expires_at,
        replaced_by: Some(new.id),
        ..old.clone()
    };
    let (said, replaced_by) = (Said::of(&old), new.id.to_string());
    let details = [&said.details()[..], &[("replaced_by", &replaced_by)]].concat();
    let audit = actor.tell(env, old.tenant, Event::KeyRotated, &details);
    let put = vec![Record::ApiKey(old.clone()), Record::ApiKey(new.clone())];
    Ok(decided(Rotated { old, new }, put, audit))
}

/// Refuses a rotation that cannot be done. Drawing a key is slow, so this is asked first; [`rotate`] asks
/// again.
pub fn check_rotation<'a>(
    actor: &Actor,
    now: Timestamp,
    found: Option<&'a Record>,
    overlap_secs: u64,
) -> Result<&'a ApiKey, Rejection> {
    let old = the_key(actor, found)?;
    // The new key is given away, with all the rights of the old one.
    actor.may_give(&Rights {
        principal: old.principal.clone(),
        role: old.role,
        scopes: old.scopes,
    })?;
    old.life().rotate(now, overlap_secs)?;
    Ok(old)
}

/// Revokes a key. Again is fine and changes nothing. `platform_keys` are the two keys of platform admins that
/// are valid the longest.
pub fn revoke(
    actor: &Actor,
    env: &mut Env,
    found: Option<&Record>,
    platform_keys: &[ApiKey],
) -> Managed<ApiKey> {
    let key = the_key(actor, found)?;
    actor.must_have(key.role, key.scopes)?;
    if key.revoked_at.is_some() {
        return Ok(unchanged(key.clone()));
    }
    let others = others(platform_keys, key, env.now);
    let others = key.is_platform_admin().then_some(others);
    let key = ApiKey {
        revoked_at: key.life().revoke(env.now, others)?.revoked_at,
        ..key.clone()
    };
    let said = Said::of(&key);
    let audit = actor.tell(env, key.tenant, Event::KeyRevoked, &said.details());
    Ok(decided(key.clone(), vec![Record::ApiKey(key)], audit))
}

/// Counts the keys of platform admins besides this one that are valid at a time.
pub(super) fn others(platform_keys: &[ApiKey], than: &ApiKey, at: Timestamp) -> usize {
    let counts = |key: &&ApiKey| {
        key.id != than.id
            && key.is_platform_admin()
            && key.life().standing(at) == KeyStanding::Valid
    };
    platform_keys.iter().filter(counts).count()
}

/// Takes the key that a request names.
fn the_key<'a>(actor: &Actor, found: Option<&'a Record>) -> Result<&'a ApiKey, Rejection> {
    match actor.sees(found)? {
        Record::ApiKey(key) => Ok(key),
        Record::Tenant(_)
        | Record::Macaroon(_)
        | Record::OauthClient(_)
        | Record::IdentityLink(_)
        | Record::AuthorizationCode(_)
        | Record::TokenFamily(_)
        | Record::RefreshToken(_) => Err(Rejection::NotFound),
    }
}

/// The facts about a key that its entries tell. None of them is secret.
struct Said {
    key_id: String,
    principal: String,
    role: &'static str,
    scopes: String,
}

impl Said {
    fn of(key: &ApiKey) -> Self {
        Self {
            key_id: key.id.to_string(),
            principal: key.principal.to_string(),
            role: key.role.as_str(),
            scopes: key.role.effective_scopes(key.scopes).to_string(),
        }
    }

    fn details(&self) -> [(&str, &str); 4] {
        [
            ("key_id", &self.key_id),
            ("for", &self.principal),
            ("role", self.role),
            ("scopes", &self.scopes),
        ]
    }
}
