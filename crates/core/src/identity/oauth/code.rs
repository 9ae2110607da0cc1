//! Giving out a code, once a person has logged in.

use super::{
    AuthorizationRequest, ErrorCode,
    token::{kept_until, one_more_day},
};
use crate::{
    Decision, Env,
    identity::{
        AuthorizationCode, Changes, Grant, IdentityLink, OauthClient, Record, Scopes, TenantRecord,
        audit::{Draft, Event},
        may,
    },
};

/// How long a code can be exchanged.
pub const CODE_TTL_MS: i64 = 60_000;

/// The records that a login is decided from, as they stand when the code is given out.
#[derive(Debug, Clone, Copy)]
pub struct Entering<'a> {
    /// The client that asked.
    pub client: Option<&'a OauthClient>,
    /// The tenant of the client.
    pub tenant: Option<&'a TenantRecord>,
    /// The leave of the person who logged in.
    pub link: Option<&'a IdentityLink>,
}

/// The reason why no code is given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum LoginRefusal {
    /// The client is gone, or does not have the redirect URI any more: nothing may be sent there.
    #[error("the client is gone")]
    NoClient,
    /// The tenant is suspended or gone.
    #[error("the tenant is suspended")]
    Suspended,
    /// Nobody let this person in.
    #[error("this person may not enter")]
    NoLeave,
    /// The person has nothing of what the client asks for.
    #[error("the person has none of the scopes that were asked for")]
    NoScopes,
}

impl LoginRefusal {
    /// Returns the error that the client is told, or nothing if it must not be told.
    pub const fn code(self) -> Option<ErrorCode> {
        match self {
            Self::NoClient => None,
            Self::Suspended | Self::NoLeave | Self::NoScopes => Some(ErrorCode::AccessDenied),
        }
    }
}

/// Gives out a code whose hash is `hash`. What is granted is what the client asks for and the person has.
pub fn issue_code(
    env: &mut Env,
    asked: &AuthorizationRequest,
    entering: Entering<'_>,
    hash: &str,
) -> Decision<Result<Grant, LoginRefusal>, Changes> {
    let (client, link, grant) = match grant(env, asked, entering) {
        Ok(granted) => granted,
        Err(refusal) => {
            return Decision {
                changes: Changes::default(),
                output: Err(refusal),
            };
        }
    };
    let code = AuthorizationCode {
        id: env.ids.record(),
        tenant: client.tenant,
        hash: hash.to_owned(),
        grant: grant.clone(),
        redirect_uri: asked.redirect_uri.clone(),
        code_challenge: asked.code_challenge.clone(),
        created_at: env.now,
        expires_at: env.now.plus_millis(CODE_TTL_MS),
        family: None,
    };
    let mut put = vec![Record::AuthorizationCode(code)];
    put.extend(kept_until(client, one_more_day(env.now)));
    let told = Draft::new(
        &mut env.ids,
        env.now,
        Some(client.tenant),
        Event::AuthSuccess,
    );
    let told = told.by(&grant.principal).because("login").with(&[
        ("provider", &link.provider),
        ("identity_id", &link.id.to_string()),
        ("client_id", &client.id.to_string()),
    ]);
    Decision {
        changes: Changes {
            put,
            audit: vec![told],
            ..Changes::default()
        },
        output: Ok(grant),
    }
}

fn grant<'a>(
    env: &Env,
    asked: &AuthorizationRequest,
    entering: Entering<'a>,
) -> Result<(&'a OauthClient, &'a IdentityLink, Grant), LoginRefusal> {
    let client = entering.client.filter(|client| {
        let mut known = client.redirect_uris.iter();
        client.is_current(env.now) && known.any(|uri| *uri == asked.redirect_uri)
    });
    let client = client.ok_or(LoginRefusal::NoClient)?;
    let tenant = entering.tenant.ok_or(LoginRefusal::Suspended)?;
    let admitted = tenant.tenant().admit();
    admitted.map_err(|_| LoginRefusal::Suspended)?;
    let link = entering.link.filter(|link| link.tenant == client.tenant);
    let link = link.ok_or(LoginRefusal::NoLeave)?;
    let held = link.role.effective_scopes(link.scopes);
    let asked_for = asked.scopes.and(client.scopes);
    let has = |scope: &_| may(link.role, held, [*scope]).is_ok();
    let scopes: Scopes = asked_for.iter().filter(has).collect();
    if scopes == Scopes::NONE {
        return Err(LoginRefusal::NoScopes);
    }
    let grant = Grant {
        client: client.id,
        identity: link.id,
        principal: link.principal.clone(),
        role: link.role,
        scopes,
        resource: asked.resource.clone(),
    };
    Ok((client, link, grant))
}
