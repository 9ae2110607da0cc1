//! Certificates of clients.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use asyncgate_client::{Client, Retry};
use rustls::{ClientConfig, HandshakeKind};

use crate::harness::{KEY, Launch, Server, eventually, run};
use crate::tls::{Peer, ask, connect, copy, launch, other_file};

/// The file of a client's certificate or key, or of the root that they come from.
fn file(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/blackbox/certificates");
    folder.join(name)
}

/// A server that asks clients for certificates, with a copy of their root as `clients.pem` in its directory.
fn asking(how: &str) -> Launch {
    let launch = launch("server.pem", "server.key")
        .set(&format!("tls.client_auth={how}"))
        .set("tls.client_ca=clients.pem");
    copy(&file("ca.pem"), &launch.dir().join("clients.pem"));
    launch
}

fn with(certificate: PathBuf, key: PathBuf) -> Arc<ClientConfig> {
    let identity = Some((certificate, key));
    Peer {
        identity,
        ..Peer::default()
    }
    .config()
}

fn known() -> Arc<ClientConfig> {
    with(file("client.pem"), file("client.key"))
}

fn without() -> Arc<ClientConfig> {
    Peer::default().config()
}

/// The answer to a request, or why there is none.
fn answer(server: &Server, config: Arc<ClientConfig>, path: &str) -> Result<String, String> {
    let answer = ask(&mut connect(server, config), path);
    answer.map_err(|error| error.to_string())
}

#[track_caller]
fn is_served(server: &Server, config: Arc<ClientConfig>) {
    let answer = answer(server, config, "/healthz").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[track_caller]
fn is_refused(server: &Server, config: Arc<ClientConfig>, alert: &str) {
    let error = answer(server, config, "/healthz").unwrap_err();
    assert!(error.contains(alert), "{error}");
}

#[test]
fn where_certificates_are_required_nobody_gets_in_without_a_good_one() {
    let server = asking("required").start();
    is_served(&server, known());
    is_refused(&server, without(), "CertificateRequired");
    for (certificate, key) in [
        // Its time is over.
        (file("expired.pem"), file("expired.key")),
        // It comes from another root.
        (other_file("client.pem"), other_file("client.key")),
        // Somebody else has its key.
        (file("client.pem"), file("expired.key")),
    ] {
        is_refused(&server, with(certificate, key), "fatal alert");
    }
    let metrics = answer(&server, known(), "/metrics").unwrap();
    assert!(
        metrics.contains("tls_handshake_failures_total 4\n"),
        "{metrics}"
    );
}

#[test]
fn where_they_are_optional_only_bad_ones_are_refused() {
    let server = asking("optional").start();
    is_served(&server, known());
    is_served(&server, without());
    let expired = with(file("expired.pem"), file("expired.key"));
    is_refused(&server, expired, "fatal alert");
}

#[test]
fn a_certificate_is_no_credential_and_its_subject_is_for_debug() {
    for (level, shown) in [("debug", true), ("info", false)] {
        let server = asking("required")
            .set(&format!("log.level={level}"))
            .start();
        let refused = answer(&server, known(), "/v1/config").unwrap();
        assert!(refused.starts_with("HTTP/1.1 401"), "{refused}");
        let log = server.stop().stderr;
        assert_eq!(log.contains("worker-7"), shown, "{log}");
        if shown {
            let line = log.lines().find(|line| line.contains("worker-7")).unwrap();
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["event"], "tls.accepted");
            assert_eq!(line["client_subject"], "O=Example,CN=worker-7");
            assert_eq!(line["pq_mode"], "off");
            assert!(line["remote_addr"].is_string(), "{line}");
        }
    }
}

#[test]
fn the_rust_client_and_the_command_line_show_theirs() {
    let server = asking("required").start();
    let address = format!("https://localhost:{}", server.address.port());
    let read = |path: PathBuf| fs::read(path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let client = || {
            let root = read(crate::tls::file("ca.pem"));
            Client::builder(&*address).key(KEY).trusted_roots(root)
        };
        let (chain, key) = (read(file("client.pem")), read(file("client.key")));
        let shown = client().certificate(chain.clone(), key);
        shown.build().unwrap().get_config().await.unwrap();
        let none = client().retry(Retry::NONE).build().unwrap();
        none.get_config().await.unwrap_err();
        let broken = client().certificate(chain, "no key").build().unwrap_err();
        assert!(broken.to_string().contains("certificate"), "{broken}");
    });

    let status = |more: &[(&str, PathBuf)]| {
        let mut command = server.launch().bare_command();
        command
            .args(["status", "--url", &address])
            .env("SSL_CERT_FILE", crate::tls::file("ca.pem"));
        for (flag, path) in more {
            command.arg(flag).arg(path);
        }
        run(command).status.success()
    };
    let certificate = ("--client-cert", file("client.pem"));
    let key = ("--client-key", file("client.key"));
    assert!(status(&[certificate.clone(), key]));
    assert!(!status(&[]), "it has no certificate");
    assert!(!status(&[certificate]), "it has no key");
}

/// A session that goes on would show no certificate, so one that has expired since would still count.
#[test]
fn a_client_with_a_certificate_shows_it_for_every_connection() {
    let kinds = |server: &Server, config: Arc<ClientConfig>| {
        [(); 2].map(|()| {
            let mut stream = connect(server, config.clone());
            ask(&mut stream, "/healthz").unwrap();
            stream.conn.handshake_kind().unwrap()
        })
    };
    let full = HandshakeKind::Full;
    let server = asking("optional").start();
    assert_eq!(kinds(&server, known()), [full, full]);
    let server = launch("server.pem", "server.key").start();
    assert_eq!(kinds(&server, known()), [full, HandshakeKind::Resumed]);
}

#[test]
fn a_reload_brings_the_new_roots_and_keeps_the_old_ones_if_the_new_are_bad() {
    let launch = asking("required");
    let roots = launch.dir().join("clients.pem");
    copy(&other_file("ca.pem"), &roots);
    let server = launch.start();
    let other = || with(other_file("client.pem"), other_file("client.key"));
    is_served(&server, other());
    is_refused(&server, known(), "fatal alert");

    copy(&file("ca.pem"), &roots);
    server.signal("HUP");
    server.logged("the certificate was read again");
    is_served(&server, known());
    is_refused(&server, other(), "fatal alert");

    fs::write(&roots, "no root").unwrap();
    server.signal("HUP");
    eventually("the old ones are kept", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("stays as it was"))?;
        assert!(line.contains("tls.client_ca"), "{line}");
        Some(())
    });
    is_served(&server, known());
    is_refused(&server, without(), "CertificateRequired");
}

#[test]
fn roots_that_cannot_be_used_stop_the_start() {
    let spoils: [(&dyn Fn(PathBuf), &str); 3] = [
        (&|roots| fs::remove_file(roots).unwrap(), "cannot read"),
        (&|roots| fs::write(roots, "").unwrap(), "no certificate"),
        (&|roots| copy(&file("client.key"), &roots), "no certificate"),
    ];
    for (spoil, told) in spoils {
        let launch = asking("required");
        spoil(launch.dir().join("clients.pem"));
        let ended = launch.refused();
        let complaint = ended.complaint();
        assert!(
            complaint.contains("tls.client_ca") && complaint.contains(told),
            "{ended:?}"
        );
    }
}
