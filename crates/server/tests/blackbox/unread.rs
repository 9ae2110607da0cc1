//! Requests that are refused while they still come, and heads that are refused for what they lack.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};

use crate::harness::{DEADLINE, KEY, Launch, Server, run};
use crate::http::Request;

/// More than the buffers of two sockets hold, and less than is read of a refused request.
const BODY_BYTES: usize = 24 << 20;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Writes everything before it reads anything. Returns the answer, up to the end of the connection.
#[track_caller]
fn write_then_read(server: &Server, head: &str) -> String {
    let mut stream = connect(server);
    stream.write_all(head.as_bytes()).unwrap();
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..BODY_BYTES / piece.len() {
        stream.write_all(&piece).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn post(target: &str, key: &str) -> String {
    format!(
        "POST {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {BODY_BYTES}\r\n\r\n"
    )
}

#[test]
fn a_client_that_sends_all_before_it_reads_gets_its_refusal() {
    let server = Server::start();
    let long = format!("/{}", "x".repeat(200_000));
    for (head, status) in [
        (post("/v1/tasks", "wrong"), "401"),
        (post("/v1/tasks", KEY), "413"),
        (post("/v1/ingress/nowhere", KEY), "413"),
        (post("/nowhere", KEY), "404"),
        (post("/healthz", KEY), "405"),
        (post("/mcp", "wrong"), "401"),
        (post("/v1/tasks", KEY).replace("Host: x\r\n", ""), "400"),
        (post(&long, KEY), "4"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
    ] {
        let answer = write_then_read(&server, &head);
        let line = answer.lines().next().unwrap_or_default();
        let shown: String = head.chars().take(60).collect();
        assert!(
            line.starts_with(&format!("HTTP/1.1 {status}")),
            "{shown}: {answer}"
        );
    }
}

#[test]
fn a_body_without_a_length_is_no_exception() {
    let server = Server::start();
    let mut stream = connect(&server);
    let head = "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let piece = format!("100000\r\n{}\r\n", "x".repeat(1 << 20));
    for _ in 0..BODY_BYTES >> 20 {
        stream.write_all(piece.as_bytes()).unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

#[test]
fn a_client_that_asks_first_is_refused_before_it_sends() {
    let server = Server::start();
    let mut stream = connect(&server);
    let head = post("/v1/tasks", "wrong").replace("\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"HTTP/1.1 401");
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
}

const PYTHON: &str = r#"
import http.client, sys
port, key, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
connection.request("POST", "/v1/tasks", body=b"x" * size, headers={"Authorization": "Bearer " + key})
print(connection.getresponse().status)
"#;

#[test]
fn the_client_of_python_sees_its_refusal() {
    let found = Command::new("python3")
        .arg("--version")
        .stdout(Stdio::null())
        .status();
    if !found.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no python3");
        return;
    }
    let server = Server::start();
    for (key, status) in [("wrong", "401"), (KEY, "413")] {
        let mut python = Command::new("python3");
        python
            .args(["-c", PYTHON, &server.address.port().to_string(), key])
            .arg(BODY_BYTES.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let ended = run(python);
        assert_eq!(ended.stdout.trim(), status, "{ended:?}");
    }
}

#[test]
fn a_request_of_http_1_1_names_its_host_once() {
    let server = Launch::new().start();
    let get = |head: &str| {
        let mut stream = connect(&server);
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let close = "Connection: close\r\n\r\n";
    for hosts in ["", "Host: a\r\nHost: b\r\n", "Host: a\r\nhost: a\r\n"] {
        let answer = get(&format!(
            "GET /healthz HTTP/1.1\r\n{hosts}X-Corr-Id: mine\r\n{close}"
        ));
        assert!(answer.starts_with("HTTP/1.1 400"), "{hosts}: {answer}");
        assert!(answer.contains("\"code\":\"BAD_REQUEST\""), "{answer}");
        assert!(answer.contains("x-corr-id: mine"), "{answer}");
        assert!(answer.contains("x-content-type-options"), "{answer}");
    }
    for head in [
        format!("GET /healthz HTTP/1.1\r\nHost: a\r\n{close}"),
        format!("GET /healthz HTTP/1.1\r\nHost:\r\n{close}"),
        "GET /healthz HTTP/1.0\r\n\r\n".to_owned(),
    ] {
        let answer = get(&head);
        assert!(answer.contains(" 200 OK"), "{head}: {answer}");
    }
    server.send_bare(&Request::get("/healthz")).expect(200);
}
