//! Crowds: what many requests of one client, and many clients together, can take from the others.

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::{Body, Bytes};
use axum::http::Request as Asked;
use futures_util::StreamExt as _;
use futures_util::stream;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;

use crate::harness::{DEADLINE, KEY, Launch, Server, eventually};
use crate::http::Request;

const MIB: u64 = 1 << 20;

/// The most memory that the process has had, in bytes.
fn most_memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kilobytes = line.unwrap().split_whitespace().nth(1).unwrap();
    kilobytes.parse::<u64>().unwrap() << 10
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// A server with so much memory for what is under way, and clients that may take their time; its list of tasks has
/// four megabytes.
fn small_server(budget: &str) -> Server {
    let server = Launch::new()
        .set(&format!("limits.memory_budget={budget}"))
        .set("write_timeout=10m")
        .set("read_timeout=10m")
        .start();
    for n in 0..4 {
        let payload = "x".repeat(1_000_000);
        let task = json!({"type": "x", "payload": payload, "idempotency_key": n.to_string()});
        server.post("/v1/tasks", &task).expect(201);
    }
    server
}

/// Waits until so many requests of a route were answered, in any way.
fn answered(server: &Server, route: &str, count: usize) {
    let prefix = format!("http_requests_total{{route=\"{route}\"");
    eventually("all are answered", || {
        let response = server.get("/metrics");
        let text = response.text();
        let lines = text.lines().filter(|line| line.starts_with(&prefix));
        let counts = lines.filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
        (counts.sum::<usize>() >= count).then_some(())
    });
}

#[test]
fn lists_that_nobody_reads_stay_within_the_budget() {
    let server = small_server("32MiB");
    let before = most_memory(&server);
    let request =
        format!("GET /v1/tasks HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n\r\n");
    let unread: Vec<_> = (0..300)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    // The four that made the tasks have the same route.
    answered(&server, "/v1/tasks", 304);
    let more = most_memory(&server) - before;
    assert!(more < 160 * MIB, "{} MiB", more / MIB);
    // Whoever reads gets an answer.
    drop(unread);
    eventually("there is room again", || {
        (server.get("/v1/tasks").status == 200).then_some(())
    });
}

#[test]
fn a_batch_of_lists_stays_within_the_budget() {
    let server = small_server("32MiB");
    let before = most_memory(&server);
    let calls: Vec<_> = (0..100)
        .map(|n| {
            json!({"jsonrpc": "2.0", "id": n, "method": "tools/call",
                "params": {"name": "asyncgate_list_tasks", "arguments": {}}})
        })
        .collect();
    let batch = serde_json::to_string(&calls).unwrap();
    let batch = Request::post("/mcp", batch)
        .header("Content-Type", "application/json")
        .header("MCP-Protocol-Version", "2025-03-26");
    let answers = server.send(batch).expect(200);
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 100);
    let listed = |answer: &&serde_json::Value| answer["result"]["isError"] == false;
    let listed = answers.iter().filter(listed).count();
    assert!((1..20).contains(&listed), "{listed}");
    let more = most_memory(&server) - before;
    assert!(more < 160 * MIB, "{} MiB", more / MIB);
}

/// A request whose body has left as far as it goes, or was refused. It counts once.
#[derive(Clone)]
struct Sent {
    already: Arc<AtomicBool>,
    all: Arc<AtomicUsize>,
}

