//! `GET /oauth/callback/{provider}`: a person comes back from a provider.

use std::sync::Arc;

use asyncgate_core::identity::oauth::{ErrorCode, Params, Refusal};
use asyncgate_engine::{Fault, oauth::Identified};
use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use crate::{
    app::{App, Asked, client_address, error_address, with_query},
    cookie, form,
    login::{leave, refused},
    pending::{Kept, Pending, Sent},
    provider::{Failed, Provider, challenge},
};

/// The largest cookie that all browsers keep, less its name and attributes.
const MAX_COOKIE_BYTES: usize = 3_900;

/// Finds out who came back, and sends the person on to the client.
pub(crate) async fn callback(
    app: Arc<App>,
    asked: Asked,
    _: Body,
) -> Result<Response<Body>, Fault> {
    let params = form::query(&asked.parts.uri)?;
    let (pending, sent) = app.returned(&asked, &params)?;
    let Some(provider) = app.providers.of(&sent) else {
        return gone(&pending, StatusCode::FOUND);
    };
    let identified = app.identify(provider, &pending, &sent, &params).await;
    let who = match identified {
        Ok(who) => who,
        Err(failed) => {
            tracing::warn!(
                event = "login.failed",
                provider = sent.provider,
                cause = %failed,
            );
            return fail(&pending, failed.code(), failed.description());
        }
    };
    match app.oauth.log_in(&pending.request, &who).await? {
        Ok(code) => {
            let answer = [("code", code.reveal())];
            let address = client_address(&pending.base, &pending.request, &answer);
            leave(&pending, StatusCode::FOUND, &address)
        }
        Err(refusal) => refused(&pending, StatusCode::FOUND, refusal),
    }
}

impl App {
    /// Sends the browser to a provider, with all that is needed when it comes back.
    pub(crate) async fn send_to_provider(
        &self,
        mut pending: Pending,
        name: &str,
        status: StatusCode,
    ) -> Result<Response<Body>, Fault> {
        let Some(provider) = self.providers.get(name) else {
            return gone(&pending, status);
        };
        let metadata = match self.providers.metadata(provider, self.oauth.now()).await {
            Ok(metadata) => metadata,
            Err(failed) => {
                tracing::warn!(event = "login.failed", provider = name, cause = %failed);
                return fail(&pending, failed.code(), failed.description());
            }
        };
        let sent = Sent {
            provider: name.to_owned(),
            fingerprint: provider.fingerprint(),
            nonce: self.oauth.draw()?,
            verifier: self.oauth.draw()?,
        };
        let address = with_query(
            &metadata.authorization_endpoint,
            &[
                ("response_type", "code"),
                ("client_id", &provider.settings.client_id),
                ("redirect_uri", &callback_address(&pending, name)),
                ("scope", &provider.settings.scopes),
                ("state", &pending.id),
                ("nonce", &sent.nonce),
                ("code_challenge", &challenge(&sent.verifier)),
                ("code_challenge_method", "S256"),
            ],
        );
        pending.sent = Some(sent);
        let sealed = pending.seal(&self.oauth, Kept::Cookie)?;
        if sealed.len() > MAX_COOKIE_BYTES {
            return fail(
                &pending,
                ErrorCode::InvalidRequest,
                "the request is too long",
            );
        }
        let mut response = leave(&pending, status, &address)?;
        let headers = response.headers_mut();
        headers.remove(axum::http::header::SET_COOKIE);
        cookie::set(headers, &pending.id, &sealed, pending.is_secure());
        Ok(response)
    }

    /// Returns the login that a browser comes back with, if it began in this browser and at this provider.
    fn returned(&self, asked: &Asked, params: &Params) -> Result<(Pending, Sent), Fault> {
        let state = params.need("state", "state is missing")?;
        let sealed = cookie::read(&asked.parts.headers, state).ok_or_else(lost)?;
        let pending = Pending::open(&self.oauth, Kept::Cookie, sealed)?.ok_or_else(lost)?;
        let sent = pending.sent.clone().ok_or_else(lost)?;
        let path = asked.parts.uri.path();
        let is_here = path.rsplit('/').next() == Some(&encoded(&sent.provider));
        match pending.id == state && is_here {
            true => Ok((pending, sent)),
            false => Err(lost().into()),
        }
    }

    /// Finds out who the person is.
    async fn identify(
        &self,
        provider: &Provider,
        pending: &Pending,
        sent: &Sent,
        params: &Params,
    ) -> Result<Identified, Failed> {
        let now = self.oauth.now();
        let metadata = self.providers.metadata(provider, now).await?;
        let given = |name| {
            params
                .get(name)
                .map_err(|_| Failed::Answer("it is ambiguous"))
        };
        // An answer of another provider than the one that was asked is a trick (RFC 9207).
        match given("iss")? {
            Some(issuer) if issuer != metadata.issuer => {
                return Err(Failed::Answer("it comes from another issuer"));
            }
            None if metadata.names_itself => return Err(Failed::Answer("it has no issuer")),
            Some(_) | None => {}
        }
        if given("error")?.is_some() {
            return Err(Failed::Denied);
        }
        let code = given("code")?.ok_or(Failed::Answer("it has no code"))?;
        let redirect_uri = callback_address(pending, &sent.provider);
        let identified = self
            .providers
            .identify(provider, code, sent, &redirect_uri, now)
            .await?;
        Ok(Identified {
            provider: sent.provider.clone(),
            subject: identified.subject,
            verified_email: identified.verified_email,
        })
    }
}

fn callback_address(pending: &Pending, provider: &str) -> String {
    format!("{}/oauth/callback/{}", pending.base, encoded(provider))
}

fn encoded(name: &str) -> String {
    percent_encoding::utf8_percent_encode(name, percent_encoding::NON_ALPHANUMERIC).to_string()
}

fn lost() -> Refusal {
    Refusal::request("this login has ended or began elsewhere; begin again")
}

/// Ends a login in a way that the settings do not have any more.
pub(crate) fn gone(pending: &Pending, status: StatusCode) -> Result<Response<Body>, Fault> {
    let description = "this way to log in is not there any more; begin again";
    fail_with(pending, status, ErrorCode::AccessDenied, description)
}

/// Ends a login that went wrong.
fn fail(pending: &Pending, code: ErrorCode, description: &str) -> Result<Response<Body>, Fault> {
    fail_with(pending, StatusCode::FOUND, code, description)
}

fn fail_with(
    pending: &Pending,
    status: StatusCode,
    code: ErrorCode,
    description: &str,
) -> Result<Response<Body>, Fault> {
    let request = &pending.request;
    let state = request.state.as_deref();
    let address = error_address(
        &pending.base,
        &request.redirect_uri,
        state,
        code,
        description,
    );
    leave(pending, status, &address)
}
