//! The end of tokens before their time. All tokens of a family end together, access tokens included.

use super::GrantRefusal;
use crate::{
    Decision, Env, RecordId,
    identity::{
        Changes, Record, TokenFamily,
        audit::{Draft, Event},
    },
};

/// Revokes a family for the client that it was given to (RFC 7009). What is unknown or revoked already is no error: the
/// client has what it wants.
pub fn revoke(
    env: &mut Env,
    family: Option<TokenFamily>,
    client: RecordId,
) -> Decision<Result<(), GrantRefusal>, Changes> {
    let is_others = |family: &TokenFamily| family.grant.client != client;
    if family.as_ref().is_some_and(is_others) {
        return Decision {
            changes: Changes::default(),
            output: Err(GrantRefusal::OtherClient),
        };
    }
    let changes = end(env, family, Event::TokenRevoked, "its client revoked it");
    Decision {
        changes,
        output: Ok(()),
    }
}

/// Revokes families for an admin, for the reason that is given. Returns how many were still good.
pub fn revoke_families(
    env: &mut Env,
    families: impl IntoIterator<Item = TokenFamily>,
    reason: &'static str,
) -> Decision<usize, Changes> {
    let mut all = Changes::default();
    for family in families {
        let changes = end(env, Some(family), Event::TokenRevoked, reason);
        all.put.extend(changes.put);
        all.audit.extend(changes.audit);
    }
    Decision {
        output: all.put.len(),
        changes: all,
    }
}

/// Revokes a family of which something was used twice.
pub(super) fn end_reused(
    env: &mut Env,
    family: Option<TokenFamily>,
    reason: &'static str,
) -> Changes {
    end(env, family, Event::TokenReuseDetected, reason)
}

/// Revokes a family, unless that was done before: whoever repeats a call must not fill the audit log.
fn end(env: &mut Env, family: Option<TokenFamily>, event: Event, reason: &str) -> Changes {
    let Some(family) = family.filter(|family| family.revoked_at.is_none()) else {
        return Changes::default();
    };
    let told = Draft::new(&mut env.ids, env.now, Some(family.tenant), event);
    let told = told.by(&family.grant.principal).because(reason).with(&[
        ("client_id", &family.grant.client.to_string()),
        ("family", &family.id.to_string()),
    ]);
    let revoked = TokenFamily {
        revoked_at: Some(env.now),
        ..family
    };
    Changes {
        put: vec![Record::TokenFamily(revoked)],
        audit: vec![told],
        ..Changes::default()
    }
}
