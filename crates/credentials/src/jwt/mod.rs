//! Access tokens: JSON Web Tokens that the server signs with RS256 and verifies again.
//!
//! Invariants: no other algorithm than RS256 and no key that is not in the set is ever tried, whatever the
//! token asks for; claims are looked at only after the signature was found good; no name stands twice in
//! a header or in the claims.

mod claims;
mod key;
mod object;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::json;

pub use claims::{Claims, Expected};
pub use key::{BadKey, KeySet, NoKey, SigningKey, VerifyingKey};

pub(crate) use object::Object;

/// The most bytes of a token.
pub const MAX_BYTES: usize = 8 * 1024;

/// The reason why a token is refused. It is for the log: to its bearer all of them look the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is larger than any token of ours.
    #[error("the token is too large")]
    TooLarge,
    /// It is no token.
    #[error("not a token: {0}")]
    Malformed(&'static str),
    /// It asks for another algorithm than RS256.
    #[error("the token is not signed with RS256")]
    Algorithm,
    /// It names no key that is known.
    #[error("the token's key is unknown")]
    UnknownKey,
    /// Its signature is not that of the key.
    #[error("the token's signature is wrong")]
    Signature,
    /// Somebody else issued it.
    #[error("the token has another issuer")]
    Issuer,
    /// It is meant for somebody else.
    #[error("the token is meant for another audience")]
    Audience,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
}

/// Returns true if a credential has the form of a token: three parts with points between them.
pub fn looks_like_token(credential: &str) -> bool {
    credential.split('.').count() == 3
}

/// Signs claims.
pub fn sign(key: &SigningKey, claims: &Claims) -> Result<String, NoKey> {
    let header = json!({"alg": "RS256", "kid": key.verifying_key().kid(), "typ": "JWT"});
    let part = |json: &serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(json.to_string());
    let signed = format!("{}.{}", part(&header), part(&claims.to_json()));
    let signature = key.sign(signed.as_bytes())?;
    let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
    Ok(format!("{signed}.{signature}"))
}

/// Verifies a token and returns its claims.
pub fn verify(keys: &KeySet, token: &str, expected: &Expected<'_>) -> Result<Claims, Refusal> {
    if token.len() > MAX_BYTES {
        return Err(Refusal::TooLarge);
    }
    let not_three = Refusal::Malformed("it does not have three parts");
    let (signed, signature) = token.rsplit_once('.').ok_or(not_three)?;
    let (header, payload) = signed.split_once('.').ok_or(not_three)?;
    let header =
        Object::parse(&decode(header)?).ok_or(Refusal::Malformed("its header is no object"))?;
    if header.text("alg") != Some("RS256") {
        return Err(Refusal::Algorithm);
    }
    // Whoever signed it wants it refused by readers that do not know these extensions, and we know none.
    if header.get("crit").is_some() {
        return Err(Refusal::Malformed("it has critical extensions"));
    }
    let key = header.text("kid").and_then(|kid| keys.get(kid));
    let key = key.ok_or(Refusal::UnknownKey)?;
    if !key.signed(signed.as_bytes(), &decode(signature)?) {
        return Err(Refusal::Signature);
    }
    let payload = Object::parse(&decode(payload)?);
    let payload = payload.ok_or(Refusal::Malformed("its claims are no object"))?;
    Claims::read(&payload, expected)
}

fn decode(part: &str) -> Result<Vec<u8>, Refusal> {
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| Refusal::Malformed("a part is not base64url"))
}
