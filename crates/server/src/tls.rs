//! TLS on the main address: HTTP/2 or HTTP/1.1, as the client chooses; certificates of clients, if they are asked for;
//! and the key exchanges that `pq.mode` allows.
//!
//! A client's certificate lets its connection in, and nothing more: who calls is said by the credential of each request.

mod accept;
mod exchange;
mod subject;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use asyncgate_engine::CryptoMetrics;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{DEFAULT_VERSIONS, RootCertStore, ServerConfig, SupportedProtocolVersion, version};

use crate::clock;
use crate::reloadable::Reloadable;
pub use accept::Acceptor;
use exchange::Exchanges;

/// The names of the protocols in the handshake; the preferred one comes first.
pub const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// The settings of TLS.
#[derive(Debug, Clone)]
pub struct Options {
    /// The file of the chain, the server's own certificate first.
    pub certificates: PathBuf,
    /// The file of the key of the first certificate.
    pub key: PathBuf,
    /// The certificates that clients show.
    pub clients: ClientAuth,
    /// The key exchanges.
    pub pq: PqMode,
}

/// The certificates that clients show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientAuth {
    /// Nobody is asked for one.
    Off,
    /// Who has one shows it, and it must be good. The file holds the roots that clients' certificates come from.
    Optional(PathBuf),
    /// Nobody gets in without a good one.
    Required(PathBuf),
}

/// The key exchanges that clients can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PqMode {
    /// Classical ones.
    Off,
    /// The hybrid one for every client that knows it, and classical ones for the others.
    Hybrid,
    /// The hybrid one for every client that knows it; the others are refused.
    Only,
}

impl PqMode {
    /// Returns its name in settings and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Hybrid => "hybrid",
            Self::Only => "only",
        }
    }
}

/// The certificates in force. New connections get those that were read last.
pub struct Tls {
    options: Options,
    exchanges: Exchanges,
    acceptor: Reloadable<Arc<Acceptor>>,
}

impl Tls {
    /// Reads the certificates in the files of these options.
    pub fn open(options: &Options, metrics: CryptoMetrics) -> anyhow::Result<Self> {
        let exchanges = Exchanges::new(metrics);
        Ok(Self {
            options: options.clone(),
            acceptor: Reloadable::new(Arc::new(acceptor(options, &exchanges)?)),
            exchanges,
        })
    }

    /// Returns what speaks TLS with the certificates in force.
    pub fn acceptor(&self) -> Reloadable<Arc<Acceptor>> {
        self.acceptor.clone()
    }

    /// Reads the files again. If one of them cannot be used, nothing changes.
    pub fn reload(&self) {
        match acceptor(&self.options, &self.exchanges) {
            // Sessions of the old certificates go with them: nobody resumes one and so misses the new.
            Ok(acceptor) => {
                self.acceptor.set(Arc::new(acceptor));
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

fn acceptor(options: &Options, exchanges: &Exchanges) -> anyhow::Result<Acceptor> {
    let files = Files::read(options)?;
    let classical = || files.config(exchanges.classical(), DEFAULT_VERSIONS);
    // TLS 1.2 has no hybrid exchange.
    let hybrid = || files.config(exchanges.hybrid(), &[&version::TLS13]);
    let (able, others) = match options.pq {
        PqMode::Off => {
            let classical = classical()?;
            (classical.clone(), classical)
        }
        PqMode::Hybrid => (hybrid()?, classical()?),
        // The handshake itself refuses those who do not know the exchange.
        PqMode::Only => {
            let hybrid = hybrid()?;
            (hybrid.clone(), hybrid)
        }
    };
    Ok(Acceptor {
        mode: options.pq,
        able,
        others,
        exchanges: exchanges.clone(),
    })
}

/// The content of the files.
struct Files {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    /// What verifies the certificates of clients, if they are asked for one.
    clients: Option<Arc<dyn ClientCertVerifier>>,
}

impl Files {
    fn read(options: &Options) -> anyhow::Result<Self> {
        let certificates = certificates(&options.certificates)
            .with_context(|| format!("tls.cert_path: {}", options.certificates.display()))?;
        let key = private_key(&options.key)
            .with_context(|| format!("tls.key_path: {}", options.key.display()))?;
        let verifier = |path: &Path, required| {
            verifier(path, required).with_context(|| format!("tls.client_ca: {}", path.display()))
        };
        let clients = match &options.clients {
            ClientAuth::Off => None,
            ClientAuth::Optional(roots) => Some(verifier(roots, false)?),
            ClientAuth::Required(roots) => Some(verifier(roots, true)?),
        };
        Ok(Self {
            certificates,
            key,
            clients,
        })
    }

    fn config(
        &self,
        provider: CryptoProvider,
        versions: &[&'static SupportedProtocolVersion],
    ) -> anyhow::Result<Arc<ServerConfig>> {
        let builder = ServerConfig::builder_with_details(Arc::new(provider), Arc::new(Wall))
            .with_protocol_versions(versions)?;
        let builder = match &self.clients {
            Some(verifier) => builder.with_client_cert_verifier(verifier.clone()),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder
            .with_single_cert(self.certificates.clone(), self.key.clone_key())
            .context("tls.key_path is not the key of the certificate in tls.cert_path")?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        if self.clients.is_some() {
            // A session that is resumed shows no certificate, so one that has expired meanwhile would still count.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }
}

/// Makes what verifies clients' certificates against the roots in a file.
fn verifier(path: &Path, required: bool) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for root in certificates(path)? {
        roots
            .add(root)
            .context("a certificate in it cannot be a root")?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = match required {
        true => builder,
        false => builder.allow_unauthenticated(),
    };
    Ok(builder.build()?)
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
