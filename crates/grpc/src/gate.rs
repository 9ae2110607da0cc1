//! The gate before the services: it finds the caller, the correlation id, the deadline of the call and
//! the limits on its messages.

use std::{sync::Arc, time::Duration};

use asyncgate_edge::{BodyLimits, add_headers, correlate, request_context, response, set_corr_id};
use asyncgate_engine::{Authenticator, Engine, with_rate_headers};
use axum::body::Body;
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, Request, Response, StatusCode, header};
use tokio::time::timeout;
use tonic::Status;

use crate::{
    service::{Answer, Call, Method},
    status::status,
};

const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// The most bytes that a message may have beside its payload.
const AROUND_PAYLOAD_BYTES: usize = 64 << 10;
/// The most bytes that a batch may have in all.
const MAX_BATCH_BYTES: usize = 16 << 20;

pub(crate) struct Gate {
    engine: Arc<Engine>,
    auth: Arc<dyn Authenticator>,
}

impl Gate {
    pub(crate) fn new(engine: Arc<Engine>, auth: Arc<dyn Authenticator>) -> Self {
        Self { engine, auth }
    }

    /// Answers a call. The credential is checked before any of the message is read.
    pub(crate) async fn pass(&self, request: Request<Body>) -> Response<Body> {
        let corr_id = correlate(request.headers(), || self.engine.corr_id());
        let mut response = if is_grpc(request.headers()) {
            let call = corr_id.scope(self.call(request, &corr_id.text));
            let (answer, headers) = Box::pin(with_rate_headers(call)).await;
            let mut response = match answer {
                Ok(Ok(response)) => response,
                Ok(Err(fault)) => status(&fault, &corr_id.text).into_http(),
                Err(status) => status.into_http(),
            };
            add_headers(response.headers_mut(), &headers);
            response
        } else {
            not_grpc()
        };
        set_corr_id(&mut response, &corr_id.text);
        response
    }

    /// Runs a call. A status is the refusal of a call that breaks the protocol; a fault, of one that
    /// the service refuses.
    async fn call(&self, request: Request<Body>, corr_id: &str) -> Result<Answer, Status> {
        let method = Method::at(request.uri().path());
        // Anyone may know which methods there are, so this comes before the credential.
        let method = method.ok_or_else(|| Status::unimplemented("no such method"))?;
        let context = request_context(request.headers());
        let caller = match self.auth.authenticate(&context).await {
            Ok(caller) => caller,
            Err(fault) => return Ok(Err(self.engine.refuse(method.spec(), fault))),
        };
        check_encoding(request.headers())?;
        let deadline = deadline(request.headers())?;
        let (head, body) = request.into_parts();
        let call = Call {
            engine: &self.engine,
            auth: self.auth.as_ref(),
            corr_id,
            limits: BodyLimits::new(&self.engine, self.max_bytes(method)).of(caller.tenant),
            caller,
            headers: head.headers,
            body,
        };
        // Boxed, so that the methods are compiled once for both.
        let running: BoxFuture<'_, Answer> = Box::pin(call.run(method));
        match deadline {
            None => Ok(running.await),
            Some(deadline) => {
                let late = |_| Status::deadline_exceeded("the deadline of the call is over");
                timeout(deadline, running).await.map_err(late)
            }
        }
    }

    fn max_bytes(&self, method: Method) -> usize {
        if method.is_batch() {
            return MAX_BATCH_BYTES;
        }
        let payload = self.engine.settings().policy.mailbox.max_payload_bytes;
        payload.saturating_add(AROUND_PAYLOAD_BYTES)
    }
}

/// The answer that the protocol asks for when a request does not speak it.
fn not_grpc() -> Response<Body> {
    let mut response = response(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let given = text(headers, &header::CONTENT_TYPE).unwrap_or_default();
    // A suffix may name the format of the messages. Here there is only one, so it is not read.
    let rest = given.strip_prefix("application/grpc");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
}

/// Refuses compressed messages: they are small, and unpacking them is not worth the time. Clients
/// know how to do without.
fn check_encoding(headers: &HeaderMap) -> Result<(), Status> {
    match text(headers, &ENCODING) {
        None | Some("identity") => Ok(()),
        Some(_) => {
            let mut status = Status::unimplemented("messages must not be compressed");
            let accepted = "identity".parse();
            if let Ok(accepted) = accepted {
                status
                    .metadata_mut()
                    .insert("grpc-accept-encoding", accepted);
            }
            Err(status)
        }
    }
}

/// Returns how long the caller waits for the answer: up to eight digits and a unit.
fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(given) = headers.get(&TIMEOUT) else {
        return Ok(None);
    };
    let bad = || Status::invalid_argument("grpc-timeout must be 1 to 8 digits and a unit");
    let given = given.to_str().map_err(|_| bad())?;
    let (digits, unit) = given
        .split_at_checked(given.len().saturating_sub(1))
        .ok_or_else(bad)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(bad());
    }
    let value: u64 = digits.parse().map_err(|_| bad())?;
    Ok(Some(match unit {
        "H" => Duration::from_secs(value * 3_600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return Err(bad()),
    }))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn deadlines_are_read_with_their_units() {
        let read = |text: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert("grpc-timeout", HeaderValue::from_static(text));
            deadline(&headers)
        };
        for (text, expected) in [
            ("1H", Duration::from_secs(3_600)),
            ("2M", Duration::from_secs(120)),
            ("3S", Duration::from_secs(3)),
            ("4m", Duration::from_millis(4)),
            ("5u", Duration::from_micros(5)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(read(text).unwrap(), Some(expected), "{text}");
        }
        assert_eq!(deadline(&HeaderMap::new()).unwrap(), None);
        for text in [
            "",
            "S",
            "1",
            "1s",
            "-1S",
            "+1S",
            "1.5S",
            "123456789S",
            "1 S",
        ] {
            let code = read(text).unwrap_err().code();
            assert_eq!(code, tonic::Code::InvalidArgument, "{text:?}");
        }
    }
}
