//! TLS on the main address, with the certificates that the client's tests have.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;

use asyncgate_client::Client;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::harness::{DEADLINE, KEY, Launch, Server};

fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../client/tests/gate/tls");
    folder.join(name)
}

fn launch(certificate: &str, key: &str) -> Launch {
    let (certificate, key) = (file(certificate), file(key));
    Launch::new().args(&[
        "--tls",
        "--tls-cert",
        certificate.to_str().unwrap(),
        "--tls-key",
        key.to_str().unwrap(),
    ])
}

/// A connection that offers these protocols.
fn secure(server: &Server, protocols: &[&str]) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(file("ca.pem")).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    StreamOwned::new(connection, stream)
}

#[test]
fn clients_that_trust_the_certificate_are_served() {
    let server = launch("server.pem", "server.key").start();
    let root = std::fs::read(file("ca.pem")).unwrap();
    let address = format!("https://localhost:{}", server.address.port());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = Client::builder(address).key(KEY).trusted_roots(root);
        client.build().unwrap().get_config().await.unwrap();
    });

    let mut old = secure(&server, &["http/1.1"]);
    old.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    // The end of the connection may come without a word of TLS.
    let _ = old.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let hsts = "strict-transport-security: max-age=31536000; includeSubDomains";
    assert!(answer.contains(hsts), "{answer}");

    let mut new = secure(&server, &["h2", "http/1.1"]);
    new.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .unwrap();
    let mut frame = [0; 9];
    new.read_exact(&mut frame).unwrap();
    assert_eq!(frame[3], 4, "the server's settings come first: {frame:?}");
    assert_eq!(new.conn.alpn_protocol(), Some(&b"h2"[..]));
}

#[test]
fn who_does_not_speak_tls_gets_nothing() {
    let server = launch("server.pem", "server.key").start();
    let mut plain = TcpStream::connect(server.address).unwrap();
    plain.set_read_timeout(Some(DEADLINE)).unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn a_certificate_that_cannot_be_used_stops_the_start() {
    for (certificate, key, told) in [
        ("nowhere.pem", "server.key", "tls.cert_path"),
        ("server.key", "server.key", "no certificate"),
        ("server.pem", "nowhere.key", "tls.key_path"),
        ("server.pem", "server.pem", "tls.key_path"),
    ] {
        let ended = launch(certificate, key).refused();
        assert!(ended.complaint().contains(told), "{ended:?}");
    }
    let ended = Launch::new().args(&["--tls"]).refused();
    assert!(
        ended.complaint().contains("needs tls.cert_path"),
        "{ended:?}"
    );
}
