//! The client: one call for every operation, sent again when that is safe and may help.

use std::{fmt, sync::Arc, time::Duration};

use asyncgate_api::{CheckLimits, Code, Effect, ErrorBody, Method, Operation, Spec};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    ClientBuilder, Error, Kind, Retry, connect,
    exchange::{Answer, Body, Exchange, Lost},
    pool::Pool,
    request::Prepared,
};

/// The most bytes of a refusal that are read when a stream was asked for.
const MAX_REFUSAL_BYTES: usize = 1 << 20;
/// The most characters that an error shows of an answer which could not be understood.
const SHOWN_CHARS: usize = 200;

/// A client that calls a server's operations. Clones are cheap and share connections and settings.
///
/// A call is sent again, as [`Retry`] says,
/// - when the connection could not be made, or the server answered 429 or 503 and did nothing;
/// - when the connection broke, the answer did not come in time, or the backend of admission gave
///   none (`HOST_UNAVAILABLE`), if doing the call twice is the same as doing it once. That holds for
///   every call that reads, advances or ends something; for `create_task` with an idempotency key,
///   which [`Client::create_task`] adds when there is none; and for `lease_next`: if a claim was lost
///   on its way back, its lease runs out by itself and the task is given out again. It does not hold
///   for `report_progress` and `ack_receipt`, which would leave a second receipt, and for calls that use
///   something up: `check_nonces`, `increment_counter`, `check_limits` and `verify_warrant`.
///
/// A `check_limits` that is over its limit has its answer. It is not sent again, even if `enforce` makes
/// that answer an error.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) retry: Retry,
}

pub(crate) struct Shared {
    pub pool: Pool,
    /// The address without a slash at its end.
    pub base: String,
    /// The part of the address's path that goes before the path of every operation.
    pub prefix: String,
    /// The headers of every request.
    pub headers: HeaderMap,
    /// True if a credential is among them.
    pub has_key: bool,
    pub timeout: Duration,
    pub generate_keys: bool,
}

impl Client {
    /// Makes a client of the server at `address`, e.g. `http://127.0.0.1:8080`, with default settings.
    pub fn new(address: impl Into<String>, key: impl Into<String>) -> Result<Self, Error> {
        Self::builder(address).key(key).build()
    }

    /// Begins to set up a client of the server at `address`.
    pub fn builder(address: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(address.into())
    }

