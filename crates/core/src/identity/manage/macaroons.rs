//! Macaroons: minted, revoked.

use super::{Actor, Managed, Rights, decided, the_tenant, unchanged};
use crate::{
    Env, RecordId, TenantId, Timestamp,
    identity::{
        KeyRejection, Macaroon, Record, Rejection,
        audit::{Draft, Event},
    },
};

/// The length of a macaroon's life if its maker names none, in seconds: a day.
pub const DEFAULT_LIFE_SECS: u64 = 86_400;
/// The longest life of a macaroon, in seconds: thirty days.
pub const MAX_LIFE_SECS: u64 = 2_592_000;

/// The wish for a macaroon. It has an id already, because its signature is made over it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMacaroon {
    /// Its id.
    pub id: RecordId,
    /// The tenant of its bearer.
    pub tenant: TenantId,
    /// What it lets its bearer do, before its caveats.
    pub rights: Rights,
    /// The name of the key that its signature starts from.
    pub root_key: String,
    /// The time at which it was signed.
    pub created_at: Timestamp,
    /// The first moment at which it is not valid any more, as [`life`] says.
    pub expires_at: Timestamp,
}

/// Returns the end of a new macaroon: after its length, or at the earliest time among its own conditions.
pub fn life(
    now: Timestamp,
    expires_in_secs: Option<u64>,
    conditions: impl IntoIterator<Item = Timestamp>,
) -> Result<Timestamp, Rejection> {
    let seconds = expires_in_secs.unwrap_or(DEFAULT_LIFE_SECS);
    if seconds > MAX_LIFE_SECS {
        return Err(Rejection::MacaroonLife);
    }
    let length_ms = i64::try_from(seconds * 1_000).unwrap_or(i64::MAX);
    let longest = now.plus_millis(length_ms);
    let end = conditions.into_iter().fold(longest, Timestamp::min);
    match end > now {
        true => Ok(end),
        false => Err(KeyRejection::ExpiryNotAhead.into()),
    }
}

/// Refuses a wish that cannot be fulfilled whatever the store holds, before anything is signed.
pub fn check(actor: &Actor, tenant: TenantId, rights: &Rights) -> Result<(), Rejection> {
    actor.target(Some(tenant))?;
    actor.may_give(rights)
}

/// Records a macaroon that was minted. `tenant` is the record of its tenant.
pub fn mint(
    actor: &Actor,
    env: &mut Env,
    tenant: Option<&Record>,
    new: NewMacaroon,
) -> Managed<Macaroon> {
    check(actor, new.tenant, &new.rights)?;
    the_tenant(tenant)?;
    let macaroon = Macaroon {
        id: new.id,
        tenant: new.tenant,
        principal: new.rights.principal,
        role: new.rights.role,
        root_key: new.root_key,
        created_at: new.created_at,
        expires_at: new.expires_at,
        revoked_at: None,
    };
    let audit = tell(actor, env, &macaroon, Event::MacaroonMinted);
    let put = vec![Record::Macaroon(macaroon.clone())];
    Ok(decided(macaroon, put, audit))
}

/// Revokes a macaroon, and with it all that were derived from it. Again is fine and changes nothing.
pub fn revoke(actor: &Actor, env: &mut Env, found: Option<&Record>) -> Managed<Macaroon> {
    let Record::Macaroon(macaroon) = actor.sees(found)? else {
        return Err(Rejection::NotFound);
    };
    actor.must_have(macaroon.role, None)?;
    if macaroon.revoked_at.is_some() {
        return Ok(unchanged(macaroon.clone()));
    }
    let macaroon = Macaroon {
        revoked_at: Some(env.now),
        ..macaroon.clone()
    };
    let audit = tell(actor, env, &macaroon, Event::MacaroonRevoked);
    let put = vec![Record::Macaroon(macaroon.clone())];
    Ok(decided(macaroon, put, audit))
}

fn tell(actor: &Actor, env: &mut Env, macaroon: &Macaroon, event: Event) -> Vec<Draft> {
    let (id, principal) = (macaroon.id.to_string(), macaroon.principal.to_string());
    let details = [
        ("macaroon_id", id.as_str()),
        ("for", &principal),
        ("role", macaroon.role.as_str()),
    ];
    actor.tell(env, macaroon.tenant, event, &details)
}
