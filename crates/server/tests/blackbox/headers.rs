//! The headers that every answer has, whichever route it comes from, and the log lines of refusals.

use asyncgate_grpc::pb;
use asyncgate_store::conformance::free_port;
use serde_json::{Value, json};
use tonic::metadata::MetadataMap;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::grpc::{channel, client, keyed, wish};
use crate::harness::{Launch, Server, eventually};
use crate::http::{Connection, Request, Response};
use crate::{envoy, ingress};

const HSTS: &str = "Strict-Transport-Security";

/// Checks the headers of one answer, of which `header` finds any.
#[track_caller]
fn check<'a>(what: &str, header: impl Fn(&str) -> Option<&'a str>) {
    for (name, value) in [
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"),
        (
            "Content-Security-Policy",
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ] {
        assert_eq!(header(name), Some(value), "{name} of {what}");
    }
    let caching = match what {
        "GET /openapi.json" => "public, max-age=300",
        _ => "no-store",
    };
    assert_eq!(header("Cache-Control"), Some(caching), "{what}");
    assert!(header("X-Corr-Id").is_some(), "{what}");
}

#[track_caller]
fn check_http(what: &str, answer: &Response, status: u16) {
    assert_eq!(answer.status, status, "{what}: {answer:?}");
    check(what, |name| answer.header(name));
    assert_eq!(answer.header(HSTS), None, "{what}");
}

#[track_caller]
fn check_grpc(what: &str, metadata: &MetadataMap) {
    check(what, |name| metadata.get(name)?.to_str().ok());
}

/// A request of MCP, of which none is read before its credential was checked.
fn mcp(method: &str) -> Request {
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    Request::new(method, "/mcp")
        .header("Content-Type", "application/json")
        .body(ping.to_string())
}

fn notice() -> Request {
    let notice = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    mcp("POST").body(notice.to_string())
}

fn form(target: &str) -> Request {
    Request::post(target, "{").header("Content-Encoding", "br")
}

#[test]
fn every_answer_of_http_has_the_security_headers() {
    let server = ingress::launch(ingress::HOOKS).start();
    let strangers = [
        (Request::get("/healthz"), 200),
        (Request::new("HEAD", "/healthz"), 200),
        (Request::new("POST", "/healthz"), 405),
        (Request::get("/readyz"), 200),
        (Request::get("/metrics"), 200),
        (Request::get("/openapi.json"), 200),
        (Request::get("/v1/health"), 200),
        (Request::get("/v1/tasks"), 401),
        (Request::get("/v1/events"), 401),
        (Request::post("/v1/recv/stream", "{}"), 401),
        (Request::get("/nothing"), 404),
        (mcp("POST"), 401),
        (mcp("POST").header("Origin", "http://evil.example"), 403),
        (Request::get("/status"), 200),
        (Request::post("/domain/sign", "{}"), 400),
        (Request::new("GET", "/domain/sign"), 405),
        (Request::post("/v1/ingress/nobody", "{}"), 404),
        (Request::post("/v1/ingress/hooks", "{}"), 401),
        (Request::post("/v1/ingress/%ff", "{}"), 400),
        (Request::post("/ron.mailbox.v1.Mailbox/Send", "{}"), 415),
        (Request::post("/grpc.health.v1.Health/Check", "{}"), 200),
    ];
    let message = ingress::message("n-1").to_string();
    let known = [
        (Request::get("/v1/config"), 200),
        (Request::post("/v1/tasks", r#"{"type":"x"}"#), 201),
        (Request::post("/v1/tasks", "{"), 400),
        (form("/v1/tasks"), 400),
        (Request::post("/v1/tasks", vec![b' '; 2 << 20]), 413),
        (Request::get("/v1/tasks/x"), 400),
        (Request::new("DELETE", "/v1/tasks"), 405),
        (Request::post("/v1/send", "{}"), 400),
        (Request::post("/v1/recv/stream", "{}"), 400),
        (mcp("POST"), 200),
        (mcp("POST").header("Accept", "text/event-stream"), 200),
        (mcp("POST").header("Accept", "text/html"), 406),
        (mcp("GET"), 405),
        (mcp("DELETE"), 405),
        (notice(), 202),
        (mcp("POST").body("{"), 400),
        (ingress::signed("hooks", message), 200),
    ];
    let known = known.map(|(request, status)| (server.with_key(request), status));
    for (request, status) in strangers.into_iter().chain(known) {
        let head = request.head(server.address);
        let what = head.split(" HTTP/").next().unwrap();
        let mut connection = server.connect();
        connection.write(head.as_bytes()).unwrap();
        // A server that has answered already may not read the rest.
        let _ = connection.write(&request.encoded_body());
        check_http(what, &connection.read_head().unwrap(), status);
    }
}

#[test]
fn streams_have_the_security_headers_too() {
    let server = Server::start();
    for request in [
        Request::get("/v1/events"),
        Request::post("/v1/recv/stream", r#"{"topic":"t"}"#),
    ] {
        let request = server.with_key(request);
        let mut connection = server.connect();
        let head = request.head(server.address);
        connection.write(head.as_bytes()).unwrap();
        connection.write(&request.encoded_body()).unwrap();
        check_http(&head, &connection.read_head().unwrap(), 200);
    }
}

#[test]
fn every_listener_puts_them_on_and_hsts_where_it_is_wanted() {
    let server = Launch::new()
        .args(&["--metrics", "127.0.0.1:0"])
        .set("server.hsts=true")
        .start();
    let log = server.logged("serving metrics");
    let mut lines = log.lines().map(serde_json::from_str::<Value>);
    let metrics = lines.find_map(|line| Some(line.ok()?["metrics"].as_str()?.to_owned()));
    for address in [server.address, metrics.unwrap().parse().unwrap()] {
        for target in ["/healthz", "/metrics", "/nothing"] {
            let mut connection = Connection::open(address).unwrap();
            let answer = connection.send(&Request::get(target)).unwrap();
            let hsts = "max-age=31536000; includeSubDomains";
            assert_eq!(answer.header(HSTS), Some(hsts), "{target}");
            assert_eq!(answer.header("X-Frame-Options"), Some("DENY"), "{target}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_of_grpc_has_the_security_headers() {
    let server = Server::start();
    let mut mailbox = client(&server);
    let sent = pb::SendRequest {
        topic: "t".into(),
        idem_key: "k".into(),
        ..pb::SendRequest::default()
    };
    let answer = mailbox.send(keyed(sent)).await.unwrap();
    check_grpc("Send", answer.metadata());
    let answer = mailbox.recv_stream(wish("t")).await.unwrap();
    check_grpc("RecvStream", answer.metadata());
    let refused = mailbox.send(keyed(pb::SendRequest::default())).await;
    check_grpc("a refusal", refused.unwrap_err().metadata());
    let stranger = tonic::Request::new(pb::SendRequest::default());
    let refused = mailbox.send(stranger).await.unwrap_err();
    check_grpc("a refusal of a stranger", refused.metadata());
    let mut health = HealthClient::new(channel(&server));
    let answer = health.check(HealthCheckRequest::default()).await.unwrap();
    check_grpc("Health", answer.metadata());
}

/// The level of the line that the log has about a fault, by its correlation id.
#[track_caller]
fn level(server: &Server, corr_id: &str, message: &str) -> String {
    eventually(corr_id, || {
        let log = server.log();
        let mut lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let line = lines.find(|line| line["corr_id"] == corr_id && line["message"] == message)?;
        Some(line["level"].as_str().unwrap().to_owned())
    })
}

/// A failure of the host of limits and the refusal of a stranger, by every facade.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_fault_has_the_same_level_in_every_facade() {
    let backend = format!("admission.backend=redis://127.0.0.1:{}", free_port());
    let server = Launch::new()
        .file("s.toml", envoy::SETTINGS)
        .set(&backend)
        .set("admission.counter_failure_mode=closed")
        .args(&["--log-level", "debug"])
        .start();
    let arguments = json!({"policy": "login", "key": "k"});
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "limits.check", "arguments": arguments}});
    let rest = Request::post("/v1/limits/check", arguments.to_string());
    let mcp = Request::post("/mcp", call.to_string());
    for (facade, request) in [("rest", &rest), ("mcp", &mcp)] {
        let (failed, refused) = (format!("{facade}-failed"), format!("{facade}-refused"));
        let asked = request.clone().header("X-Corr-Id", &failed);
        let answer = server.send(asked);
        assert!(answer.text().contains("HOST_UNAVAILABLE"), "{answer:?}");
        assert_eq!(level(&server, &failed, "request failed"), "ERROR");
        let asked = request.clone().header("X-Corr-Id", &refused);
        assert_eq!(server.send_bare(&asked).status, 401);
        assert_eq!(level(&server, &refused, "request refused"), "DEBUG");
    }
    let asked = envoy::ask(&server, envoy::request(vec![envoy::login("10.0.0.1")]));
    let status = asked.await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
    let corr_id = status.metadata().get("x-corr-id").unwrap();
    let corr_id = corr_id.to_str().unwrap();
    assert_eq!(level(&server, corr_id, "request failed"), "ERROR");
    let stranger = tonic::Request::new(pb::SendRequest::default());
    let status = client(&server).send(stranger).await.unwrap_err();
    let corr_id = status.metadata().get("x-corr-id").unwrap();
    let corr_id = corr_id.to_str().unwrap();
    assert_eq!(level(&server, corr_id, "request refused"), "DEBUG");
}
