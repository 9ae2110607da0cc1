//! What exchange and refresh have in common: who is still let in, and how long tokens live.

use super::ErrorCode;
use crate::{
    RecordId, TenantId, Timestamp,
    identity::{Grant, IdentityLink, OauthClient, Record, Scopes, TenantRecord},
};

const DAY_MS: i64 = 24 * 3_600_000;

/// Returns the end of the day that an unused client or a login is given.
pub(super) const fn one_more_day(now: Timestamp) -> Timestamp {
    now.plus_millis(DAY_MS)
}

/// How long tokens live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetimes {
    /// An access token.
    pub access_ms: i64,
    /// A refresh token, from the last time that tokens were issued.
    pub refresh_ms: i64,
}

impl Lifetimes {
    /// Returns the end of an access token that is issued now. Tokens count in whole seconds, so it is one.
    pub(super) const fn access_end(&self, now: Timestamp) -> Timestamp {
        let end = now.plus_millis(self.access_ms).as_millis();
        Timestamp::from_millis(end - end.rem_euclid(1_000))
    }

    pub(super) const fn refresh_end(&self, now: Timestamp) -> Timestamp {
        now.plus_millis(self.refresh_ms)
    }

    /// Returns the end of a family whose last tokens are issued now.
    pub(super) fn family_end(&self, now: Timestamp) -> Timestamp {
        self.access_end(now).max(self.refresh_end(now))
    }
}

/// The tokens that a client is given. The shell signs the access token and shows the refresh token whose hash was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issued {
    /// The tenant.
    pub tenant: TenantId,
    /// The family of the tokens.
    pub family: RecordId,
    /// The name of the access token.
    pub token_id: RecordId,
    /// What was granted.
    pub grant: Grant,
    /// The scopes of the access token: those of the grant, or fewer if the client asked for fewer.
    pub scopes: Scopes,
    /// The time of the decision.
    pub issued_at: Timestamp,
    /// The first moment at which the access token is not valid any more.
    pub access_expires_at: Timestamp,
}

/// The reason why no tokens are issued. It is for the log and the audit log: to a client all but the last two look the
/// same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum GrantRefusal {
    /// Nobody gave it out, or it is long forgotten.
    #[error("it is unknown")]
    Unknown,
    /// It was used before, so somebody has a copy.
    #[error("it was used before")]
    Reused,
    /// Its time is over.
    #[error("it has expired")]
    Expired,
    /// The tokens that it belongs to were revoked.
    #[error("it was revoked")]
    Revoked,
    /// Another client was given it.
    #[error("another client was given it")]
    OtherClient,
    /// The code was sent to another address.
    #[error("the code was sent to another redirect URI")]
    OtherRedirect,
    /// The verifier does not answer the challenge.
    #[error("the verifier does not match the challenge")]
    WrongVerifier,
    /// The person may not enter any more, or has less rights than all that was granted needs.
    #[error("the person may not enter any more")]
    NoLeave,
    /// The tenant is suspended or gone.
    #[error("the tenant is suspended")]
    Suspended,
    /// The client was removed meanwhile.
    #[error("the client is gone")]
    NoClient,
    /// More was asked for than was granted.
    #[error("the scope was not granted")]
    Scope,
    /// The tokens were granted for something else.
    #[error("the resource was not granted")]
    Resource,
}

impl GrantRefusal {
    /// Returns the error that the client is told.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Unknown
            | Self::Reused
            | Self::Expired
            | Self::Revoked
            | Self::OtherClient
            | Self::OtherRedirect
            | Self::WrongVerifier
            | Self::NoLeave
            | Self::Suspended => ErrorCode::InvalidGrant,
            Self::NoClient => ErrorCode::InvalidClient,
            Self::Scope => ErrorCode::InvalidScope,
            Self::Resource => ErrorCode::InvalidTarget,
        }
    }

    /// Returns what the client is told. It does not say which part was wrong.
    pub const fn description(self) -> &'static str {
        match self {
            Self::Unknown
            | Self::Reused
            | Self::Expired
            | Self::Revoked
            | Self::OtherClient
            | Self::OtherRedirect
            | Self::WrongVerifier
            | Self::NoLeave
            | Self::Suspended => "the code or the refresh token is not valid",
            Self::NoClient => "the client could not be authenticated",
            Self::Scope => "scope names something that was not granted",
            Self::Resource => "resource is not the one that was granted",
        }
    }
}

/// Refuses a grant whose person or tenant is not let in any more.
pub(super) fn still_allowed(
    grant: &Grant,
    tenant: Option<&TenantRecord>,
    link: Option<&IdentityLink>,
) -> Result<(), GrantRefusal> {
    let tenant = tenant.ok_or(GrantRefusal::Suspended)?;
    let admitted = tenant.tenant().admit();
    admitted.map_err(|_| GrantRefusal::Suspended)?;
    let is_same = |link: &IdentityLink| link.id == grant.identity;
    let link = link.filter(|link| is_same(link));
    link.map(|_| ()).ok_or(GrantRefusal::NoLeave)
}

/// Returns the resource of tokens: the one that was granted. A client that named none before may do so now.
pub(super) fn agreed_resource(
    granted: Option<&str>,
    asked: Option<&str>,
) -> Result<Option<String>, GrantRefusal> {
    match (granted, asked) {
        (Some(granted), Some(asked)) if granted != asked => Err(GrantRefusal::Resource),
        (granted, asked) => Ok(granted.or(asked).map(str::to_owned)),
    }
}

/// Keeps a client that registered itself for as long as it has tokens. Returns what to write, if anything.
pub(super) fn kept_until(client: &OauthClient, end: Timestamp) -> Option<Record> {
    let is_later = client.expires_at.is_some_and(|known| known < end);
    is_later.then(|| {
        Record::OauthClient(OauthClient {
            expires_at: Some(end),
            ..client.clone()
        })
    })
}
