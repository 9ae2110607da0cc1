//! Tokens: the examples of the RFCs, and every way in which a token can be wrong.

use std::sync::LazyLock;

use asyncgate_core::{
    PrincipalKey, PrincipalKind, Timestamp,
    identity::{Role, Scope, Scopes},
};
use asyncgate_credentials::jwt::{
    BadKey, Claims, Expected, KeySet, MAX_BYTES, Refusal, SigningKey, VerifyingKey,
    looks_like_token, sign, verify,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

const NOW: i64 = 1_763_000_000;

/// The private key of RFC 7515, appendix A.2, in PKCS #8.
fn key() -> &'static SigningKey {
    static KEY: LazyLock<SigningKey> =
        LazyLock::new(|| SigningKey::from_der(include_bytes!("rfc7515-a2.pk8")).unwrap());
    &KEY
}

fn keys() -> KeySet {
    [key().verifying_key().clone()].into_iter().collect()
}

fn expected() -> Expected<'static> {
    Expected {
        issuer: "asyncgate",
        audience: "asyncgate-api",
        now: Timestamp::from_millis(NOW * 1_000),
        leeway_secs: 0,
    }
}

fn claims() -> Claims {
    Claims {
        issuer: "asyncgate".to_owned(),
        audience: vec!["asyncgate-api".to_owned()],
        subject: "user-1".to_owned(),
        tenant: "019a2f6e-0000-7000-8000-000000000001".parse().unwrap(),
        principal: PrincipalKey {
            kind: PrincipalKind::Human,
            id: "ann".into(),
        },
        role: Some(Role::Agent),
        scopes: Some(Scopes::of(&[Scope::TasksRead, Scope::MailboxSend])),
        expires_at: NOW + 60,
        issued_at: NOW - 60,
        not_before: Some(NOW - 60),
        client_id: Some("client".to_owned()),
        token_id: Some("token".to_owned()),
        family: Some("family".to_owned()),
    }
}

fn json_claims() -> Value {
    json!({
        "sub": "user-1", "tenant_id": "019a2f6e-0000-7000-8000-000000000001", "principal_kind": "worker",
        "principal_id": "w", "exp": NOW + 60, "iat": NOW, "iss": "asyncgate", "aud": "asyncgate-api",
    })
}

/// Signs any header and any claims, with the real key.
fn signed(header: &str, claims: &str) -> String {
    let signed = format!("{}.{}", BASE64.encode(header), BASE64.encode(claims));
    let signature = key().sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", BASE64.encode(signature))
}

fn header() -> String {
    json!({"alg": "RS256", "kid": key().verifying_key().kid()}).to_string()
}

fn outcome(token: &str) -> Result<Claims, Refusal> {
    verify(&keys(), token, &expected())
}

/// Verifies claims that differ from good ones in one place; null takes a claim away.
fn with(name: &str, value: Value) -> Result<Claims, Refusal> {
    let mut claims = json_claims();
    let object = claims.as_object_mut().unwrap();
    if value.is_null() {
        object.remove(name);
    } else {
        object.insert(name.to_owned(), value);
    }
    outcome(&signed(&header(), &claims.to_string()))
}

/// RFC 7638, section 3.1.
#[test]
fn a_key_is_named_by_its_thumbprint() {
    let modulus = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
    let key = VerifyingKey::new(BASE64.decode(modulus).unwrap(), vec![1, 0, 1]);
    assert_eq!(key.kid(), "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs");
    let set: KeySet = [key].into_iter().collect();
    let expected = json!({"keys": [{
        "kty": "RSA", "use": "sig", "alg": "RS256", "e": "AQAB", "n": modulus,
        "kid": "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs",
    }]});
    assert_eq!(set.to_jwks(), expected);
}

