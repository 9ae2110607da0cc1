//! `POST /v1/ingress/{name}`: messages of senders that sign instead of showing a credential.

use std::sync::Arc;

use asyncgate_engine::{Engine, Fault, Received};
use axum::{
    Router,
    body::Body,
    extract::Path,
    http::{HeaderName, Request, Response, StatusCode},
    routing::post,
};
use serde_json::json;

use crate::{
    error_response,
    errors::tell,
    input,
    routes::{correlate, json_response, stamp},
};

/// The route of every ingress.
pub const INGRESS_PATH: &str = "/v1/ingress/{name}";

const SIGNATURE: HeaderName = HeaderName::from_static("x-signature-256");

/// The route of every ingress.
pub fn ingress_router(engine: Arc<Engine>) -> Router {
    let serve = move |Path(name): Path<String>, request: Request<Body>| {
        let engine = Arc::clone(&engine);
        async move { serve(&engine, &name, request).await }
    };
    Router::new().route(INGRESS_PATH, post(serve))
}

async fn serve(engine: &Engine, name: &str, request: Request<Body>) -> Response<Body> {
    let corr_id = correlate(engine, request.headers());
    let answering = async {
        match receive(engine, name, request).await {
            Ok(received) => accepted(&received, &corr_id.text),
            Err(fault) => {
                let message = fault.message.clone();
                let fault = fault.with("ok", false).with("msg", message);
                error_response(&fault, &corr_id.text)
            }
        }
    };
    corr_id.scope(answering).await
}

async fn receive(engine: &Engine, name: &str, request: Request<Body>) -> Result<Received, Fault> {
    let (parts, body) = request.into_parts();
    let (limit, bodies) = (engine.ingress_limit(name), engine.settings().bodies);
    // What is signed is what came over the wire, packed or not.
    let body = input::read(body, None, limit, bodies).await?;
    let mut signatures = parts.headers.get_all(SIGNATURE).iter();
    let signature = signatures.next().filter(|_| signatures.next().is_none());
    let signature = signature.map(|value| value.as_bytes());
    engine.receive(name, signature, &body).await
}

fn accepted(received: &Received, corr_id: &str) -> Response<Body> {
    let body = json!({
        "ok": true,
        "task_id": received.task_id,
        "status": received.status,
        "corr_id": corr_id,
    });
    let mut response = json_response(StatusCode::OK, Body::from(body.to_string()));
    stamp(&mut response, corr_id);
    tell(response.headers_mut(), &received.headers);
    response
}
