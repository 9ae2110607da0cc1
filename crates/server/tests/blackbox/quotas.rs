//! Tenants' quotas in the real server: over every protocol, with usage that is billed, also after a crash.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use asyncgate_core::hex;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::{
    grpc,
    harness::{Launch, Server, eventually},
    http::{Request, Response},
    mcp::{self, Era},
};

/// The default tenant is of the tier enterprise.
fn limited(pairs: &[&str]) -> Server {
    let launch = pairs.iter().fold(Launch::new(), |launch, pair| {
        launch.set(&format!("rate_limits.enterprise_tier.{pair}"))
    });
    launch.start()
}

fn task(server: &Server) -> Response {
    server.post("/v1/tasks", &json!({ "type": "echo" }))
}

fn put(server: &Server, target: &str, body: &Value) -> Response {
    let request = Request::new("PUT", target)
        .header("Content-Type", "application/json")
        .body(body.to_string());
    server.send(request)
}

#[test]
fn calls_in_an_hour_are_told_and_then_refused() {
    let server = limited(&["api_calls_per_hour=5"]);
    for left in (0..5).rev() {
        let answer = server.get("/v1/tasks");
        answer.expect(200);
        let remaining = left.to_string();
        assert_eq!(answer.header("X-RateLimit-Remaining"), Some(&*remaining));
        assert_eq!(answer.header("X-RateLimit-Limit"), Some("5"));
        let bucket = answer.header("X-RateLimit-Bucket").unwrap();
        let named = bucket.starts_with("tenant:") && bucket.ends_with(":api_calls");
        assert!(named, "{bucket}");
    }
    let refused = server.get("/v1/tasks");
    let body = refused.expect(429);
    assert_eq!(body["code"], "RATE_LIMIT");
    assert_eq!(body["error"], "rate_limit_exceeded");
    assert_eq!((&body["limit"], &body["window"]), (&json!(5), &json!("1h")));
    let wait = body["retry_after"].as_u64().unwrap();
    assert!((1..=720).contains(&wait), "{wait}");
    let told = wait.to_string();
    assert_eq!(refused.header("Retry-After"), Some(&*told));
    // Those who show no credential are nobody's tenants.
    server.get("/v1/health").expect(200);
    // What is refused before it is a call has the headers, too.
    let large = vec![b' '; 3 << 20];
    let large = server.send(Request::post("/v1/tasks", large));
    assert_eq!(large.header("X-RateLimit-Remaining"), Some("0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_tells_of_the_same_bucket() {
    let server = limited(&["api_calls_per_hour=100"]);
    let mut client = grpc::client(&server);
    let received = client.recv(grpc::wish("t")).await.unwrap();
    let metadata = |of: &tonic::metadata::MetadataMap| {
        let value = of.get("x-ratelimit-remaining");
        value.map(|value| value.to_str().unwrap().to_owned())
    };
    assert_eq!(metadata(received.metadata()).as_deref(), Some("99"));
    let stream = client.recv_stream(grpc::wish("t")).await.unwrap();
    assert_eq!(metadata(stream.metadata()).as_deref(), Some("98"));
    // A tool, and a message that calls none.
    for (message, left) in [
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": "asyncgate.list_tasks", "arguments": {}}}),
            "97",
        ),
        (json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}), "97"),
    ] {
        let request = Request::post("/mcp", message.to_string())
            .header("Content-Type", "application/json")
            .header("Accept", "application/json, text/event-stream");
        let answer = server.send(request);
        answer.expect(200);
        assert_eq!(answer.header("X-RateLimit-Remaining"), Some(left));
    }
    let last = server.get("/v1/tasks");
    assert_eq!(last.header("X-RateLimit-Remaining"), Some("96"));
    mcp::call(&server, Era::Handshake, "asyncgate.list_tasks", json!({})).unwrap();
}

