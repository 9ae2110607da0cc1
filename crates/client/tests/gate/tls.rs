//! `https`: a server whose certificate is trusted, and those whose is not.
//!
//! The certificates in this folder are for tests only: a root of its own, and `localhost` under it.

use std::{net::SocketAddr, sync::Arc};

use asyncgate_client::{Client, Kind, Retry};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::server::{Gate, KEY, PATIENCE};

const ROOT: &[u8] = include_bytes!("tls/ca.pem");
const CERTIFICATE: &[u8] = include_bytes!("tls/server.pem");
const PRIVATE_KEY: &[u8] = include_bytes!("tls/server.key");

/// Takes TLS off in front of a gate.
async fn front(gate: SocketAddr) -> SocketAddr {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(CERTIFICATE).expect("a certificate")],
            PrivateKeyDer::from_pem_slice(PRIVATE_KEY).expect("a key"),
        )
        .expect("a config");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut secure = acceptor.accept(connection).await.ok()?;
                let mut plain = TcpStream::connect(gate).await.ok()?;
                tokio::io::copy_bidirectional(&mut secure, &mut plain)
                    .await
                    .ok()
            });
        }
    });
    addr
}

#[tokio::test]
async fn a_certificate_is_checked() {
    let gate = Gate::start().await;
    let addr = front(gate.addr).await;
    let client = |address: String| {
        Client::builder(address)
            .key(KEY)
            .retry(Retry::NONE)
            .connect_timeout(PATIENCE)
    };
    for host in ["localhost", "127.0.0.1"] {
        let trusting = client(format!("https://{host}:{}", addr.port())).trusted_roots(ROOT);
        let trusting = trusting.build().expect("a client");
        trusting.get_config().await.expect("an answer");
    }
    let strange = client(format!("https://localhost:{}", addr.port()));
    let error = strange.build().expect("a client").get_config().await;
    let error = error.expect_err("an unknown root");
    assert_eq!(*error.kind(), Kind::Unreachable);
    assert!(
        error.to_string().contains("no secure connection") && error.to_string().contains("cert"),
        "{error}"
    );
    let plain = client(format!("https://localhost:{}", gate.addr.port()));
    let error = plain.build().expect("a client").get_config().await;
    assert_eq!(*error.expect_err("no TLS there").kind(), Kind::Unreachable);
    let empty = client("https://localhost".to_owned()).trusted_roots("nothing");
    assert!(empty.build().is_err());
}
