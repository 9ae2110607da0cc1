//! `POST /v1/ingress/{name}`: messages of senders that sign instead of showing a credential.

use std::sync::Arc;

use asyncgate_edge::{BodyLimits, add_headers, answer, correlate, json_response, read_body};
use asyncgate_engine::{Engine, Fault, Received};
use axum::{
    Router,
    body::Body,
    extract::{Path, rejection::PathRejection},
    http::{HeaderName, Request, Response, StatusCode},
    routing::post,
};
use serde_json::json;

/// The route of every ingress.
pub const INGRESS_PATH: &str = "/v1/ingress/{name}";

const SIGNATURE: HeaderName = HeaderName::from_static("x-signature-256");

/// Returns the route of every ingress.
pub fn ingress_router(engine: Arc<Engine>) -> Router {
    let serve = move |name, request: Request<Body>| {
        let engine = Arc::clone(&engine);
        async move { serve(&engine, name, request).await }
    };
    Router::new().route(INGRESS_PATH, post(serve))
}

async fn serve(
    engine: &Engine,
    name: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response<Body> {
    let corr_id = correlate(request.headers(), || engine.corr_id());
    let answering = async {
        let received = receive(engine, name, request).await;
        match received {
            Ok(received) => Ok(accepted(&received, &corr_id.text)),
            Err(fault) => {
                let message = fault.message.clone();
                Err(fault.with("ok", false).with("msg", message))
            }
        }
    };
    answer(&corr_id, answering).await
}

async fn receive(
    engine: &Engine,
    name: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Result<Received, Fault> {
    let Path(name) = name.map_err(|_| Fault::bad_request("the path is not UTF-8"))?;
    let (parts, body) = request.into_parts();
    let limits = BodyLimits::new(engine, engine.ingress_limit(&name));
    // The signature covers the bytes on the wire, so a packed body is not unpacked.
    let body = read_body(body, None, limits).await?;
    let mut signatures = parts.headers.get_all(SIGNATURE).iter();
    // Two signatures count as none: a proxy before us may have checked the other one.
    let signature = signatures.next().filter(|_| signatures.next().is_none());
    let signature = signature.map(|value| value.as_bytes());
    engine.receive(&name, signature, &body).await
}

fn accepted(received: &Received, corr_id: &str) -> Response<Body> {
    let body = json!({
        "ok": true,
        "task_id": received.task_id,
        "status": received.status,
        "corr_id": corr_id,
    });
    let mut response = json_response(StatusCode::OK, body.to_string());
    add_headers(response.headers_mut(), &received.headers);
    response
}
