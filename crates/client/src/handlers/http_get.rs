//! `http_get`: fetches a URL that somebody else chose, without giving them access to your network.
//!
//! Only addresses of the public internet are reached, unless the operator allows more. The address
//! that is checked is the one that is connected to: a name is looked up once, inside the connector.
//! Every redirect is checked like the first URL, and time, size and the number of redirects are
//! bounded.

use std::{net::IpAddr, sync::Arc, time::Duration};

use base64::Engine;
use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use http::{HeaderMap, Request, Response, Uri, header, uri::Scheme};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::{client::legacy, rt::TokioExecutor};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::location;
use crate::{
    Context, Error, Failure, Outcome, Payload,
    connect::{self, Connector, Reach},
};

/// The headers of an answer that are returned.
const RETURNED: [header::HeaderName; 8] = [
    header::CACHE_CONTROL,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::DATE,
    header::ETAG,
    header::LAST_MODIFIED,
    header::RETRY_AFTER,
];

/// The permissions that an operator gives to `http_get`.
#[derive(Debug, Clone)]
pub struct HttpGetOptions {
    /// True if private, loopback, link-local and other addresses that are not public may be reached.
    /// Default false.
    pub allow_private: bool,
    /// Single addresses that may be reached though they are not public. Default none.
    pub allow: Vec<IpAddr>,
    /// The longest time for the whole, redirects included. A payload may ask for less. Default 30 s.
    pub timeout: Duration,
    /// The most bytes of a body that are kept. A payload may ask for less. Default 256 KiB; a result
    /// of more than 1 MiB, with its encoding, would be refused by the server.
    pub max_bytes: usize,
    /// The most redirects that are followed. Default 5.
    pub max_redirects: usize,
}

impl Default for HttpGetOptions {
    fn default() -> Self {
        Self {
            allow_private: false,
            allow: Vec::new(),
            timeout: Duration::from_secs(30),
            max_bytes: 256 << 10,
            max_redirects: 5,
        }
    }
}

/// The handler of `http_get`. Its payload is `{"url", "max_bytes"?, "timeout_seconds"?}`, its result
/// `{"url", "status", "headers", "body" or "body_base64", "bytes", "truncated"}`. Any status is a
/// success. A URL that may not be reached is a permanent failure; a server that cannot be reached is a
/// failure that is retried.
#[derive(Debug, Clone)]
pub struct HttpGet(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    http: legacy::Client<Connector, Empty<Bytes>>,
    reach: Reach,
    options: HttpGetOptions,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    url: String,
    #[serde(default)]
    max_bytes: Option<usize>,
    #[serde(default)]
    timeout_seconds: Option<f64>,
}

#[derive(Serialize)]
struct Fetched {
    url: String,
    status: u16,
    headers: Map<String, Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    bytes: usize,
    truncated: bool,
}

impl HttpGet {
    /// Makes a handler with these permissions.
    pub fn new(options: HttpGetOptions) -> Result<Self, Error> {
        let reach = if options.allow_private {
            Reach::Anywhere
        } else {
            Reach::PublicAnd(options.allow.as_slice().into())
        };
        let connector = connect::connector(&connect::Options {
            reach: reach.clone(),
            timeout: options.timeout.min(Duration::from_secs(10)),
            secure: true,
            roots: None,
            certificate: None,
        })?;
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(0)
            .build(connector);
        Ok(Self(Arc::new(Inner {
            http,
            reach,
            options,
        })))
    }

    /// Returns the handler, for [`WorkerBuilder::handle`](crate::WorkerBuilder::handle).
    pub fn handler(
        &self,
    ) -> impl Fn(Context, Payload) -> BoxFuture<'static, Result<Outcome, Failure>> + Send + Sync + 'static
    {
        let inner = Arc::clone(&self.0);
        move |context, payload| {
            let inner = Arc::clone(&inner);
            Box::pin(async move {
                tokio::select! {
                    outcome = inner.run(&payload) => outcome,
                    cause = context.cancelled() => {
                        Err(Failure::retryable(format!("stopped: {cause:?}")).of_kind("cancelled"))
                    }
                }
            })
        }
    }
}

impl Inner {
    async fn run(&self, payload: &Payload) -> Result<Outcome, Failure> {
        let input: Input = payload.parse()?;
        let max_bytes = input.max_bytes.map_or(self.options.max_bytes, |max| {
            max.min(self.options.max_bytes)
        });
        let asked = input
            .timeout_seconds
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let limit = asked.map_or(self.options.timeout, |asked| {
            asked.min(self.options.timeout)
        });
        let fetched = tokio::time::timeout(limit, self.fetch(&input.url, max_bytes)).await;
        let fetched = fetched.unwrap_or_else(|_| {
            let message = format!("no answer within {} s", limit.as_secs_f32());
            Err(Failure::retryable(message).of_kind("timeout"))
        })?;
        let artifact = json!([{
            "type": "url",
            "url": fetched.url,
            "status": fetched.status,
            "bytes": fetched.bytes,
        }]);
        Outcome::json(&fetched)?.with_artifacts(&artifact)
    }

