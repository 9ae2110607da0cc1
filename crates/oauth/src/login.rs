//! `POST /oauth/login`: a person shows a password that is kept here.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::identity::oauth::{LoginRefusal, Params, Refusal};
use asyncgate_engine::{Fault, NewSecret, oauth::PasswordRefusal};
use axum::{
    body::Body,
    http::{HeaderMap, Response, StatusCode, header},
};

use crate::{
    app::{App, Asked, client_address, error_address, go_to},
    callback::gone,
    cookie, form,
    pending::{Kept, Pending},
};

/// Checks a password, and sends the person back to the client.
pub(crate) async fn log_in(
    app: Arc<App>,
    asked: Asked,
    body: Body,
) -> Result<Response<Body>, Fault> {
    let headers = &asked.parts.headers;
    let params = form::form(app.oauth.engine(), headers, body).await?;
    let pending = app.form_login(headers, &params)?;
    if !app.oauth.settings().local_login {
        return gone(&pending, StatusCode::SEE_OTHER);
    }
    // A name that is left out is as wrong as any other.
    let name = params.get("username")?.unwrap_or_default();
    let password = params.get("password")?.unwrap_or_default().to_owned();
    let password = NewSecret::new(password);
    let request = &pending.request;
    let tried = app.oauth.log_in_with_password(request, name, password);
    let outcome = match tried.await {
        Err(fault) if fault.code == Code::RateLimit => return app.try_later(&pending, fault).await,
        outcome => outcome?,
    };
    match outcome {
        Ok(code) => {
            let address = client_address(&pending.base, request, &[("code", code.reveal())]);
            leave(&pending, StatusCode::SEE_OTHER, &address)
        }
        Err(PasswordRefusal::Wrong) => {
            let trouble = "The name or the password is wrong.";
            app.login_page_again(StatusCode::FORBIDDEN, &pending, trouble)
                .await
        }
        Err(PasswordRefusal::Login(refusal)) => refused(&pending, StatusCode::SEE_OTHER, refusal),
    }
}

impl App {
    /// Returns the login that a form is about, if it began in this browser.
    pub(crate) fn form_login(
        &self,
        headers: &HeaderMap,
        params: &Params,
    ) -> Result<Pending, Fault> {
        let lost = || Refusal::request("this login has ended or began elsewhere; begin again");
        let sealed = params.need("login", "login is missing")?;
        let pending = Pending::open(&self.oauth, Kept::Form, sealed)?.ok_or_else(lost)?;
        let shown = cookie::read(headers, &pending.id);
        match shown == Some(pending.id.as_str()) {
            true => Ok(pending),
            false => Err(lost().into()),
        }
    }

    async fn login_page_again(
        &self,
        status: StatusCode,
        pending: &Pending,
        trouble: &str,
    ) -> Result<Response<Body>, Fault> {
        let client = self.oauth.client(pending.request.client).await?;
        let gone = || Refusal::request("client_id names no client");
        let client = client.ok_or_else(gone)?;
        self.login_page(status, pending, &client, Some(trouble))
    }

    async fn try_later(&self, pending: &Pending, fault: Fault) -> Result<Response<Body>, Fault> {
        let trouble = "There were too many wrong passwords. Wait a minute, then try again.";
        let status = StatusCode::TOO_MANY_REQUESTS;
        let mut page = self.login_page_again(status, pending, trouble).await?;
        if let Some(seconds) = fault.retry_after_seconds {
            page.headers_mut()
                .insert(header::RETRY_AFTER, seconds.into());
        }
        Ok(page)
    }
}

/// Ends a login in which nobody was let in.
pub(crate) fn refused(
    pending: &Pending,
    status: StatusCode,
    refusal: LoginRefusal,
) -> Result<Response<Body>, Fault> {
    let request = &pending.request;
    let Some(code) = refusal.code() else {
        return Err(Refusal::request("client_id names no client").into());
    };
    let state = request.state.as_deref();
    let description = "this person may not enter";
    let address = error_address(
        &pending.base,
        &request.redirect_uri,
        state,
        code,
        description,
    );
    leave(pending, status, &address)
}

/// Sends the browser to the client, and lets it forget the login.
pub(crate) fn leave(
    pending: &Pending,
    status: StatusCode,
    address: &str,
) -> Result<Response<Body>, Fault> {
    let mut response = go_to(status, address)?;
    cookie::clear(response.headers_mut(), &pending.id, pending.is_secure());
    Ok(response)
}