    /// Returns the same client, with the same connections, that retries by other bounds.
    pub fn with_retry(&self, retry: Retry) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            retry,
        }
    }

    /// Returns the server's address.
    pub fn address(&self) -> &str {
        &self.shared.base
    }

    /// Calls an operation. Each operation has a method of its own; this one is for programs that are
    /// generic over operations. It adds no idempotency key.
    pub async fn call<O: Operation>(&self, input: &O::Input) -> Result<O::Output, Error>
    where
        O::Input: Serialize,
        O::Output: DeserializeOwned,
    {
        let prepared = Prepared::new::<O>(input, None).map_err(|e| e.during(O::SPEC.name, 0))?;
        self.send(&prepared).await
    }

    pub(crate) fn generates_keys(&self) -> bool {
        self.shared.generate_keys
    }

    pub(crate) async fn send<T: DeserializeOwned>(&self, prepared: &Prepared) -> Result<T, Error> {
        let started = Instant::now();
        let mut failures = 0;
        let mut may_be_done = false;
        loop {
            let failure = match self.attempt(prepared).await {
                Ok(answer) => return answer.read().map_err(|e| e.during(prepared.spec.name, 1)),
                Err(failure) => failure,
            };
            failures += 1;
            may_be_done |= failure.again == Again::IfRepeatable;
            let wait = self.retry.wait(failures, failure.error.retry_after());
            let in_time =
                started.elapsed().saturating_add(wait) <= self.retry.total + prepared.wait;
            if failures >= self.retry.attempts || !in_time || !failure.again.holds_for(prepared) {
                let error = failure.error.during(prepared.spec.name, failures);
                let unsure = may_be_done && prepared.spec.effect != Effect::Read;
                return Err(if unsure { error.unsure() } else { error });
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends once.
    async fn attempt(&self, prepared: &Prepared) -> Result<Answer, Failure> {
        let answer = self.exchange(prepared).await?;
        self.judge(prepared.spec.name, answer)
    }

    async fn exchange(&self, prepared: &Prepared) -> Result<Answer, Failure> {
        let limit = self.shared.timeout + prepared.wait;
        let exchange = self.shared.pool.exchange(self.request(prepared)?);
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(lost)) => Err(self.lost(lost)),
            Err(_) => Err(self.late(limit)),
        }
    }

    /// Reads a page that is no operation, once, and returns it whatever its status is.
    pub(crate) async fn page(&self, spec: &'static Spec) -> Result<(StatusCode, String), Error> {
        let prepared = Prepared {
            spec,
            target: spec.path.to_owned(),
            body: None,
            wait: Duration::ZERO,
            repeatable: true,
        };
        let answer = self.exchange(&prepared).await;
        let answer = answer.map_err(|failure| failure.error.during(spec.name, 1))?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        Ok((answer.status, text))
    }

    pub(crate) fn retry(&self) -> Retry {
        self.retry
    }

    /// Sends once, and returns a success as soon as its head has come.
    pub(crate) async fn open(&self, prepared: &Prepared) -> Result<Exchange, Error> {
        let request = self.request(prepared).map_err(|failure| failure.error)?;
        let opening = async {
            let exchange = self.shared.pool.open(request).await?;
            if exchange.status.is_success() {
                return Ok(Ok(exchange));
            }
            let (answer, _) = exchange.whole(MAX_REFUSAL_BYTES).await?;
            Ok(Err(self.refusal(prepared.spec.name, &answer)))
        };
        let limit = self.shared.timeout;
        let opened = match tokio::time::timeout(limit, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(lost)) => Err(self.lost(lost)),
            Err(_) => Err(self.late(limit)),
        };
        opened.map_err(|failure| failure.error)
    }

    /// Sends a request once, on a connection of the pool, and returns as soon as the answer's head has
    /// come.
    pub(crate) async fn begin(&self, request: Request<Body>) -> Result<Exchange, Error> {
        let begun = self.shared.pool.begin(request).await;
        begun.map_err(|lost| self.lost(lost).error)
    }

    /// Reads the rest of an answer.
    pub(crate) async fn finish(&self, exchange: Exchange) -> Result<Answer, Error> {
        let finished = self.shared.pool.finish(exchange).await;
        finished.map_err(|lost| self.lost(lost).error)
    }

    /// Makes the request that is sent for an operation.
    fn request(&self, prepared: &Prepared) -> Result<Request<Body>, Failure> {
        let method = match prepared.spec.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            Method::Put => http::Method::PUT,
            Method::Patch => http::Method::PATCH,
            Method::Delete => http::Method::DELETE,
        };
        let request = self.write(method, &prepared.target, prepared.body.clone());
        request.map_err(|error| Failure {
            error,
            again: Again::Never,
        })
    }

    /// Makes a request with the headers that all have. The body is JSON.
    pub(crate) fn write(
        &self,
        method: http::Method,
        target: &str,
        body: Option<Bytes>,
    ) -> Result<Request<Body>, Error> {
        let target = [&*self.shared.prefix, target].concat();
        let target = Uri::try_from(target).map_err(|error| {
            Error::invalid(format!("the input does not fit into an address: {error}"))
        })?;
        let mut headers = self.shared.headers.clone();
        if body.is_some() {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        let mut request = Request::new(Body::from(body.unwrap_or_default()));
        *request.method_mut() = method;
        *request.uri_mut() = target;
        *request.headers_mut() = headers;
        Ok(request)
    }

    /// Sends a request once, and returns its answer if it is a success.
    pub(crate) async fn answered(
        &self,
        what: &'static str,
        request: Request<Body>,
    ) -> Result<Answer, Error> {
        let limit = self.shared.timeout;
        let exchange = self.shared.pool.exchange(request);
        let answer = match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(answer)) => self.judge(what, answer),
            Ok(Err(lost)) => Err(self.lost(lost)),
            Err(_) => Err(self.late(limit)),
        };
        answer.map_err(|failure| failure.error.during(what, 1))
    }

    /// Classifies a failure to get an answer.
    fn lost(&self, lost: Lost) -> Failure {
        let base = &self.shared.base;
        let (kind, message, again) = match lost {
            Lost::Unconnected(error) => {
                let message = connect::explain(base, &*error);
                (Kind::Unreachable, message, Again::Always)
            }
            Lost::Broken(_) => {
                let message = format!("the connection to {base} was lost: {lost}");
                (Kind::Unreachable, message, Again::IfRepeatable)
            }
            Lost::Garbled(_) => {
                let message =
                    format!("what answers at {base} is not an HTTP server: {lost}; check the port");
                (Kind::Protocol, message, Again::Never)
            }
            Lost::TooLong => (Kind::Protocol, lost.to_string(), Again::Never),
        };
        Failure::new(kind, message, again)
    }

    fn late(&self, limit: Duration) -> Failure {
        let (base, seconds) = (&self.shared.base, limit.as_secs_f32());
        let message = format!(
            "{base} did not answer within {seconds} s; it may be overloaded, or the timeout too short"
        );
        Failure::new(Kind::Timeout, message, Again::IfRepeatable)
    }

    /// Tells a success from a refusal.
    fn judge(&self, operation: &str, answer: Answer) -> Result<Answer, Failure> {
        if answer.status.is_success() {
            return Ok(answer);
        }
        Err(self.refusal(operation, &answer))
    }

    /// Returns the error of an answer that is no success.
    pub(crate) fn refused(&self, operation: &str, answer: &Answer) -> Error {
        self.refusal(operation, answer).error
    }

    fn refusal(&self, operation: &str, answer: &Answer) -> Failure {
        let status = answer.status;
        let retry_after = answer.retry_after;
        let busy = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if let Ok(body) = serde_json::from_slice::<ErrorBody>(&answer.body) {
            // A backend that gave no answer in time may still count the call, and a limit that can be
            // overdrawn charges calls that it refuses.
            let may_count = body.code == Code::HostUnavailable
                || (body.code == Code::RateLimit && operation == CheckLimits::SPEC.name);
            let again = match (may_count, busy) {
                (true, _) => Again::IfRepeatable,
                (false, true) => Again::Always,
                (false, false) => Again::Never,
            };
            return Failure {
                error: Error::refused(body, self.shared.has_key).after(retry_after),
                again,
            };
        }
        // A proxy answered. It may not know whether the server did the call.
        let gateway = matches!(
            status,
            StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
        );
        let mut failure = if busy || gateway {
            let message = format!("{} answers {status}", self.shared.base);
            Failure::new(Kind::Unreachable, message, Again::IfRepeatable)
        } else {
            let message = format!(
                "{} answers {status} as no AsyncGate does; check the address: {}",
                self.shared.base,
                answer.shown()
            );
            Failure::new(Kind::Protocol, message, Again::Never)
        };
        failure.error = failure.error.after(retry_after);
        failure
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("address", &self.shared.base)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

impl Answer {
    fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let message = format!("the answer cannot be read ({error}): {}", self.shown());
            Error::new(Kind::Protocol, message)
        })
    }

    fn shown(&self) -> String {
        // A success may hold a payload, which must not get into errors and logs.
        if self.status.is_success() {
            return format!("{} bytes", self.body.len());
        }
        let text = String::from_utf8_lossy(&self.body);
        text.chars()
            .filter(|char| !char.is_control())
            .take(SHOWN_CHARS)
            .collect()
    }
}

/// An attempt that did not succeed.
struct Failure {
    error: Error,
    again: Again,
}

/// The condition for sending the same request again.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    /// The call was certainly not done.
    Always,
    /// The call may have been done.
    IfRepeatable,
    /// The call would fail again.
    Never,
}

impl Again {
    fn holds_for(self, prepared: &Prepared) -> bool {
        match self {
            Self::Always => true,
            Self::IfRepeatable => prepared.repeatable,
            Self::Never => false,
        }
    }
}

impl Failure {
    fn new(kind: Kind, message: impl Into<String>, again: Again) -> Self {
        Self {
            error: Error::new(kind, message),
            again,
        }
    }
}
