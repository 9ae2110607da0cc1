//! Calls to providers, bounded in time, size and number.

use std::{sync::Arc, time::Duration};

use asyncgate_core::identity::oauth::check_redirect;
use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::timeout,
};

use super::Failed;

/// The longest time of a call, and of its connection.
const PATIENCE: Duration = Duration::from_secs(10);
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// The largest answer.
const MAX_ANSWER_BYTES: usize = 512 << 10;
/// The most calls at a time.
const MAX_CALLS: usize = 16;

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Calls providers.
pub(super) struct Fetcher {
    /// Made at first use: reading the platform's roots takes a while, and most servers have no provider.
    http: OnceCell<Http>,
    room: Semaphore,
}

impl Default for Fetcher {
    fn default() -> Self {
        Self {
            http: OnceCell::new(),
            room: Semaphore::new(MAX_CALLS),
        }
    }
}

impl Fetcher {
    /// Reads what is at an address.
    pub(super) async fn get(&self, address: &str) -> Result<Bytes, Failed> {
        let request = Request::builder().method(Method::GET).uri(address);
        let request = request.header(header::ACCEPT, "application/json");
        self.call(address, request.body(Full::default())).await
    }

    /// Sends a form, perhaps with a secret in a header.
    pub(super) async fn post(
        &self,
        address: &str,
        form: &[(&str, &str)],
        authorization: Option<&str>,
    ) -> Result<Bytes, Failed> {
        let body = serde_urlencoded::to_string(form).unwrap_or_default();
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(address)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if let Some(line) = authorization
            && let Ok(mut line) = HeaderValue::from_str(line)
        {
            line.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, line);
        }
        self.call(address, request.body(Full::from(body))).await
    }

    async fn call(
        &self,
        address: &str,
        request: axum::http::Result<Request<Full<Bytes>>>,
    ) -> Result<Bytes, Failed> {
        let failed = |cause: &str| Failed::Provider(cause.to_owned());
        // Codes and secrets go over TLS only.
        check_redirect(address).map_err(|_| failed("an address is not https"))?;
        let request = request.map_err(|_| failed("an address cannot be used"))?;
        let called = async {
            // The semaphore is never closed.
            let _room = self.room.acquire().await;
            let http = self.http.get_or_try_init(async || http()).await?;
            let answer = http.request(request).await;
            let answer = answer.map_err(|_| failed("it cannot be reached"))?;
            let status = answer.status();
            // Nobody is followed elsewhere.
            if status != StatusCode::OK {
                return Err(Failed::Provider(format!("it answered with {status}")));
            }
            let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect();
            let body = body
                .await
                .map_err(|_| failed("its answer did not arrive"))?;
            Ok(body.to_bytes())
        };
        let called = timeout(PATIENCE, called).await;
        called.unwrap_or_else(|_| Err(failed("it took too long")))
    }
}

fn http() -> Result<Http, Failed> {
    let unusable = |cause: String| Failed::Provider(format!("no TLS: {cause}"));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(error.to_string()))?
        .with_native_roots()
        .map_err(|error| unusable(error.to_string()))?
        .with_no_client_auth();
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_PATIENCE));
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}
