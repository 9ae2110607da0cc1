//! `POST /v1/ingress/{name}`: messages of senders that sign instead of showing a credential.

use std::sync::Arc;

use asyncgate_api::{Code, IngressOutput};
use asyncgate_edge::{BodyLimits, add_headers, answer, correlate, json_response, read_body};
use asyncgate_engine::{Engine, Fault, Message, Received};
use axum::{
    Router,
    body::Body,
    extract::{Path, rejection::PathRejection},
    http::{Request, Response, StatusCode},
    routing::post,
};

/// The route of every ingress.
pub const INGRESS_PATH: &str = "/v1/ingress/{name}";

/// The codes of its refusals.
pub(crate) const INGRESS_CODES: [Code; 10] = [
    Code::BadRequest,
    Code::NonceReuse,
    Code::TimestampOutOfWindow,
    Code::InvalidSignature,
    Code::UnknownIngress,
    Code::UnknownPolicy,
    Code::TooLarge,
    Code::RateLimit,
    Code::Internal,
    Code::HostUnavailable,
];

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
                // A document says that these are all.
                debug_assert!(INGRESS_CODES.contains(&fault.code), "{fault:?}");
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
    let body = read_body(body, None, limits).await;
    let body = body.inspect_err(|fault| engine.note_refused_message(&name, fault))?;
    let header = |name: &'static str| {
        let mut values = parts.headers.get_all(name).iter();
        let value = values.next().filter(|_| values.next().is_none());
        value.map(|value| value.as_bytes())
    };
    let message = Message {
        header: &header,
        body: &body.bytes,
    };
    engine.receive(&name, message).await
}

fn accepted(received: &Received, corr_id: &str) -> Response<Body> {
    let body = IngressOutput {
        ok: true,
        task_id: received.task_id.clone(),
        status: received.status,
        corr_id: corr_id.to_owned(),
    };
    let body = serde_json::to_vec(&body).unwrap_or_default();
    let mut response = json_response(StatusCode::OK, body);
    add_headers(response.headers_mut(), &received.headers);
    response
}