/// RFC 7515, appendix A.2: its key makes its signature. RS256 has no randomness.
#[test]
fn the_example_of_the_rfc_is_signed_alike() {
    let claims =
        "{\"iss\":\"joe\",\r\n \"exp\":1300819380,\r\n \"http://example.com/is_root\":true}";
    let expected = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    assert_eq!(signed(r#"{"alg":"RS256"}"#, claims), expected);
    // It names no key, so it is no token of ours.
    assert_eq!(outcome(expected), Err(Refusal::UnknownKey));
}

#[test]
fn what_is_signed_is_verified() {
    let token = sign(key(), &claims()).unwrap();
    assert!(looks_like_token(&token));
    assert_eq!(outcome(&token), Ok(claims()));
    assert_eq!(claims().effective_role(), Role::Agent);

    let least = Claims {
        audience: vec!["https://mcp.example".to_owned(), "asyncgate-api".to_owned()],
        role: None,
        scopes: None,
        not_before: None,
        client_id: None,
        token_id: None,
        family: None,
        ..claims()
    };
    let token = sign(key(), &least).unwrap();
    assert_eq!(outcome(&token), Ok(least));
}

#[test]
fn claims_of_others_are_taken_if_they_are_complete() {
    let good = outcome(&signed(&header(), &json_claims().to_string())).unwrap();
    assert_eq!(good.effective_role(), Role::Worker);
    assert_eq!((good.role, good.scopes), (None, None));
    let scopes = with("scope", json!("tasks:lease openid tasks:lease"))
        .unwrap()
        .scopes;
    assert_eq!(scopes, Some(Scopes::of(&[Scope::TasksLease])));
    assert_eq!(
        with("exp", json!(NOW as f64 + 59.5)).unwrap().expires_at,
        NOW + 59
    );
    assert!(with("unknown", json!([1])).is_ok());
    for name in [
        "sub",
        "tenant_id",
        "principal_kind",
        "principal_id",
        "exp",
        "iat",
        "iss",
        "aud",
    ] {
        let missing = with(name, Value::Null);
        assert_eq!(
            missing,
            Err(Refusal::Malformed("a claim is missing")),
            "{name}"
        );
    }
    for (name, value) in [
        ("sub", json!(1)),
        ("sub", json!("")),
        ("tenant_id", json!("default")),
        ("principal_kind", json!("robot")),
        ("principal_kind", json!("system")),
        ("role", json!("system")),
        ("role", json!("root")),
        ("role", json!(["admin"])),
        ("scope", json!(["tasks:read"])),
        ("exp", json!("1763000060")),
        ("nbf", json!([])),
        ("aud", json!(["asyncgate-api", 1])),
    ] {
        let refused = with(name, value);
        assert!(
            matches!(refused, Err(Refusal::Malformed(_))),
            "{name}: {refused:?}"
        );
    }
}

#[test]
fn issuer_and_audience_must_fit() {
    assert_eq!(
        with("iss", json!("https://evil.example")),
        Err(Refusal::Issuer)
    );
    for audience in [json!("asyncgate-api2"), json!(["a", "b"]), json!([])] {
        assert_eq!(with("aud", audience), Err(Refusal::Audience));
    }
    assert!(with("aud", json!(["a", "asyncgate-api"])).is_ok());
}

#[test]
fn times_are_exact_but_for_the_leeway() {
    let token = sign(key(), &claims()).unwrap();
    let at = |second: i64, leeway_secs: u32| {
        let now = Timestamp::from_millis(second * 1_000);
        let expected = Expected {
            now,
            leeway_secs,
            ..expected()
        };
        verify(&keys(), &token, &expected).map(|_| ())
    };
    for (second, leeway, outcome) in [
        (NOW + 59, 0, Ok(())),
        (NOW + 60, 0, Err(Refusal::Expired)),
        (NOW + 69, 10, Ok(())),
        (NOW + 70, 10, Err(Refusal::Expired)),
        (NOW - 60, 0, Ok(())),
        (NOW - 61, 0, Err(Refusal::NotYetValid)),
        (NOW - 70, 10, Ok(())),
        (NOW - 71, 10, Err(Refusal::NotYetValid)),
    ] {
        assert_eq!(at(second, leeway), outcome, "{second} {leeway}");
    }
    assert_eq!(with("exp", json!(i64::MIN)), Err(Refusal::Expired));
    assert!(with("exp", json!(u64::MAX)).is_ok());
    assert!(with("exp", json!(1e300)).is_ok());
}

#[test]
fn other_algorithms_are_refused_whatever_the_signature() {
    let kid = key().verifying_key().kid().to_owned();
    let claims = BASE64.encode(json_claims().to_string());
    let jwks = keys().to_jwks();
    let modulus = BASE64
        .decode(jwks["keys"][0]["n"].as_str().unwrap())
        .unwrap();
    for alg in [
        "none", "None", "NONE", "HS256", "RS384", "PS256", "ES256", "rs256", "",
    ] {
        let header = json!({"alg": alg, "kid": kid}).to_string();
        let message = format!("{}.{claims}", BASE64.encode(&header));
        // The public key as the secret of an HMAC, which would fit if the token could choose.
        let mut mac = Hmac::<Sha256>::new_from_slice(&modulus).unwrap();
        mac.update(message.as_bytes());
        let mac = BASE64.encode(mac.finalize().into_bytes());
        let real = signed(&header, &json_claims().to_string());
        for token in [format!("{message}."), format!("{message}.{mac}"), real] {
            assert_eq!(outcome(&token), Err(Refusal::Algorithm), "{alg}");
        }
    }
    let without = json!({"kid": kid}).to_string();
    let token = signed(&without, &json_claims().to_string());
    assert_eq!(outcome(&token), Err(Refusal::Algorithm));
}

#[test]
fn only_known_keys_verify() {
    let claims = json_claims().to_string();
    let kid = key().verifying_key().kid().to_owned();
    for kid in [json!("other"), json!(""), json!(null), json!([kid])] {
        let header = json!({"alg": "RS256", "kid": kid, "jwk": keys().to_jwks()["keys"][0]});
        let token = signed(&header.to_string(), &claims);
        assert_eq!(outcome(&token), Err(Refusal::UnknownKey));
    }
    let token = signed(&header(), &claims);
    let none = verify(&KeySet::default(), &token, &expected());
    assert_eq!(none, Err(Refusal::UnknownKey));
}

#[test]
fn names_that_stand_twice_are_refused() {
    let kid = key().verifying_key().kid().to_owned();
    let claims = json_claims().to_string();
    let twice = format!(r#"{{"alg":"none","kid":"{kid}","alg":"RS256"}}"#);
    assert!(matches!(
        outcome(&signed(&twice, &claims)),
        Err(Refusal::Malformed(_))
    ));
    let twice = claims.replacen('{', r#"{"role":"admin","role":"agent","#, 1);
    assert!(matches!(
        outcome(&signed(&header(), &twice)),
        Err(Refusal::Malformed(_))
    ));
}

#[test]
fn broken_forms_are_refused() {
    let good = sign(key(), &claims()).unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let [header, payload, signature] = parts[..] else {
        panic!("three parts")
    };
    let broken = [
        String::new(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        format!("{header}.{payload}"),
        format!("{good}."),
        format!("{good}=="),
        format!("{header}=.{payload}.{signature}"),
        format!(" {good}"),
        format!("{header}.{payload}.{signature}\n"),
        format!("{}.{payload}.{signature}", BASE64.encode("[]")),
        format!("{}.{payload}.{signature}", BASE64.encode("{")),
        good.replace(['-', '_'], "+"),
    ];
    for token in broken {
        assert!(outcome(&token).is_err(), "{token}");
    }
    let critical = json!({"alg": "RS256", "kid": key().verifying_key().kid(), "crit": ["exp"]});
    let critical = signed(&critical.to_string(), &json_claims().to_string());
    assert!(matches!(outcome(&critical), Err(Refusal::Malformed(_))));
    for claims in ["[]", "1", "", "{", "{\"a\":\"\u{0}\"}"] {
        let token = signed(&self::header(), claims);
        assert!(
            matches!(outcome(&token), Err(Refusal::Malformed(_))),
            "{claims}"
        );
    }
    let long = json!({"pad": "x".repeat(MAX_BYTES)}).to_string();
    assert_eq!(
        outcome(&signed(&self::header(), &long)),
        Err(Refusal::TooLarge)
    );
}

/// Every changed character is noticed, and so is every changed bit of the signature.
#[test]
fn every_flipped_bit_is_noticed() {
    let good = sign(key(), &claims()).unwrap();
    for bit in 0..good.len() * 8 {
        let mut flipped = good.clone().into_bytes();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(flipped) = String::from_utf8(flipped) {
            assert!(outcome(&flipped).is_err(), "bit {bit}");
        }
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test is about a new key")]
fn a_new_key_signs_and_is_not_shown() {
    let der = SigningKey::generate().unwrap();
    let fresh = SigningKey::from_der(&der).unwrap();
    assert_ne!(fresh.verifying_key(), key().verifying_key());
    let token = sign(&fresh, &claims()).unwrap();
    // 3072 bits are 384 bytes.
    assert_eq!(token.rsplit('.').next().unwrap().len(), 512);
    let both: KeySet = [&fresh, key()]
        .map(|key| key.verifying_key().clone())
        .into_iter()
        .collect();
    assert!(verify(&both, &token, &expected()).is_ok());
    assert_eq!(outcome(&token), Err(Refusal::UnknownKey));
    assert_eq!(
        format!("{fresh:?}"),
        format!("SigningKey({})", fresh.verifying_key().kid())
    );
    assert_eq!(SigningKey::from_der(&der[1..]).unwrap_err(), BadKey);
    assert_eq!(SigningKey::from_der(b"").unwrap_err(), BadKey);
}
