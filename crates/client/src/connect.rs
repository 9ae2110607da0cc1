//! Makes connections: a name is resolved to addresses, each address is checked, and the connection
//! goes to one that passed.
//!
//! The resolver is inside the connector, so that no second look-up can give another answer than
//! the one that was checked.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use asyncgate_api::is_public;
use hyper_util::client::legacy::connect::{HttpConnector, dns::Name};
use tower::Service;

use crate::Error;

#[cfg(feature = "tls")]
pub(crate) type Connector = hyper_rustls::HttpsConnector<HttpConnector<Resolver>>;
#[cfg(not(feature = "tls"))]
pub(crate) type Connector = HttpConnector<Resolver>;

/// The addresses that connections may go to.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
    Anywhere,
    /// Addresses of the public internet, and these.
    PublicAnd(Arc<[IpAddr]>),
}

impl Reach {
    pub fn allows(&self, address: IpAddr) -> bool {
        match self {
            Self::Anywhere => true,
            Self::PublicAnd(others) => is_public(address) || others.contains(&address),
        }
    }
}

/// The settings of connections.
#[derive(Debug, Clone)]
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "some of it is only about TLS")
)]
pub(crate) struct Options {
    pub reach: Reach,
    pub timeout: Duration,
    /// True if `https` will be used. Otherwise the platform's roots are not read, which takes a while.
    pub secure: bool,
    /// Trusted roots as PEM, in the place of the platform's.
    pub roots: Option<Vec<u8>>,
    /// The client's own certificate.
    pub certificate: Option<Certificate>,
}

/// A certificate and its key as PEM.
#[derive(Clone)]
#[cfg_attr(
    not(feature = "tls"),
    expect(dead_code, reason = "only TLS has certificates")
)]
pub(crate) struct Certificate {
    pub chain: Vec<u8>,
    pub key: Vec<u8>,
}

impl fmt::Debug for Certificate {
    /// Shows nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

pub(crate) fn connector(options: &Options) -> Result<Connector, Error> {
    let mut http = HttpConnector::new_with_resolver(Resolver(options.reach.clone()));
    http.set_nodelay(true);
    http.enforce_http(false);
    http.set_connect_timeout(Some(options.timeout));
    http.set_keepalive(Some(Duration::from_secs(30)));
    wrap(http, options)
}

#[cfg(not(feature = "tls"))]
fn wrap(mut http: HttpConnector<Resolver>, _: &Options) -> Result<Connector, Error> {
    http.enforce_http(true);
    Ok(http)
}

#[cfg(feature = "tls")]
fn wrap(http: HttpConnector<Resolver>, options: &Options) -> Result<Connector, Error> {
    Ok(hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls(options)?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(http))
}

#[cfg(feature = "tls")]
fn tls(options: &Options) -> Result<rustls::ClientConfig, Error> {
    use hyper_rustls::ConfigBuilderExt;
    use rustls::pki_types::{CertificateDer, pem::PemObject};

    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::invalid(format!("TLS cannot be set up: {error}")))?;
    let unusable = |error: String| {
        Error::invalid(format!(
            "the trusted roots are unusable: {error}; give certificates as PEM"
        ))
    };
    if !options.secure {
        let none = rustls::RootCertStore::empty();
        return Ok(config.with_root_certificates(none).with_no_client_auth());
    }
    let Some(pem) = options.roots.as_deref() else {
        // A machine without any root can still use plain http: its https handshakes will fail.
        let config = match config.clone().with_native_roots() {
            Ok(config) => config,
            Err(error) => {
                tracing::warn!(%error, "no trusted roots found; https will not work, set SSL_CERT_FILE");
                config.with_root_certificates(rustls::RootCertStore::empty())
            }
        };
        return identified(config, options.certificate.as_ref());
    };
    let mut store = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        store
            .add(certificate)
            .map_err(|error| unusable(error.to_string()))?;
    }
    if store.is_empty() {
        return Err(unusable("there is no certificate in them".to_owned()));
    }
    let config = config.with_root_certificates(store);
    identified(config, options.certificate.as_ref())
}

/// Lets connections show the client's certificate, if it has one.
#[cfg(feature = "tls")]
fn identified(
    config: rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert>,
    certificate: Option<&Certificate>,
) -> Result<rustls::ClientConfig, Error> {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

    let Some(certificate) = certificate else {
        return Ok(config.with_no_client_auth());
    };
    let unusable = |error: &dyn fmt::Display| {
        Error::invalid(format!("the client's certificate is unusable: {error}"))
    };
    let chain = CertificateDer::pem_slice_iter(&certificate.chain);
    let chain: Vec<_> = chain
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(&error))?;
    let key = PrivateKeyDer::from_pem_slice(&certificate.key).map_err(|error| unusable(&error))?;
    config
        .with_client_auth_cert(chain, key)
        .map_err(|error| unusable(&error))
}

/// Looks names up and leaves out the addresses that may not be reached. An address that stands in a
/// URL as a number does not come here: `http_get` checks it before.
#[derive(Debug, Clone)]
pub(crate) struct Resolver(Reach);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Unresolved>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let reach = self.0.clone();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0))
                .await
                .map_err(Unresolved::Unknown)?;
            let mut allowed: Vec<SocketAddr> = Vec::new();
            let mut refused = None;
            for address in found {
                if reach.allows(address.ip()) {
                    allowed.push(address);
                } else {
                    refused = Some(address.ip());
                }
            }
            match refused {
                Some(address) if allowed.is_empty() => Err(Unresolved::NotPublic(address)),
                _ => Ok(allowed.into_iter()),
            }
        })
    }
}

/// The reason why a name has no usable address.
#[derive(Debug)]
pub(crate) enum Unresolved {
    Unknown(io::Error),
    NotPublic(IpAddr),
}

impl fmt::Display for Unresolved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(error) => write!(f, "the host is unknown ({error})"),
            Self::NotPublic(address) => write!(f, "{address} is not a public address"),
        }
    }
}

impl std::error::Error for Unresolved {}

/// Explains why a connection could not be made, in words that a person can act on.
pub(crate) fn explain(base: &str, error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error.to_string();
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(unresolved) = error.downcast_ref::<Unresolved>() {
            return format!("cannot reach {base}: {unresolved}; check the address");
        }
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return explain_io(base, io);
        }
        last = error.to_string();
        next = error.source();
    }
    format!("cannot reach {base}: {last}")
}

fn explain_io(base: &str, error: &io::Error) -> String {
    if error.kind() == io::ErrorKind::ConnectionRefused {
        return format!("nothing listens at {base} (connection refused); is the server running?");
    }
    if error.kind() == io::ErrorKind::TimedOut {
        return format!("no connection to {base} in time; is the address right?");
    }
    if base.starts_with("https:") && error.get_ref().is_some() {
        return format!("no secure connection to {base}: {error}");
    }
    format!("cannot reach {base}: {error}")
}
