//! ID tokens: the example of RFC 7515 for ES256, and every way in which a token can be wrong.

use asyncgate_core::Timestamp;
use asyncgate_credentials::{
    jwt::SigningKey,
    oidc::{BadKeySet, Expected, MAX_BYTES, ProviderKeys, Refusal, Subject, verify},
};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: i64 = 1_763_000_000;
const ISSUER: &str = "https://id.example";
const CLIENT: &str = "asyncgate-at-id";

/// The private key of RFC 7515, appendix A.3.
const EC_PRIVATE: &str = "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI";
const EC_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const EC_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

fn rsa() -> SigningKey {
    SigningKey::from_der(include_bytes!("rfc7515-a2.pk8")).unwrap()
}

fn ec() -> EcdsaKeyPair {
    let decode = |text: &str| BASE64.decode(text).unwrap();
    let public = [vec![4], decode(EC_X), decode(EC_Y)].concat();
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair =
        EcdsaKeyPair::from_private_key_and_public_key(algorithm, &decode(EC_PRIVATE), &public);
    let pair = pair.unwrap();
    assert_eq!(pair.public_key().as_ref(), public);
    pair
}

fn jwks() -> Value {
    let set: asyncgate_credentials::jwt::KeySet =
        [rsa().verifying_key().clone()].into_iter().collect();
    let mut jwks = set.to_jwks();
    let keys = jwks["keys"].as_array_mut().unwrap();
    keys[0]["kid"] = json!("rsa");
    keys.push(json!({"kty": "EC", "crv": "P-256", "x": EC_X, "y": EC_Y, "kid": "ec"}));
    jwks
}

fn keys() -> ProviderKeys {
    ProviderKeys::from_json(jwks().to_string().as_bytes()).unwrap()
}

fn expected() -> Expected<'static> {
    Expected {
        issuer: ISSUER,
        client_id: CLIENT,
        nonce: "n-1",
        now: Timestamp::from_millis(NOW * 1_000),
        leeway_secs: 60,
    }
}

fn claims() -> Value {
    json!({
        "iss": ISSUER, "aud": CLIENT, "sub": "248289761001", "exp": NOW + 300, "iat": NOW, "nonce": "n-1",
        "email": "ada@x.example", "email_verified": true,
    })
}

