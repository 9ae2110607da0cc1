//! The verification of an ID token (OpenID Connect Core, section 3.1.3.7).

use asyncgate_core::Timestamp;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::Value;

use super::{ProviderKeys, keys::Algorithm};
use crate::jwt::Object;

/// The most bytes of a token.
pub const MAX_BYTES: usize = 16 * 1024;
/// The most bytes of the names of a person.
const MAX_NAME_BYTES: usize = 256;

/// The facts that a token is held against.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The provider.
    pub issuer: &'a str,
    /// The name under which the provider knows this server.
    pub client_id: &'a str,
    /// The number that this login was begun with.
    pub nonce: &'a str,
    /// The present.
    pub now: Timestamp,
    /// How many seconds the clocks of provider and server may differ.
    pub leeway_secs: u32,
}

/// The person who logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The provider's own name for the person.
    pub subject: String,
    /// The person's e-mail address, if the provider has verified it.
    pub verified_email: Option<String>,
}

/// The reason why a token is refused. It is for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no token.
    #[error("not an ID token: {0}")]
    Malformed(&'static str),
    /// It is signed in another way.
    #[error("the ID token is signed neither with RS256 nor with ES256")]
    Algorithm,
    /// The provider has published no such key. It may have since.
    #[error("the key of the ID token is unknown")]
    UnknownKey,
    /// Its signature is not that of the key.
    #[error("the signature of the ID token is wrong")]
    Signature,
    /// Somebody else issued it.
    #[error("the ID token has another issuer")]
    Issuer,
    /// It was made for another client.
    #[error("the ID token is meant for another client")]
    Audience,
    /// Its time is over, or has not come.
    #[error("the ID token is not valid at this time")]
    Time,
    /// It was made for another login.
    #[error("the ID token belongs to another login")]
    Nonce,
}

/// Verifies a token and returns whom it is about.
pub fn verify(
    keys: &ProviderKeys,
    token: &str,
    expected: &Expected<'_>,
) -> Result<Subject, Refusal> {
    let not_three = Refusal::Malformed("it does not have three parts");
    if token.len() > MAX_BYTES {
        return Err(Refusal::Malformed("it is too large"));
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(not_three)?;
    let (header, payload) = signed.split_once('.').ok_or(not_three)?;
    let header = object(header)?;
    let algorithm = header.text("alg").and_then(Algorithm::named);
    let algorithm = algorithm.ok_or(Refusal::Algorithm)?;
    // Whoever signed it wants it refused by readers that do not know these extensions, and we know none.
    if header.get("crit").is_some() {
        return Err(Refusal::Malformed("it has critical extensions"));
    }
    let key = keys.find(algorithm, header.text("kid"));
    let key = key.ok_or(Refusal::UnknownKey)?;
    if !key.signed(signed.as_bytes(), &decode(signature)?) {
        return Err(Refusal::Signature);
    }
    read(&object(payload)?, expected)
}

fn read(claims: &Object, expected: &Expected<'_>) -> Result<Subject, Refusal> {
    if claims.text("iss") != Some(expected.issuer) {
        return Err(Refusal::Issuer);
    }
    check_audience(claims, expected.client_id)?;
    check_time(claims, expected)?;
    if claims.text("nonce") != Some(expected.nonce) {
        return Err(Refusal::Nonce);
    }
    let named = |text: &&str| (1..=MAX_NAME_BYTES).contains(&text.len());
    let subject = claims.text("sub").filter(named);
    let email = claims.text("email").filter(named);
    Ok(Subject {
        subject: subject
            .ok_or(Refusal::Malformed("it names nobody"))?
            .to_owned(),
        verified_email: email.filter(|_| is_verified(claims)).map(str::to_owned),
    })
}

fn check_audience(claims: &Object, client_id: &str) -> Result<(), Refusal> {
    let is_us = |value: &Value| value.as_str() == Some(client_id);
    let (named, others) = match claims.get("aud") {
        Some(Value::Array(names)) => (names.iter().any(is_us), names.len() > 1),
        Some(name) => (is_us(name), false),
        None => (false, false),
    };
    // A token for several parties says which of them asked for it.
    let asked_by_us = match claims.get("azp") {
        Some(party) => is_us(party),
        None => !others,
    };
    if named && asked_by_us {
        Ok(())
    } else {
        Err(Refusal::Audience)
    }
}

fn check_time(claims: &Object, expected: &Expected<'_>) -> Result<(), Refusal> {
    let second = |name: &str| {
        let value = claims.get(name)?;
        let fraction = || value.as_f64().map(|number| number.floor() as i64);
        value.as_i64().or_else(fraction)
    };
    let leeway = i64::from(expected.leeway_secs);
    let now = expected.now.as_millis().div_euclid(1_000);
    let end = second("exp").ok_or(Refusal::Malformed("it has no end"))?;
    let issued = second("iat").ok_or(Refusal::Malformed("it has no beginning"))?;
    let begin = second("nbf").unwrap_or(issued).max(issued);
    let lives = now < end.saturating_add(leeway) && begin.saturating_sub(leeway) <= now;
    lives.then_some(()).ok_or(Refusal::Time)
}

/// Returns true if the provider vouches for the address. Some providers write the word instead of the value.
fn is_verified(claims: &Object) -> bool {
    match claims.get("email_verified") {
        Some(Value::Bool(verified)) => *verified,
        Some(Value::String(text)) => text == "true",
        Some(_) | None => false,
    }
}

fn object(part: &str) -> Result<Object, Refusal> {
    let no_object = Refusal::Malformed("a part is no object");
    Object::parse(&decode(part)?).ok_or(no_object)
}

fn decode(part: &str) -> Result<Vec<u8>, Refusal> {
    let decoded = BASE64_URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| Refusal::Malformed("a part is not base64url"))
}