impl Sent {
    fn count(&self) {
        if !self.already.swap(true, Ordering::Relaxed) {
            self.all.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A body that begins and never ends.
fn unfinished(bytes: usize, sent: Sent) -> Body {
    let piece = Bytes::from(vec![b'x'; bytes]);
    let first = stream::iter([Ok::<_, Infallible>(piece)]);
    let never = stream::once(async move {
        sent.count();
        std::future::pending().await
    });
    Body::from_stream(first.chain(never))
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_strangers_have_a_small_share_and_callers_keep_theirs() {
    const CONNECTIONS: usize = 8;
    const BODIES: usize = 250;
    let server = small_server("256MiB");
    let before = most_memory(&server);
    let all = Arc::new(AtomicUsize::new(0));
    let mut senders = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = tokio::net::TcpStream::connect(server.address)
            .await
            .unwrap();
        let shaken = http2::handshake::<_, _, Body>(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = shaken.await.unwrap();
        tokio::spawn(connection);
        for _ in 0..BODIES {
            let sent = Sent {
                already: Arc::default(),
                all: all.clone(),
            };
            let asked = Asked::post(format!("http://{}/v1/ingress/x", server.address));
            let asked = asked.body(unfinished(230_000, sent.clone())).unwrap();
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let _ = sender.send_request(asked).await;
                sent.count();
            });
        }
        senders.push(sender);
    }
    tokio::task::block_in_place(|| {
        eventually("every body has come or was refused", || {
            (all.load(Ordering::Relaxed) == CONNECTIONS * BODIES).then_some(())
        });
        let more = most_memory(&server) - before;
        assert!(more < 64 * MIB, "{} MiB", more / MIB);
        let task = json!({"type": "x", "payload": "x".repeat(1_000_000)});
        server.post("/v1/tasks", &task).expect(201);
        server.get("/v1/tasks").expect(200);
    });
    drop(senders);
}

#[test]
fn silent_connections_do_not_keep_others_out() {
    let server = Launch::new()
        .set("http.max_connections=8")
        .set("read_timeout=10m")
        .start();
    let silent: Vec<_> = ["", "P", "GET /", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
        .iter()
        .cycle()
        .take(40)
        .map(|greeting| {
            let mut stream = connect(&server);
            // It may have had to go already.
            let _ = stream.write_all(greeting.as_bytes());
            stream
        })
        .collect();
    server.send_bare(&Request::get("/healthz")).expect(200);
    let cut = server.metric("asyncgate_http_connections_cut_total{reason=\"crowded\"}");
    assert!(cut.unwrap() >= 32.0, "{cut:?}");
    drop(silent);
}

#[test]
fn one_address_has_a_bound_of_its_own() {
    let launch = Launch::new().set("http.max_connections_per_address=3");
    let path = launch.dir().join("gate.sock");
    let server = launch.args(&["--uds", path.to_str().unwrap()]).start();
    let claim = json!({"worker_id": "w", "wait_seconds": 60}).to_string();
    let claim = server.with_key(Request::post("/v1/leases/claim", claim));
    let waiting = |mut connection: crate::http::Connection| {
        let head = claim.head(server.address).into_bytes();
        let bytes = [head, claim.encoded_body()].concat();
        connection.write(&bytes).unwrap();
        connection
    };
    // The socket file is not bounded.
    let metric = |name: &str| {
        let mut local = UnixStream::connect(&path).unwrap();
        local.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        local.write_all(request).unwrap();
        let mut said = String::new();
        local.read_to_string(&mut said).unwrap();
        let value = said.lines().find_map(|line| line.strip_prefix(name));
        value.and_then(|value| value.trim().parse::<f64>().ok())
    };
    let busy: Vec<_> = (0..3).map(|_| waiting(server.connect())).collect();
    eventually("all of them wait", || {
        let waiting = metric("inflight_requests{route=\"/v1/leases/claim\"}");
        (waiting == Some(3.0)).then_some(())
    });
    let mut refused = connect(&server);
    // A reset is an end like any other.
    let _ = refused.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n");
    let mut said = Vec::new();
    let _ = refused.read_to_end(&mut said);
    assert_eq!(said, b"");
    let counted = metric("asyncgate_http_connections_cut_total{reason=\"address\"}");
    assert_eq!(counted, Some(1.0));
    drop(busy);
}

#[test]
fn trusted_proxies_have_no_bound() {
    let server = Launch::new()
        .set("http.max_connections_per_address=1")
        .set("server.trusted_proxies=127.0.0.1")
        .start();
    let mut open: Vec<_> = (0..5).map(|_| server.connect()).collect();
    for connection in &mut open {
        let answer = connection.send(&Request::get("/healthz")).unwrap();
        assert_eq!(answer.status, 200);
    }
}
