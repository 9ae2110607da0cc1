//! `/domain/*` and `/status`: requests about sequential delay domains, as ODIS clients send them.
//!
//! These routes stand apart from the registry: their bodies, texts and status codes are those of the
//! deployed signers, and the signature in the body is the credential. The engine decides; this module
//! reads requests and writes answers.

use std::sync::Arc;

use asyncgate_edge::{BodyLimits, coding, correlate, json_response, read_body, set_corr_id};
use asyncgate_engine::{DomainAnswer, DomainRequest, Engine, Fault};
use axum::{
    Router,
    body::Body,
    http::{HeaderMap, HeaderName, Request, Response, StatusCode, header},
    routing::{get, post},
};
use bytes::Bytes;
use serde_json::json;

/// The routes of domains.
pub const DOMAIN_PATHS: [&str; 4] = [
    "/domain/sign",
    "/domain/quotaStatus",
    "/domain/disable",
    "/status",
];

/// The largest body, the same as at the deployed signers.
const MAX_BODY_BYTES: usize = 200 << 10;
/// The header that asks for a key, and in an answer names the key that was used.
const KEY_VERSION: HeaderName = HeaderName::from_static("odis-key-version");

/// Makes the routes of domains.
pub fn domain_router(engine: Arc<Engine>) -> Router {
    let [sign, quota, disable, status_path] = DOMAIN_PATHS;
    let mut router = Router::new();
    for (path, kind) in [
        (sign, DomainRequest::Sign),
        (quota, DomainRequest::QuotaStatus),
        (disable, DomainRequest::Disable),
    ] {
        let engine = Arc::clone(&engine);
        let serve = move |request: Request<Body>| {
            let engine = Arc::clone(&engine);
            async move { serve(&engine, kind, request).await }
        };
        router = router.route(path, post(serve));
    }
    let status = move |request: Request<Body>| std::future::ready(status(&engine, &request));
    router.route(status_path, get(status))
}

async fn serve(engine: &Engine, kind: DomainRequest, request: Request<Body>) -> Response<Body> {
    let corr_id = correlate(request.headers(), || engine.corr_id());
    let (parts, body) = request.into_parts();
    let version = parts.headers.get(KEY_VERSION);
    // Bytes that are no text become a text that is no number, and the rules refuse it as one.
    let version = version.map(|value| String::from_utf8_lossy(value.as_bytes()));
    let body = read(engine, &parts.headers, body);
    let answer = engine.answer_domain(kind, version.as_deref(), body);
    encode(&corr_id.scope(answer).await, &corr_id.text)
}

async fn read(engine: &Engine, headers: &HeaderMap, body: Body) -> Result<Bytes, Fault> {
    let limits = BodyLimits::new(engine, MAX_BODY_BYTES);
    let body = read_body(body, coding(headers)?, limits).await?;
    Ok(body.bytes)
}

fn encode(answer: &DomainAnswer, corr_id: &str) -> Response<Body> {
    let body = serde_json::to_vec(&answer.body).unwrap_or_default();
    let status = StatusCode::from_u16(answer.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, Body::from(body));
    set_corr_id(&mut response, corr_id);
    let headers = response.headers_mut();
    if let Some(seconds) = answer.retry_after {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if let Some(version) = answer.key_version {
        headers.insert(KEY_VERSION, version.into());
    }
    response
}

fn status(engine: &Engine, request: &Request<Body>) -> Response<Body> {
    let rules = &engine.settings().domains.rules;
    let keys = rules.evaluator.keys().into_iter().map(|key| {
        let public = base16ct::lower::encode_string(&key.public);
        json!({"version": key.version, "public_key": public})
    });
    let body = json!({
        "version": rules.version,
        "evaluator": rules.evaluator.name(),
        "keys": keys.collect::<Vec<_>>(),
    });
    let mut response = json_response(StatusCode::OK, Body::from(body.to_string()));
    set_corr_id(
        &mut response,
        &correlate(request.headers(), || engine.corr_id()).text,
    );
    response
}
