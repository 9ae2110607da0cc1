//! What only REST has: headers, statuses, streams.

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::facades::Twin;

fn send(key: &str) -> Value {
    json!({ "topic": "t", "idem_key": key, "payload_b64": "aGk=" })
}

#[tokio::test]
async fn the_idempotency_mode_stands_in_a_header() {
    let twin = Twin::rest();
    let first = twin.post("/v1/send", &[], &send("k")).await;
    assert_eq!(first.status, StatusCode::OK);
    let again = twin
        .post(
            "/v1/send",
            &[("x-idempotency-mode", "200-flag")],
            &send("k"),
        )
        .await;
    assert_eq!(
        (again.status, &again.body["duplicate"]),
        (StatusCode::OK, &json!(true))
    );
    let mode = [("x-idempotency-mode", "409-conflict")];
    let conflict = twin.post("/v1/send", &mode, &send("k")).await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    assert_eq!(conflict.body["code"], "E_DUPLICATE");
    assert_eq!(conflict.body["msg_id"], first.body["msg_id"]);
    assert_eq!(conflict.body["duplicate"], true);
    let bad = twin
        .post("/v1/send", &[("x-idempotency-mode", "x")], &send("k"))
        .await;
    assert_eq!(
        (bad.status, &bad.body["code"]),
        (StatusCode::BAD_REQUEST, &json!("E_SCHEMA"))
    );
}

#[tokio::test]
async fn a_correlation_id_follows_the_message_if_it_is_a_uuid() {
    let twin = Twin::rest();
    let id = "018f1a2a-6b45-7c7c-b80e-9ef2a5b1f22a";
    let sent = twin
        .post("/v1/send", &[("x-corr-id", id)], &send("a"))
        .await;
    assert_eq!(sent.header("x-corr-id"), Some(id));
    let sent = twin
        .post("/v1/send", &[("x-corr-id", "mine")], &send("b"))
        .await;
    assert_eq!(
        (sent.status, sent.header("x-corr-id")),
        (StatusCode::OK, Some("mine"))
    );
    let got = twin.post("/v1/recv", &[], &json!({ "topic": "t" })).await;
    assert_eq!(got.body["messages"][0]["corr_id"], id);
    let own = got.body["messages"][1]["corr_id"].as_str().expect("an id");
    assert_eq!(own.len(), 36);
}

#[tokio::test]
async fn the_answer_and_the_message_have_one_correlation_id() {
    let twin = Twin::rest();
    let sent = twin.post("/v1/send", &[], &send("a")).await;
    let drawn = sent.header("x-corr-id").expect("an id").to_owned();
    let id = "018f1a2a-6b45-7c7c-b80e-9ef2a5b1f22a";
    let mut named = send("b");
    named["corr_id"] = id.into();
    let both = [("x-corr-id", id)];
    let sent = twin.post("/v1/send", &both, &named).await;
    assert_eq!(sent.status, StatusCode::OK, "said twice, and the same");
    let other = [("x-corr-id", "018f1a2a-6b45-7c7c-b80e-000000000000")];
    let differs = twin.post("/v1/send", &other, &named).await;
    assert_eq!(differs.status, StatusCode::BAD_REQUEST);
    assert_eq!(differs.body["code"], "E_SCHEMA");
    assert_eq!(differs.body["field"], "corr_id");
    let mut own = send("c");
    own["corr_id"] = id.into();
    let sent = twin.post("/v1/send", &[], &own).await;
    assert_eq!(sent.status, StatusCode::OK);
    let got = twin.post("/v1/recv", &[], &json!({ "topic": "t" })).await;
    let ids = |n: usize| got.body["messages"][n]["corr_id"].as_str();
    assert_eq!((ids(0), ids(1)), (Some(drawn.as_str()), Some(id)));
    assert_eq!((ids(2), ids(3)), (Some(id), None));
}

