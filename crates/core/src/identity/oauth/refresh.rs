//! The refresh of tokens. A refresh token is used once and gives the next one.

use super::{
    GrantRefusal, Issued, Lifetimes,
    authorize::scopes,
    revoke::end_reused,
    token::{agreed_resource, kept_until, still_allowed},
};
use crate::{
    Decision, Env, RecordId,
    identity::{
        Changes, IdentityLink, OauthClient, Record, RefreshToken, Scopes, TenantRecord,
        TokenFamily,
        audit::{Draft, Event},
    },
};

/// A client's wish to refresh its tokens. The shell has authenticated the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refresh {
    /// The client.
    pub client: RecordId,
    /// The scopes that the access token is to have, as the client wrote them; absent for all that were granted.
    pub scope: Option<String>,
    /// The resource that the client names. It is this server's, see [`super::resource`].
    pub resource: Option<String>,
    /// The hash of the refresh token that is given out.
    pub refresh_hash: String,
}

/// The records that a refresh is decided from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundToken {
    /// The token with the hash of the one that was shown.
    pub token: Option<RefreshToken>,
    /// Its family.
    pub family: Option<TokenFamily>,
    /// The client.
    pub client: Option<OauthClient>,
    /// The tenant of the family.
    pub tenant: Option<TenantRecord>,
    /// The leave of the person who logged in.
    pub link: Option<IdentityLink>,
}

/// Refreshes tokens. A refresh token that was used before ends its family, whoever shows it: one of the two is a thief.
/// Any other refusal leaves the token as it is.
pub fn refresh(
    env: &mut Env,
    found: FoundToken,
    asked: &Refresh,
    lifetimes: Lifetimes,
) -> Decision<Result<Issued, GrantRefusal>, Changes> {
    let refused = |refusal| Decision {
        changes: Changes::default(),
        output: Err(refusal),
    };
    let Some(token) = found.token else {
        return refused(GrantRefusal::Unknown);
    };
    if token.used_at.is_some() {
        return Decision {
            changes: end_reused(env, found.family, "a refresh token was used twice"),
            output: Err(GrantRefusal::Reused),
        };
    }
    let client = found.client.filter(|client| client.is_current(env.now));
    let (client, family) = match (client, found.family) {
        (None, _) => return refused(GrantRefusal::NoClient),
        (_, None) => return refused(GrantRefusal::Unknown),
        (Some(client), Some(family)) => (client, family),
    };
    let (tenant, link) = (found.tenant.as_ref(), found.link.as_ref());
    let checked = check(env, &token, &family, asked)
        .and_then(|wished| still_allowed(&family.grant, tenant, link).map(|()| wished));
    match checked {
        Ok(wished) => issue(env, token, family, &client, wished, asked, lifetimes),
        Err(refusal) => refused(refusal),
    }
}

/// The wishes of a client that can be granted.
struct Wished {
    scopes: Scopes,
    resource: Option<String>,
}

fn check(
    env: &Env,
    token: &RefreshToken,
    family: &TokenFamily,
    asked: &Refresh,
) -> Result<Wished, GrantRefusal> {
    if family.grant.client != asked.client {
        return Err(GrantRefusal::OtherClient);
    }
    if family.revoked_at.is_some() {
        return Err(GrantRefusal::Revoked);
    }
    if env.now >= token.expires_at {
        return Err(GrantRefusal::Expired);
    }
    let grant = &family.grant;
    let scopes = scopes(grant.scopes, asked.scope.as_deref());
    let resource = agreed_resource(grant.resource.as_deref(), asked.resource.as_deref())?;
    Ok(Wished {
        scopes: scopes.map_err(|_| GrantRefusal::Scope)?,
        resource,
    })
}

fn issue(
    env: &mut Env,
    token: RefreshToken,
    family: TokenFamily,
    client: &OauthClient,
    wished: Wished,
    asked: &Refresh,
    lifetimes: Lifetimes,
) -> Decision<Result<Issued, GrantRefusal>, Changes> {
    let mut family = TokenFamily {
        // Settings may have made lives shorter, but access tokens that are out live as long as they were given.
        expires_at: lifetimes.family_end(env.now).max(family.expires_at),
        ..family
    };
    family.grant.resource = wished.resource;
    let next = RefreshToken {
        id: env.ids.record(),
        hash: asked.refresh_hash.clone(),
        created_at: env.now,
        expires_at: lifetimes.refresh_end(env.now),
        ..token.clone()
    };
    let used = RefreshToken {
        used_at: Some(env.now),
        ..token
    };
    let issued = Issued {
        tenant: family.tenant,
        family: family.id,
        token_id: env.ids.record(),
        grant: family.grant.clone(),
        scopes: wished.scopes,
        issued_at: env.now,
        access_expires_at: lifetimes.access_end(env.now),
    };
    let told = Draft::new(
        &mut env.ids,
        env.now,
        Some(family.tenant),
        Event::TokenRefreshed,
    );
    let told = told.by(&family.grant.principal).with(&[
        ("client_id", &family.grant.client.to_string()),
        ("family", &family.id.to_string()),
        ("scope", &wished.scopes.to_string()),
    ]);
    let mut put: Vec<Record> = kept_until(client, family.expires_at).into_iter().collect();
    put.extend([
        Record::RefreshToken(used),
        Record::RefreshToken(next),
        Record::TokenFamily(family),
    ]);
    Decision {
        changes: Changes {
            put,
            audit: vec![told],
            ..Changes::default()
        },
        output: Ok(issued),
    }
}
