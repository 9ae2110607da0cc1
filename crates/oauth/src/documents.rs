//! The documents by which clients find their way: keys (RFC 7517), the authorization server (RFC 8414) and the resources
//! that it protects (RFC 9728).

use std::sync::Arc;

use asyncgate_core::identity::{Scope, oauth::STRANGER_SCOPES};
use asyncgate_edge::json_response;
use asyncgate_engine::Fault;
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde_json::{Value, json};

use crate::app::{App, Asked};

/// The documents change with the settings only, and keys are announced before they sign for long.
const CACHING: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// Answers with the public keys of tokens.
pub(crate) async fn keys(app: Arc<App>, _: Asked, _: Body) -> Result<Response<Body>, Fault> {
    Ok(document(&app.oauth.public_keys()?))
}

/// Answers with what a client must know about this authorization server.
pub(crate) async fn server(app: Arc<App>, asked: Asked, _: Body) -> Result<Response<Body>, Fault> {
    let base = &asked.base;
    let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.as_str()).collect();
    let methods = ["none", "client_secret_basic", "client_secret_post"];
    let mut metadata = json!({
        "issuer": base,
        "authorization_endpoint": format!("{base}/oauth/authorize"),
        "token_endpoint": format!("{base}/oauth/token"),
        "revocation_endpoint": format!("{base}/oauth/revoke"),
        "jwks_uri": format!("{base}/oauth/jwks"),
        "scopes_supported": scopes,
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": ["authorization_code", "refresh_token"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": methods,
        "revocation_endpoint_auth_methods_supported": methods,
        "authorization_response_iss_parameter_supported": true,
    });
    let settings = app.oauth.settings();
    metadata["client_id_metadata_document_supported"] = settings.client_documents.into();
    if settings.dynamic_registration {
        metadata["registration_endpoint"] = format!("{base}/oauth/register").into();
    }
    Ok(document(&metadata))
}

/// Answers with what a client must know to call this server.
pub(crate) async fn resource(_: Arc<App>, asked: Asked, _: Body) -> Result<Response<Body>, Fault> {
    Ok(document(&protected(&asked.base, &asked.base)))
}

/// Answers with what a client must know to call the tools of this server.
pub(crate) async fn mcp_resource(
    _: Arc<App>,
    asked: Asked,
    _: Body,
) -> Result<Response<Body>, Fault> {
    let resource = format!("{}/mcp", asked.base);
    Ok(document(&protected(&resource, &asked.base)))
}

/// Clients ask for all scopes that are named here, so those of admins are left out.
fn protected(resource: &str, base: &str) -> Value {
    let scopes: Vec<&str> = STRANGER_SCOPES.iter().map(|scope| scope.as_str()).collect();
    json!({
        "resource": resource,
        "resource_name": "AsyncGate",
        "authorization_servers": [base],
        "bearer_methods_supported": ["header"],
        "scopes_supported": scopes,
    })
}

fn document(content: &Value) -> Response<Body> {
    let mut response = json_response(StatusCode::OK, content.to_string());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, CACHING);
    response
}
