//! Providers of identities (OpenID Connect): where people log in, and what is said about them then.
//!
//! Invariants: only addresses of the settings, and those that a provider publishes about itself, are ever called; every
//! call is bounded in time and size; what a provider answers reaches neither the log nor a client.

mod discovery;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use asyncgate_core::{Timestamp, admission::sha256, identity::oauth::ErrorCode};
use asyncgate_credentials::oidc::{self, Expected, ProviderKeys, Subject};
use asyncgate_engine::NewSecret;
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;
use tokio::sync::Mutex;

use crate::{
    fetch::{self, Bounds, Fetcher, Lookup},
    pending::Sent,
};
pub(crate) use discovery::Metadata;

/// The bounds of calls. Operators name the addresses, or providers that operators trust.
const BOUNDS: Bounds = Bounds {
    patience: Duration::from_secs(10),
    max_bytes: 512 << 10,
    reach: None,
};
/// How long a provider's description of itself counts.
const METADATA_LIFE_MS: i64 = 3_600_000;
/// How long a provider's keys count.
const KEYS_LIFE_MS: i64 = 3_600_000;
/// How long nobody asks again after a failure, or for a key that a provider does not have.
const PAUSE_MS: i64 = 5_000;
/// How much the clocks of provider and server may differ.
const LEEWAY_SECS: u32 = 60;

/// A provider, as the settings have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderSettings {
    /// Its name here.
    pub name: String,
    /// The address of its description.
    pub discovery_url: String,
    /// The name under which it knows this server.
    pub client_id: String,
    /// The secret that it gave this server, if it did.
    pub client_secret: Option<NewSecret>,
    /// What is asked of it.
    pub scopes: String,
}

/// The reason why a login at a provider failed. It is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failed {
    /// The provider, or the person there, said no.
    #[error("the provider let nobody in")]
    Denied,
    /// The browser came back with something else than an answer of the provider.
    #[error("the answer cannot be used: {0}")]
    Answer(&'static str),
    /// The provider cannot be reached, or does not work as it should.
    #[error("the provider does not work: {0}")]
    Provider(String),
    /// The statement about the person is not good.
    #[error(transparent)]
    Token(#[from] oidc::Refusal),
}

impl From<fetch::Failed> for Failed {
    fn from(failed: fetch::Failed) -> Self {
        Self::Provider(failed.to_string())
    }
}

impl Failed {
    /// Returns the error that the client is told.
    pub(crate) const fn code(&self) -> ErrorCode {
        match self {
            Self::Denied | Self::Answer(_) | Self::Token(_) => ErrorCode::AccessDenied,
            Self::Provider(_) => ErrorCode::TemporarilyUnavailable,
        }
    }

    /// Returns what the client is told.
    pub(crate) const fn description(&self) -> &'static str {
        match self {
            Self::Denied => "the provider let nobody in",
            Self::Answer(_) | Self::Token(_) => "the login could not be verified",
            Self::Provider(_) => "the provider of identities does not answer as it should",
        }
    }
}

/// A provider.
pub(crate) struct Provider {
    pub(crate) settings: ProviderSettings,
    /// Held while it is asked, so that many logins ask once.
    known: Mutex<Known>,
}

impl Provider {
    /// Returns a short text by which it is told from another one that the settings give the same name later: nothing
    /// that was meant for the one is sent to the other.
    pub(crate) fn fingerprint(&self) -> String {
        let parts = [&self.settings.discovery_url, &self.settings.client_id];
        let text = parts.map(String::as_str).join("\n");
        BASE64_URL_SAFE_NO_PAD.encode(&sha256(text.as_bytes())[..9])
    }
}

/// What is known of a provider.
#[derive(Default)]
struct Known {
    metadata: Option<(Arc<Metadata>, Timestamp)>,
    keys: Option<(Arc<ProviderKeys>, Timestamp)>,
    failed: Option<(Failed, Timestamp)>,
}

/// All providers.
pub(crate) struct Providers {
    all: BTreeMap<String, Arc<Provider>>,
    fetcher: Arc<Fetcher>,
}

/// The part of a provider's answer that matters.
#[derive(Deserialize)]
struct TokenAnswer {
    id_token: String,
}

impl Providers {
    pub(crate) fn new(settings: Vec<ProviderSettings>) -> Self {
        let none = Self {
            all: BTreeMap::new(),
            fetcher: Arc::new(Fetcher::new(BOUNDS, Lookup::default())),
        };
        none.with_settings(settings)
    }

    /// Returns the providers of other settings. What is known of those that stay is kept.
    pub(crate) fn with_settings(&self, settings: Vec<ProviderSettings>) -> Self {
        let all = settings.into_iter().map(|settings| {
            let known = self.all.get(&settings.name);
            let same = known.filter(|known| known.settings == settings);
            let name = settings.name.clone();
            let provider = same.cloned().unwrap_or_else(|| {
                Arc::new(Provider {
                    known: Mutex::default(),
                    settings,
                })
            });
            (name, provider)
        });
        Self {
            all: all.collect(),
            fetcher: Arc::clone(&self.fetcher),
        }
    }

