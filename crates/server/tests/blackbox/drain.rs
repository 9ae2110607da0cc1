//! SIGTERM: what still passes, what is refused, and that the end comes whatever clients do.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::json;

use crate::harness::{KEY, Launch, Server, eventually};
use crate::http::Request;
use crate::raw_http2;

fn until_draining(server: &Server) {
    eventually("it is not ready", || {
        let answer = server.send_bare(&Request::get("/readyz"));
        let body = answer.json();
        (answer.status == 503 && body["missing"] == json!(["draining"])).then_some(())
    });
}

#[test]
fn work_can_be_settled_during_the_grace_and_none_begins() {
    let launch = Launch::new().set("drain_grace=10m");
    let server = launch.start();
    for n in 0..3 {
        server.create_plain(&format!("type-{n}"));
        server.send_message("t", &n.to_string(), "aGk=");
    }
    let [first, second, third] = [(); 3].map(|()| server.take("w"));
    let messages = server.receive("t", 600_000);
    assert_eq!(messages.len(), 3);
    server.signal("TERM");
    until_draining(&server);

    let message = json!({"topic": "t", "idem_key": "late", "payload_b64": "aGk="});
    for (target, body) in [
        ("/v1/tasks", json!({"type": "x"})),
        ("/v1/send", message.clone()),
        ("/v1/send/batch", json!({"messages": [message]})),
    ] {
        let answer = server.post(target, &body);
        assert_eq!(answer.status, 503, "{target}: {answer:?}");
        assert!(answer.header("retry-after").is_some(), "{target}");
    }
    server.under(&first, "running", &json!({})).expect(200);
    let progress = json!({"progress": {"percent": 50}});
    server.under(&first, "progress", &progress).expect(200);
    server.under(&first, "renew", &json!({})).expect(200);
    server.complete(&first, &json!(1));
    let error = json!({"error": "broken"});
    server.under(&second, "fail", &error).expect(200);
    server.under(&third, "release", &json!({})).expect(200);
    server.ack(&messages[0]);
    server.settle("nack", &messages[1], &json!({})).expect(200);
    let longer = json!({"visibility_ms": 700_000});
    server.settle("extend", &messages[2], &longer).expect(200);
    server.get("/v1/tasks").expect(200);

    // Who asks twice does not wait for the grace.
    server.signal("TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn the_end_comes_whatever_connections_do() {
    let launch = Launch::new().set("drain_grace=1s");
    let server = launch.set("http.drain_timeout_seconds=1").start();
    let open = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(bytes).unwrap();
        stream
    };
    let text = |request: Request| {
        let request = server.with_key(request);
        let mut bytes = request.head(server.address).into_bytes();
        bytes.extend(request.encoded_body());
        bytes
    };
    let wish = json!({"topic": "t"}).to_string();
    let claim = json!({"worker_id": "w", "wait_seconds": 60}).to_string();
    let half = text(Request::post("/v1/tasks", "{".repeat(100)));
    let refused = b"POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\nx";
    let _connections = [
        open(b""),
        open(b"GET /heal"),
        open(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        open(&half[..half.len() - 1]),
        open(refused),
        open(&text(Request::post("/v1/recv/stream", wish))),
        open(&text(Request::post("/v1/leases/claim", claim))),
        open(&text(Request::get("/v1/events"))),
        // Many answers that nobody reads.
        open(&text(Request::get("/openapi.json")).repeat(200)),
        open(
            &[
                raw_http2::greeting(0),
                raw_http2::get(1, "/openapi.json", KEY),
            ]
            .concat(),
        ),
    ];
    server.send_bare(&Request::get("/healthz")).expect(200);
    server.signal("TERM");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[test]
fn somebody_at_a_terminal_does_not_wait_for_the_grace() {
    let server = Launch::new().set("drain_grace=10m").start();
    server.signal("INT");
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}
