//! What browsers, clients and providers of OAuth send.

use asyncgate_core::{
    RecordId, Timestamp,
    identity::{
        DEFAULT_TENANT, OauthClient, Scope, Scopes,
        oauth::{Params, check, check_redirect, is_challenge, is_loopback, origin, resource},
    },
};
use asyncgate_credentials::oidc::{self, ProviderKeys, verify};
use serde_json::json;

use crate::credentials::{jwks, sign_claims};

const NOW_MS: i64 = 1_763_000_000_000;
const OWN: &str = "https://gate.example";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

fn client() -> OauthClient {
    OauthClient {
        id: RecordId::from_bytes([7; 16]),
        tenant: DEFAULT_TENANT,
        name: "a client".to_owned(),
        redirect_uris: vec!["https://a.example/cb".to_owned()],
        scopes: Scopes::of(&[Scope::TasksRead]),
        secret_hash: None,
        created_at: Timestamp::from_millis(NOW_MS),
        expires_at: None,
        document: None,
    }
}

/// Takes any lines `name=value` as an authorization request: one that is taken goes to an address that the client
/// registered, asks for nothing else than the client may, and has a challenge.
pub fn requests(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let pairs = text.lines().filter_map(|line| line.split_once('='));
    let params: Params = pairs
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let client = client();
    if let Ok(request) = check(&client, &params, OWN) {
        assert!(client.redirect_uris.contains(&request.redirect_uri));
        assert!(request.scopes == client.scopes, "{:?}", request.scopes);
        assert!(is_challenge(&request.code_challenge));
        let asked = request.resource.as_deref();
        assert!(asked.is_none_or(|asked| asked.starts_with(OWN)));
    }
}

/// Returns good requests.
pub fn request_seeds() -> Vec<Vec<u8>> {
    let least = format!(
        "response_type=code\nredirect_uri=https://a.example/cb\ncode_challenge={CHALLENGE}\n\
         code_challenge_method=S256"
    );
    let all = format!("{least}\nstate=s\nscope=tasks:read,tasks:read\nresource={OWN}/mcp");
    [least, all].map(String::into_bytes).to_vec()
}

/// Takes any text as an address: one that is accepted is plain, and goes over TLS or to the own machine.
pub fn addresses(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    // It must not matter whether a text is an address.
    let (from, local) = (origin(text), is_loopback(text));
    assert!(text.starts_with(from));
    let _ = resource(OWN, Some(text));
    if check_redirect(text).is_ok() {
        assert!(text.starts_with("https://") || local, "{text}");
        assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
        assert!(!text.contains(['#', '\\', '"', '<', '>']), "{text}");
        assert!(!from.contains('@'), "{text}");
    }
}

/// Returns addresses of every sort.
pub fn address_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "https://a.example/cb?x=1",
        "http://127.0.0.1:5000/cb",
        "http://[::1]:9/",
        "http://localhost",
        "https://u@a.example/",
        "https://gate.example/mcp",
    ];
    texts.map(|text| text.as_bytes().to_vec()).to_vec()
}

fn subject(token: &str) -> Option<oidc::Subject> {
    let keys = ProviderKeys::from_json(jwks().to_string().as_bytes()).ok()?;
    let expected = oidc::Expected {
        issuer: "https://id.example",
        client_id: "gate",
        nonce: "n",
        now: Timestamp::from_millis(NOW_MS),
        leeway_secs: 60,
    };
    verify(&keys, token, &expected).ok()
}

/// Takes any text as what a provider says of a person: only what the provider signed is believed.
pub fn id_tokens(input: &[u8]) {
    if std::str::from_utf8(input).is_ok_and(|token| subject(token).is_some()) {
        let known = id_token_seeds().iter().any(|seed| seed == input);
        assert!(known, "a forgery");
    }
}

/// Returns what a provider signed.
pub fn id_token_seeds() -> Vec<Vec<u8>> {
    let claims = json!({
        "iss": "https://id.example", "aud": "gate", "sub": "ada", "exp": 1_763_000_300,
        "iat": 1_763_000_000, "nonce": "n", "email": "ada@x.example", "email_verified": true,
    });
    let token = sign_claims(claims.to_string().as_bytes());
    token.map(String::into_bytes).into_iter().collect()
}

/// Takes any bytes as the keys of a provider: nothing that it did not sign is believed.
pub fn provider_keys(input: &[u8]) {
    let Ok(keys) = ProviderKeys::from_json(input) else {
        return;
    };
    let expected = oidc::Expected {
        issuer: "https://id.example",
        client_id: "gate",
        nonce: "n",
        now: Timestamp::from_millis(NOW_MS),
        leeway_secs: 60,
    };
    // A header that names no key, and a signature of nothing.
    for header in ["eyJhbGciOiJSUzI1NiJ9", "eyJhbGciOiJFUzI1NiJ9"] {
        let token = format!("{header}.e30.AAAA");
        assert!(verify(&keys, &token, &expected).is_err());
    }
}

/// Returns the keys of a provider.
pub fn key_seeds() -> Vec<Vec<u8>> {
    let mut keys = jwks();
    let ec = json!({
        "kty": "EC", "crv": "P-256", "kid": "ec", "use": "sig",
        "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
    });
    if let Some(list) = keys["keys"].as_array_mut() {
        list.push(ec);
    }
    vec![keys.to_string().into_bytes()]
}
