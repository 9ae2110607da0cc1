//! A login that is under way. The browser keeps it, sealed, so that nothing is stored for those who never finish.

use asyncgate_core::{
    RecordId, Timestamp,
    identity::{Scope, Scopes, oauth::AuthorizationRequest},
};
use asyncgate_engine::{Fault, oauth::Oauth};
use serde::{Deserialize, Serialize};

use crate::cookie;

/// A login that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pending {
    /// Its id. Only the browser in which it began knows it.
    pub(crate) id: String,
    /// The address of this server, as the browser knows it.
    pub(crate) base: String,
    /// What the client asks for.
    pub(crate) request: AuthorizationRequest,
    /// The provider that the person was sent to, and what was told to it.
    pub(crate) sent: Option<Sent>,
    /// The time after which it is given up.
    pub(crate) ends_at: Timestamp,
}

/// What a provider was told of a login.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sent {
    /// The provider.
    pub(crate) provider: String,
    /// The fingerprint of the provider, which may be gone from the settings when the person comes back.
    pub(crate) fingerprint: String,
    /// The number that its statement about the person must have.
    pub(crate) nonce: String,
    /// The verifier that goes with the provider's code.
    pub(crate) verifier: String,
}

/// Where a sealed login is kept. One that is kept in one place is not taken from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// In the cookie, while the person is at a provider.
    Cookie,
    /// In a form of ours.
    Form,
}

impl Kept {
    const fn purpose(self) -> &'static str {
        match self {
            Self::Cookie => "cookie",
            Self::Form => "form",
        }
    }
}

impl Pending {
    /// Begins a login.
    pub(crate) fn begin(
        oauth: &Oauth,
        base: &str,
        request: AuthorizationRequest,
    ) -> Result<Self, Fault> {
        Ok(Self {
            id: oauth.draw()?,
            base: base.to_owned(),
            request,
            sent: None,
            ends_at: oauth.now().plus_millis(cookie::LIFE_SECS * 1_000),
        })
    }

    /// Returns true if the browser reaches this server by TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.base.starts_with("https://")
    }

    /// Writes it down so that nobody can change it.
    pub(crate) fn seal(&self, oauth: &Oauth, kept: Kept) -> Result<String, Fault> {
        let text = serde_json::to_string(&Written::from(self)).unwrap_or_default();
        oauth.seal(kept.purpose(), &text)
    }

    /// Reads it back. What was changed, is kept elsewhere or has taken too long is none.
    pub(crate) fn open(oauth: &Oauth, kept: Kept, sealed: &str) -> Result<Option<Self>, Fault> {
        let Some(text) = oauth.open(kept.purpose(), sealed)? else {
            return Ok(None);
        };
        let written: Option<Written> = serde_json::from_str(&text).ok();
        let pending = written.and_then(Written::read);
        Ok(pending.filter(|pending| oauth.now() < pending.ends_at))
    }
}

/// The form in which a login is written down. Names are short because cookies are small.
#[derive(Serialize, Deserialize)]
struct Written {
    #[serde(rename = "i")]
    id: String,
    #[serde(rename = "b")]
    base: String,
    #[serde(rename = "c")]
    client: String,
    #[serde(rename = "u")]
    redirect_uri: String,
    #[serde(rename = "s")]
    state: Option<String>,
    #[serde(rename = "h")]
    code_challenge: String,
    #[serde(rename = "o")]
    scopes: String,
    #[serde(rename = "r")]
    resource: Option<String>,
    #[serde(rename = "p")]
    sent: Option<Sent>,
    #[serde(rename = "e")]
    ends_at: i64,
}

impl From<&Pending> for Written {
    fn from(pending: &Pending) -> Self {
        let request = &pending.request;
        Self {
            id: pending.id.clone(),
            base: pending.base.clone(),
            client: request.client.to_string(),
            redirect_uri: request.redirect_uri.clone(),
            state: request.state.clone(),
            code_challenge: request.code_challenge.clone(),
            scopes: request.scopes.to_string(),
            resource: request.resource.clone(),
            sent: pending.sent.clone(),
            ends_at: pending.ends_at.as_millis(),
        }
    }
}

impl Written {
    fn read(self) -> Option<Pending> {
        let client: RecordId = self.client.parse().ok()?;
        let names = self.scopes.split_ascii_whitespace();
        let scopes: Option<Scopes> = names.map(|name| name.parse::<Scope>().ok()).collect();
        Some(Pending {
            id: self.id,
            base: self.base,
            request: AuthorizationRequest {
                client,
                redirect_uri: self.redirect_uri,
                state: self.state,
                code_challenge: self.code_challenge,
                scopes: scopes?,
                resource: self.resource,
            },
            sent: self.sent,
            ends_at: Timestamp::from_millis(self.ends_at),
        })
    }
}
