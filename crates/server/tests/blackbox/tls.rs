//! TLS on the main address, with the certificates that the client's tests have.

use std::fs::{self, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use asyncgate_client::Client;
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, ClientConnection, DEFAULT_VERSIONS, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::harness::{DEADLINE, KEY, Launch, Server, eventually};

/// A file of the server's certificate.
pub fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../client/tests/gate/tls");
    folder.join(name)
}

/// A certificate of another root, for the same names.
pub fn other_file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../host-redis/tests/redis/tls");
    folder.join(name)
}

/// Copies a file, if it is there, for its owner only.
pub fn copy(from: &Path, to: &Path) {
    if from.exists() {
        fs::write(to, fs::read(from).unwrap()).unwrap();
        fs::set_permissions(to, Permissions::from_mode(0o600)).unwrap();
    }
}

/// A server with copies of these files in its directory, as `cert.pem` and `key.pem`.
pub fn launch(certificate: &str, key: &str) -> Launch {
    let launch = Launch::new().args(&["--tls", "--tls-cert", "cert.pem", "--tls-key", "key.pem"]);
    copy(&file(certificate), &launch.dir().join("cert.pem"));
    copy(&file(key), &launch.dir().join("key.pem"));
    launch
}

/// A client that speaks TLS.
pub struct Peer {
    pub provider: CryptoProvider,
    pub versions: &'static [&'static SupportedProtocolVersion],
    pub protocols: &'static [&'static str],
    /// The files of its certificate and key, if it has one.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl Default for Peer {
    fn default() -> Self {
        Self {
            provider: default_provider(),
            versions: DEFAULT_VERSIONS,
            protocols: &["http/1.1"],
            identity: None,
        }
    }
}

impl Peer {
    pub fn config(self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for root in [file("ca.pem"), other_file("ca.pem")] {
            let root = CertificateDer::from_pem_file(root).unwrap();
            roots.add(root).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(self.provider))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match self.identity {
            Some((certificate, key)) => {
                let certificate = CertificateDer::from_pem_file(certificate).unwrap();
                let key = PrivateKeyDer::from_pem_file(key).unwrap();
                let key = any_supported_type(&key).unwrap();
                // Nobody checks here that the two belong together: that is for the server.
                let identity = CertifiedKey::new(vec![certificate], key);
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(identity)))
            }
            None => builder.with_no_client_auth(),
        };
        let protocols = self.protocols.iter().map(|name| name.as_bytes().to_vec());
        config.alpn_protocols = protocols.collect();
        Arc::new(config)
    }
}

/// A connection of TLS.
pub type Secure = StreamOwned<ClientConnection, TcpStream>;

pub fn connect(server: &Server, config: Arc<ClientConfig>) -> Secure {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(config, name).unwrap();
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    StreamOwned::new(connection, stream)
}

/// Asks for something, and returns all that the server says until it closes the connection.
pub fn ask(stream: &mut Secure, path: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    // The end of the connection may come without a word of TLS.
    if answer.is_empty() {
        read?;
    }
    Ok(String::from_utf8(answer).unwrap())
}

/// A connection that offers these protocols.
fn secure(server: &Server, protocols: &'static [&'static str]) -> Secure {
    let peer = Peer {
        protocols,
        ..Peer::default()
    };
    connect(server, peer.config())
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
    let answer = ask(&mut old, "/healthz").unwrap();
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

/// The certificate that a new connection is shown.
fn shown(server: &Server) -> Vec<u8> {
    let mut stream = secure(server, &["http/1.1"]);
    let answer = ask(&mut stream, "/healthz").unwrap();
    assert!(answer.starts_with("HTTP"), "{answer}");
    stream.conn.peer_certificates().unwrap()[0].to_vec()
}

fn certificate(path: PathBuf) -> Vec<u8> {
    CertificateDer::from_pem_file(path).unwrap().to_vec()
}

#[test]
fn a_reload_brings_the_new_certificate_and_keeps_the_old_one_if_the_new_is_bad() {
    let launch = launch("server.pem", "server.key");
    let server = launch.start();
    let mut old = secure(&server, &["http/1.1"]);
    let ask = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    old.write_all(ask).unwrap();
    old.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(shown(&server), certificate(file("server.pem")));

    let (cert, key) = (launch.dir().join("cert.pem"), launch.dir().join("key.pem"));
    copy(&other_file("server.pem"), &cert);
    copy(&other_file("server.key"), &key);
    server.signal("HUP");
    server.logged("the certificate was read again");
    assert_eq!(shown(&server), certificate(other_file("server.pem")));
    // A connection from before goes on.
    old.write_all(ask).unwrap();
    old.read_exact(&mut [0; 4]).unwrap();

    let spoils: [&dyn Fn(); 3] = [
        &|| fs::write(&cert, "no certificate").unwrap(),
        &|| copy(&file("server.pem"), &cert),
        &|| fs::remove_file(&key).unwrap(),
    ];
    for (n, spoil) in spoils.into_iter().enumerate() {
        spoil();
        server.signal("HUP");
        let kept = || {
            server
                .log()
                .matches("the certificate stays as it was")
                .count()
                > n
        };
        eventually("the old one is kept", || kept().then_some(()));
        assert_eq!(shown(&server), certificate(other_file("server.pem")));
    }
    let log = server.stop().stderr;
    assert!(log.contains("tls.key_path"), "{log}");
}

#[test]
fn a_key_that_others_can_read_stops_the_start() {
    for mode in [0o644, 0o604, 0o660] {
        let launch = launch("server.pem", "server.key");
        let key = launch.dir().join("key.pem");
        fs::set_permissions(&key, Permissions::from_mode(mode)).unwrap();
        let ended = launch.refused();
        let complaint = ended.complaint();
        let told = "others than its owner may read the private key";
        assert!(
            complaint.contains("tls.key_path") && complaint.contains(told),
            "{ended:?}"
        );
    }
}

#[test]
fn an_address_that_others_can_reach_without_tls_is_warned_of() {
    let warning = "credentials and payloads travel in clear text";
    let server = Launch::new().bind(Some("0.0.0.0:0")).start();
    let log = server.logged(warning);
    let line = log.lines().find(|line| line.contains(warning)).unwrap();
    assert!(line.contains("WARN"), "{line}");
    server.stop();
    assert!(!Server::start().stop().stderr.contains(warning));
    let secured = launch("server.pem", "server.key").bind(Some("0.0.0.0:0"));
    assert!(!secured.start().stop().stderr.contains(warning));
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
