//! A keyring whose secrets are counted, whose slow hash is quick, and whose signing key is that of RFC 7515.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use asyncgate_api::Code;
use asyncgate_core::{RecordId, Timestamp, admission::sha256, hex, identity::RecordKey};
use asyncgate_credentials::jwt::{Claims, Expected, KeySet, SigningKey, sign, verify};
use asyncgate_engine::{
    Caller, Fault, Keyring, MintedKey, MintedMacaroon, NewSecret, NewTokenKey, RetiredTokenKey,
};
use futures_util::future::{BoxFuture, FutureExt as _, ready};

pub const ISSUER: &str = "asyncgate";
pub const AUDIENCE: &str = "asyncgate-api";

#[derive(Default)]
pub struct FakeKeyring {
    drawn: AtomicU64,
    /// How often a slow hash was compared.
    pub compared: AtomicU64,
    /// The records that were forgotten.
    pub forgotten: Mutex<Vec<RecordKey>>,
}

pub fn signing_key() -> SigningKey {
    let der = include_bytes!("../../../credentials/tests/credentials/rfc7515-a2.pk8");
    SigningKey::from_der(der).unwrap()
}

pub fn keys() -> KeySet {
    [signing_key().verifying_key().clone()]
        .into_iter()
        .collect()
}

/// Returns the claims of a token that is good at a time.
pub fn read(token: &str, now: Timestamp) -> Option<Claims> {
    let expected = Expected {
        issuer: ISSUER,
        audience: AUDIENCE,
        now,
        leeway_secs: 0,
    };
    verify(&keys(), token, &expected).ok()
}

pub fn slow_hash(secret: &str) -> String {
    format!("slow${}", hex::encode(&sha256(secret.as_bytes())))
}

fn unused() -> Fault {
    Fault::new(Code::Internal, "these tests do not need it")
}

impl Keyring for FakeKeyring {
    fn api_key(&self) -> BoxFuture<'_, Result<MintedKey, Fault>> {
        ready(Err(unused())).boxed()
    }

    fn macaroon(&self, _: RecordId, _: &[String]) -> Result<MintedMacaroon, Fault> {
        Err(unused())
    }

    fn secret(&self) -> Result<NewSecret, Fault> {
        let n = self.drawn.fetch_add(1, Ordering::Relaxed);
        let digest = hex::encode(&sha256(&n.to_be_bytes()));
        Ok(NewSecret::new(digest[..43].to_owned()))
    }

    fn hash(&self, secret: NewSecret) -> BoxFuture<'_, Result<String, Fault>> {
        ready(Ok(slow_hash(secret.reveal()))).boxed()
    }

    fn has_hash(&self, secret: NewSecret, hash: String) -> BoxFuture<'_, Result<bool, Fault>> {
        self.compared.fetch_add(1, Ordering::Relaxed);
        ready(Ok(slow_hash(secret.reveal()) == hash)).boxed()
    }

    fn sign(&self, claims: &Claims) -> Result<String, Fault> {
        Ok(sign(&signing_key(), claims).unwrap())
    }

    fn new_token_key(&self) -> BoxFuture<'_, Result<NewTokenKey, Fault>> {
        ready(Err(unused())).boxed()
    }

    fn sign_with(&self, _: NewTokenKey) -> BoxFuture<'_, Result<Option<RetiredTokenKey>, Fault>> {
        ready(Err(unused())).boxed()
    }

    fn read_token(&self, token: &str) -> Option<Claims> {
        // Tests that expire tokens look at their claims.
        read(
            token,
            Timestamp::from_millis(asyncgate_engine::fakes::START_MS),
        )
    }

    fn mac(&self, message: &[u8]) -> [u8; 32] {
        sha256(&[b"a secret of the server", message].concat())
    }

    fn public_keys(&self) -> serde_json::Value {
        keys().to_jwks()
    }

    fn forget(&self, record: RecordKey) {
        self.forgotten.lock().unwrap().push(record);
    }

    fn until_ended(&self, _: &Caller) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
