//! The output of every facade: answers with their correlation id, the one error body, and the log line
//! of a fault.

use asyncgate_api::Code;
use asyncgate_engine::{CorrId, Fault};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Response, StatusCode, header},
};
use serde_json::{Map, Value};

use crate::CORR_ID;

/// The headers that an answer has room for: its own two or three, and those of
/// [`SecurityHeaders`](crate::SecurityHeaders). A map that grows would cost every request an
/// allocation and a copy.
const HEADERS: usize = 12;

/// Runs `work` under a correlation id and answers with its response, or with its fault.
pub async fn answer(
    corr_id: &CorrId,
    work: impl Future<Output = Result<Response<Body>, Fault>>,
) -> Response<Body> {
    match corr_id.scope(work).await {
        Ok(mut response) => {
            set_corr_id(&mut response, &corr_id.text);
            response
        }
        Err(fault) => error_response(&fault, &corr_id.text),
    }
}

/// Returns an answer with this body and no header yet.
pub fn response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.headers_mut() = HeaderMap::with_capacity(HEADERS);
    response
}

/// Returns an answer whose body is JSON.
pub fn json_response(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    let mut response = response(body.into());
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Answers with a fault, and logs it.
pub fn error_response(fault: &Fault, corr_id: &str) -> Response<Body> {
    log_fault(fault, corr_id);
    let mut response = json_response(status(fault.code), error_body(fault, corr_id));
    let headers = response.headers_mut();
    add_headers(headers, &fault.headers);
    if let Some(seconds) = fault.retry_after_seconds {
        headers.insert(header::RETRY_AFTER, seconds.into());
    }
    if status(fault.code) == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    set_corr_id(&mut response, corr_id);
    response
}

/// Returns the body that tells a client why its request was not done, as JSON: an
/// [`ErrorBody`](asyncgate_api::ErrorBody).
pub fn error_body(fault: &Fault, corr_id: &str) -> String {
    let code = fault.code.as_str();
    let mut body = Map::new();
    for (name, text) in [
        ("error", code.to_ascii_lowercase().as_str()),
        ("code", code),
        ("message", &fault.message),
        ("corr_id", corr_id),
    ] {
        body.insert(name.to_owned(), text.into());
    }
    // A detail takes the place of a field of the same name, so that no name stands there twice.
    body.extend(fault.details.clone());
    Value::Object(body).to_string()
}

/// Logs a fault: a failure of the server as an error with its cause, a refusal for those who debug.
pub fn log_fault(fault: &Fault, corr_id: &str) {
    let code = fault.code.as_str();
    // The message is left out: it may repeat what the caller sent.
    if status(fault.code).is_server_error() {
        tracing::error!(corr_id, code, cause = fault.cause, "request failed");
    } else {
        tracing::debug!(corr_id, code, "request refused");
    }
}

/// Returns the HTTP status of a code.
pub fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Puts the correlation id on an answer.
pub fn set_corr_id(response: &mut Response<Body>, corr_id: &str) {
    if let Ok(mut corr_id) = HeaderValue::from_str(corr_id) {
        // HTTP/2 remembers header values to send them again in short. This one never comes again, so
        // it would only push out others.
        corr_id.set_sensitive(true);
        response.headers_mut().insert(CORR_ID, corr_id);
    }
}

/// Adds headers whose texts were made to fit. One that does not is left out.
pub fn add_headers(headers: &mut HeaderMap, added: &[(&'static str, String)]) {
    for (name, text) in added {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(*name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_api::ErrorBody;

    use super::*;

    fn shown(response: &Response<Body>, name: &str) -> Option<String> {
        let value = response.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    }

    #[tokio::test]
    async fn an_answer_carries_the_correlation_id_that_its_work_ran_under() {
        let corr_id = CorrId {
            text: "c-1".into(),
            given: true,
        };
        let fine = answer(&corr_id, async {
            assert_eq!(CorrId::current().unwrap().text.as_ref(), "c-1");
            Ok(json_response(StatusCode::CREATED, "{}"))
        });
        let fine = fine.await;
        assert_eq!(fine.status(), StatusCode::CREATED);
        assert_eq!(shown(&fine, "x-corr-id").as_deref(), Some("c-1"));
        let fault = Fault::new(Code::Unavailable, "later").retry_after(3);
        let failed = answer(&corr_id, async { Err(fault) }).await;
        assert_eq!(failed.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(shown(&failed, "x-corr-id").as_deref(), Some("c-1"));
        assert_eq!(shown(&failed, "retry-after").as_deref(), Some("3"));
        let stranger = error_response(&Fault::new(Code::Unauthorized, "no"), "c-1");
        assert_eq!(
            shown(&stranger, "www-authenticate").as_deref(),
            Some("Bearer")
        );
    }

    #[test]
    fn the_error_body_has_the_details_beside_the_fields() {
        let fault = Fault::new(Code::TooLarge, "large").with("limit", 5);
        let body = error_body(&fault.with("error", "other").because("secret"), "c");
        assert_eq!(body.matches("\"error\"").count(), 1, "{body}");
        let body: ErrorBody = serde_json::from_str(&body).unwrap();
        assert_eq!((body.error.as_str(), body.code), ("other", Code::TooLarge));
        assert_eq!(
            (body.message.as_str(), body.corr_id.as_str()),
            ("large", "c")
        );
        assert_eq!(Value::Object(body.details), serde_json::json!({"limit": 5}));
    }
}
