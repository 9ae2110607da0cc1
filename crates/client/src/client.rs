//! The client: one call for every operation, sent again when that is safe and may help.

use std::{fmt, sync::Arc, time::Duration};

use asyncgate_api::{CheckLimits, Code, ErrorBody, Operation, Spec};
use http::{StatusCode, Uri, uri::Scheme};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    Error, Kind, Retry,
    connect::{self, Reach},
    exchange::{Answer, Exchange, Lost},
    pool::Pool,
    request::Prepared,
};

/// The most bytes of a refusal that are read when a stream was asked for.
const MAX_REFUSAL_BYTES: usize = 1 << 20;
/// The most characters that an error shows of an answer which could not be understood.
const SHOWN_CHARS: usize = 200;
const USER_AGENT: &str = concat!("asyncgate-client/", env!("CARGO_PKG_VERSION"));

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
    shared: Arc<Shared>,
    retry: Retry,
}

struct Shared {
    pool: Pool,
    /// The address without a slash at its end.
    base: String,
    /// The part of the address's path that goes before the path of every operation.
    prefix: String,
    /// The lines that stand in the head of every request.
    headers: String,
    timeout: Duration,
    generate_keys: bool,
}

/// The settings of a client.
#[derive(Clone)]
pub struct Builder {
    address: String,
    key: Option<String>,
    timeout: Duration,
    retry: Retry,
    generate_keys: bool,
    connect: connect::Options,
}

impl Client {
    /// Makes a client of the server at `address`, e.g. `http://127.0.0.1:8080`, with default settings.
    pub fn new(address: impl Into<String>, key: impl Into<String>) -> Result<Self, Error> {
        Self::builder(address).key(key).build()
    }

