//! What operators see: counts by route, and a line of the log for each thing that happens.

use serde_json::{Value, json};

use crate::harness::{Launch, Server, eventually};
use crate::http::Request;

const CORR_ID: &str = "018f1a2a-6b45-7c7c-b80e-9ef2a5b1f22a";

/// A server that tells all that it does, with topics that have classes.
fn talkative() -> Server {
    Launch::new()
        .args(&["--log-level", "asyncgate_engine=debug,info"])
        .args(&["--max-attempts", "2", "--backoff-base", "1ms"])
        .args(&["--backoff-max", "1ms", "--default-visibility", "250ms"])
        .args(&["--shards", "1", "--shard-cap", "2"])
        .set("mailbox.topic_classes=user:=user_inbox")
        .start()
}

fn send(server: &Server, key: &str) -> Request {
    let message = json!({"topic": "user:1", "idem_key": key, "payload_b64": "aGk="});
    server.with_key(Request::post("/v1/send", message.to_string()))
}

/// The first line of the log about this event for which `is_it` holds.
#[track_caller]
fn told(server: &Server, event: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    eventually(event, || {
        let log = server.log();
        let mut lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["event"] == event && is_it(line))
    })
}

#[track_caller]
fn has(line: &Value, fields: &[&str]) {
    for field in ["ts", "level", "service", "profile"].iter().chain(fields) {
        assert!(!line[field].is_null(), "{field} in {line}");
    }
}

fn any(_: &Value) -> bool {
    true
}

#[test]
fn every_event_is_told_with_its_fields_and_without_secrets() {
    let server = talkative();
    told(&server, "readyz.state", |line| line["ready"] == true);
    let sent = server.send_bare(&send(&server, "first").header("X-Corr-Id", CORR_ID));
    let id = sent.expect(200)["msg_id"].as_str().unwrap().to_owned();
    let request = ["corr_id", "remote_addr", "latency_ms"];
    let message = ["topic_class", "shard"];
    let accepted = told(&server, "send.accepted", any);
    has(&accepted, &[&request[..], &message].concat());
    assert_eq!(accepted["corr_id"], CORR_ID);
    assert_eq!(accepted["topic_class"], "user_inbox");
    let remote = accepted["remote_addr"].as_str().unwrap();
    assert!(remote.starts_with("127.0.0.1:"), "{remote}");

    server.send_bare(&send(&server, "second")).expect(200);
    server
        .send_bare(&send(&server, "third"))
        .refused(429, "E_SATURATED");
    let full = told(&server, "send.rejected", any);
    has(
        &full,
        &[&request[..], &["topic_class", "saturation"]].concat(),
    );
    assert_eq!(
        (&full["reason"], &full["queue"]),
        (&json!("saturated"), &json!("work"))
    );
    server
        .send(Request::post("/v1/send", "{}"))
        .refused(400, "E_SCHEMA");
    told(&server, "send.rejected", |line| line["reason"] == "schema");

    let one = json!({"topic": "user:1", "max_messages": 1});
    let held = json!({"topic": "user:1", "max_messages": 1, "visibility_ms": 60_000});
    let got = server.post("/v1/recv", &held).expect(200);
    assert_eq!(got["messages"][0]["msg_id"], id.as_str());
    let batch = told(&server, "recv.batch", any);
    has(&batch, &[&request[..], &message, &["attempt"]].concat());
    server
        .post(&format!("/v1/ack/{id}"), &json!({}))
        .expect(200);
    has(
        &told(&server, "ack.ok", any),
        &[&request[..], &message].concat(),
    );
    let nobody = "01JAE6ZQX50000000000000000";
    let unknown = server.post(&format!("/v1/ack/{nobody}"), &json!({}));
    unknown.refused(404, "E_NOT_FOUND");
    let line = told(&server, "ack.unknown", any);
    has(&line, &request);
    assert_eq!(line["corr_id"], unknown.header("X-Corr-Id").unwrap());

    // The second message is left alone once and given back once, which is all that it may be.
    server.post("/v1/recv", &one).expect(200);
    told(&server, "scanner.requeue", |line| line["count"] == 1);
    let wait = json!({"topic": "user:1", "wait_seconds": 20, "visibility_ms": 60_000});
    let got = server.post("/v1/recv", &wait).expect(200);
    let last = got["messages"][0]["msg_id"].as_str().unwrap();
    let reason = json!({"reason": "E_PARSE"});
    server
        .post(&format!("/v1/nack/{last}"), &reason)
        .expect(200);
    let moved = told(&server, "dlq.move", any);
    has(&moved, &[&request[..2], &message, &["attempt"]].concat());
    assert_eq!(moved["reason"], "E_PARSE");

    let wrong = Request::post("/v1/send", "{}").bearer("aga_wrong_secret");
    server.send_bare(&wrong).refused(401, "E_CAP_AUTH");
    let denied = told(&server, "auth.denied", any);
    has(&denied, &["corr_id", "remote_addr"]);
    assert_eq!(
        (&denied["reason"], &denied["scope"]),
        (&json!("unauth"), &json!("send"))
    );

    let topic = json!({"topic": "user:1"});
    server.post("/v1/dlq/reprocess", &topic).expect(200);
    let back = told(&server, "dlq.reprocess", any);
    has(&back, &["corr_id", "remote_addr", "topic_class"]);
    assert_eq!(
        (&back["level"], &back["moved"]),
        (&json!("INFO"), &json!(1))
    );
    let all = json!({"topic": "user:1", "state": "all"});
    server.post("/v1/purge", &all).expect(200);
    let purged = told(&server, "mailbox.purge", any);
    has(&purged, &["corr_id", "remote_addr", "topic_class"]);
    assert_eq!(
        (&purged["level"], &purged["waiting"]),
        (&json!("INFO"), &json!(1))
    );
    golden(&server);
    server.signal("TERM");
    let ended = server.wait();
    let mut lines = ended.stderr.lines();
    assert!(lines.any(|line| line.contains("readyz.state") && line.contains("draining")));
    for secret in ["user:1", "wrong_secret", "aGk=", &id, "first"] {
        assert!(!ended.stderr.contains(secret), "{secret} was logged");
    }
}

