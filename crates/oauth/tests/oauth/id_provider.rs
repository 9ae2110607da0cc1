//! A provider of identities on loopback, which can be told to lie.

use std::sync::{Arc, Mutex};

use asyncgate_core::admission::sha256;
use asyncgate_engine::{NewSecret, fakes::START_MS};
use asyncgate_oauth::ProviderSettings;
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair},
};
use axum::{
    Router,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_STANDARD, prelude::BASE64_URL_SAFE_NO_PAD as BASE64};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::{
    browser::Answer,
    keyring::{keys, signing_key},
};

pub const CLIENT: &str = "asyncgate-at-acme";
pub const SECRET: &str = "the provider's secret: 100%";
/// The key of RFC 7515, appendix A.3.
const EC_PRIVATE: &str = "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI";
const EC_X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
const EC_Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

/// What the provider says and does.
pub struct Behaviour {
    /// Changes to the claims. A null takes one away.
    pub claims: Value,
    pub alg: &'static str,
    pub kid: &'static str,
    /// Changes to its description.
    pub metadata: Value,
    /// The keys that it publishes.
    pub published: Vec<&'static str>,
    /// True if it answers with an error.
    pub is_down: bool,
    /// True if its signatures are wrong.
    pub forges: bool,
    /// How often its description and its keys were read, and codes exchanged.
    pub reads: [usize; 3],
    /// The nonce and the challenge of the login that is under way.
    login: Option<(String, String)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            claims: json!({}),
            alg: "RS256",
            kid: "rsa",
            metadata: json!({}),
            published: vec!["rsa", "ec"],
            is_down: false,
            forges: false,
            reads: [0; 3],
            login: None,
        }
    }
}

#[derive(Clone)]
pub struct IdProvider {
    pub address: String,
    pub behaviour: Arc<Mutex<Behaviour>>,
}

impl IdProvider {
    /// Starts a provider.
    pub async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let provider = Self {
            address: format!("http://{}", listener.local_addr().unwrap()),
            behaviour: Arc::default(),
        };
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/keys", get(jwks))
            .route("/token", post(token))
            .with_state(provider.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        provider
    }

    /// Returns the settings of a server that trusts this provider.
    pub fn settings(&self, name: &str) -> ProviderSettings {
        ProviderSettings {
            name: name.to_owned(),
            discovery_url: format!("{}/.well-known/openid-configuration", self.address),
            client_id: CLIENT.to_owned(),
            client_secret: Some(NewSecret::new(SECRET.to_owned())),
            scopes: "openid email".to_owned(),
        }
    }

    pub fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        change(&mut self.behaviour.lock().unwrap());
    }

    /// Lets the person log in to whom a server has sent. Returns the state to come back with.
    pub fn accept(&self, answer: &Answer) -> String {
        let (address, params) = answer.redirect();
        assert_eq!(address, format!("{}/login", self.address));
        assert_eq!(params["response_type"], "code");
        assert_eq!(params["client_id"], CLIENT);
        assert_eq!(params["scope"], "openid email");
        assert_eq!(params["code_challenge_method"], "S256");
        let login = (params["nonce"].clone(), params["code_challenge"].clone());
        self.behave(|behaviour| behaviour.login = Some(login));
        params["state"].clone()
    }
}

async fn metadata(State(provider): State<IdProvider>) -> Response {
    let mut behaviour = provider.behaviour.lock().unwrap();
    behaviour.reads[0] += 1;
    if behaviour.is_down {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let address = &provider.address;
    let mut document = json!({
        "issuer": address,
        "authorization_endpoint": format!("{address}/login"),
        "token_endpoint": format!("{address}/token"),
        "jwks_uri": format!("{address}/keys"),
    });
    merge(&mut document, &behaviour.metadata);
    document.to_string().into_response()
}

async fn jwks(State(provider): State<IdProvider>) -> String {
    let mut behaviour = provider.behaviour.lock().unwrap();
    behaviour.reads[1] += 1;
    let published = behaviour.published.iter().map(|name| match *name {
        "ec" => json!({"kty": "EC", "crv": "P-256", "x": EC_X, "y": EC_Y, "kid": "ec"}),
        name => {
            let mut key = keys().to_jwks()["keys"][0].clone();
            key["kid"] = json!(name);
            key
        }
    });
    json!({"keys": published.collect::<Vec<_>>()}).to_string()
}

async fn token(State(provider): State<IdProvider>, headers: HeaderMap, form: String) -> Response {
    let mut behaviour = provider.behaviour.lock().unwrap();
    behaviour.reads[2] += 1;
    let form: Vec<(String, String)> = serde_urlencoded::from_str(&form).unwrap();
    let given = |name: &str| {
        let found = form.iter().find(|(given, _)| given == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let encoded = "asyncgate-at-acme:the+provider%27s+secret%3A+100%25";
    let basic = format!("Basic {}", BASE64_STANDARD.encode(encoded));
    let in_header = headers
        .get(header::AUTHORIZATION)
        .is_some_and(|line| line == basic.as_str());
    let in_form = given("client_id") == CLIENT && given("client_secret") == SECRET;
    let Some((nonce, challenge)) = behaviour.login.take() else {
        return (StatusCode::BAD_REQUEST, "the code was used").into_response();
    };
    let answered = BASE64.encode(sha256(given("code_verifier").as_bytes()));
    let is_good = given("grant_type") == "authorization_code"
        && given("code") == "good"
        && given("redirect_uri").ends_with("/oauth/callback/acme")
        && answered == challenge;
    if !is_good || !(in_header || in_form) {
        return (StatusCode::BAD_REQUEST, "a bad request").into_response();
    }
    let now = START_MS / 1_000;
    let mut claims = json!({
        "iss": provider.address, "aud": CLIENT, "sub": "248289761001", "exp": now + 300, "iat": now,
        "nonce": nonce, "email": "ada@x.example", "email_verified": true,
    });
    merge(&mut claims, &behaviour.claims);
    let id_token = signed(&behaviour, &claims);
    let answer = json!({"access_token": "x", "token_type": "Bearer", "id_token": id_token});
    answer.to_string().into_response()
}

fn signed(behaviour: &Behaviour, claims: &Value) -> String {
    let header = json!({"alg": behaviour.alg, "kid": behaviour.kid});
    let part = |json: &Value| BASE64.encode(json.to_string());
    let message = format!("{}.{}", part(&header), part(claims));
    let mut signature = match behaviour.alg {
        "none" => Vec::new(),
        "ES256" => {
            let decode = |text: &str| BASE64.decode(text).unwrap();
            let public = [vec![4], decode(EC_X), decode(EC_Y)].concat();
            let pair = EcdsaKeyPair::from_private_key_and_public_key(
                &ECDSA_P256_SHA256_FIXED_SIGNING,
                &decode(EC_PRIVATE),
                &public,
            );
            let signature = pair.unwrap().sign(&SystemRandom::new(), message.as_bytes());
            signature.unwrap().as_ref().to_vec()
        }
        _ => signing_key().sign(message.as_bytes()).unwrap(),
    };
    if behaviour.forges {
        signature[7] ^= 1;
    }
    format!("{message}.{}", BASE64.encode(signature))
}

/// Puts the members of one object into another. A null takes one away.
fn merge(object: &mut Value, changes: &Value) {
    let members = object.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        match value.is_null() {
            true => members.remove(name),
            false => members.insert(name.clone(), value.clone()),
        };
    }
}
