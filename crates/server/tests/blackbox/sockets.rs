//! The other sockets: a file for processes of this machine, and an address for metrics.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::harness::{DEADLINE, KEY, Launch, eventually};
use crate::http::{Connection, Request};

/// Asks over a socket file; everything that comes back.
fn ask(path: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let head = format!(
        "GET {target} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\r\n"
    );
    // Whoever is not let in may find the connection closed already.
    let _ = stream.write_all(head.as_bytes());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_socket_file_serves_the_same_and_goes_with_the_server() {
    let launch = Launch::new();
    let path = launch.dir().join("run/gate.sock");
    let launch = launch.args(&["--uds", path.to_str().unwrap()]);
    let server = launch.start();
    let answer = ask(&path, "/v1/config");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    // Killed, it leaves the file behind; the next start replaces it.
    let launch = server.kill();
    assert!(path.exists());
    let server = launch.start();
    assert!(ask(&path, "/readyz").starts_with("HTTP/1.1 200"));
    server.stop();
    assert!(!path.exists());
}

#[test]
fn without_credentials_a_socket_file_may_be_called_by_any_name() {
    let launch = Launch::without_key().env("ALLOW_INSECURE_DEV", "true");
    let path = launch.dir().join("gate.sock");
    let server = launch.args(&["--uds", path.to_str().unwrap()]).start();
    let answer = ask(&path, "/v1/config");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The network is within reach of web pages, whose names stay refused.
    let rebound = Request::get("/v1/config").header("Host", "x");
    server.send_bare(&rebound).refused(403, "FORBIDDEN");
}

#[test]
fn who_is_not_on_the_list_is_closed_and_logged() {
    let launch = Launch::new();
    let path = launch.dir().join("gate.sock");
    let server = launch
        .args(&["--uds", path.to_str().unwrap()])
        .set("uds.allow_uids=4000000000")
        .start();
    assert_eq!(ask(&path, "/v1/config"), "");
    server.logged("uds.refused");
    server.get("/v1/config").expect(200);
}

#[test]
fn a_file_in_the_way_stops_the_start() {
    let launch = Launch::new();
    let path = launch.dir().join("gate.sock");
    std::fs::write(&path, "precious").unwrap();
    let launch = launch.args(&["--uds", path.to_str().unwrap()]);
    let ended = launch.refused();
    assert!(ended.complaint().contains("uds.path"), "{ended:?}");
    assert!(!launch.data().exists());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn metrics_may_have_an_address_of_their_own() {
    let server = Launch::new().args(&["--metrics", "127.0.0.1:0"]).start();
    let address: SocketAddr = eventually("the address is logged", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("\"metrics\""))?;
        let line: Value = serde_json::from_str(line).ok()?;
        line["metrics"].as_str()?.parse().ok()
    });
    assert_ne!(address, server.address);
    for (target, on_main, on_metrics) in [
        ("/metrics", 404, 200),
        ("/healthz", 200, 200),
        ("/readyz", 200, 200),
        ("/v1/health", 200, 404),
    ] {
        let request = Request::get(target);
        assert_eq!(server.send_bare(&request).status, on_main, "{target}");
        let mut connection = Connection::open(address).unwrap();
        let answer = connection.send(&request).unwrap();
        assert_eq!(answer.status, on_metrics, "{target}");
    }
    server.stop();
}
