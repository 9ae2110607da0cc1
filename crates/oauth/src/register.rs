//! `POST /oauth/register`: a client registers itself (RFC 7591).

use std::sync::Arc;

use asyncgate_core::identity::oauth::ErrorCode;
use asyncgate_edge::json_response;
use asyncgate_engine::{
    Fault,
    oauth::{Registered, oauth_fault},
};
use axum::{
    body::Body,
    http::{Response, StatusCode},
};
use serde_json::{Value, json};

use crate::{
    app::{App, Asked, no_route},
    form,
    metadata::Metadata,
};

/// Registers a client.
pub(crate) async fn register(
    app: Arc<App>,
    asked: Asked,
    body: Body,
) -> Result<Response<Body>, Fault> {
    if !app.oauth.settings().dynamic_registration {
        return Err(no_route());
    }
    let body = form::read(app.oauth.engine(), &asked.parts.headers, body).await?;
    let metadata: Metadata = serde_json::from_slice(&body)
        .map_err(|_| bad("the body must be a JSON object of client metadata"))?;
    let method = auth_method(metadata.token_endpoint_auth_method.as_deref())?;
    metadata.check().map_err(bad)?;
    let wish = metadata.registration(method != "none");
    let registered = app.oauth.register(wish).await?;
    let body = told(&registered, method).to_string();
    Ok(json_response(StatusCode::CREATED, body))
}

/// Returns how the client will show itself. The standard's default is a secret in a header.
fn auth_method(wished: Option<&str>) -> Result<&'static str, Fault> {
    match wished {
        None | Some("client_secret_basic") => Ok("client_secret_basic"),
        Some("client_secret_post") => Ok("client_secret_post"),
        Some("none") => Ok("none"),
        Some(_) => Err(bad(
            "token_endpoint_auth_method must be none, client_secret_basic or client_secret_post",
        )),
    }
}

fn told(registered: &Registered, method: &str) -> Value {
    let client = &registered.client;
    let issued_at = client.created_at.as_millis().div_euclid(1_000);
    let mut body = json!({
        "client_id": client.id.to_string(),
        "client_id_issued_at": issued_at,
        "client_name": client.name,
        "redirect_uris": client.redirect_uris,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "scope": client.scopes.to_string(),
    });
    if let Some(secret) = &registered.secret {
        body["client_secret"] = secret.reveal().into();
        // It ends with the client, which lives as long as it is used.
        body["client_secret_expires_at"] = 0.into();
    }
    body
}

fn bad(description: &'static str) -> Fault {
    oauth_fault(ErrorCode::InvalidClientMetadata, description)
}
