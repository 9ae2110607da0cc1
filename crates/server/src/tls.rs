//! TLS on the main address: HTTP/2 or HTTP/1.1, as the client chooses.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// The names of the protocols in the handshake; the preferred one comes first.
pub const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The files of the certificate chain and its private key.
#[derive(Debug, Clone)]
pub struct Files {
    /// The chain, the server's own certificate first.
    pub certificates: PathBuf,
    /// The key of the first certificate.
    pub key: PathBuf,
}

/// Returns an acceptor that speaks TLS with the certificate in these files.
pub fn acceptor(files: &Files) -> anyhow::Result<TlsAcceptor> {
    let certificates = certificates(&files.certificates)
        .with_context(|| format!("tls.cert_path: {}", files.certificates.display()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .context("cannot read a private key in PEM form")
        .with_context(|| format!("tls.key_path: {}", files.key.display()))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .context("tls.key_path is not the key of the certificate in tls.cert_path")?;
    config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let found =
        CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.context("cannot read certificates in PEM form")?;
    anyhow::ensure!(!found.is_empty(), "there is no certificate in PEM form");
    Ok(found)
}
