//! Clients: programs that ask people for tokens. Admins register them, and where the settings allow it they register
//! themselves.

use super::{BadRedirect, ErrorCode, check_redirect, token::one_more_day};
use crate::{
    Decision, Env, TenantId, Timestamp,
    identity::{
        Changes, OauthClient, Record, Scope, Scopes,
        audit::{Draft, Event},
    },
};

/// The most redirect URIs of a client.
const MAX_REDIRECTS: usize = 16;
/// The most bytes of a client's name.
const MAX_NAME_BYTES: usize = 256;

/// The scopes that a client can have that registered itself. Nobody looked at it, so it acts for no admin.
pub const STRANGER_SCOPES: Scopes = Scopes::of(&[
    Scope::TasksRead,
    Scope::TasksWrite,
    Scope::TasksLease,
    Scope::ReceiptsRead,
    Scope::ReceiptsAck,
    Scope::MailboxSend,
    Scope::MailboxRecv,
    Scope::HostUse,
]);

/// A client that is to be registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewClient {
    /// The tenant whose people it serves. The shell has looked that it exists.
    pub tenant: TenantId,
    /// A name for people.
    pub name: String,
    /// The addresses to which codes may be sent.
    pub redirect_uris: Vec<String>,
    /// The scopes that it may ask for.
    pub scopes: Scopes,
    /// The hash of its secret, if it can keep one.
    pub secret_hash: Option<String>,
}

/// The reason why a client cannot be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadClient {
    /// It has no name, a long one, or one that does not fit on a line.
    #[error("client_name must have 1 to {MAX_NAME_BYTES} bytes and no control characters")]
    Name,
    /// Codes could be sent nowhere, or to too many places.
    #[error("redirect_uris must have 1 to {MAX_REDIRECTS} entries")]
    Redirects,
    /// One of the addresses cannot be used.
    #[error(transparent)]
    Redirect(#[from] BadRedirect),
    /// It could ask for nothing.
    #[error("scopes must name at least one scope that this client can have")]
    Scopes,
}

impl BadClient {
    /// Returns the error by which a client that registers itself is told.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Redirects | Self::Redirect(_) => ErrorCode::InvalidRedirectUri,
            Self::Name | Self::Scopes => ErrorCode::InvalidClientMetadata,
        }
    }
}

/// Refuses a client that could not be used, or not safely.
pub fn check_client(new: &NewClient) -> Result<(), BadClient> {
    let fits = (1..=MAX_NAME_BYTES).contains(&new.name.len());
    if !fits || new.name.chars().any(char::is_control) {
        return Err(BadClient::Name);
    }
    if new.redirect_uris.is_empty() || new.redirect_uris.len() > MAX_REDIRECTS {
        return Err(BadClient::Redirects);
    }
    new.redirect_uris
        .iter()
        .try_for_each(|uri| check_redirect(uri))?;
    match new.scopes == Scopes::NONE {
        true => Err(BadClient::Scopes),
        false => Ok(()),
    }
}

/// Makes the record of a client. It is forgotten at `expires_at`, unless it is used.
pub(in crate::identity) fn made(
    env: &mut Env,
    new: NewClient,
    expires_at: Option<Timestamp>,
) -> OauthClient {
    OauthClient {
        id: env.ids.record(),
        tenant: new.tenant,
        name: new.name,
        redirect_uris: new.redirect_uris,
        scopes: new.scopes,
        secret_hash: new.secret_hash,
        created_at: env.now,
        expires_at,
        document: None,
    }
}

/// Registers a client that nobody vouches for. It has only what [`STRANGER_SCOPES`] allows, and is forgotten after a
/// day unless somebody lets it in. What admins register is registered in
/// [`clients`](crate::identity::manage::clients).
pub fn register_stranger(
    env: &mut Env,
    new: NewClient,
) -> Result<Decision<OauthClient, Changes>, BadClient> {
    let new = NewClient {
        scopes: new.scopes.and(STRANGER_SCOPES),
        ..new
    };
    check_client(&new)?;
    let end = one_more_day(env.now);
    let client = made(env, new, Some(end));
    Ok(taken_up(env, client, "it registered itself"))
}

/// Keeps a client that nobody vouches for, and tells of it.
pub(super) fn taken_up(
    env: &mut Env,
    client: OauthClient,
    reason: &str,
) -> Decision<OauthClient, Changes> {
    let told = Draft::new(
        &mut env.ids,
        env.now,
        Some(client.tenant),
        Event::ClientRegistered,
    );
    let told = told.because(reason).with(&[
        ("client_id", &client.public_name()),
        ("client_name", &client.name),
        ("scope", &client.scopes.to_string()),
    ]);
    Decision {
        changes: Changes {
            put: vec![Record::OauthClient(client.clone())],
            audit: vec![told],
            ..Changes::default()
        },
        output: client,
    }
}

/// The refusal of a client that did not prove that it is the one it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client could not be authenticated")]
pub struct BadSecret;

/// Accepts a client that shows its secret, or that has none and shows none. `shown` is the hash of what it showed.
pub fn prove_client(client: &OauthClient, shown: Option<&str>) -> Result<(), BadSecret> {
    let proved = match (&client.secret_hash, shown) {
        (Some(kept), Some(shown)) => is_same(kept, shown),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    };
    proved.then_some(()).ok_or(BadSecret)
}

/// Compares two hashes in a time that does not tell where they differ.
fn is_same(one: &str, two: &str) -> bool {
    let differing = one.bytes().zip(two.bytes());
    let differing = differing.fold(0, |bits, (one, two)| bits | (one ^ two));
    one.len() == two.len() && differing == 0
}