    /// Returns the names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Provider> {
        self.all.get(name).map(Arc::as_ref)
    }

    /// Returns the provider that a browser was sent to, if the settings still have it.
    pub(crate) fn of(&self, sent: &Sent) -> Option<&Provider> {
        let provider = self.get(&sent.provider);
        provider.filter(|provider| provider.fingerprint() == sent.fingerprint)
    }

    /// Returns a provider's description of itself. It is fetched at first use, and again from time to time.
    pub(crate) async fn metadata(
        &self,
        provider: &Provider,
        now: Timestamp,
    ) -> Result<Arc<Metadata>, Failed> {
        let mut known = provider.known.lock().await;
        self.fresh_metadata(provider, &mut known, now).await
    }

    async fn fresh_metadata(
        &self,
        provider: &Provider,
        known: &mut Known,
        now: Timestamp,
    ) -> Result<Arc<Metadata>, Failed> {
        if let Some((metadata, at)) = &known.metadata
            && now.millis_since(*at) < METADATA_LIFE_MS
        {
            return Ok(Arc::clone(metadata));
        }
        if let Some((failed, at)) = &known.failed
            && now.millis_since(*at) < PAUSE_MS
        {
            return Err(failed.clone());
        }
        let address = &provider.settings.discovery_url;
        let fetched = self.fetcher.get(address).await.map_err(Failed::from);
        match fetched.and_then(|text| Metadata::read(address, &text)) {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                known.metadata = Some((Arc::clone(&metadata), now));
                Ok(metadata)
            }
            // What was true an hour ago is better than nothing.
            Err(failed) => match &known.metadata {
                Some((metadata, _)) => Ok(Arc::clone(metadata)),
                None => {
                    known.failed = Some((failed.clone(), now));
                    Err(failed)
                }
            },
        }
    }

    /// Returns a provider's keys; those that were published since, if `renew` says so.
    async fn keys(
        &self,
        provider: &Provider,
        renew: bool,
        now: Timestamp,
    ) -> Result<Arc<ProviderKeys>, Failed> {
        let mut known = provider.known.lock().await;
        let life = if renew { PAUSE_MS } else { KEYS_LIFE_MS };
        if let Some((keys, at)) = &known.keys
            && now.millis_since(*at) < life
        {
            return Ok(Arc::clone(keys));
        }
        let metadata = self.fresh_metadata(provider, &mut known, now).await?;
        let text = self.fetcher.get(&metadata.jwks_uri).await?;
        let keys =
            ProviderKeys::from_json(&text).map_err(|bad| Failed::Provider(bad.to_string()))?;
        let keys = Arc::new(keys);
        known.keys = Some((Arc::clone(&keys), now));
        Ok(keys)
    }

    /// Exchanges a provider's code for its statement about the person, and verifies that.
    pub(crate) async fn identify(
        &self,
        provider: &Provider,
        code: &str,
        sent: &Sent,
        redirect_uri: &str,
        now: Timestamp,
    ) -> Result<Subject, Failed> {
        let metadata = self.metadata(provider, now).await?;
        let settings = &provider.settings;
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", &sent.verifier),
        ];
        let secret = settings.client_secret.as_ref().map(NewSecret::reveal);
        let basic = secret.filter(|_| !metadata.secret_in_form);
        let authorization = basic.map(|secret| basic_authorization(&settings.client_id, secret));
        if authorization.is_none() {
            form.push(("client_id", &settings.client_id));
            form.extend(secret.map(|secret| ("client_secret", secret)));
        }
        let text = self
            .fetcher
            .post(&metadata.token_endpoint, &form, authorization.as_deref())
            .await?;
        let answer: TokenAnswer = serde_json::from_slice(&text)
            .map_err(|_| Failed::Provider("its answer has no ID token".to_owned()))?;
        let expected = Expected {
            issuer: &metadata.issuer,
            client_id: &settings.client_id,
            nonce: &sent.nonce,
            now,
            leeway_secs: LEEWAY_SECS,
        };
        let keys = self.keys(provider, false, now).await?;
        match oidc::verify(&keys, &answer.id_token, &expected) {
            // It may have begun to sign with another key.
            Err(oidc::Refusal::UnknownKey) => {
                let keys = self.keys(provider, true, now).await?;
                Ok(oidc::verify(&keys, &answer.id_token, &expected)?)
            }
            outcome => Ok(outcome?),
        }
    }
}

/// Returns the challenge of a verifier (RFC 7636, S256).
pub(crate) fn challenge(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(sha256(verifier.as_bytes()))
}

/// Returns the header by which this server shows itself. Both parts are encoded as in a form (RFC 6749, section 2.3.1).
fn basic_authorization(id: &str, secret: &str) -> String {
    let encode = |text: &str| {
        let pair = serde_urlencoded::to_string([("", text)]).unwrap_or_default();
        pair.trim_start_matches('=').to_owned()
    };
    let joined = format!("{}:{}", encode(id), encode(secret));
    format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(joined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        assert_eq!(
            challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }

    #[test]
    fn secrets_are_encoded_before_they_are_joined() {
        // "a%3Ab:c%2Bd" in base64.
        assert_eq!(basic_authorization("a:b", "c+d"), "Basic YSUzQWI6YyUyQmQ=");
        assert_eq!(basic_authorization("a", "=b"), "Basic YTolM0Ri");
    }
}
