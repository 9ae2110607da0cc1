//! TLS to Redis: whom it trusts, and the handshake.

use std::{fmt, io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::address::{ClientFiles, TlsFiles};

/// A file of TLS that cannot be used, or roots that are missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadSetup(String);

/// The client's side of TLS. A clone shares the sessions that it can resume.
#[derive(Clone)]
pub(crate) struct Tls(TlsConnector);

/// Without the client's key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files. Certificates that are replaced later count from the next start on.
    pub(crate) fn new(files: &TlsFiles) -> Result<Self, BadSetup> {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| BadSetup(format!("TLS cannot be set up: {error}")))?
            .with_root_certificates(match &files.ca {
                Some(path) => roots_in(path)?,
                None => roots_of_platform()?,
            });
        let config = match &files.client {
            Some(ClientFiles { cert, key }) => {
                let chain = certificates("cert", cert)?;
                let private = PrivateKeyDer::from_pem_file(key)
                    .map_err(|error| bad_file("key", key, error))?;
                config
                    .with_client_auth_cert(chain, private)
                    .map_err(|error| bad_file("key", key, error))?
            }
            None => config.with_no_client_auth(),
        };
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Shakes hands with a server whose certificate must be for `host`: a name or an IP address.
    pub(crate) async fn handshake(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        self.0.connect(name, stream).await
    }
}

fn roots_in(path: &Path) -> Result<RootCertStore, BadSetup> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca", path)? {
        let added = roots.add(certificate);
        added.map_err(|error| bad_file("ca", path, error))?;
    }
    Ok(roots)
}

fn roots_of_platform() -> Result<RootCertStore, BadSetup> {
    let mut roots = RootCertStore::empty();
    // Platforms come with some certificates that nobody can read any more; the others count.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match roots.is_empty() {
        true => Err(BadSetup(
            "the platform has no trusted certificates; name a file of them by ?ca=path".to_owned(),
        )),
        false => Ok(roots),
    }
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, BadSetup> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let found = found.map_err(|error| bad_file(option, path, error))?;
    match found.is_empty() {
        true => Err(bad_file(
            option,
            path,
            "there is no certificate in PEM form",
        )),
        false => Ok(found),
    }
}

fn bad_file(option: &str, path: &Path, cause: impl fmt::Display) -> BadSetup {
    BadSetup(format!("{option}={}: {cause}", path.display()))
}