#[test]
fn calls_can_be_followed_by_their_spans() {
    let server = talkative();
    let sent = server.send_bare(&send(&server, "k").header("X-Corr-Id", CORR_ID));
    let id = sent.expect(200)["msg_id"].as_str().unwrap().to_owned();
    let wish = json!({"topic": "user:1", "visibility_ms": 60_000});
    server.post("/v1/recv", &wish).expect(200);
    server
        .post(&format!("/v1/nack/{id}"), &json!({}))
        .expect(200);
    let wait = json!({"topic": "user:1", "wait_seconds": 20, "visibility_ms": 60_000});
    server.post("/v1/recv", &wait).expect(200);
    server
        .post(&format!("/v1/ack/{id}"), &json!({}))
        .expect(200);
    let topic = json!({"topic": "user:1"});
    server.post("/v1/dlq/reprocess", &topic).expect(200);
    let ended = |name: &str| {
        eventually(name, || {
            let log = server.log();
            let mut lines = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| line["span"] == name && line["message"] == "close")
        })
    };
    let call = [
        "corr_id",
        "profile",
        "auth.scope",
        "auth.result",
        "topic_class",
    ];
    for (name, more) in [
        ("svc.mailbox.send", &["shard"][..]),
        ("svc.mailbox.recv", &["shard", "attempt", "visibility_ms"]),
        ("svc.mailbox.nack", &["shard", "attempt"]),
        ("svc.mailbox.ack", &["shard", "attempt"]),
        ("svc.mailbox.dlq.reprocess", &[]),
    ] {
        let span = ended(name);
        has(&span, &[&call[..], more].concat());
        assert_eq!(span["auth.result"], "ok", "{span}");
    }
    assert_eq!(ended("svc.mailbox.send")["corr_id"], CORR_ID);
    has(&ended("svc.mailbox.scanner"), &["profile"]);
}

#[test]
fn a_stream_is_followed_by_the_request_that_opened_it() {
    let server = talkative();
    let wish = json!({"topic": "user:1"}).to_string();
    let request = server.with_key(Request::post("/v1/recv/stream", wish));
    let request = request.header("X-Corr-Id", CORR_ID);
    let mut stream = server.connect();
    stream
        .write(request.head(server.address).as_bytes())
        .unwrap();
    stream.write(&request.encoded_body()).unwrap();
    let look = |what: &str, is_it: fn(&Value) -> bool| {
        eventually(what, || {
            let log = server.log();
            let mut lines = log
                .lines()
                .filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.find(|line| {
                line["span"] == "svc.mailbox.recv" && line["message"] == "close" && is_it(line)
            })
        })
    };
    look("the opening", |line| line["auth.result"] == "ok");
    server.send_bare(&send(&server, "k")).expect(200);
    let found = look("the message", |line| line["attempt"] == 1);
    assert!(found["auth.result"].is_null(), "a later look: {found}");
    assert_eq!(found["corr_id"], CORR_ID);
    let remote = found["remote_addr"].as_str().unwrap();
    assert!(remote.starts_with("127.0.0.1:"), "{remote}");
}

