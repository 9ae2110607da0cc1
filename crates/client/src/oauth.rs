//! The client's side of a login: what the server says about its logins, and the exchange of a code for tokens.
//!
//! These are no operations: OAuth has forms and names of its own. None of them is sent again by itself, because a
//! code and a refresh token are good for one use.

use std::fmt;

use asyncgate_api::Secret;
use http::{HeaderValue, Method, header};
use percent_encoding::percent_encode;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Client, Error, Kind, request::ENCODED};

/// What a server says about its logins (RFC 8414).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct LoginServer {
    /// The name of the server in its answers to a login.
    pub issuer: String,
    /// The page at which a login begins.
    pub authorization_endpoint: String,
    /// The address at which programs register themselves; absent if they cannot.
    #[serde(default)]
    pub registration_endpoint: Option<String>,
}

/// The tokens of a login.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tokens {
    /// The credential.
    pub access_token: Secret,
    /// The seconds for which the credential is good.
    pub expires_in: u64,
    /// What the next tokens are had for, once.
    #[serde(default)]
    pub refresh_token: Option<Secret>,
    /// The scopes, with spaces between them.
    #[serde(default)]
    pub scope: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("expires_in", &self.expires_in)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}

/// What was sent to a program after a login, and what proves that the program began it.
#[derive(Clone)]
pub struct CodeExchange<'a> {
    /// The program.
    pub client_id: &'a str,
    /// The code.
    pub code: &'a str,
    /// The address to which the code was sent.
    pub redirect_uri: &'a str,
    /// The secret whose hash the login began with (RFC 7636).
    pub code_verifier: &'a str,
}

impl fmt::Debug for CodeExchange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CodeExchange")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

const REGISTRATION: &str = "/oauth/register";
const TOKEN: &str = "/oauth/token";
const REVOCATION: &str = "/oauth/revoke";
const METADATA: &str = "/.well-known/oauth-authorization-server";

impl Client {
    /// Reads what the server says about its logins.
    pub async fn login_server(&self) -> Result<LoginServer, Error> {
        self.ask("login_server", Method::GET, METADATA, None).await
    }

    /// Registers this program, which keeps no secret, and returns its id.
    pub async fn register_program(&self, name: &str, redirect_uri: &str) -> Result<String, Error> {
        #[derive(Deserialize)]
        struct Registered {
            client_id: String,
        }
        let metadata = serde_json::json!({
            "client_name": name,
            "redirect_uris": [redirect_uri],
            "token_endpoint_auth_method": "none",
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
        });
        let body = Sent {
            media_type: "application/json",
            text: metadata.to_string(),
        };
        let asked = self.ask("register_program", Method::POST, REGISTRATION, Some(body));
        let registered: Registered = asked.await?;
        Ok(registered.client_id)
    }

    /// Exchanges the code of a login for tokens.
    pub async fn exchange_code(&self, exchange: &CodeExchange<'_>) -> Result<Tokens, Error> {
        let body = form(&[
            ("grant_type", "authorization_code"),
            ("client_id", exchange.client_id),
            ("code", exchange.code),
            ("redirect_uri", exchange.redirect_uri),
            ("code_verifier", exchange.code_verifier),
        ]);
        self.ask("exchange_code", Method::POST, TOKEN, Some(body))
            .await
    }

    /// Exchanges a refresh token for new tokens. It is not good a second time.
    pub async fn refresh(&self, client_id: &str, refresh_token: &str) -> Result<Tokens, Error> {
        let body = form(&[
            ("grant_type", "refresh_token"),
            ("client_id", client_id),
            ("refresh_token", refresh_token),
        ]);
        self.ask("refresh", Method::POST, TOKEN, Some(body)).await
    }

    /// Ends a login: the refresh token, and every token that came of it.
    pub async fn end_login(&self, client_id: &str, refresh_token: &str) -> Result<(), Error> {
        let body = form(&[
            ("client_id", client_id),
            ("token", refresh_token),
            ("token_type_hint", "refresh_token"),
        ]);
        let request = self.asked(Method::POST, REVOCATION, Some(body))?;
        let ended = self.answered("end_login", request).await;
        ended.map(drop)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        body: Option<Sent>,
    ) -> Result<T, Error> {
        let request = self.asked(method, path, body)?;
        let answer = self.answered(what, request).await?;
        serde_json::from_slice(&answer.body).map_err(|_| {
            let message = "the answer is not one of a login; check the address";
            Error::new(Kind::Protocol, message).during(what, 1)
        })
    }

    fn asked(
        &self,
        method: Method,
        path: &str,
        body: Option<Sent>,
    ) -> Result<http::Request<crate::exchange::Body>, Error> {
        let media_type = body.as_ref().map(|body| body.media_type);
        let mut request = self.write(method, path, body.map(|body| body.text.into()))?;
        let headers = request.headers_mut();
        // A login is how one gets a credential, so none is shown.
        headers.remove(header::AUTHORIZATION);
        if let Some(media_type) = media_type {
            let media_type = HeaderValue::from_static(media_type);
            headers.insert(header::CONTENT_TYPE, media_type);
        }
        Ok(request)
    }
}

/// A body, and the sort of it.
struct Sent {
    media_type: &'static str,
    text: String,
}

fn form(fields: &[(&str, &str)]) -> Sent {
    let fields = fields.iter().map(|(name, value)| {
        let value = percent_encode(value.as_bytes(), ENCODED);
        format!("{name}={value}")
    });
    Sent {
        media_type: "application/x-www-form-urlencoded",
        text: fields.collect::<Vec<_>>().join("&"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_keeps_what_is_in_it() {
        let body = form(&[("a", "x y&z=1"), ("b", "https://h/?q#")]);
        assert_eq!(body.text, "a=x%20y%26z%3D1&b=https%3A%2F%2Fh%2F%3Fq%23");
    }

    #[test]
    fn tokens_do_not_show() {
        let tokens: Tokens = serde_json::from_str(
            r#"{"access_token": "aaa", "token_type": "Bearer", "expires_in": 5, "refresh_token": "rrr", "scope": "tasks:read"}"#,
        )
        .unwrap();
        let shown = format!("{tokens:?}");
        assert!(!shown.contains("aaa") && !shown.contains("rrr"), "{shown}");
    }
}
