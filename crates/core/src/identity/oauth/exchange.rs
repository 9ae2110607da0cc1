//! The exchange of a code for tokens. It happens once.

use super::{
    GrantRefusal, Issued, Lifetimes,
    revoke::end_reused,
    token::{agreed_resource, kept_until, still_allowed},
};
use crate::{
    Decision, Env, RecordId,
    identity::{
        AuthorizationCode, Changes, Grant, IdentityLink, OauthClient, Record, RefreshToken,
        TenantRecord, TokenFamily,
        audit::{Draft, Event},
    },
};

/// A client's wish to exchange a code. The shell has authenticated the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exchange {
    /// The client.
    pub client: RecordId,
    /// The address to which the client says the code was sent.
    pub redirect_uri: String,
    /// The SHA-256 of the verifier that the client showed, in base64url.
    pub challenge: String,
    /// The resource that the client names. It is this server's, see [`super::resource`].
    pub resource: Option<String>,
    /// The hash of the refresh token that is given out.
    pub refresh_hash: String,
}

/// The records that an exchange is decided from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FoundCode {
    /// The code with the hash of the one that was shown.
    pub code: Option<AuthorizationCode>,
    /// The family that came of it, if it was used before ([`family_of`]).
    pub family: Option<TokenFamily>,
    /// The client.
    pub client: Option<OauthClient>,
    /// The tenant of the code.
    pub tenant: Option<TenantRecord>,
    /// The leave of the person who logged in.
    pub link: Option<IdentityLink>,
}

/// Returns the id of the family that comes of a code. It is known before the exchange, so that a decision about a
/// second exchange can declare the family of the first.
pub const fn family_of(code: &AuthorizationCode) -> RecordId {
    code.id
}

/// Exchanges a code. One that was used before ends all that came of it, whoever shows it: one of the two is a thief.
/// Any other refusal leaves the code as it is, so that nobody can spoil it who does not have all that belongs to it.
pub fn exchange(
    env: &mut Env,
    found: FoundCode,
    asked: &Exchange,
    lifetimes: Lifetimes,
) -> Decision<Result<Issued, GrantRefusal>, Changes> {
    let refused = |refusal| Decision {
        changes: Changes::default(),
        output: Err(refusal),
    };
    let Some(code) = found.code else {
        return refused(GrantRefusal::Unknown);
    };
    if code.family.is_some() {
        return Decision {
            changes: end_reused(env, found.family, "a code was used twice"),
            output: Err(GrantRefusal::Reused),
        };
    }
    let client = found.client.filter(|client| client.is_current(env.now));
    let Some(client) = client else {
        return refused(GrantRefusal::NoClient);
    };
    let link = found.link.as_ref();
    match check(env, &code, found.tenant.as_ref(), link, asked) {
        Ok(grant) => issue(env, code, &client, grant, asked, lifetimes),
        Err(refusal) => refused(refusal),
    }
}

fn check(
    env: &Env,
    code: &AuthorizationCode,
    tenant: Option<&TenantRecord>,
    link: Option<&IdentityLink>,
    asked: &Exchange,
) -> Result<Grant, GrantRefusal> {
    if code.grant.client != asked.client {
        return Err(GrantRefusal::OtherClient);
    }
    if env.now >= code.expires_at {
        return Err(GrantRefusal::Expired);
    }
    if code.redirect_uri != asked.redirect_uri {
        return Err(GrantRefusal::OtherRedirect);
    }
    if code.code_challenge != asked.challenge {
        return Err(GrantRefusal::WrongVerifier);
    }
    still_allowed(&code.grant, tenant, link)?;
    let resource = agreed_resource(code.grant.resource.as_deref(), asked.resource.as_deref())?;
    Ok(Grant {
        resource,
        ..code.grant.clone()
    })
}

fn issue(
    env: &mut Env,
    code: AuthorizationCode,
    client: &OauthClient,
    grant: Grant,
    asked: &Exchange,
    lifetimes: Lifetimes,
) -> Decision<Result<Issued, GrantRefusal>, Changes> {
    let family = TokenFamily {
        id: family_of(&code),
        tenant: code.tenant,
        grant,
        created_at: env.now,
        expires_at: lifetimes.family_end(env.now),
        revoked_at: None,
    };
    let token = RefreshToken {
        id: env.ids.record(),
        tenant: code.tenant,
        hash: asked.refresh_hash.clone(),
        family: family.id,
        created_at: env.now,
        expires_at: lifetimes.refresh_end(env.now),
        used_at: None,
    };
    let used = AuthorizationCode {
        family: Some(family.id),
        ..code
    };
    let issued = Issued {
        tenant: family.tenant,
        family: family.id,
        token_id: env.ids.record(),
        grant: family.grant.clone(),
        scopes: family.grant.scopes,
        issued_at: env.now,
        access_expires_at: lifetimes.access_end(env.now),
    };
    let told = Draft::new(
        &mut env.ids,
        env.now,
        Some(family.tenant),
        Event::TokenIssued,
    );
    let told = told.by(&family.grant.principal).with(&[
        ("client_id", &client.id.to_string()),
        ("family", &family.id.to_string()),
        ("scope", &family.grant.scopes.to_string()),
    ]);
    let mut put: Vec<Record> = kept_until(client, family.expires_at).into_iter().collect();
    put.extend([
        Record::AuthorizationCode(used),
        Record::TokenFamily(family),
        Record::RefreshToken(token),
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
