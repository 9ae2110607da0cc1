//! The one error body.

use asyncgate_api::Code;
use asyncgate_engine::Fault;
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use serde_json::{Map, Value};

use crate::routes::stamp;

/// The status that a code is answered with.
pub(crate) fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Puts headers on an answer. Their texts are fit to be headers; one that is not is left out.
pub(crate) fn tell(headers: &mut HeaderMap, told: &[(&'static str, String)]) {
    for (name, text) in told {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(*name, value);
        }
    }
}

/// Answers with a fault. What only the log may know goes to the log.
pub fn error_response(fault: &Fault, corr_id: &str) -> Response<Body> {
    let code = fault.code;
    if status(code).is_server_error() {
        tracing::error!(
            corr_id,
            code = code.as_str(),
            cause = fault.cause,
            "request failed"
        );
    } else {
        tracing::debug!(corr_id, code = code.as_str(), "request refused");
    }
    let mut body = Map::new();
    body.insert(
        "error".to_owned(),
        code.as_str().to_ascii_lowercase().into(),
    );
    body.insert("code".to_owned(), code.as_str().into());
    body.insert("message".to_owned(), fault.message.as_ref().into());
    body.insert("corr_id".to_owned(), corr_id.into());
    body.extend(fault.details.clone());
    let mut response = Response::new(Body::from(Value::Object(body).to_string()));
    *response.status_mut() = status(code);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    tell(headers, &fault.headers);
    if let Some(seconds) = fault.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status(code) == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    stamp(&mut response, corr_id);
    response
}
