//! Limits of calls to the server itself: the calls that they count together, their headers, and the calls
//! that they leave alone.

use asyncgate_grpc::pb;
use serde_json::json;
use tonic::Code;

use crate::{
    grpc,
    harness::{Launch, Server, eventually},
    mcp::{self, Era},
};

/// A bucket that takes an hour to fill, a window of a day, and the operations that they limit.
fn limited(gate: &str) -> Launch {
    let settings = format!(
        r#"
[limits.policies.few]
kind = "token_bucket"
capacity = 3
refill_per_minute = 0.05
[limits.policies.one]
kind = "fixed_window"
limit = 1
window_secs = 86400
[limits.policies.tried]
kind = "token_bucket"
capacity = 1
refill_per_minute = 0.05
shadow = true
[limits.gate]
{gate}
"#
    );
    Launch::new().file("s.toml", &settings)
}

fn task(server: &Server) -> crate::http::Response {
    server.post("/v1/tasks", &json!({ "type": "echo", "payload": {} }))
}

#[test]
fn nothing_is_limited_or_told_by_default() {
    let server = Server::start();
    let answer = server.get("/v1/tasks");
    answer.expect(200);
    for name in ["X-RateLimit-Limit", "RateLimit", "RateLimit-Policy"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
}

#[test]
fn a_tenant_is_told_what_is_left_and_then_refused() {
    let server = limited("tenant = \"few\"").start();
    for left in ["2", "1", "0"] {
        let answer = server.get("/v1/tasks");
        answer.expect(200);
        assert_eq!(answer.header("X-RateLimit-Limit"), Some("3"));
        assert_eq!(answer.header("X-RateLimit-Remaining"), Some(left));
        assert_eq!(
            answer.header("RateLimit-Policy"),
            Some("\"tenant\";q=3;w=3600")
        );
        let bucket = answer.header("X-RateLimit-Bucket").unwrap();
        let named = bucket.starts_with("tenant:") && bucket.ends_with(":api_calls");
        assert!(named, "{bucket}");
    }
    // Refused over every protocol and on every route, but for those that need no credential.
    let refused = server.get("/v1/tasks");
    let body = refused.expect(429);
    assert_eq!(body["error"], "rate_limit_exceeded");
    assert_eq!(
        (&body["code"], &body["limit"]),
        (&json!("RATE_LIMIT"), &json!(3))
    );
    assert_eq!(body["window"], "1h");
    let wait = body["retry_after"].as_u64().unwrap();
    assert!((1..=1_200).contains(&wait), "{wait}");
    assert_eq!(
        refused.header("Retry-After"),
        Some(wait.to_string().as_str())
    );
    assert_eq!(refused.header("X-RateLimit-Remaining"), Some("0"));
    task(&server).expect(429);
    let sent = json!({ "topic": "t", "idem_key": "k", "payload_b64": "" });
    let sent = server.post("/v1/send", &sent).expect(429);
    assert_eq!(sent["code"], "E_SATURATED");
    server.get("/v1/health").expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_protocol_draws_on_the_same_bucket() {
    let server = limited("principal = \"few\"").start();
    let mut client = grpc::client(&server);
    let receive = || grpc::wish("t");
    client.recv(receive()).await.unwrap();
    mcp::call(&server, Era::Handshake, "asyncgate.list_tasks", json!({})).unwrap();
    let last = server.get("/v1/tasks");
    last.expect(200);
    assert_eq!(last.header("X-RateLimit-Remaining"), Some("0"));
    let refused = mcp::call(&server, Era::Handshake, "asyncgate.list_tasks", json!({}));
    assert_eq!(refused.unwrap_err()["code"], "RATE_LIMIT");
    let refused = client.recv(receive()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let stream = client.recv_stream(receive()).await;
    assert_eq!(stream.unwrap_err().code(), Code::ResourceExhausted);
}

#[test]
fn what_one_limit_refuses_is_not_charged_to_the_others() {
    let server = limited("global = \"few\"\ntasks = \"one\"").start();
    task(&server).expect(201);
    for _ in 0..5 {
        let refused = task(&server);
        let body = refused.expect(429);
        assert_eq!(body["window"], "24h");
        let bucket = refused.header("X-RateLimit-Bucket").unwrap();
        assert!(bucket.ends_with(":tasks"), "{bucket}");
        assert_eq!(
            refused.header("RateLimit-Policy"),
            Some("\"global\";q=3;w=3600, \"tasks\";q=1;w=86400")
        );
    }
    // Two are left for what makes no task.
    server.get("/v1/tasks").expect(200);
    server.get("/v1/tasks").expect(200);
    server.get("/v1/tasks").expect(429);
}

#[test]
fn a_create_counts_also_when_it_makes_no_task() {
    let server = limited("tasks = \"few\"").start();
    let input = json!({ "type": "echo", "payload": {}, "idempotency_key": "k" });
    for (input, status) in [
        (&json!({}), 400),
        (&input, 201),
        (&input, 200),
        (&input, 429),
    ] {
        server.post("/v1/tasks", input).expect(status);
    }
    server.get("/v1/tasks").expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_a_batch_counts_and_a_batch_passes_whole_or_not_at_all() {
    let server = limited("messages = \"few\"\ntenant = \"batch\"").start();
    let batch = |range: std::ops::Range<u8>| {
        let messages: Vec<_> = range
            .map(|n| json!({ "topic": "t", "idem_key": n.to_string(), "payload_text": "x" }))
            .collect();
        server.post("/v1/send/batch", &json!({ "messages": messages }))
    };
    let depth = || {
        let topics = server.get("/v1/topics").expect(200);
        topics["topics"][0]["depth"].clone()
    };
    // No wait would help.
    let never = batch(0..4);
    let body = never.expect(400);
    assert_eq!(
        (&body["code"], &body["limit"]),
        (&json!("E_SCHEMA"), &json!(3))
    );
    assert!(
        body["message"].as_str().unwrap().contains("send fewer"),
        "{body}"
    );
    assert_eq!(never.header("Retry-After"), None);
    let sent = batch(0..2);
    sent.expect(200);
    assert_eq!(sent.header("X-RateLimit-Remaining"), Some("1"));
    let bucket = sent.header("X-RateLimit-Bucket").unwrap();
    assert!(bucket.ends_with(":messages"), "{bucket}");
    let policies = sent.header("RateLimit-Policy").unwrap();
    assert!(policies.contains("\"tenant\"") && policies.contains("\"messages\";q=3;w=3600"));
    let refused = batch(2..4);
    let body = refused.expect(429);
    assert_eq!(body["code"], "E_SATURATED");
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(depth(), 2, "a refused batch sends nothing");
    // What cannot be read counts too, over every protocol; other calls do not.
    server
        .post("/v1/recv", &json!({ "topic": "t" }))
        .expect(200);
    let unreadable = json!({ "messages": [7] });
    server.post("/v1/send/batch", &unreadable).expect(200);
    server.post("/v1/send/batch", &unreadable).expect(429);
    let message = pb::SendRequest {
        topic: "t".to_owned(),
        idem_key: "5".to_owned(),
        ..Default::default()
    };
    let sent = grpc::client(&server).send(grpc::keyed(message)).await;
    assert_eq!(sent.unwrap_err().code(), Code::ResourceExhausted);
    server.get("/v1/tasks").expect(200);
}

#[test]
fn an_answer_about_a_limit_tells_of_that_limit() {
    let server = limited("tenant = \"few\"").start();
    let asked = json!({ "policy": "standard", "key": "k" });
    let answer = server.post("/v1/limits/check", &asked);
    answer.expect(200);
    assert_eq!(answer.header("X-RateLimit-Bucket"), Some("standard:k"));
    // The gate's own rows cannot be reached by asking, not even to refill them.
    let bucket = server.get("/v1/tasks");
    let bucket = bucket.header("X-RateLimit-Bucket").unwrap();
    let refill = json!({ "policy": "few", "key": bucket, "cost": -3 });
    server.post("/v1/limits/check", &refill).expect(200);
    server.get("/v1/tasks").expect(429);
}

#[test]
fn a_policy_that_is_tried_out_refuses_nobody() {
    let server = limited("global = \"tried\"").start();
    for _ in 0..3 {
        server.get("/v1/tasks").expect(200);
    }
    let metrics = server.get("/metrics");
    let counted = metrics.text().lines().any(|line| {
        line.contains("limit_decisions") && line.contains("shadowed") && line.ends_with(" 2")
    });
    assert!(counted, "{}", metrics.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_nobody_can_be_asked_about_refuses_in_the_words_of_the_route() {
    let server = limited("tenant = \"few\"")
        .set("admission.backend=redis://127.0.0.1:1")
        .set("admission.counter_failure_mode=closed")
        .start();
    let message = json!({ "topic": "t", "idem_key": "k", "payload_b64": "" });
    for (answer, code) in [
        (server.get("/v1/tasks"), "HOST_UNAVAILABLE"),
        (server.post("/v1/send", &message), "E_UNAVAILABLE"),
    ] {
        assert_eq!(answer.expect(503)["code"], code);
        assert!(answer.header("Retry-After").is_some(), "{code}");
    }
    let refused = grpc::client(&server).recv(grpc::wish("t")).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unavailable);
}

#[test]
fn limits_come_and_go_with_the_settings() {
    let launch = limited("global = \"one\"");
    let server = launch.start();
    server.get("/v1/tasks").expect(200);
    server.get("/v1/tasks").expect(429);
    launch.clone().file("s.toml", "");
    server.signal("HUP");
    eventually("the limit is gone", || {
        (server.get("/v1/tasks").status == 200).then_some(())
    });
}

#[test]
fn a_limit_that_cannot_be_stops_the_start() {
    let ended = limited("global = \"client\"").refused();
    assert!(
        ended.complaint().contains("limits.gate"),
        "{}",
        ended.complaint()
    );
}