    async fn fetch(&self, url: &str, max_bytes: usize) -> Result<Fetched, Failure> {
        let mut uri: Uri = url
            .split('#')
            .next()
            .unwrap_or_default()
            .parse()
            .map_err(|_| refused("it is no URL"))?;
        for _ in 0..=self.options.max_redirects {
            self.check(&uri)?;
            let answer = self.get(&uri).await?;
            match redirect(&uri, &answer) {
                Some(next) => uri = next?,
                None => return read(&uri, answer, max_bytes).await,
            }
        }
        let message = format!("more than {} redirects", self.options.max_redirects);
        Err(Failure::permanent(message).of_kind("redirects"))
    }

    /// Checks the parts of a URL that need no look-up. Names are checked by the connector.
    fn check(&self, uri: &Uri) -> Result<(), Failure> {
        let scheme = uri.scheme();
        if scheme != Some(&Scheme::HTTP) && scheme != Some(&Scheme::HTTPS) {
            return Err(refused("only http and https are fetched"));
        }
        if uri.authority().is_some_and(|a| a.as_str().contains('@')) {
            return Err(refused("it must not name a user"));
        }
        let host = uri.host().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse();
        match address {
            Ok(address) if !self.reach.allows(address) => Err(not_public(host)),
            _ if host.is_empty() => Err(refused("it names no host")),
            _ => Ok(()),
        }
    }

    async fn get(&self, uri: &Uri) -> Result<Response<Incoming>, Failure> {
        let request = Request::builder()
            .uri(uri.clone())
            .header(header::ACCEPT, "*/*")
            .header(header::ACCEPT_ENCODING, "identity")
            .header(header::USER_AGENT, "asyncgate-http-get")
            .body(Empty::new())
            .map_err(|error| refused(&error.to_string()))?;
        self.http.request(request).await.map_err(|error| {
            let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&error);
            while let Some(error) = next {
                if let Some(connect::Unresolved::NotPublic(address)) = error.downcast_ref() {
                    let host = uri.host().unwrap_or_default();
                    tracing::warn!(host, %address, "http_get: the address of a host is not public");
                    return not_public(host);
                }
                next = error.source();
            }
            let host = uri.authority().map_or("", |authority| authority.as_str());
            let base = format!("{}://{host}", uri.scheme_str().unwrap_or_default());
            Failure::retryable(connect::explain(&base, &error)).of_kind("unreachable")
        })
    }
}

fn refused(why: &str) -> Failure {
    Failure::permanent(format!("the URL is refused: {why}")).of_kind("url_refused")
}

/// Refuses a host. Its address stands only in the log of the worker: who chose the URL may not know the names of the
/// network that the worker is in.
fn not_public(host: &str) -> Failure {
    refused(&format!("{host} has no public address"))
}

/// Returns the target of a redirect; `None` if the answer is no redirect.
fn redirect(base: &Uri, answer: &Response<Incoming>) -> Option<Result<Uri, Failure>> {
    if !matches!(answer.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let location = answer.headers().get(header::LOCATION)?;
    let next = location
        .to_str()
        .ok()
        .and_then(|location| location::resolve(base, location));
    Some(next.ok_or_else(|| refused("it redirects to what is no URL")))
}

async fn read(uri: &Uri, answer: Response<Incoming>, max: usize) -> Result<Fetched, Failure> {
    let status = answer.status().as_u16();
    let headers = returned(answer.headers());
    let mut body = answer.into_body();
    let mut kept = BytesMut::new();
    let mut truncated = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Failure::retryable(format!("the answer broke off: {error}")).of_kind("unreachable")
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let room = max - kept.len();
        kept.extend_from_slice(&data[..data.len().min(room)]);
        if data.len() > room {
            truncated = true;
            break;
        }
    }
    let bytes = kept.len();
    let (body, body_base64) = match text(&kept, truncated) {
        Some(text) => (Some(text.to_owned()), None),
        None => {
            let encoded = base64::engine::general_purpose::STANDARD.encode(&kept);
            (None, Some(encoded))
        }
    };
    Ok(Fetched {
        url: uri.to_string(),
        status,
        headers,
        body,
        body_base64,
        bytes,
        truncated,
    })
}

/// Returns the bytes as text, if they are one. A character that was cut in two at the end is left out.
/// Bytes with control characters are no text here: they would be longer as JSON text than as base64.
fn text(bytes: &[u8], truncated: bool) -> Option<&str> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if truncated && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?
        }
        Err(_) => return None,
    };
    let binary = |char: char| char.is_control() && !matches!(char, '\t' | '\n' | '\r');
    (!text.contains(binary)).then_some(text)
}

fn returned(headers: &HeaderMap) -> Map<String, Value> {
    let found = RETURNED.iter().filter_map(|name| {
        let value = headers.get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.into()))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_character_is_left_out_but_binary_is_not_text() {
        let text_of = |bytes, truncated| text(bytes, truncated);
        assert_eq!(text_of("aé".as_bytes(), false), Some("aé"));
        assert_eq!(text_of(&"aé".as_bytes()[..2], true), Some("a"));
        assert_eq!(text_of(&"aé".as_bytes()[..2], false), None);
        assert_eq!(text_of(b"a\0b", false), None);
        assert_eq!(text_of(b"a\r\n\tb", false), Some("a\r\n\tb"));
    }
}
