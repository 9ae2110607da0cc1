//! `POST /oauth/consent`: a person agrees that a client goes on which nobody has looked at.

use std::sync::Arc;

use asyncgate_core::identity::{
    manage::people::LOCAL,
    oauth::{ErrorCode, Refusal},
};
use asyncgate_engine::Fault;
use axum::{
    body::Body,
    http::{Response, StatusCode},
};

use crate::{
    app::{App, Asked, error_address},
    form,
    login::leave,
    pending::Pending,
};

/// Goes on with a login, or ends it.
pub(crate) async fn consent(
    app: Arc<App>,
    asked: Asked,
    body: Body,
) -> Result<Response<Body>, Fault> {
    let headers = &asked.parts.headers;
    let params = form::form(app.oauth.engine(), headers, body).await?;
    let pending = app.form_login(headers, &params)?;
    if params.get("deny")?.is_some() {
        return deny(&pending);
    }
    let provider = params.need("provider", "provider is missing")?;
    if provider == LOCAL && app.oauth.settings().local_login {
        let client = app.oauth.client(pending.request.client).await?;
        let gone = || Refusal::request("client_id names no client");
        let client = client.ok_or_else(gone)?;
        return app.login_page(StatusCode::OK, &pending, &client, None);
    }
    app.send_to_provider(pending, provider, StatusCode::SEE_OTHER)
        .await
}

fn deny(pending: &Pending) -> Result<Response<Body>, Fault> {
    let request = &pending.request;
    let address = error_address(
        &pending.base,
        &request.redirect_uri,
        request.state.as_deref(),
        ErrorCode::AccessDenied,
        "the person did not agree",
    );
    leave(pending, StatusCode::SEE_OTHER, &address)
}