fn signed(header: &Value, claims: &Value) -> String {
    let part = |json: &Value| BASE64.encode(json.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = match header["alg"].as_str() {
        Some("ES256") => {
            let signature = ec().sign(&SystemRandom::new(), message.as_bytes());
            signature.unwrap().as_ref().to_vec()
        }
        _ => rsa().sign(message.as_bytes()).unwrap(),
    };
    format!("{message}.{}", BASE64.encode(signature))
}

fn rs256(claims: &Value) -> String {
    signed(&json!({"alg": "RS256", "kid": "rsa"}), claims)
}

fn outcome(token: &str) -> Result<Subject, Refusal> {
    verify(&keys(), token, &expected())
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    claims
}

#[test]
fn both_algorithms_are_verified() {
    for (alg, kid) in [("RS256", "rsa"), ("ES256", "ec")] {
        let token = signed(&json!({"alg": alg, "kid": kid}), &claims());
        let subject = outcome(&token).unwrap();
        assert_eq!(subject.subject, "248289761001");
        assert_eq!(subject.verified_email.as_deref(), Some("ada@x.example"));
        // Without a name, the only key of the kind is tried.
        assert!(outcome(&signed(&json!({"alg": alg}), &claims())).is_ok());
    }
}

#[test]
fn the_signature_of_rfc_7515_is_good_and_its_claims_are_not_ours() {
    let token = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    assert_eq!(outcome(token), Err(Refusal::Issuer));
    let flipped = token.replace("DtEh", "DtEi");
    assert_eq!(outcome(&flipped), Err(Refusal::Signature));
}

#[test]
fn other_algorithms_and_keys_are_not_tried() {
    let unsigned = signed(&json!({"alg": "none"}), &claims());
    let (message, _) = unsigned.rsplit_once('.').unwrap();
    for (token, refusal) in [
        (format!("{message}."), Refusal::Algorithm),
        (unsigned.clone(), Refusal::Algorithm),
        (
            signed(&json!({"alg": "HS256", "kid": "rsa"}), &claims()),
            Refusal::Algorithm,
        ),
        (
            signed(&json!({"alg": "RS512", "kid": "rsa"}), &claims()),
            Refusal::Algorithm,
        ),
        (
            signed(&json!({"kid": "rsa"}), &claims()),
            Refusal::Algorithm,
        ),
        (
            signed(&json!({"alg": "RS256", "kid": "ec"}), &claims()),
            Refusal::UnknownKey,
        ),
        (
            signed(&json!({"alg": "ES256", "kid": "rsa"}), &claims()),
            Refusal::UnknownKey,
        ),
        (
            signed(&json!({"alg": "RS256", "kid": "new"}), &claims()),
            Refusal::UnknownKey,
        ),
        (
            signed(
                &json!({"alg": "RS256", "kid": "rsa", "crit": ["x"]}),
                &claims(),
            ),
            Refusal::Malformed("it has critical extensions"),
        ),
    ] {
        assert_eq!(outcome(&token), Err(refusal), "{token}");
    }
}

#[test]
fn a_token_is_for_this_client_this_login_and_this_time() {
    for (name, value, expected) in [
        ("iss", json!("https://id.example/"), Err(Refusal::Issuer)),
        ("iss", Value::Null, Err(Refusal::Issuer)),
        ("aud", json!("another"), Err(Refusal::Audience)),
        ("aud", json!([]), Err(Refusal::Audience)),
        ("aud", Value::Null, Err(Refusal::Audience)),
        ("aud", json!([CLIENT]), Ok(())),
        ("aud", json!([CLIENT, "another"]), Err(Refusal::Audience)),
        ("azp", json!("another"), Err(Refusal::Audience)),
        ("azp", json!(CLIENT), Ok(())),
        ("exp", json!(NOW - 60), Err(Refusal::Time)),
        ("exp", json!(NOW - 59), Ok(())),
        ("exp", Value::Null, Err(Refusal::Malformed("it has no end"))),
        (
            "exp",
            json!("soon"),
            Err(Refusal::Malformed("it has no end")),
        ),
        ("iat", json!(NOW + 61), Err(Refusal::Time)),
        ("iat", json!(NOW + 60), Ok(())),
        (
            "iat",
            Value::Null,
            Err(Refusal::Malformed("it has no beginning")),
        ),
        ("nbf", json!(NOW + 61), Err(Refusal::Time)),
        ("nonce", json!("n-2"), Err(Refusal::Nonce)),
        ("nonce", Value::Null, Err(Refusal::Nonce)),
        ("sub", json!(""), Err(Refusal::Malformed("it names nobody"))),
        (
            "sub",
            json!("x".repeat(257)),
            Err(Refusal::Malformed("it names nobody")),
        ),
        ("sub", json!(5), Err(Refusal::Malformed("it names nobody"))),
    ] {
        let outcome = outcome(&rs256(&with(name, value.clone())));
        assert_eq!(outcome.map(|_| ()), expected, "{name} {value}");
    }
    let mut several = with("aud", json!([CLIENT, "another"]));
    several["azp"] = json!(CLIENT);
    assert!(outcome(&rs256(&several)).is_ok());
}

#[test]
fn an_address_counts_only_if_the_provider_verified_it() {
    for (verified, expected) in [
        (json!(true), true),
        (json!("true"), true),
        (json!(false), false),
        (json!("false"), false),
        (json!(1), false),
        (Value::Null, false),
    ] {
        let subject = outcome(&rs256(&with("email_verified", verified.clone()))).unwrap();
        assert_eq!(subject.verified_email.is_some(), expected, "{verified}");
    }
    let without = outcome(&rs256(&with("email", Value::Null))).unwrap();
    assert_eq!(without.verified_email, None);
}

#[test]
fn what_is_no_token_or_no_key_set_is_refused() {
    let large = format!("a.b.{}", "c".repeat(MAX_BYTES));
    for token in ["", "a", "a.b", "a.b.c", "....", "e30.e30.e30", &large] {
        assert!(outcome(token).is_err(), "{token}");
    }
    let twice = BASE64.encode(r#"{"alg":"RS256","alg":"none"}"#);
    assert!(outcome(&format!("{twice}.e30.e30")).is_err());
    for text in ["", "{}", "[]", r#"{"keys":5}"#] {
        assert_eq!(ProviderKeys::from_json(text.as_bytes()), Err(BadKeySet));
    }
}

#[test]
fn keys_for_other_uses_are_left_out() {
    let token = rs256(&claims());
    for (name, value) in [
        ("use", "enc"),
        ("alg", "RS512"),
        ("kty", "oct"),
        ("n", "!"),
        ("e", ""),
    ] {
        let mut jwks = jwks();
        jwks["keys"][0][name] = json!(value);
        let keys = ProviderKeys::from_json(jwks.to_string().as_bytes()).unwrap();
        assert!(verify(&keys, &token, &expected()).is_err(), "{name}");
    }
    // Two keys of a kind, and a token that names neither.
    let mut jwks = jwks();
    let again = jwks["keys"][0].clone();
    jwks["keys"].as_array_mut().unwrap().push(again);
    let keys = ProviderKeys::from_json(jwks.to_string().as_bytes()).unwrap();
    let nameless = signed(&json!({"alg": "RS256"}), &claims());
    let refused = verify(&keys, &nameless, &expected());
    assert_eq!(refused, Err(Refusal::UnknownKey));
}

#[test]
fn every_flipped_bit_is_noticed() {
    for header in [
        json!({"alg": "RS256", "kid": "rsa"}),
        json!({"alg": "ES256", "kid": "ec"}),
    ] {
        let token = signed(&header, &claims()).into_bytes();
        let keys = keys();
        for at in (0..token.len()).step_by(3) {
            let mut other = token.clone();
            other[at] ^= 1;
            if let Ok(other) = std::str::from_utf8(&other) {
                assert!(verify(&keys, other, &expected()).is_err(), "{at}");
            }
        }
    }
}

proptest! {
    #[test]
    fn no_text_is_taken_for_a_token(text in "\\PC{0,200}", parts in prop::collection::vec("[A-Za-z0-9_-]{0,40}", 3)) {
        prop_assert!(outcome(&text).is_err());
        prop_assert!(outcome(&parts.join(".")).is_err());
    }
}
