//! Slow clients: none holds a connection for longer than the settings say.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::harness::{DEADLINE, KEY, Launch, Server, eventually};
use crate::raw_http2;

/// Far above the limits and far below what would hold up an attack.
const SOON: Duration = Duration::from_secs(20);

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

fn cut(server: &Server, reason: &str) -> f64 {
    let name = format!("asyncgate_http_connections_cut_total{{reason=\"{reason}\"}}");
    server.metric(&name).unwrap()
}

/// Makes the list of tasks so many megabytes long.
fn fill(server: &Server, megabytes: usize) {
    for n in 0..megabytes {
        let payload = "x".repeat(1_000_000);
        let task = json!({"type": "x", "payload": payload, "idempotency_key": n.to_string()});
        server.post("/v1/tasks", &task).expect(201);
    }
}

fn ask_for_list(server: &Server) -> TcpStream {
    let mut stream = connect(server);
    let request =
        format!("GET /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn a_reader_that_takes_a_byte_now_and_then_is_cut() {
    let server = server();
    fill(&server, 8);
    let mut stream = ask_for_list(&server);
    eventually("the connection is cut", || {
        stream.read_exact(&mut [0]).unwrap();
        (cut(&server, "pace") == 1.0).then_some(())
    });
}

#[test]
fn a_slow_reader_gets_all_of_its_answer() {
    // Long enough that a busy machine does not make a reader who takes nothing of this one.
    let grace = Duration::from_secs(2);
    let server = Launch::new().args(&["--write-timeout", "2s"]).start();
    fill(&server, 2);
    let mut stream = ask_for_list(&server);
    let (start, mut got, mut piece) = (Instant::now(), 0, vec![0; 32 << 10]);
    while got < 2_000_000 {
        thread::sleep(Duration::from_millis(100));
        let some = stream.read(&mut piece).unwrap();
        assert!(some > 0, "cut after {got} bytes and {:?}", start.elapsed());
        got += some;
    }
    assert!(start.elapsed() > 3 * grace);
    assert_eq!(cut(&server, "pace"), 0.0);
}

#[test]
fn signs_of_life_on_http2_are_no_progress() {
    let server = server();
    fill(&server, 4);
    let mut stream = connect(&server);
    stream.write_all(&raw_http2::greeting(0)).unwrap();
    for n in 0..10 {
        let request = raw_http2::get(2 * n + 1, "/v1/tasks", KEY);
        stream.write_all(&request).unwrap();
    }
    let mut next = 21;
    eventually("the connection is cut", || {
        // It may be cut while it says so.
        let _ = stream.write_all(&raw_http2::ping());
        let _ = stream.write_all(&raw_http2::one_byte_more(1));
        let _ = stream.write_all(&raw_http2::get(next, "/healthz", KEY));
        next += 2;
        (cut(&server, "pace") == 1.0).then_some(())
    });
}

#[test]
fn streams_that_have_nothing_to_say_are_kept() {
    let server = server();
    let claim = json!({"worker_id": "w", "wait_seconds": 60}).to_string();
    let wish = json!({"topic": "t"}).to_string();
    let mut waiting: Vec<_> = [("/v1/leases/claim", claim), ("/v1/recv/stream", wish)]
        .map(|(path, body)| {
            let mut stream = connect(&server);
            let length = body.len();
            let request = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .into();
    let mut http2 = connect(&server);
    http2.write_all(&raw_http2::greeting(1 << 16)).unwrap();
    http2
        .write_all(&raw_http2::get(1, "/v1/events", KEY))
        .unwrap();
    waiting.push(http2);
    // A silent connection that comes after them is cut first, and so are those that follow it.
    for _ in 0..3 {
        until_closed(&mut connect(&server));
    }
    assert_eq!(cut(&server, "pace") + cut(&server, "answer"), 0.0);
    assert_eq!(cut(&server, "idle"), 0.0);
    assert_eq!(cut(&server, "head"), 3.0);
    drop(waiting);
}

#[test]
fn a_body_that_trickles_is_answered_and_cut() {
    let server = server();
    // One of a caller, and one of a stranger.
    for path in ["/v1/send", "/v1/ingress/nowhere"] {
        let mut stream = connect(&server);
        let mut writer = stream.try_clone().unwrap();
        let trickle = thread::spawn(move || {
            let head = format!(
                "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: 100000\r\n\r\n"
            );
            writer.write_all(head.as_bytes()).unwrap();
            while writer.write_all(b"x").is_ok() {
                thread::sleep(Duration::from_millis(50));
            }
        });
        let (took, said) = until_closed(&mut stream);
        assert!(took < SOON, "{took:?}");
        assert!(said.contains("in time"), "{said}");
        trickle.join().unwrap();
    }
}

#[test]
fn a_reader_that_takes_nothing_is_cut() {
    let server = server();
    fill(&server, 8);
    let _stream = ask_for_list(&server);
    eventually("the connection is cut", || {
        (cut(&server, "pace") == 1.0).then_some(())
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
        (cut(&server, "pace") == 1.0).then_some(())
    });
}