#[tokio::test]
async fn faults_before_the_operation_have_the_mailboxs_codes() {
    let twin = Twin::rest();
    let broken = twin.post_text("/v1/send", &[], "{").await;
    assert_eq!(
        (broken.status, &broken.body["code"]),
        (StatusCode::BAD_REQUEST, &json!("E_SCHEMA"))
    );
    let large = format!(r#"{{"topic":"{}"}}"#, "x".repeat(7 << 20));
    let large = twin.post_text("/v1/send", &[], &large).await;
    assert_eq!(large.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(large.body["code"], "E_FRAME_TOO_LARGE");
    for path in ["/v1/send", "/v1/recv", "/v1/recv/stream", "/v1/ack/x"] {
        let twin = Twin::rest().without_credential();
        let stranger = twin.post(path, &[], &send("k")).await;
        assert_eq!(stranger.status, StatusCode::UNAUTHORIZED);
        assert_eq!(stranger.body["code"], "E_CAP_AUTH", "{path}");
        assert_eq!(stranger.header("www-authenticate"), Some("Bearer"));
    }
}

#[tokio::test]
async fn who_finds_the_mailbox_full_is_told_when_to_come_back() {
    let twin = Twin::rest().with_small_topics(2);
    for n in 0..2 {
        let sent = twin.post("/v1/send", &[], &send(&n.to_string())).await;
        assert_eq!(sent.status, StatusCode::OK);
    }
    let full = twin.post("/v1/send", &[], &send("more")).await;
    assert_eq!(full.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(full.body["code"], "E_SATURATED");
    assert_eq!(full.header("retry-after"), Some("60"));
    assert_eq!(full.body["retry_after"], 60);
}

#[tokio::test]
async fn a_stream_gives_a_line_for_each_message_as_it_comes() {
    let twin = Twin::rest();
    twin.post("/v1/send", &[], &send("a")).await;
    let input = json!({ "topic": "t", "max_messages": 1 });
    let mut stream = twin.stream("/v1/recv/stream", &input).await;
    assert_eq!(stream.status, StatusCode::OK);
    assert_eq!(stream.content_type, "application/x-ndjson");
    let first = stream.line().await;
    assert_eq!(first["idem_key"], "a");
    twin.post("/v1/send", &[], &send("b")).await;
    assert_eq!(twin.inflight().await, 1, "the window is full");
    let path = format!("/v1/ack/{}", first["msg_id"].as_str().expect("an id"));
    let lease = json!({ "lease": first["lease"] });
    assert_eq!(
        twin.post(&path, &[], &lease).await.body,
        json!({ "ok": true })
    );
    assert_eq!(stream.line().await["idem_key"], "b");
    twin.drain();
    assert!(stream.ended().await);
}

#[tokio::test]
async fn who_does_not_read_does_not_hold_more_and_more() {
    let twin = Twin::rest();
    for n in 0..40 {
        twin.post("/v1/send", &[], &send(&n.to_string())).await;
    }
    let input = json!({ "topic": "t", "max_messages": 4, "visibility_ms": 250 });
    let stream = twin.stream("/v1/recv/stream", &input).await;
    for _ in 0..10 {
        twin.advance(250).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(twin.inflight().await <= 4);
    }
    drop(stream);
    let mut deliveries = 0;
    for message in twin.messages().await {
        deliveries += message["attempt"].as_u64().expect("a number");
    }
    assert!(deliveries <= 8, "two windows at most: {deliveries}");
}

#[tokio::test]
async fn a_stream_that_cannot_be_opened_is_an_ordinary_error() {
    let twin = Twin::rest();
    let refused = twin
        .post("/v1/recv/stream", &[], &json!({ "topic": "" }))
        .await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert_eq!(refused.body["code"], "E_SCHEMA");
    let refused = twin
        .post("/v1/recv/stream", &[], &json!({ "topic": "t", "x": 1 }))
        .await;
    assert_eq!(refused.body["code"], "E_SCHEMA");
}
