//! What a client says about itself, when it registers itself (RFC 7591) or in a document.

use asyncgate_core::identity::{Scope, Scopes, oauth::STRANGER_SCOPES};
use asyncgate_engine::oauth::Registration;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The name of a client that has none.
const NAMELESS: &str = "a program without a name";

/// What a client says about itself. The standard wants whatever else it says to be ignored.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    pub(crate) client_id: Option<String>,
    #[serde(default)]
    redirect_uris: Vec<String>,
    client_name: Option<String>,
    scope: Option<String>,
    pub(crate) token_endpoint_auth_method: Option<String>,
    grant_types: Option<Vec<String>>,
    response_types: Option<Vec<String>>,
    client_secret: Option<IgnoredAny>,
    client_secret_expires_at: Option<IgnoredAny>,
}

impl Metadata {
    /// Returns true if it has a secret, or says when one ends.
    pub(crate) const fn has_secret(&self) -> bool {
        self.client_secret.is_some() || self.client_secret_expires_at.is_some()
    }

    /// Refuses a client that wants what is not to be had here.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let has = |list: &Option<Vec<String>>, name: &str| match list {
            Some(list) => list.iter().any(|entry| entry == name),
            None => true,
        };
        if !has(&self.grant_types, "authorization_code") {
            return Err("grant_types must have authorization_code");
        }
        if !has(&self.response_types, "code") {
            return Err("response_types must have code");
        }
        Ok(())
    }

    /// Returns what is to be registered. Scopes that such a client cannot have are left out.
    pub(crate) fn registration(self, confidential: bool) -> Registration {
        Registration {
            name: self.client_name.unwrap_or_else(|| NAMELESS.to_owned()),
            redirect_uris: self.redirect_uris,
            scopes: self.scope.as_deref().map(scopes),
            confidential,
        }
    }
}

fn scopes(text: &str) -> Scopes {
    let names = text.split([' ', ',']);
    let known: Scopes = names
        .filter_map(|name| name.parse::<Scope>().ok())
        .collect();
    known.and(STRANGER_SCOPES)
}
