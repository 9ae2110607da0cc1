//! Every operation through every facade, on twin engines that see the same time and the same ids:
//! answers, error codes, ledgers, receipt hashes and messages must be the same.
//!
//! The cases are demanded by the registry: an operation without a case, or without a refused one,
//! fails the suite.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

mod access;
mod admission;
mod facades;
mod grpc;
mod messages;
mod rest;
mod script;

use std::collections::HashSet;

use asyncgate_api::{Code, Payload};
use asyncgate_engine::registry;
use serde_json::{Value, json};

use crate::{
    facades::{Outcome, Twin},
    script::{Memory, Step, script},
};

/// Runs the whole script through one facade. Answers what each step came to, and how the messages
/// stood after it: later ones would be too late, because messages are forgotten.
async fn play(twin: &Twin) -> Vec<(String, Outcome, Vec<Value>)> {
    let mut memory = Memory::default();
    let mut outcomes = Vec::new();
    for step in script() {
        let input = memory.fill(&step.input);
        twin.advance(step.after_ms).await;
        let outcome = twin.call(step.operation, &input).await;
        memory.keep(&step, &outcome);
        outcomes.push((step.to_string(), outcome, twin.messages().await));
    }
    outcomes
}

#[tokio::test]
async fn every_facade_gives_the_same_answers_and_leaves_the_same_ledger() {
    let rest = Twin::rest();
    let by_rest = play(&rest).await;
    let ledger = rest.ledger().await;
    assert!(ledger.len() > 20, "the script must leave a history");
    for other in [Twin::mcp(), Twin::grpc()] {
        for (rest, other) in by_rest.iter().zip(&play(&other).await) {
            assert_eq!(rest, other);
        }
        assert_eq!(ledger, other.ledger().await, "ledgers with hashes");
    }
}

#[tokio::test]
async fn a_payload_may_be_exactly_as_large_as_the_limit_in_every_facade() {
    for twin in [Twin::rest(), Twin::mcp(), Twin::grpc()] {
        for (bytes, code) in [
            (1 << 20, None),
            ((1 << 20) + 1, Some("E_FRAME_TOO_LARGE")),
            (3 << 20, Some("E_FRAME_TOO_LARGE")),
        ] {
            let payload = Payload::from(vec![7; bytes]).to_base64();
            let key = bytes.to_string();
            let message = json!({ "topic": "t", "idem_key": key, "payload_b64": payload });
            let outcome = twin.call("mailbox_send", &message).await;
            match code {
                None => assert!(matches!(outcome, Outcome::Answer(_)), "{outcome:?}"),
                Some(code) => assert_eq!(outcome, Outcome::Refused(code.to_owned())),
            }
        }
        // A batch may be larger than one message.
        let payload = Payload::from(vec![8; 1 << 20]).to_base64();
        let messages: Vec<Value> = (0..4)
            .map(|n| json!({ "topic": "t", "idem_key": n.to_string(), "payload_b64": payload }))
            .collect();
        let outcome = twin
            .call("mailbox_send_batch", &json!({ "messages": messages }))
            .await;
        assert!(matches!(outcome, Outcome::Answer(_)), "{outcome:?}");
    }
}

