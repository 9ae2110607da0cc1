//! Signed heads: reading the signed statement, and verifying that the key signed it.

use std::{fmt, str::FromStr};

use asyncgate_api::LedgerHead;
use asyncgate_core::{Head, Link, TenantId, Timestamp, hex};
use ed25519_dalek::{Signature, VerifyingKey};
use serde::Deserialize;

use crate::{Break, Kind, digest, time};

/// An Ed25519 key that verifies signatures, written as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Builds a key from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

/// The error for a text that is no public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a public key: it must be 64 hexadecimal digits")]
pub struct NotAKey;

impl FromStr for PublicKey {
    type Err = NotAKey;

    fn from_str(text: &str) -> Result<Self, NotAKey> {
        hex::decode_any_case(text).map(Self).ok_or(NotAKey)
    }
}

/// The body of a `ledger.signed` receipt.
#[derive(Debug, Deserialize)]
pub(crate) struct SignedBody {
    seq: u64,
    link: String,
    open_obligations: u64,
    signed_at: String,
    signed_at_millis: i64,
    public_key: String,
    signature: String,
}

impl SignedBody {
    /// Verifies the signature, and returns the signed head and the key.
    pub(crate) fn open(&self, tenant: TenantId) -> Result<(Head, PublicKey), Break> {
        let head = head(self.seq, &self.link, self.open_obligations)?;
        let signed_at = (self.signed_at.as_str(), self.signed_at_millis);
        let by = (self.public_key.as_str(), self.signature.as_str());
        let key = check(tenant, &head, signed_at, by)?;
        Ok((head, key))
    }
}

/// Reads the head at the end of a ledger, which is not compared with the receipts yet.
pub(crate) fn stated(head_record: &LedgerHead) -> Result<Head, Break> {
    head(
        head_record.seq,
        &head_record.link,
        head_record.open_obligations,
    )
}

/// Verifies the head at the end of a ledger. Returns the key that signed it, or nothing when it is
/// not signed.
pub(crate) fn signer(
    tenant: TenantId,
    head: &Head,
    record: &LedgerHead,
) -> Result<Option<PublicKey>, Break> {
    let signed_at = (record.signed_at.as_str(), record.signed_at_millis);
    match (&record.public_key, &record.signature) {
        (None, None) => time_of(signed_at).map(|_| None),
        (Some(key), Some(signature)) => check(tenant, head, signed_at, (key, signature)).map(Some),
        (Some(_), None) => {
            let message = "the head names a key but has no signature";
            Err(Break::new(Kind::Unsigned, message))
        }
        (None, Some(_)) => {
            let message = "the head has a signature but names no key";
            Err(Break::new(Kind::Unsigned, message))
        }
    }
}

fn head(seq: u64, link: &str, open_obligations: u64) -> Result<Head, Break> {
    let link: Link = digest::link("link", link)?;
    Ok(Head {
        seq,
        link,
        open_obligations,
    })
}

/// Returns the time of a head. The signature covers the milliseconds; the text must say the same, because people
/// read it.
fn time_of((text, millis): (&str, i64)) -> Result<Timestamp, Break> {
    let at = time::parse(text).filter(|at| at.as_millis() == millis);
    at.ok_or_else(|| {
        let message = format!("signed_at is {text:?}, but signed_at_millis is {millis}");
        Break::new(Kind::Time, message)
    })
}

fn check(
    tenant: TenantId,
    head: &Head,
    signed_at: (&str, i64),
    (key, signature): (&str, &str),
) -> Result<PublicKey, Break> {
    let at = time_of(signed_at)?;
    let malformed = |what: &str, digits: usize| {
        let message = format!("the {what} is not {digits} lower-case hexadecimal digits");
        Break::new(Kind::Malformed, message)
    };
    let key = PublicKey(hex::decode(key).ok_or_else(|| malformed("public key", 64))?);
    let signature: [u8; 64] = hex::decode(signature).ok_or_else(|| malformed("signature", 128))?;
    let statement = head.statement(tenant, at);
    let good = VerifyingKey::from_bytes(&key.0).is_ok_and(|verifying| {
        verifying
            // Strict: without it, one signature could be changed into another valid one.
            .verify_strict(&statement, &Signature::from_bytes(&signature))
            .is_ok()
    });
    if good {
        return Ok(key);
    }
    let message = format!("the signature over the head at {} is not good", head.seq);
    Err(Break::new(Kind::Signature, message))
}