    /// Begins to set up a client of the server at `address`.
    pub fn builder(address: impl Into<String>) -> Builder {
        Builder {
            address: address.into(),
            key: None,
            timeout: Duration::from_secs(30),
            retry: Retry::default(),
            generate_keys: true,
            connect: connect::Options {
                reach: Reach::Anywhere,
                timeout: Duration::from_secs(5),
                secure: false,
                roots: None,
            },
        }
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
        loop {
            let failure = match self.attempt(prepared).await {
                Ok(answer) => return answer.read().map_err(|e| e.during(prepared.spec.name, 1)),
                Err(failure) => failure,
            };
            failures += 1;
            let wait = self.retry.wait(failures, failure.error.retry_after());
            let in_time =
                started.elapsed().saturating_add(wait) <= self.retry.total + prepared.wait;
            if failures >= self.retry.attempts || !in_time || !failure.again.holds_for(prepared) {
                return Err(failure.error.during(prepared.spec.name, failures));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends once.
    async fn attempt(&self, prepared: &Prepared) -> Result<Answer, Failure> {
        let limit = self.shared.timeout + prepared.wait;
        let exchange = self.shared.pool.exchange(self.request(prepared));
        match tokio::time::timeout(limit, exchange).await {
            Ok(Ok(answer)) => self.judge(prepared.spec, answer),
            Ok(Err(lost)) => Err(self.lost(lost)),
            Err(_) => Err(self.late(limit)),
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        self.retry
    }

    /// Sends once, and returns a success as soon as its head has come.
    pub(crate) async fn open(&self, prepared: &Prepared) -> Result<Exchange, Error> {
        let opening = async {
            let exchange = self.shared.pool.open(self.request(prepared)).await?;
            if exchange.head.status.is_success() {
                return Ok(Ok(exchange));
            }
            let (answer, _) = exchange.whole(MAX_REFUSAL_BYTES).await?;
            Ok(Err(self.refusal(prepared.spec, &answer)))
        };
        let limit = self.shared.timeout;
        let opened = match tokio::time::timeout(limit, opening).await {
            Ok(Ok(opened)) => opened,
            Ok(Err(lost)) => Err(self.lost(lost)),
            Err(_) => Err(self.late(limit)),
        };
        opened.map_err(|failure| failure.error)
    }

    /// The bytes of a request.
    fn request(&self, prepared: &Prepared) -> Vec<u8> {
        let Shared {
            prefix, headers, ..
        } = &*self.shared;
        let Prepared {
            spec, target, body, ..
        } = prepared;
        let method = spec.method.as_str();
        let length = body.as_ref().map_or(0, Vec::len);
        let room = 128 + prefix.len() + target.len() + headers.len() + length;
        let mut request = Vec::with_capacity(room);
        for part in [method, " ", prefix, target, " HTTP/1.1\r\n", headers] {
            request.extend_from_slice(part.as_bytes());
        }
        if let Some(body) = body {
            request.extend_from_slice(b"content-type: application/json\r\ncontent-length: ");
            request.extend_from_slice(length.to_string().as_bytes());
            request.extend_from_slice(b"\r\n\r\n");
            request.extend_from_slice(body);
        } else {
            request.extend_from_slice(b"\r\n");
        }
        request
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
        let message = format!("{base} did not answer within {seconds} s");
        Failure::new(Kind::Timeout, message, Again::IfRepeatable)
    }

    /// Tells a success from a refusal.
    fn judge(&self, spec: &Spec, answer: Answer) -> Result<Answer, Failure> {
        if answer.head.status.is_success() {
            return Ok(answer);
        }
        Err(self.refusal(spec, &answer))
    }

    fn refusal(&self, spec: &Spec, answer: &Answer) -> Failure {
        let status = answer.head.status;
        let retry_after = answer.head.retry_after;
        let busy = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
        );
        if let Ok(body) = serde_json::from_slice::<ErrorBody>(&answer.body) {
            // A backend that gave no answer in time may still count the call, and a limit that can be
            // overdrawn charges calls that it refuses.
            let may_count = body.code == Code::HostUnavailable
                || (body.code == Code::RateLimit && spec.name == CheckLimits::SPEC.name);
            let again = match (may_count, busy) {
                (true, _) => Again::IfRepeatable,
                (false, true) => Again::Always,
                (false, false) => Again::Never,
            };
            return Failure {
                error: Error::refused(body).after(retry_after),
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
        if self.head.status.is_success() {
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
#[derive(Clone, Copy)]
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

impl Builder {
    /// Sets the credential: an API key. Without one, only open operations are allowed.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the time for one attempt, including the connection. The time that a call asks the server to
    /// wait (`wait_seconds`) is added. Default 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the time for making a connection. Default 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// Sets the bounds for repeated calls.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets whether [`Client::create_task`] adds an idempotency key where there is none, so that it can
    /// safely be sent again. Default true.
    #[must_use]
    pub fn generate_idempotency_keys(mut self, generate: bool) -> Self {
        self.generate_keys = generate;
        self
    }

    /// Trusts these roots (PEM) instead of the platform's, for a server with a certificate of your
    /// own. `SSL_CERT_FILE` replaces the platform's roots too.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn trusted_roots(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.connect.roots = Some(pem.into());
        self
    }

    /// Makes the client. It does not connect yet.
    pub fn build(mut self) -> Result<Client, Error> {
        let server = server(&self.address)?;
        self.connect.secure = server.scheme() == Some(&Scheme::HTTPS);
        let mut headers = format!("host: {}\r\nuser-agent: {USER_AGENT}\r\n", host(&server));
        if let Some(key) = &self.key {
            headers += &format!("authorization: Bearer {}\r\n", checked(key)?);
        }
        let connector = connect::connector(&self.connect)?;
        Ok(Client {
            shared: Arc::new(Shared {
                base: self.address.trim_end_matches('/').to_owned(),
                prefix: server.path().trim_end_matches('/').to_owned(),
                headers,
                pool: Pool::new(connector, server),
                timeout: self.timeout,
                generate_keys: self.generate_keys,
            }),
            retry: self.retry,
        })
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn server(address: &str) -> Result<Uri, Error> {
    let wrong = |why: &str| {
        Error::invalid(format!(
            "{address:?} is not a server's address: {why}; write e.g. http://127.0.0.1:8080"
        ))
    };
    let uri: Uri = address.parse().map_err(|_| wrong("it is no URL"))?;
    let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
    let scheme = uri.scheme();
    if scheme == Some(&Scheme::HTTPS) && cfg!(not(feature = "tls")) {
        return Err(wrong("this program was built without TLS"));
    }
    if scheme != Some(&Scheme::HTTP) && scheme != Some(&Scheme::HTTPS) {
        return Err(wrong("it does not begin with http:// or https://"));
    }
    if uri.query().is_some() || authority.as_str().contains('@') {
        return Err(wrong("it must have neither a query nor a user"));
    }
    Ok(uri)
}

/// Returns the `host` header, without the port if it is the default one of the scheme.
fn host(server: &Uri) -> String {
    let usual = if server.scheme() == Some(&Scheme::HTTPS) {
        443
    } else {
        80
    };
    let host = server.host().unwrap_or_default();
    let port = server.port_u16().filter(|port| *port != usual);
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// Returns the key if it can be sent in a header.
fn checked(key: &str) -> Result<&str, Error> {
    let key = key.trim();
    if key.is_empty() {
        return Err(Error::invalid("the key is empty"));
    }
    if key.contains(|char: char| char != ' ' && !char.is_ascii_graphic()) {
        let wrong = "the key has characters that no key has; was it copied whole?";
        return Err(Error::invalid(wrong));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_checked_before_anything_is_sent() {
        for (address, said) in [
            ("localhost:8080", "does not begin with"),
            ("127.0.0.1:8080", "does not begin with"),
            ("ftp://x", "does not begin with"),
            ("http://", "no URL"),
            ("http://a b", "no URL"),
            ("/v1", "names no host"),
            ("http://u:p@x", "neither a query nor a user"),
            ("http://x/?a=b", "neither a query nor a user"),
        ] {
            let error = Client::new(address, "k").unwrap_err();
            assert!(error.to_string().contains(said), "{address}: {error}");
            assert_eq!(*error.kind(), Kind::Invalid);
        }
        let client = Client::new("http://x:1/prefix/", "k").unwrap();
        assert_eq!(client.address(), "http://x:1/prefix");
    }

    #[test]
    fn a_key_is_checked_and_never_shown() {
        assert!(Client::new("http://x", " ").is_err());
        assert!(Client::new("http://x", "a\nb").is_err());
        let client = Client::new("http://x", "very-secret\n").unwrap();
        assert!(!format!("{client:?}").contains("very-secret"));
        let builder = Client::builder("http://x").key("very-secret");
        assert!(!format!("{builder:?}").contains("very-secret"));
    }
}
