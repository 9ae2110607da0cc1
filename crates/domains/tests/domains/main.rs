//! Domains: the published bytes, the rule, and the answers to requests.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod decisions;
mod delay;
mod forms;
mod vectors;

use asyncgate_domains::{Compat, Hash, Kind, Limiter, Request, Rules, signing_hash};
use k256::ecdsa::SigningKey;
use serde_json::{Value, json};

/// The address of the key `0x…deadbeef`.
const ADDRESS: &str = "0xe8a78b476AE1403b7fD39b662545AE608Aced7c7";
const NAME: &str = "ODIS Sequential Delay Domain";

fn hash(hex: &str) -> Hash {
    bytes(hex).try_into().unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(std::str::from_utf8);
    let byte = |pair: Result<&str, _>| u8::from_str_radix(pair.unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn key(end: u32) -> SigningKey {
    let mut bytes = [0; 32];
    bytes[28..].copy_from_slice(&end.to_be_bytes());
    SigningKey::from_slice(&bytes).unwrap()
}

fn some(value: impl Into<Value>) -> Value {
    json!({"defined": true, "value": value.into()})
}

fn none(zero: impl Into<Value>) -> Value {
    json!({"defined": false, "value": zero.into()})
}

/// Builds a stage of `delay`, with a batch size and repetitions.
fn stage(delay: u64, batch: u64, repetitions: u64) -> Value {
    json!({"delay": delay, "resetTimer": none(false), "batchSize": some(batch), "repetitions": some(repetitions)})
}

fn domain(address: &str, stages: &Value) -> Value {
    json!({"name": NAME, "version": "1", "stages": stages, "address": some(address), "salt": none("")})
}

/// Builds the unsigned body of a request about `domain`.
fn unsigned(kind: Kind, domain: &Value, nonce: u64) -> Value {
    let mut body = json!({
        "type": kind.tag(),
        "domain": domain,
        "options": {"signature": none(""), "nonce": some(nonce)},
        "sessionID": none(""),
    });
    if kind == Kind::Sign {
        body["blindedMessage"] = "<blinded message>".into();
    }
    body
}

fn parse(kind: Kind, body: &Value) -> Request {
    let name = body["domain"]["name"].as_str().unwrap();
    Request::parse(kind, name, body.to_string().as_bytes()).unwrap()
}

/// Signs a body and returns the parts of the signature, with `v` from 27.
fn signature(kind: Kind, body: &Value, key: &SigningKey) -> (String, u8) {
    let hash = signing_hash(&parse(kind, body)).unwrap();
    let (signature, id) = key.sign_prehash_recoverable(&hash);
    (hex(&signature.to_bytes()), 27 + id.to_byte())
}

fn sign(kind: Kind, mut body: Value, key: &SigningKey) -> Value {
    let (rs, v) = signature(kind, &body, key);
    body["options"]["signature"] = some(format!("0x{rs}{v:02x}"));
    body
}

fn rules(compat: Compat) -> Rules {
    Rules {
        compat,
        evaluator: Box::new(Limiter),
        version: "1.2.3",
    }
}
