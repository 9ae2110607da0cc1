//! Requests to DynamoDB: signed JSON over HTTP/1.1, on a bounded number of connections.
//!
//! A request is sent once. After that a lost connection is an error, because nobody knows whether the request
//! was done. A server's message about credentials is never repeated: it may quote them.

use std::time::Duration;

use asyncgate_core::Timestamp;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

use crate::{BadSetup, address, credentials::Credentials, refusal::Refusal, sign};

/// The longest time that a request may take, and the longest wait for a connection. Callers have deadlines of
/// their own; this one ensures that no request stays for ever.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// The most requests at once, each on a connection of its own.
const MAX_CONNECTIONS: usize = 128;
/// The time after which an unused connection is closed: shorter than AWS keeps it, so that AWS does not close it
/// just when a request is sent.
const IDLE: Duration = Duration::from_secs(20);
/// The largest answer. DynamoDB returns up to 4 MiB of rows, and their JSON is larger.
const MAX_ANSWER_BYTES: usize = 32 << 20;

const SERVICE: &str = "dynamodb";
const CONTENT_TYPE: &str = "application/x-amz-json-1.0";

/// Sends requests to one endpoint with one set of credentials.
#[derive(Debug)]
pub(crate) struct Client {
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    endpoint: Uri,
    region: String,
    credentials: Credentials,
    /// The wall clock, because AWS compares the time of a request with its own.
    wall: fn() -> Timestamp,
    patience: Duration,
    room: Semaphore,
}

impl Client {
    pub(crate) fn new(
        endpoint: Uri,
        region: String,
        credentials: Credentials,
        wall: fn() -> Timestamp,
        patience: Duration,
    ) -> Result<Self, BadSetup> {
        let mut http = HttpConnector::new();
        http.set_nodelay(true);
        http.enforce_http(false);
        http.set_connect_timeout(Some(CONNECT_PATIENCE));
        let secure = endpoint.scheme_str() == Some("https");
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(secure)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        Ok(Self {
            http: legacy::Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(MAX_CONNECTIONS)
                .build(connector),
            endpoint,
            region,
            credentials,
            wall,
            patience,
            room: Semaphore::new(MAX_CONNECTIONS),
        })
    }

    /// Calls an operation, such as `PutItem`.
    pub(crate) async fn call(&self, operation: &str, input: &Value) -> Result<Value, Refusal> {
        let room = timeout(self.patience, self.room.acquire()).await;
        let Ok(Ok(_room)) = room else {
            return Err(Refusal::unavailable("all connections are in use"));
        };
        match timeout(self.patience, self.exchange(operation, input)).await {
            Ok(Ok((StatusCode::OK, answer))) => serde_json::from_slice(&answer)
                .map_err(|_| Refusal::corrupt("the answer is no JSON")),
            Ok(Ok((status, answer))) => Err(Refusal::read(status, &answer)),
            Ok(Err(cause)) => Err(Refusal::unavailable(&cause)),
            Err(_) => Err(Refusal::unavailable(&format!(
                "no answer from {} within {:?}",
                address::shown(&self.endpoint),
                self.patience
            ))),
        }
    }

    async fn exchange(
        &self,
        operation: &str,
        input: &Value,
    ) -> Result<(StatusCode, Bytes), String> {
        let request = self.request(operation, input);
        let request = request.map_err(|error| format!("no request can be made: {error}"))?;
        let endpoint = || address::shown(&self.endpoint);
        let answer = self.http.request(request).await;
        let answer = answer
            .map_err(|error| format!("cannot reach {}: {}", endpoint(), root_cause(&error)))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect();
        let body = body
            .await
            .map_err(|error| format!("lost {}: {}", endpoint(), root_cause(&*error)))?;
        Ok((status, body.to_bytes()))
    }

    fn request(&self, operation: &str, input: &Value) -> http::Result<Request<Full<Bytes>>> {
        let body = input.to_string();
        let stamp = sign::stamp((self.wall)());
        let target = format!("DynamoDB_20120810.{operation}");
        let host = self.endpoint.authority().map_or("", |it| it.as_str());
        let mut headers = vec![
            ("content-type", CONTENT_TYPE),
            ("host", host),
            ("x-amz-date", &stamp),
        ];
        if let Some(token) = &self.credentials.token {
            headers.push(("x-amz-security-token", token));
        }
        headers.push(("x-amz-target", &target));
        let signed = sign::Request {
            region: &self.region,
            service: SERVICE,
            headers: &headers,
            body: body.as_bytes(),
        };
        let authorization = sign::authorization(&self.credentials, &stamp, &signed);
        let mut request = Request::post(self.endpoint.clone());
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request
            .header(header::AUTHORIZATION, authorization)
            .body(Full::new(Bytes::from(body)))
    }
}

/// Trusts the platform's roots. Reading them takes a while, so it is done for `https` only.
fn tls(secure: bool) -> Result<rustls::ClientConfig, BadSetup> {
    let unusable = |error: String| BadSetup::Tls(error);
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?;
    let config = match secure {
        true => config
            .with_native_roots()
            .map_err(|error| unusable(error.to_string()))?,
        false => config.with_root_certificates(rustls::RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}

/// Returns the innermost cause of an error as text.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}
