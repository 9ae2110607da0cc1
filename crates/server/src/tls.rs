//! TLS on the main address: HTTP/2 or HTTP/1.1, as the client chooses.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::time_provider::TimeProvider;
use tokio_rustls::TlsAcceptor;

use crate::clock;
use crate::reloadable::Reloadable;

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

/// The certificate in force. New connections get the one that was read last.
pub struct Tls {
    files: Files,
    acceptor: Reloadable<TlsAcceptor>,
}

impl Tls {
    /// Reads the certificate in these files.
    pub fn open(files: &Files) -> anyhow::Result<Self> {
        Ok(Self {
            files: files.clone(),
            acceptor: Reloadable::new(acceptor(files)?),
        })
    }

    /// Returns what speaks TLS with the certificate in force.
    pub fn acceptor(&self) -> Reloadable<TlsAcceptor> {
        self.acceptor.clone()
    }

    /// Reads the files again. A certificate that cannot be used changes nothing.
    pub fn reload(&self) {
        match acceptor(&self.files) {
            // Sessions of the old certificate go with it: nobody resumes one and so misses the new.
            Ok(acceptor) => {
                self.acceptor.set(acceptor);
                tracing::info!(event = "tls.reload", "the certificate was read again");
            }
            Err(error) => {
                let error = format!("{error:#}");
                tracing::error!(
                    event = "tls.reload",
                    error,
                    "the certificate stays as it was"
                );
            }
        }
    }
}

fn acceptor(files: &Files) -> anyhow::Result<TlsAcceptor> {
    let certificates = certificates(&files.certificates)
        .with_context(|| format!("tls.cert_path: {}", files.certificates.display()))?;
    let key = private_key(&files.key)
        .with_context(|| format!("tls.key_path: {}", files.key.display()))?;
    let mut config =
        ServerConfig::builder_with_details(Arc::new(default_provider()), Arc::new(Wall))
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

fn private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let metadata = std::fs::metadata(path).context("cannot read a private key in PEM form")?;
    // Distributions and Kubernetes give keys of root to a group that the server belongs to.
    let forbidden = if metadata.uid() == 0 { 0o037 } else { 0o077 };
    let mode = metadata.permissions().mode() & 0o777;
    anyhow::ensure!(
        mode & forbidden == 0,
        "others than its owner may read the private key (its mode is {mode:o}); set it to 600"
    );
    PrivateKeyDer::from_pem_file(path).context("cannot read a private key in PEM form")
}

/// Gives TLS the machine's time. The one that it would read itself cannot be before 1970.
#[derive(Debug)]
struct Wall;

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let millis = u64::try_from(clock::wall().as_millis()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_millis(millis)))
    }
}