#[test]
fn leases_and_storage_are_bounded_and_the_bounds_can_be_reloaded() {
    let mut launch = Launch::new();
    launch = launch.file(
        "s.toml",
        "[rate_limits.enterprise_tier]\nconcurrent_leases = 1\n",
    );
    let server = launch.start();
    for _ in 0..2 {
        task(&server).expect(201);
    }
    let claim = || {
        let claim = json!({ "worker_id": "w", "max_tasks": 5 });
        let claimed = server.post("/v1/leases/claim", &claim).expect(200);
        claimed["tasks"].as_array().unwrap().len()
    };
    assert_eq!((claim(), claim()), (1, 0));
    std::fs::write(
        server.launch().dir().join("s.toml"),
        "[rate_limits.enterprise_tier]\nconcurrent_leases = -1\nreceipt_storage_gb = 0\n",
    )
    .unwrap();
    server.signal("HUP");
    eventually("the settings count", || (claim() == 1).then_some(()));
    let refused = task(&server).refused(429, "QUOTA_EXCEEDED");
    assert_eq!(refused["error"], "quota_exceeded");
    assert_eq!(refused["quota"], "receipt_storage_bytes");
    assert_eq!(refused["limit"], 0);
    assert!(refused["current"].as_u64().unwrap() > 0);
    let usage = server.get("/v1/admin/usage").expect(200);
    assert_eq!(usage["usage"]["tasks_created"], 2);
    assert_eq!(usage["usage"]["concurrent_leases"], 2);
    assert_eq!(usage["quotas"]["receipt_storage_bytes"], 0);
}

#[test]
fn an_exception_lifts_the_limits_and_survives_a_restart() {
    let server = limited(&["api_calls_per_hour=2"]);
    let usage = server.get("/v1/admin/usage").expect(200);
    let tenant = usage["tenant_id"].as_str().unwrap();
    let target = format!("/v1/admin/tenants/{tenant}/bypass");
    let grant = json!({ "reason": "a test", "until": "2999-01-01T00:00:00Z" });
    let granted = put(&server, &target, &grant).expect(200);
    assert_eq!(granted["kind"], "bypass");
    for _ in 0..5 {
        let answer = server.get("/v1/tasks");
        answer.expect(200);
        assert_eq!(answer.header("X-RateLimit-Limit"), None);
    }
    let server = server.kill().start();
    for _ in 0..3 {
        server.get("/v1/tasks").expect(200);
    }
    let ended = server.send(Request::new("DELETE", &target));
    assert_eq!(ended.expect(200)["ended"], true);
    let answer = server.get("/v1/tasks");
    assert_eq!(answer.header("X-RateLimit-Limit"), Some("2"));
}

/// What a receiver of bills got.
pub struct Bill {
    signature: String,
    body: Vec<u8>,
}

/// Receives bills until it is dropped. It answers all but the first `hanging` of them.
pub fn receiver(mut hanging: u32) -> (SocketAddr, mpsc::Receiver<Bill>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (tell, got) = mpsc::channel();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let Some(bill) = read(&mut stream) else {
                continue;
            };
            if tell.send(bill).is_err() {
                return;
            }
            if hanging > 0 {
                hanging -= 1;
                silent.push(stream);
            } else {
                let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    (address, got)
}

fn read(stream: &mut TcpStream) -> Option<Bill> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let header = |name: &str| {
        let line = head.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches(':').trim().to_owned())
    };
    let mut body = vec![0; header("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).ok()?;
    Some(Bill {
        signature: header("x-signature-256")?,
        body,
    })
}

fn billing(address: SocketAddr) -> Launch {
    let settings = format!(
        "[metering]\ninterval_seconds = 1\n[billing]\nwebhook_url = \"http://{address}/hook\"\n\
         webhook_secret = \"between-us\"\nwebhook_timeout = \"2s\"\n"
    );
    Launch::new().file("s.toml", &settings)
}

fn next(got: &mpsc::Receiver<Bill>) -> Value {
    let bill = got.recv_timeout(Duration::from_secs(90)).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(b"between-us").unwrap();
    mac.update(&bill.body);
    let expected = hex::encode(&mac.finalize().into_bytes());
    assert_eq!(bill.signature, format!("sha256={expected}"));
    serde_json::from_slice(&bill.body).unwrap()
}

#[test]
fn usage_is_billed_and_nothing_is_lost_by_a_crash() {
    let (address, got) = receiver(1);
    let server = billing(address).start();
    task(&server).expect(201);
    // The receiver has the first bill, and the server dies before it is told.
    let first = next(&got);
    assert_eq!(first["used"]["tasks_created"], 1);
    assert_eq!(first["seq"], 1);
    let server = server.kill().start();
    task(&server).expect(201);
    // It comes again under the same name, and after it what was used since.
    let mut bills = vec![next(&got)];
    assert_eq!(bills[0]["usage_event_id"], first["usage_event_id"]);
    while bills.last().unwrap()["total"]["tasks_created"] != 2 {
        bills.push(next(&got));
    }
    for (n, bill) in (1..).zip(&bills) {
        assert_eq!(bill["seq"], n, "in order, without gaps");
    }
    let events = server.get("/v1/admin/usage/events").expect(200);
    let events = events["events"].as_array().unwrap();
    assert!(events.contains(bills.last().unwrap()), "{events:?}");
}