#[test]
fn requests_are_counted_by_route_and_never_by_what_stands_in_it() {
    let server = Server::start();
    for key in ["a", "b"] {
        server.send_bare(&send(&server, key)).expect(200);
    }
    let got = server
        .post("/v1/recv", &json!({"topic": "user:1"}))
        .expect(200);
    let id = got["messages"][0]["msg_id"].as_str().unwrap();
    server
        .post(&format!("/v1/ack/{id}"), &json!({}))
        .expect(200);
    server.get("/v1/nothing").refused(404, "NOT_FOUND");
    let answer = server.get("/v1/send");
    answer.refused(405, "METHOD_NOT_ALLOWED");
    for (sample, value) in [
        (
            r#"http_requests_total{route="/v1/send",method="POST",status="200"}"#,
            2.0,
        ),
        (
            r#"http_requests_total{route="/v1/send",method="GET",status="405"}"#,
            1.0,
        ),
        (
            r#"http_requests_total{route="/v1/ack/{msg_id}",method="POST",status="200"}"#,
            1.0,
        ),
        (
            r#"http_requests_total{route="other",method="GET",status="404"}"#,
            1.0,
        ),
        (
            r#"request_latency_seconds_count{route="/v1/send",method="POST"}"#,
            2.0,
        ),
        (r#"inflight_requests{route="/v1/send"}"#, 0.0),
        (r#"inflight_requests{route="/metrics"}"#, 1.0),
        ("service_restarts_total", 0.0),
        ("cap_cache_entries", 1.0),
        ("bus_lagged_total", 0.0),
        (r#"queue_dropped_total{queue="work"}"#, 0.0),
    ] {
        assert_eq!(server.metric(sample), Some(value), "{sample}");
    }
    let metrics = server.send_bare(&Request::get("/metrics"));
    for hidden in [id, "user:1"] {
        assert!(!metrics.text().contains(hidden), "{hidden}");
    }
}

/// Every name that dashboards and alerts may build on.
#[track_caller]
fn golden(server: &Server) {
    let metrics = server.send_bare(&Request::get("/metrics"));
    let text = metrics.text();
    for name in [
        "http_requests",
        "request_latency_seconds",
        "inflight_requests",
        "service_restarts",
        "rejected",
        "bus_lagged",
        "queue_depth",
        "saturation",
        "busy_rejections",
        "queue_dropped",
        "mailbox_enqueued",
        "mailbox_delivered",
        "mailbox_redelivered",
        "mailbox_visibility_timeout",
        "mailbox_attempts_histogram",
        "enqueue_latency_seconds",
        "dequeue_latency_seconds",
        "ack_commit_latency_seconds",
        "integrity_fail",
        "mailbox_dlq",
        "mailbox_dlq_reprocess",
        "mailbox_purged",
        "dlq_purges",
        "mailbox_depth",
        "mailbox_inflight",
        "mailbox_oldest_age_seconds",
        "auth_failures",
        "cap_cache_entries",
        "cap_cache_evictions",
        "credential_hashes",
        "reorder_depth_max",
        "scanner_wake",
        "scanner_wake_jitter_ms",
        "requeue_backoff",
    ] {
        let line = format!("# TYPE {name} ");
        assert_eq!(text.matches(&line).count(), 1, "{name} in {text}");
    }
}

#[test]
fn dead_letters_that_are_forgotten_are_told() {
    let server = Launch::new()
        .args(&["--max-attempts", "1", "--default-visibility", "250ms"])
        .args(&["--t-replay", "500ms", "--log-level", "info"])
        .set("retention.dlq_seconds=1s")
        .start();
    server.send_bare(&send(&server, "k")).expect(200);
    let wish = json!({"topic": "user:1", "visibility_ms": 60_000});
    let got = server.post("/v1/recv", &wish);
    let id = got.expect(200)["messages"][0]["msg_id"].clone();
    let nack = format!("/v1/nack/{}", id.as_str().unwrap());
    server.post(&nack, &json!({})).expect(200);
    let line = told(&server, "dlq.forget", any);
    has(&line, &["topic_class"]);
    assert_eq!(
        (&line["level"], &line["count"]),
        (&json!("INFO"), &json!(1))
    );
    let sample = r#"dlq_purges_total{topic_class="other",reason="expiry"}"#;
    assert_eq!(server.metric(sample), Some(1.0));
}
