//! Clients that are described by a document: their name is the address of the document (OAuth Client ID Metadata
//! Document).
//!
//! Invariants: a document speaks for its own address only; a client of a document has no secret and only the scopes of
//! strangers; it is kept like one that registered itself.

use std::net::IpAddr;

use super::{
    BadClient, NewClient, STRANGER_SCOPES, check_client, check_redirect, client::taken_up,
    is_loopback, token::one_more_day,
};
use crate::{
    Decision, Env, RecordId, TenantId, Timestamp,
    admission::sha256,
    identity::{Changes, OauthClient, Record},
};

/// The largest document.
pub const MAX_DOCUMENT_BYTES: usize = 5_120;
/// How long a document that was read counts.
pub const DOCUMENT_LIFE_MS: i64 = 300_000;
/// How long nobody looks again for a document that could not be used.
pub const BAD_DOCUMENT_LIFE_MS: i64 = 30_000;
/// The time before its end at which a client's record is prolonged.
const PROLONG_MS: i64 = 12 * 3_600_000;

/// The reason why a document, or its address, makes no client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDocument {
    /// Nothing is fetched from such an address.
    #[error("client_id is no address that a document may have")]
    Address,
    /// There is no document that can be read. What exactly is wrong tells a stranger about networks, so it is for the
    /// log.
    #[error("the document at client_id cannot be read")]
    Unreadable,
    /// It is no JSON object of client metadata.
    #[error("the document at client_id is no JSON object of client metadata")]
    Form,
    /// It speaks for another address.
    #[error("the document's client_id is not its own address")]
    OtherName,
    /// Everybody can read it, so nothing in it is secret.
    #[error("the document must have no secret, and token_endpoint_auth_method none")]
    Secret,
    /// What it wants is not to be had here.
    #[error("the document's {0}")]
    Wish(&'static str),
}

/// Where documents may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// On the public internet.
    Public,
    /// There, and without TLS on the server's own machine, for those who develop a client.
    PublicAndOwnMachine,
}

impl Reach {
    /// Refuses an address from which nothing is fetched.
    pub fn check(self, address: &str) -> Result<(), BadDocument> {
        let is_plain = check_redirect(address).is_ok() && has_plain_path(address);
        let is_near = address.starts_with("http://") || is_loopback(address);
        match is_plain && (!is_near || self == Self::PublicAndOwnMachine) {
            true => Ok(()),
            false => Err(BadDocument::Address),
        }
    }

    /// Returns true if all addresses that a host has may be called. One that may not spoils the others: whoever mixes
    /// them wants to be asked twice. `is_public` tells the addresses of the public internet from others.
    pub fn allows(self, found: &[IpAddr], is_public: fn(IpAddr) -> bool) -> bool {
        let near = |address: &IpAddr| address.is_loopback();
        let is_near = self == Self::PublicAndOwnMachine && found.iter().all(near);
        !found.is_empty() && (is_near || found.iter().all(|address| is_public(*address)))
    }
}

/// Returns true for a path that means the same to everybody: there is one, and no part of it leads elsewhere.
fn has_plain_path(address: &str) -> bool {
    let rest = address.split_once("://").map_or("", |(_, rest)| rest);
    let Some((_, path)) = rest.split_once('/') else {
        return false;
    };
    let path = path.split('?').next().unwrap_or_default();
    let is_dots = |part: &str| {
        let part = part.to_ascii_lowercase().replace("%2e", ".");
        part == "." || part == ".."
    };
    !path.split('/').any(is_dots)
}

/// What a document says of who the client is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statement<'a> {
    /// Its `client_id`.
    pub client_id: Option<&'a str>,
    /// Its `token_endpoint_auth_method`. Without one, only `none` makes sense.
    pub auth_method: Option<&'a str>,
    /// True if it has a secret, or says when one ends.
    pub has_secret: bool,
}

/// Refuses a document that speaks for another address, compared byte for byte, or that has secrets.
pub fn check_statement(address: &str, said: &Statement<'_>) -> Result<(), BadDocument> {
    if said.client_id != Some(address) {
        return Err(BadDocument::OtherName);
    }
    match said.has_secret || said.auth_method.is_some_and(|method| method != "none") {
        true => Err(BadDocument::Secret),
        false => Ok(()),
    }
}

/// Returns the id of the record of a document's client. It follows from the address, so that the client is found by its
/// name; each tenant has its own.
pub fn document_client_id(tenant: TenantId, address: &str) -> RecordId {
    let parts: [&[u8]; 3] = [
        b"asyncgate.client.document",
        tenant.as_bytes(),
        address.as_bytes(),
    ];
    let digest = sha256(&parts.concat());
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    // The form of a UUID that is made in a way of one's own (RFC 9562, version 8).
    id[6] = 0x80 | id[6] & 0x0f;
    id[8] = 0x80 | id[8] & 0x3f;
    RecordId::from_bytes(id)
}

/// Returns true if a record says what the document says, and is kept for a while.
pub fn is_up_to_date(known: &OauthClient, new: &NewClient, now: Timestamp) -> bool {
    let lasts = |end: Timestamp| now.plus_millis(PROLONG_MS) < end;
    says_the_same(known, new) && known.expires_at.is_some_and(lasts)
}

fn says_the_same(known: &OauthClient, new: &NewClient) -> bool {
    known.name == new.name
        && known.redirect_uris == new.redirect_uris
        && known.scopes == new.scopes.and(STRANGER_SCOPES)
}

/// Keeps the client that a document describes. `known` is its record, if it was described before.
pub fn describe(
    env: &mut Env,
    address: &str,
    known: Option<&OauthClient>,
    new: NewClient,
) -> Result<Decision<OauthClient, Changes>, BadClient> {
    let new = NewClient {
        scopes: new.scopes.and(STRANGER_SCOPES),
        secret_hash: None,
        ..new
    };
    check_client(&new)?;
    let known = known.filter(|known| known.document.as_deref() == Some(address));
    let end = one_more_day(env.now);
    let client = OauthClient {
        id: document_client_id(new.tenant, address),
        created_at: known.map_or(env.now, |known| known.created_at),
        // Its tokens may live for longer.
        expires_at: known.and_then(|known| known.expires_at).max(Some(end)),
        tenant: new.tenant,
        name: new.name.clone(),
        redirect_uris: new.redirect_uris.clone(),
        scopes: new.scopes,
        secret_hash: None,
        document: Some(address.to_owned()),
    };
    Ok(match known {
        Some(known) if is_up_to_date(known, &new, env.now) => Decision {
            output: known.clone(),
            changes: Changes::default(),
        },
        Some(known) if says_the_same(known, &new) => Decision {
            changes: Changes {
                put: vec![Record::OauthClient(client.clone())],
                ..Changes::default()
            },
            output: client,
        },
        Some(_) => taken_up(env, client, "its document has changed"),
        None => taken_up(env, client, "a document describes it"),
    })
}
