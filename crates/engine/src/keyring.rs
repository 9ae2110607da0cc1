//! The server's secrets, as far as the engine needs them.

use std::fmt;

use asyncgate_core::{RecordId, Timestamp, identity::RecordKey};
use asyncgate_credentials::jwt::Claims;
use futures_util::future::BoxFuture;

use crate::{Caller, Fault};

/// Makes credentials, and knows which of them were accepted lately.
///
/// Randomness, slow hashes and signing keys belong to the server, so the engine asks for them here.
pub trait Keyring: Send + Sync {
    /// Makes an API key. Takes tens of milliseconds on a thread of its own, because its hash is meant to be slow.
    fn api_key(&self) -> BoxFuture<'_, Result<MintedKey, Fault>>;

    /// Makes a macaroon with these conditions, in their order. `id` is how its record is found again.
    fn macaroon(&self, id: RecordId, caveats: &[String]) -> Result<MintedMacaroon, Fault>;

    /// Makes a secret that nobody can guess: a code, a refresh token, a client's secret.
    fn secret(&self) -> Result<NewSecret, Fault>;

    /// Returns the slow hash of a secret that a person chose, or that lives for long.
    fn hash(&self, secret: NewSecret) -> BoxFuture<'_, Result<String, Fault>>;

    /// Returns true if a secret has this slow hash. Takes as long as [`Keyring::hash`].
    fn has_hash(&self, secret: NewSecret, hash: String) -> BoxFuture<'_, Result<bool, Fault>>;

    /// Signs the claims of an access token.
    fn sign(&self, claims: &Claims) -> Result<String, Fault>;

    /// Makes another key for access tokens, which signs nothing yet. Takes about a second on a thread of its own. Refuses
    /// if the settings name the key.
    fn new_token_key(&self) -> BoxFuture<'_, Result<NewTokenKey, Fault>>;

    /// Signs access tokens with a key from now on, and returns the one that signed until now; tokens of that one stay
    /// valid. Begins at once and goes on even if nobody waits for it. The key is on disk when it is done.
    fn sign_with(&self, key: NewTokenKey) -> BoxFuture<'_, Result<Option<RetiredTokenKey>, Fault>>;

    /// Returns the claims of an access token that this server signed, if it is valid now. Whether it was revoked is not
    /// looked at.
    fn read_token(&self, token: &str) -> Option<Claims>;

    /// Returns a code of a message that only the holders of the server's secrets can compute. All instances compute the
    /// same.
    fn mac(&self, message: &[u8]) -> [u8; 32];

    /// Returns the public keys by which access tokens can be checked, as a JSON Web Key Set.
    fn public_keys(&self) -> serde_json::Value;

    /// Forgets what is remembered of a record that was changed, so that a revocation counts at once on this server. The
    /// key of a tenant's record forgets what is remembered of the tenant.
    fn forget(&self, record: RecordKey);

    /// Waits for the end of a caller's credential: its expiry, its revocation, or the suspension of its tenant. What
    /// happens on this server ends it at once.
    fn until_ended(&self, caller: &Caller) -> BoxFuture<'static, ()>;
}

/// A secret that was just made or just came in. It is shown once and never logged.
#[derive(Clone, PartialEq, Eq)]
pub struct NewSecret(String);

impl NewSecret {
    /// Wraps a secret.
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// Returns the secret itself.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for NewSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewSecret(..)")
    }
}

/// An API key that was just made.
#[derive(Debug, Clone)]
pub struct MintedKey {
    /// The key, to be shown once.
    pub secret: NewSecret,
    /// The public part of the key, by which its record is found.
    pub lookup_id: String,
    /// The slow hash of the whole key.
    pub hash: String,
    /// The short digest by which a wrong key is refused without the slow hash.
    pub check: String,
}

/// A macaroon that was just made.
#[derive(Debug, Clone)]
pub struct MintedMacaroon {
    /// The macaroon, to be shown once.
    pub secret: NewSecret,
    /// Its identifier.
    pub identifier: String,
    /// The name of the root key that its signature starts from.
    pub root_key: String,
}

/// A key for access tokens that was just made.
#[derive(Clone)]
pub struct NewTokenKey {
    /// Its name.
    pub kid: String,
    /// The private key in DER.
    pub der: Vec<u8>,
}

impl fmt::Debug for NewTokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewTokenKey")
            .field("kid", &self.kid)
            .finish_non_exhaustive()
    }
}

/// A key of access tokens that signs no more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetiredTokenKey {
    /// Its name.
    pub kid: String,
    /// The time until which its tokens are accepted, if they live so long.
    pub accepted_until: Timestamp,
}
