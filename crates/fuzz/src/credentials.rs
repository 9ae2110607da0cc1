//! Macaroons and tokens, which strangers show in place of a key, and the caveats that they add to macaroons.

use std::sync::LazyLock;

use asyncgate_core::{PrincipalKey, PrincipalKind, TenantId, Timestamp, identity::Scopes};
use asyncgate_credentials::{
    Call, Caveat, MailboxOp, Topic, check,
    jwt::{Expected, KeySet, SigningKey, verify},
    macaroon::{LOCATION, Macaroon, RootKey, mint},
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::json;

const NOW_MS: i64 = 1_763_000_000_000;

fn root() -> RootKey {
    RootKey::derive(b"a secret")
}

fn good_macaroons() -> Vec<Macaroon> {
    let caveats = caveat_seeds().into_iter().map(String::from_utf8);
    let caveats: Vec<String> = caveats.filter_map(Result::ok).collect();
    let minted = [&[][..], &caveats[..1], &caveats[..]];
    let minted = minted
        .into_iter()
        .map(|caveats| mint(&root(), "mac-1", caveats));
    minted.filter_map(Result::ok).collect()
}

/// Takes any bytes as a macaroon, in both versions: what is read is written and read again as the same, and
/// only what was minted verifies. A macaroon that was cut back to an earlier caveat does not.
pub fn macaroons(input: &[u8]) {
    let text = BASE64_URL_SAFE_NO_PAD.encode(input);
    let Ok(macaroon) = Macaroon::from_bytes(input) else {
        assert!(Macaroon::decode(&text).is_err());
        return;
    };
    assert!(Macaroon::decode(&text).is_ok_and(|read| read == macaroon));
    let again = Macaroon::from_bytes(&macaroon.to_bytes());
    assert!(
        again.is_ok_and(|again| again == macaroon),
        "written otherwise"
    );
    assert!(input[0] != 2 || macaroon.to_bytes() == input, "two forms");
    if macaroon.verify(&root()).is_ok() {
        // The location is not signed.
        let macaroon = macaroon.at(LOCATION).ok();
        let known = good_macaroons()
            .into_iter()
            .any(|good| Some(good) == macaroon);
        assert!(known, "a forgery");
    }
}

/// Returns minted macaroons in version 2, and one in version 1.
pub fn macaroon_seeds() -> Vec<Vec<u8>> {
    let good = good_macaroons().into_iter();
    let mut seeds: Vec<Vec<u8>> = good.map(|macaroon| macaroon.to_bytes()).collect();
    let signature = seeds[0].split_at(seeds[0].len() - 32).1;
    let packets = [
        b"0017location asyncgate\n0015identifier mac-1\n002fsignature ".as_slice(),
        signature,
        b"\n",
    ];
    let packets = packets.concat();
    seeds.push(packets);
    seeds
}

/// Takes any text as a caveat: it says the same after it is written and read again, and what is not
/// understood allows nothing.
pub fn caveats(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let caveat = Caveat::parse(text);
    assert!(Caveat::parse(&caveat.to_string()) == caveat, "{caveat:?}");
    let principal = PrincipalKey {
        kind: PrincipalKind::Agent,
        id: "ann".into(),
    };
    let topic = Topic {
        name: "user:42:inbox",
        classes: &["inbox"],
    };
    let call = Call {
        operation: "mailbox_send",
        mailbox_op: Some(MailboxOp::Send),
        topics: Some(&[topic]),
        scopes: Scopes::NONE,
        tenant: TenantId::from_bytes([1; 16]),
        principal: &principal,
        now: Timestamp::from_millis(NOW_MS),
    };
    let understood = caveat.is_understood();
    let caveats = [caveat];
    assert!(understood || check(&caveats, &call).is_err());
}

/// Returns one caveat of each sort.
pub fn caveat_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "op = send,recv",
        "topic = user:42:*",
        "topic_class = inbox",
        "quota ops = 5",
        "quota bytes=1048576",
        "scope = mailbox:send",
        "tenant = 01010101-0101-0101-0101-010101010101",
        "principal = agent/ann",
        "time < 2030-01-05T11:00:00.5+01:00",
        "account = 3735928559",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

/// The private key of RFC 7515, appendix A.2, which is as public as a key can be.
static KEY: LazyLock<Option<SigningKey>> = LazyLock::new(|| {
    let der = include_bytes!("../../credentials/tests/credentials/rfc7515-a2.pk8");
    SigningKey::from_der(der).ok()
});

fn verified(token: &str) -> bool {
    let key = KEY.as_ref().map(|key| key.verifying_key().clone());
    let keys: KeySet = key.into_iter().collect();
    let expected = Expected {
        issuer: "asyncgate",
        audience: "asyncgate-api",
        now: Timestamp::from_millis(NOW_MS),
        leeway_secs: 30,
    };
    verify(&keys, token, &expected).is_ok()
}

/// Returns the public half of the key, as a document.
pub(crate) fn jwks() -> serde_json::Value {
    let key = KEY.as_ref().map(|key| key.verifying_key().clone());
    let keys: KeySet = key.into_iter().collect();
    keys.to_jwks()
}

/// Signs any claims with the key.
pub(crate) fn sign_claims(claims: &[u8]) -> Option<String> {
    let key = KEY.as_ref()?;
    let header = json!({"alg": "RS256", "kid": key.verifying_key().kid()}).to_string();
    let encode = |part: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(part);
    let message = format!("{}.{}", encode(header.as_bytes()), encode(claims));
    let signature = key.sign(message.as_bytes()).ok()?;
    Some(format!("{message}.{}", encode(&signature)))
}

/// Takes any text as a token: only what the key signed is accepted.
pub fn tokens(input: &[u8]) {
    if std::str::from_utf8(input).is_ok_and(verified) {
        let known = token_seeds().iter().any(|seed| seed == input);
        assert!(known, "a forgery");
    }
}

/// Returns signed tokens.
pub fn token_seeds() -> Vec<Vec<u8>> {
    let claims = claim_seeds();
    let tokens = claims.iter().filter_map(|claims| sign_claims(claims));
    tokens.map(String::into_bytes).collect()
}

/// Takes any bytes as the claims of a token that the key signed. A signature takes
/// a millisecond, so only what looks like an object is signed.
pub fn token_claims(input: &[u8]) {
    if input.starts_with(b"{")
        && let Some(token) = sign_claims(input)
        && verified(&token)
    {
        let read: Result<serde_json::Value, _> = serde_json::from_slice(input);
        assert!(read.is_ok_and(|claims| claims["iss"] == "asyncgate"));
    }
}

/// Returns good claims.
pub fn claim_seeds() -> Vec<Vec<u8>> {
    let least = json!({
        "sub": "u", "tenant_id": "01010101-0101-0101-0101-010101010101", "principal_kind": "agent",
        "principal_id": "ann", "exp": 1_763_000_060, "iat": 1_763_000_000, "iss": "asyncgate",
        "aud": "asyncgate-api",
    });
    let mut all = least.clone();
    all["aud"] = json!(["x", "asyncgate-api"]);
    all["role"] = json!("worker");
    all["scope"] = json!("tasks:lease mailbox:recv");
    all["nbf"] = json!(1.5);
    all["jti"] = json!("j");
    [least, all]
        .map(|claims| claims.to_string().into_bytes())
        .to_vec()
}
