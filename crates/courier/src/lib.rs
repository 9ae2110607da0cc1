//! Brings dispatches to other systems by HTTP.
//!
//! A dispatch is the body of one POST, signed with a secret that the receiver shares. Whatever the receiver does, a try
//! ends: it has a deadline, and of the answer only the status counts. A receiver can be sent the same body twice, after
//! a crash or a lost answer, so every body has a name in it by which the receiver knows it.
//!
//! Addresses may hold tokens, so neither they nor secrets stand in any error.

mod address;
mod sign;

use std::{
    collections::HashMap,
    error::Error,
    fmt,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use asyncgate_core::outbox::Dispatch;
use asyncgate_engine::{Courier, Undelivered};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::timeout;

pub use address::{Address, BadAddress};
pub use sign::{SIGNATURE, Secret};

/// The longest time that a try may take, whatever the settings say.
pub const LONGEST_TRY: Duration = Duration::from_secs(30);
/// The most bytes of an answer that are read, so that its connection can be used again.
const MAX_ANSWER_BYTES: usize = 16 << 10;
/// The time that a receiver has to send the rest of its answer, after which its connection is closed.
const LONGEST_REST: Duration = Duration::from_secs(2);
/// The time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(20);
/// The most unused connections to one receiver.
const MAX_IDLE: usize = 8;

const USER_AGENT: &str = concat!("asyncgate/", env!("CARGO_PKG_VERSION"));

/// Where dispatches with one destination go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// The address that takes them.
    pub address: Address,
    /// The secret that signs them.
    pub secret: Secret,
    /// The longest time that a try may take.
    pub patience: Duration,
}

/// A failure to prepare for TLS.
#[derive(Debug, thiserror::Error)]
#[error("TLS cannot be used: {0}")]
pub struct NoTls(String);

/// Sends dispatches by HTTP.
pub struct HttpCourier {
    /// Replaced as a whole, so that a try sees one state of the settings.
    line: RwLock<Arc<Line>>,
}

/// The destinations, and the connections to them.
struct Line {
    destinations: HashMap<String, Destination>,
    http: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl fmt::Debug for HttpCourier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpCourier").finish_non_exhaustive()
    }
}

impl HttpCourier {
    /// Makes a courier that knows these destinations by their names.
    pub fn new(destinations: HashMap<String, Destination>) -> Result<Self, NoTls> {
        Ok(Self {
            line: RwLock::new(Arc::new(Line::new(destinations)?)),
        })
    }

    /// Makes the courier know other destinations, for tries that begin after this.
    pub fn set_destinations(
        &self,
        destinations: HashMap<String, Destination>,
    ) -> Result<(), NoTls> {
        if self.line().destinations == destinations {
            return Ok(());
        }
        let line = Arc::new(Line::new(destinations)?);
        *self.line.write().unwrap_or_else(PoisonError::into_inner) = line;
        Ok(())
    }

    fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Courier for HttpCourier {
    fn longest_try(&self) -> Duration {
        let line = self.line();
        let patience = line.destinations.values().map(|to| to.patience).max();
        patience.unwrap_or_default().min(LONGEST_TRY)
    }

    fn deliver<'a>(&'a self, dispatch: &'a Dispatch) -> BoxFuture<'a, Result<(), Undelivered>> {
        let line = self.line();
        Box::pin(async move {
            let Some(to) = line.destinations.get(&dispatch.sent.destination) else {
                let message = "the settings have no such destination".to_owned();
                return Err(Undelivered::Failed(message));
            };
            let patience = to.patience.min(LONGEST_TRY);
            match timeout(patience, line.post(to, &dispatch.sent.body)).await {
                Ok(Ok(status)) => judge(status),
                Ok(Err(cause)) => Err(Undelivered::Failed(cause)),
                Err(_) => {
                    let message = format!("no answer within {} ms", patience.as_millis());
                    Err(Undelivered::Failed(message))
                }
            }
        })
    }
}

/// Tells what an answer means for the dispatch, and for others to the same destination.
fn judge(status: StatusCode) -> Result<(), Undelivered> {
    let told = format!("answered with {}", status.as_u16());
    match status {
        status if status.is_success() => Ok(()),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => {
            Err(Undelivered::Failed(told))
        }
        status if status.is_client_error() => Err(Undelivered::Refused(told)),
        // Redirects are not followed: what is signed goes where the operator said, or nowhere.
        _ => Err(Undelivered::Failed(told)),
    }
}

impl Line {
    fn new(destinations: HashMap<String, Destination>) -> Result<Self, NoTls> {
        let is_secure = destinations.values().any(|to| to.address.is_secure());
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(tls(is_secure)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        let http = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(MAX_IDLE)
            .build(connector);
        Ok(Self { destinations, http })
    }

    async fn post(&self, to: &Destination, body: &Bytes) -> Result<StatusCode, String> {
        let request = Request::post(to.address.uri().clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, USER_AGENT)
            .header(SIGNATURE, to.secret.sign(body))
            .body(Full::new(body.clone()))
            .map_err(|_| "no request can be made".to_owned())?;
        let answer = self.http.request(request).await;
        let answer = answer.map_err(|error| format!("cannot be reached: {}", innermost(&error)))?;
        let status = answer.status();
        // Its status says all, so nobody waits for the rest. It is taken so that the connection can be used again.
        let rest = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect();
        tokio::spawn(timeout(LONGEST_REST, rest));
        Ok(status)
    }
}

/// Trusts the platform's roots. Reading them takes a while, so it is done for `https` only.
fn tls(is_secure: bool) -> Result<rustls::ClientConfig, NoTls> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| NoTls(error.to_string()))?;
    let config = match is_secure {
        true => config
            .with_native_roots()
            .map_err(|error| NoTls(error.to_string()))?,
        false => config.with_root_certificates(rustls::RootCertStore::empty()),
    };
    Ok(config.with_no_client_auth())
}

/// Returns the innermost cause of an error: those around it may quote the address.
fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut last = error;
    while let Some(next) = last.source() {
        last = next;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_says_if_it_is_the_dispatch_or_the_destination() {
        let named = |status: u16| match judge(StatusCode::from_u16(status).unwrap()) {
            Ok(()) => "arrived",
            Err(Undelivered::Refused(_)) => "refused",
            Err(Undelivered::Failed(_)) => "failed",
        };
        for (status, expected) in [
            (200, "arrived"),
            (202, "arrived"),
            (204, "arrived"),
            (301, "failed"),
            (400, "refused"),
            (404, "refused"),
            (408, "failed"),
            (410, "refused"),
            (429, "failed"),
            (500, "failed"),
            (503, "failed"),
        ] {
            assert_eq!(named(status), expected, "{status}");
        }
    }
}
