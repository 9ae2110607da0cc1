//! Slow clients: none holds a connection for longer than the settings say.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{DEADLINE, KEY, Launch, Server, eventually};

/// Far above the limits and far below what would hold up an attack.
const SOON: Duration = Duration::from_secs(8);

fn server() -> Server {
    Launch::new()
        .args(&["--read-timeout", "600ms", "--write-timeout", "600ms"])
        .args(&["--idle-timeout", "900ms"])
        .start()
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// How long it takes until the server closes, and what it had said.
fn until_closed(stream: &mut TcpStream) -> (Duration, String) {
    let start = Instant::now();
    let mut said = Vec::new();
    // A reset is an end like any other.
    let _ = stream.read_to_end(&mut said);
    (start.elapsed(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn a_head_that_trickles_is_cut() {
    let server = server();
    let mut stream = connect(&server);
    let mut writer = stream.try_clone().unwrap();
    let trickle = thread::spawn(move || {
        writer.write_all(b"GET /v1/config HTTP/1.1\r\nx: ").unwrap();
        while writer.write_all(b"y").is_ok() {
            thread::sleep(Duration::from_millis(100));
        }
    });
    let (took, said) = until_closed(&mut stream);
    assert!(took < SOON, "{took:?}");
    assert_eq!(said, "");
    trickle.join().unwrap();
}

#[test]
fn a_body_that_does_not_come_is_answered_and_cut() {
    let server = server();
    let mut stream = connect(&server);
    let head = format!(
        "POST /v1/send HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 100\r\n\r\n{{"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let (took, said) = until_closed(&mut stream);
    assert!(took < SOON, "{took:?}");
    let answered = said.starts_with("HTTP/1.1 400") && said.contains("in time");
    assert!(answered, "{said}");
}

#[test]
fn silence_and_half_open_connections_are_cut() {
    let server = server();
    for request in ["", "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"] {
        let mut stream = connect(&server);
        stream.write_all(request.as_bytes()).unwrap();
        let (took, said) = until_closed(&mut stream);
        assert!(took < SOON, "{took:?}");
        assert_eq!(said.starts_with("HTTP/1.1 200"), !request.is_empty());
    }
    let stream = connect(&server);
    stream.shutdown(Shutdown::Write).unwrap();
    eventually("no connection is left", || {
        // The one that asks is there too.
        (server.metric("asyncgate_http_connections") == Some(1.0)).then_some(())
    });
    drop(stream);
}

#[test]
fn a_reader_that_takes_nothing_is_cut() {
    let server = server();
    for n in 0..8 {
        let payload = "x".repeat(1_000_000);
        let task = json!({"type": "x", "payload": payload, "idempotency_key": n.to_string()});
        server.post("/v1/tasks", &task).expect(201);
    }
    let mut stream = connect(&server);
    let request =
        format!("GET /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    eventually("the connection is cut", || {
        (server.metric("asyncgate_http_connections_timed_out_total") == Some(1.0)).then_some(())
    });
}

#[test]
fn a_reader_of_a_stream_that_takes_nothing_is_cut() {
    let server = server();
    let payload = "eHh4".repeat(80_000);
    for n in 0..32 {
        let message = json!({"topic": "t", "idem_key": n.to_string(), "payload_b64": payload});
        server.post("/v1/send", &message).expect(200);
    }
    let mut stream = connect(&server);
    let body = json!({"topic": "t", "max_messages": 32, "max_bytes": 524_288}).to_string();
    let request = format!(
        "POST /v1/recv/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    eventually("the connection is cut", || {
        (server.metric("asyncgate_http_connections_timed_out_total") == Some(1.0)).then_some(())
    });
}
