//! Every operation through every facade, on twin engines that see the same time and the same ids:
//! answers, error codes, ledgers, receipt hashes and messages must be the same.
//!
//! The cases are demanded by the registry: an operation without a case, or without a refused one,
//! fails the suite.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

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
