//! Warrants: those that were published with the protocol, and those that we made and broke.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod build;
mod chains;
mod constraints;
mod extensions;
mod published;
mod reference;
mod tamper;

use asyncgate_warrants::{Call, Policy, Reason, RevocationPolicy, Verification, verify};
use ed25519_dalek::SigningKey;
use serde_json::{Map, Value, json};

/// A time in the middle of the life of the published warrants.
const NOW: i64 = 1_704_068_000;

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2).map(std::str::from_utf8);
    let byte = |pair: Result<&str, _>| u8::from_str_radix(pair.unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

/// The keys of the published warrants: the first is the trusted root.
fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

fn public(seed: u8) -> [u8; 32] {
    key(seed).verifying_key().to_bytes()
}

fn policy() -> Policy {
    Policy {
        trusted_roots: vec![public(1)],
        require_pop: false,
        revocation: RevocationPolicy::Marked,
        clock_skew_secs: 30,
    }
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(object) = value else {
        panic!("an object")
    };
    object
}

/// Verifies a call without a proof at `NOW`.
fn call(warrants: &[Vec<u8>], tool: &str, args: Value) -> Verification {
    let args = object(args);
    let call = Call {
        warrants,
        tool,
        args: &args,
        pop: None,
        now: NOW,
    };
    verify(&policy(), &call)
}

fn reason(verification: &Verification) -> Option<Reason> {
    verification.refusal.as_ref().map(|refusal| refusal.reason)
}

/// Returns the reason why a call to read a file is refused, if it is.
fn reading(warrants: &[Vec<u8>], path: &str) -> Option<Reason> {
    reason(&call(warrants, "read_file", json!({"path": path})))
}