/// gRPC carries bytes and has no form for what cannot be read.
#[tokio::test]
async fn text_and_items_that_cannot_be_read_are_answered_alike_where_input_is_json() {
    let good = json!({ "topic": "t", "idem_key": "a", "payload_text": "Grüße\n" });
    let twice = json!({
        "topic": "t", "idem_key": "b", "payload_text": "x", "payload_b64": "eA==",
    });
    let batch = json!({ "messages": [
        good, 7, ["t", "k"], { "topic": "t" }, { "topic": 7, "idem_key": "k" },
        { "topic": "t", "idem_key": "k", "color": "red" },
        { "topic": "t", "idem_key": "k", "payload_b64": "@" },
        { "topic": "t", "idem_key": "k" }, twice,
        { "topic": "t", "idem_key": "c", "payload_b64": "eA==" },
    ]});
    let acks =
        json!({ "acks": [{ "msg_id": 7 }, null, { "msg_id": "01JAE6ZQX50000000000000000" }] });
    for twin in [Twin::rest(), Twin::mcp()] {
        let call = async |name: &str, input: &Value| match twin.call(name, input).await {
            Outcome::Answer(answer) => answer,
            Outcome::Refused(code) => panic!("{name}: {code}"),
        };
        let answer = call("mailbox_send_batch", &batch).await;
        let codes = |answer: &Value| -> Vec<String> {
            let results = answer["results"].as_array().expect("results");
            let code = |result: &Value| result["code"].as_str().unwrap_or("").to_owned();
            results.iter().map(code).collect()
        };
        let mut expected = ["E_SCHEMA"; 10];
        (expected[0], expected[9]) = ("", "");
        assert_eq!(codes(&answer), expected, "{answer}");
        let message = |n: usize| answer["results"][n]["message"].as_str().expect("text");
        assert!(message(4).starts_with("topic: "), "{answer}");
        assert!(message(5).contains("unknown field `color`"), "{answer}");
        assert!(message(6).contains("not base64"), "{answer}");
        assert!(
            message(7).contains("exactly one of payload_text"),
            "{answer}"
        );
        let answer = call("mailbox_ack_batch", &acks).await;
        assert_eq!(codes(&answer), ["E_SCHEMA", "E_SCHEMA", "E_NOT_FOUND"]);

        let shows = |envelope: &Value, text: Value, base64: &str| {
            assert_eq!(
                envelope.get("payload_text"),
                (!text.is_null()).then_some(&text)
            );
            assert_eq!(envelope["payload_b64"], base64);
        };
        let in_base64 = Payload::from("Grüße\n".as_bytes().to_vec()).to_base64();
        for name in ["mailbox_peek", "mailbox_recv"] {
            let seen = call(name, &json!({ "topic": "t" })).await;
            shows(&seen["messages"][0], json!("Grüße\n"), &in_base64);
            shows(&seen["messages"][1], Value::Null, "eA==");
        }
        let id = &twin.messages().await[0]["id"];
        let seen = call("mailbox_get_message", &json!({ "msg_id": id })).await;
        shows(&seen, json!("Grüße\n"), &in_base64);
        assert_eq!(
            (&seen["state"], seen.get("lease")),
            (&json!("leased"), None)
        );
        for broken in [
            json!({ "messages": {} }),
            json!({ "messages": "x" }),
            json!({}),
        ] {
            let outcome = twin.call("mailbox_send_batch", &broken).await;
            assert_eq!(outcome, Outcome::Refused("E_SCHEMA".to_owned()));
        }
    }
}

#[tokio::test]
async fn every_step_ends_as_the_script_says() {
    let outcomes = play(&Twin::rest()).await;
    for (step, (name, outcome, _)) in script().iter().zip(outcomes) {
        match (&step.code, &outcome) {
            (None, Outcome::Answer(_)) => {}
            (Some(expected), Outcome::Refused(code)) => assert_eq!(code, expected, "{name}"),
            (expected, outcome) => panic!("{name}: expected {expected:?}, got {outcome:?}"),
        }
    }
}

#[test]
fn the_script_has_every_operation_both_done_and_refused() {
    let steps = script();
    let named = |wanted: fn(&Step) -> bool| -> HashSet<&str> {
        steps
            .iter()
            .filter(|step| wanted(step))
            .map(|step| step.operation)
            .collect()
    };
    let done = named(|step| step.code.is_none());
    let refused = named(|step| step.code.is_some());
    for entry in registry() {
        let name = entry.spec.name;
        if entry.spec.tool.is_some() {
            assert!(done.contains(name), "{name} is never done");
            assert!(refused.contains(name), "{name} is never refused");
        }
    }
}

#[tokio::test]
async fn unknown_fields_are_refused_by_every_operation_in_every_facade() {
    let (rest, mcp) = (Twin::rest(), Twin::mcp());
    for entry in registry().iter().filter(|entry| entry.spec.tool.is_some()) {
        let mut input = json!({ "bogus": "1" });
        for field in entry.spec.path_fields() {
            input[field] = "0190a0b0-0000-7000-8000-000000000000".into();
        }
        for twin in [&rest, &mcp] {
            let outcome = twin.call(entry.spec.name, &input).await;
            let code = entry.spec.plane.code(Code::BadRequest);
            assert_eq!(
                outcome,
                Outcome::Refused(code.as_str().to_owned()),
                "{}",
                entry.spec.name
            );
        }
    }
    assert_eq!(rest.ledger().await, Vec::<Value>::new());
}

#[tokio::test]
async fn what_no_one_may_do_without_a_credential_is_refused_in_every_facade() {
    for twin in [Twin::rest(), Twin::mcp()] {
        let twin = twin.without_credential();
        for entry in registry().iter().filter(|entry| entry.spec.tool.is_some()) {
            let outcome = twin.call(entry.spec.name, &json!({ "task_id": "x" })).await;
            let code = entry.spec.plane.code(Code::Unauthorized);
            assert_eq!(
                outcome,
                Outcome::Refused(code.as_str().to_owned()),
                "{}",
                entry.spec.name
            );
        }
    }
}
