//! `POST /oauth/token` and `POST /oauth/revoke`.

use std::sync::Arc;

use asyncgate_core::identity::oauth::{ErrorCode, Params, Refusal, is_verifier, resource};
use asyncgate_edge::{json_response, response};
use asyncgate_engine::{
    Fault,
    oauth::{CodeExchange, TokenRefresh, Tokens, oauth_fault},
};
use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use serde_json::json;

use crate::{
    app::{App, Asked},
    form,
    provider::challenge,
};

/// Gives a client tokens for a code or for a refresh token.
pub(crate) async fn token(
    app: Arc<App>,
    asked: Asked,
    body: Body,
) -> Result<Response<Body>, Fault> {
    let headers = &asked.parts.headers;
    let params = form::form(app.oauth.engine(), headers, body).await?;
    let proof = form::client_proof(headers, &params)?;
    let resource = resource(&asked.base, params.get("resource")?)?.map(str::to_owned);
    let tokens = match params.need("grant_type", "grant_type is missing")? {
        "authorization_code" => {
            let wish = exchange(&params, resource)?;
            app.oauth.exchange(&proof, wish).await?
        }
        "refresh_token" => {
            let wish = refresh(&params, resource)?;
            app.oauth.refresh(&proof, wish).await?
        }
        _ => {
            let description = "grant_type must be authorization_code or refresh_token";
            return Err(oauth_fault(ErrorCode::UnsupportedGrantType, description));
        }
    };
    Ok(told(&tokens))
}

fn exchange(params: &Params, resource: Option<String>) -> Result<CodeExchange, Refusal> {
    let verifier = params.need("code_verifier", "code_verifier is missing")?;
    Ok(CodeExchange {
        code: params.need("code", "code is missing")?.to_owned(),
        redirect_uri: params
            .need("redirect_uri", "redirect_uri is missing")?
            .to_owned(),
        // What is no verifier answers no challenge. The code is looked at all the same: it may have been used before.
        challenge: match is_verifier(verifier) {
            true => challenge(verifier),
            false => String::new(),
        },
        resource,
    })
}

fn refresh(params: &Params, resource: Option<String>) -> Result<TokenRefresh, Refusal> {
    Ok(TokenRefresh {
        refresh_token: params
            .need("refresh_token", "refresh_token is missing")?
            .to_owned(),
        scope: params.get("scope")?.map(str::to_owned),
        resource,
    })
}

fn told(tokens: &Tokens) -> Response<Body> {
    let body = json!({
        "access_token": tokens.access_token.reveal(),
        "token_type": "Bearer",
        "expires_in": tokens.expires_in,
        "refresh_token": tokens.refresh_token.reveal(),
        "scope": tokens.scopes.to_string(),
    });
    let mut response = json_response(StatusCode::OK, body.to_string());
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    response
}

/// Revokes a token (RFC 7009).
pub(crate) async fn revoke(
    app: Arc<App>,
    asked: Asked,
    body: Body,
) -> Result<Response<Body>, Fault> {
    let headers = &asked.parts.headers;
    let params = form::form(app.oauth.engine(), headers, body).await?;
    let proof = form::client_proof(headers, &params)?;
    let token = params.need("token", "token is missing")?;
    app.oauth.revoke(&proof, token).await?;
    Ok(response(Body::empty()))
}
