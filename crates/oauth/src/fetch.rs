//! Calls to others, bounded in time, size and number, and in where they may go.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use asyncgate_api::is_public;
use asyncgate_core::identity::oauth::{Reach, check_redirect};
use axum::http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, dns::Name},
    },
    rt::TokioExecutor,
};
use tokio::{
    sync::{OnceCell, Semaphore},
    time::timeout,
};
use tower::Service;

/// The most calls at a time.
const MAX_CALLS: usize = 16;
/// The most bytes of the headers of an answer.
const MAX_HEADER_BYTES: usize = 16 << 10;

type Http = Client<HttpsConnector<HttpConnector<Resolver>>, Full<Bytes>>;

/// The reason why a call came to nothing. It is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Failed(String);

impl From<&str> for Failed {
    fn from(cause: &str) -> Self {
        Self(cause.to_owned())
    }
}

/// The bounds of calls.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The longest time of a call, its connection included.
    pub(crate) patience: Duration,
    /// The largest answer.
    pub(crate) max_bytes: usize,
    /// Where calls may go; absent if their addresses come from somebody who is trusted.
    pub(crate) reach: Option<Reach>,
}

/// Looks up the addresses of a host.
#[derive(Clone)]
pub struct Lookup(Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>);

impl Lookup {
    /// Makes a look-up of a function.
    pub fn new(
        look: impl Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(look))
    }
}

impl Default for Lookup {
    /// Asks the system.
    fn default() -> Self {
        Self::new(|host| {
            Box::pin(async move {
                let found = tokio::net::lookup_host((host, 0)).await?;
                Ok(found.map(|address| address.ip()).collect())
            })
        })
    }
}

impl std::fmt::Debug for Lookup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lookup(..)")
    }
}

/// Calls others.
pub(crate) struct Fetcher {
    bounds: Bounds,
    lookup: Lookup,
    /// Made at first use: reading the platform's roots takes a while, and most servers call nobody.
    http: OnceCell<Http>,
    room: Semaphore,
}

impl Fetcher {
    pub(crate) fn new(bounds: Bounds, lookup: Lookup) -> Self {
        Self {
            bounds,
            lookup,
            http: OnceCell::new(),
            room: Semaphore::new(MAX_CALLS),
        }
    }

    /// Reads what is at an address.
    pub(crate) async fn get(&self, address: &str) -> Result<Bytes, Failed> {
        let request = Request::builder().method(Method::GET).uri(address);
        let request = request.header(header::ACCEPT, "application/json");
        self.call(address, request.body(Full::default())).await
    }

    /// Sends a form, perhaps with a secret in a header.
    pub(crate) async fn post(
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
        // Codes and secrets go over TLS only.
        check_redirect(address).map_err(|_| "an address is not https")?;
        let request = request.map_err(|_| "an address cannot be used")?;
        self.check_literal(request.uri())?;
        let called = async {
            // The semaphore is never closed.
            let _room = self.room.acquire().await;
            let http = self.http.get_or_try_init(async || self.http()).await?;
            let answer = http.request(request).await;
            let answer = answer.map_err(|_| "it cannot be reached")?;
            let status = answer.status();
            // Nobody is followed elsewhere.
            if status != StatusCode::OK {
                return Err(Failed(format!("it answered with {status}")));
            }
            let body = Limited::new(answer.into_body(), self.bounds.max_bytes).collect();
            let body = body.await.map_err(|_| "its answer did not arrive")?;
            Ok(body.to_bytes())
        };
        let called = timeout(self.bounds.patience, called).await;
        called.unwrap_or_else(|_| Err("it took too long".into()))
    }

    /// Checks an address that stands there as a number. It needs no look-up, so the resolver does not see it.
    fn check_literal(&self, uri: &Uri) -> Result<(), Failed> {
        let host = uri.host().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']');
        match (self.bounds.reach, literal.parse::<IpAddr>()) {
            (Some(reach), Ok(address)) if !reach.allows(&[address], is_public) => {
                Err("its address is not public".into())
            }
            (Some(_) | None, Ok(_) | Err(_)) => Ok(()),
        }
    }

    fn http(&self) -> Result<Http, Failed> {
        let unusable = |cause: String| Failed(format!("no TLS: {cause}"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_native_roots()
            .map_err(|error| unusable(error.to_string()))?
            .with_no_client_auth();
        let resolver = Resolver {
            lookup: self.lookup.clone(),
            reach: self.bounds.reach,
        };
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(self.bounds.patience / 2));
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let mut client = Client::builder(TokioExecutor::new());
        client.http1_max_buf_size(MAX_HEADER_BYTES);
        if self.bounds.reach.is_some() {
            // A stranger's server is called once, and keeps no connection.
            client.pool_max_idle_per_host(0);
        }
        Ok(client.build(connector))
    }
}

/// Looks names up and refuses those that lead where calls may not go. It is inside the connector, so that a connection
/// goes to an address that was checked: there is no second look-up that could give another answer.
#[derive(Clone)]
struct Resolver {
    lookup: Lookup,
    reach: Option<Reach>,
}

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = (self.lookup.0)(name.as_str().to_owned());
        let reach = self.reach;
        Box::pin(async move {
            let found = found.await?;
            if reach.is_some_and(|reach| !reach.allows(&found, is_public)) {
                return Err(io::Error::other("not all of its addresses are public"));
            }
            let addresses = found.into_iter().map(|ip| SocketAddr::new(ip, 0));
            Ok(addresses.collect::<Vec<_>>().into_iter())
        })
    }
}
