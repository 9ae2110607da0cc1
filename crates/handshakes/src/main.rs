//! Clients that make TLS handshakes and nothing else, for `cargo xtask bench auth --only handshake`.
//!
//!     cargo run --release -p asyncgate-handshakes -- 127.0.0.1:8443 ca.pem hybrid 5
//!
//! It prints the number of handshakes. No session is resumed: each handshake is a whole one.

#![expect(clippy::print_stdout, reason = "the number is the point")]
#![expect(clippy::disallowed_methods, reason = "it runs for a given time")]

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{CryptoProvider, SupportedKxGroup};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

/// Enough to keep two cores busy: each waits while the server works.
const THREADS: usize = 4;

#[derive(Debug, Parser)]
struct Options {
    address: SocketAddr,
    /// The root of the server's certificate.
    root: PathBuf,
    offer: Offer,
    seconds: u64,
}

/// What the clients offer.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Offer {
    /// X25519 alone.
    Classical,
    /// The hybrid exchange first, with a share for it.
    Hybrid,
    /// Both, with a share for X25519 alone: a server that wants the other asks again.
    Retry,
}

impl Offer {
    fn groups(self) -> Vec<&'static dyn SupportedKxGroup> {
        match self {
            Self::Classical => vec![kx_group::X25519],
            Self::Hybrid => vec![kx_group::X25519MLKEM768, kx_group::X25519],
            Self::Retry => vec![kx_group::X25519, kx_group::X25519MLKEM768],
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    let config = Arc::new(config(&options)?);
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let clients: Vec<_> = (0..THREADS)
        .map(|_| {
            let (config, address) = (config.clone(), options.address);
            thread::spawn(move || client(&config, address, end))
        })
        .collect();
    let mut made = 0;
    for client in clients {
        made += client.join().map_err(|_| "a client panicked")??;
    }
    println!("{made}");
    Ok(())
}

fn config(options: &Options) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&options.root)?)?;
    let provider = CryptoProvider {
        kx_groups: options.offer.groups(),
        ..default_provider()
    };
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn client(config: &Arc<ClientConfig>, address: SocketAddr, end: Instant) -> Result<u64, Failure> {
    let name = ServerName::try_from("localhost")?;
    let mut made = 0;
    while Instant::now() < end {
        let mut session = ClientConnection::new(config.clone(), name.clone())?;
        shake(&mut session, address)?;
        made += 1;
    }
    Ok(made)
}

fn shake(session: &mut ClientConnection, address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    while session.is_handshaking() {
        session.complete_io(&mut stream)?;
    }
    session.send_close_notify();
    while session.wants_write() {
        session.write_tls(&mut stream)?;
    }
    // The server closes when it has read the last message, so its part of the handshake is over too.
    io::copy(&mut stream, &mut io::sink())?;
    Ok(())
}
