//! A keyring without secrets: what it makes is counted, and its hashes can be read.

use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
};

use asyncgate_api::Code;
use asyncgate_core::{RecordId, Timestamp, admission::sha256, identity::RecordKey};
use asyncgate_credentials::{
    jwt::Claims,
    macaroon::{RootKey, mint},
};
use futures_util::future::BoxFuture;
use serde_json::json;

use super::START_MS;
use crate::{
    Caller, Fault, Keyring, MintedKey, MintedMacaroon, NewSecret, NewTokenKey, RetiredTokenKey,
};

/// A keyring for tests.
#[derive(Debug, Default)]
pub struct FakeKeyring {
    made: AtomicU64,
    forgotten: Mutex<Vec<RecordKey>>,
    token_key: Mutex<Option<NewTokenKey>>,
}

impl FakeKeyring {
    /// Takes the records that were to be forgotten since the last call.
    pub fn take_forgotten(&self) -> Vec<RecordKey> {
        std::mem::take(&mut *self.forgotten.lock().unwrap())
    }

    /// Returns the name of the key that would sign tokens.
    pub fn token_key(&self) -> Option<String> {
        let key = self.token_key.lock().unwrap();
        key.as_ref().map(|key| key.kid.clone())
    }

    fn next(&self) -> u64 {
        self.made.fetch_add(1, Ordering::Relaxed)
    }
}

fn slow_hash(secret: &NewSecret) -> String {
    format!("hash of {}", secret.reveal())
}

impl Keyring for FakeKeyring {
    fn api_key(&self) -> BoxFuture<'_, Result<MintedKey, Fault>> {
        let number = self.next();
        let secret = NewSecret::new(format!("aga_{number:044}"));
        let hash = slow_hash(&secret);
        Box::pin(std::future::ready(Ok(MintedKey {
            secret,
            lookup_id: format!("lookup{number}"),
            hash,
            check: format!("check{number}"),
        })))
    }

    fn macaroon(&self, id: RecordId, caveats: &[String]) -> Result<MintedMacaroon, Fault> {
        let identifier = format!("v1 k1 {id}");
        let minted = mint(&RootKey::derive(b"of a test"), &identifier, caveats).unwrap();
        Ok(MintedMacaroon {
            secret: NewSecret::new(minted.encode()),
            identifier,
            root_key: "k1".to_owned(),
        })
    }

    fn secret(&self) -> Result<NewSecret, Fault> {
        Ok(NewSecret::new(format!("secret{}", self.next())))
    }

    fn hash(&self, secret: NewSecret) -> BoxFuture<'_, Result<String, Fault>> {
        Box::pin(std::future::ready(Ok(slow_hash(&secret))))
    }

    fn has_hash(&self, secret: NewSecret, hash: String) -> BoxFuture<'_, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(slow_hash(&secret) == hash)))
    }

    fn sign(&self, _: &Claims) -> Result<String, Fault> {
        Err(Fault::new(Code::Unavailable, "a fake signs nothing"))
    }

    fn new_token_key(&self) -> BoxFuture<'_, Result<NewTokenKey, Fault>> {
        Box::pin(std::future::ready(Ok(NewTokenKey {
            kid: format!("kid{}", self.next()),
            der: Vec::new(),
        })))
    }

    fn sign_with(&self, key: NewTokenKey) -> BoxFuture<'_, Result<Option<RetiredTokenKey>, Fault>> {
        let former = self.token_key.lock().unwrap().replace(key);
        let retired = former.map(|former| RetiredTokenKey {
            kid: former.kid,
            accepted_until: Timestamp::from_millis(START_MS),
        });
        Box::pin(std::future::ready(Ok(retired)))
    }

    fn read_token(&self, _: &str) -> Option<Claims> {
        None
    }

    fn mac(&self, message: &[u8]) -> [u8; 32] {
        // Nobody computes this without the message, which is all that a test asks of it.
        sha256(message)
    }

    fn public_keys(&self) -> serde_json::Value {
        json!({ "keys": [] })
    }

    fn forget(&self, record: RecordKey) {
        self.forgotten.lock().unwrap().push(record);
    }

    fn until_ended(&self, _: &Caller) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}
