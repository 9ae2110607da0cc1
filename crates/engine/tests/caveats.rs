//! The conditions of a macaroon, held against calls.

#![expect(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_core::{
    Timestamp,
    identity::Role,
    mailbox::{TopicClasses, TopicPattern},
};
use asyncgate_credentials::{Caveat, QuotaUnit};
use asyncgate_engine::{
    Caller, Caveats, Credential, CredentialKind, Fault, Settings, Source,
    fakes::{FakeClock, START_MS, TestEngine, caller},
    registry,
};
use asyncgate_store::memory::MemoryStore;
use serde_json::{Value, json};

const DAY_MS: i64 = 86_400_000;

fn world() -> TestEngine {
    let inbox = (TopicPattern::new("user:*:inbox"), "inbox".to_owned());
    let settings = Settings {
        topic_classes: TopicClasses::new([inbox]),
        ..Settings::default()
    };
    TestEngine::new(settings, FakeClock::at(START_MS))
}

/// Returns an agent with a macaroon of these conditions. Quotas are counted under names that follow from them.
fn bearer(conditions: &[&str]) -> Caller {
    let list: Vec<Caveat> = conditions.iter().map(|text| Caveat::parse(text)).collect();
    let quota = |caveat: &Caveat| {
        let Caveat::Quota { unit, limit } = caveat else {
            return None;
        };
        Some((*unit, *limit, [u8::from(*unit == QuotaUnit::Bytes); 32]))
    };
    let caveats = Caveats {
        quotas: list.iter().filter_map(quota).collect(),
        list,
        counted_until: Timestamp::from_millis(START_MS + DAY_MS),
    };
    Caller {
        credential: Credential {
            caveats: Some(Arc::new(caveats)),
            ..Credential::of_kind(CredentialKind::Macaroon)
        },
        ..caller(Role::Agent)
    }
}

async fn call(world: &TestEngine, who: &Caller, name: &str, input: Value) -> Result<Value, Fault> {
    let entry = registry().iter().find(|entry| entry.spec.name == name);
    let input = input.to_string();
    let source = Source::Json(input.as_bytes());
    let answer = (entry.expect("an operation").call)(&world.engine, who, source).await?;
    Ok(serde_json::from_slice(&answer.json).expect("JSON"))
}

fn send(topic: &str, key: &str) -> Value {
    json!({ "topic": topic, "idem_key": key, "payload_text": "12345" })
}

/// Returns the code and the condition of a refusal.
fn refusal(outcome: Result<Value, Fault>) -> (Code, String) {
    let fault = outcome.expect_err("a refusal");
    let caveat = fault.details.get("caveat").and_then(Value::as_str);
    (fault.code, caveat.unwrap_or_default().to_owned())
}

fn scope(caveat: &str) -> (Code, String) {
    (Code::ECapScope, caveat.to_owned())
}

#[tokio::test]
async fn operations_are_allowed_by_their_sort_or_name() {
    let world = world();
    let sender = bearer(&["op = send,create_task"]);
    call(&world, &sender, "mailbox_send", send("t", "a"))
        .await
        .expect("sent");
    call(&world, &sender, "create_task", json!({ "type": "x" }))
        .await
        .expect("made");
    for (name, input) in [
        ("mailbox_recv", json!({ "topic": "t" })),
        ("list_tasks", json!({})),
        // What is not allowed is refused before the input is looked at.
        ("mailbox_recv", json!({ "nonsense": true })),
    ] {
        let refused = refusal(call(&world, &sender, name, input).await);
        assert_eq!(refused, scope("op = send,create_task"), "{name}");
    }
}

#[tokio::test]
async fn topics_bound_what_is_sent_received_and_settled() {
    let world = world();
    let free = caller(Role::Agent);
    let bound = bearer(&["topic = user:42:*"]);
    call(&world, &free, "mailbox_send", send("user:7:inbox", "a"))
        .await
        .expect("sent");
    call(&world, &bound, "mailbox_send", send("user:42:inbox", "b"))
        .await
        .expect("sent");
    let condition = || scope("topic = user:42:*");
    let batch = json!({ "messages": [send("user:42:x", "c"), send("user:7:x", "d")] });
    for (name, input) in [
        ("mailbox_send", send("user:7:inbox", "e")),
        ("mailbox_send_batch", batch),
        ("mailbox_recv", json!({ "topic": "user:7:inbox" })),
        // These have no topic at all.
        ("create_task", json!({ "type": "x" })),
        ("create_tasks", json!({ "tasks": [{ "type": "x" }] })),
        ("mailbox_topics", json!({})),
    ] {
        assert_eq!(
            refusal(call(&world, &bound, name, input).await),
            condition(),
            "{name}"
        );
    }
    // A message is settled by its id, and its topic counts.
    for (topic, may) in [("user:42:inbox", true), ("user:7:inbox", false)] {
        let got = call(&world, &free, "mailbox_recv", json!({ "topic": topic })).await;
        let id = got.expect("received")["messages"][0]["msg_id"].clone();
        for name in ["mailbox_extend", "mailbox_get_message", "mailbox_ack"] {
            let outcome = call(&world, &bound, name, json!({ "msg_id": id })).await;
            match may {
                true => drop(outcome.expect(name)),
                false => assert_eq!(refusal(outcome), condition(), "{name}"),
            }
        }
        let acks = json!({ "acks": [{ "msg_id": id }] });
        let outcome = call(&world, &bound, "mailbox_ack_batch", acks).await;
        assert_eq!(outcome.is_ok(), may, "{topic}");
    }
}

#[tokio::test]
async fn a_class_stands_for_its_topics() {
    let world = world();
    let bound = bearer(&["topic_class = inbox"]);
    call(&world, &bound, "mailbox_send", send("user:1:inbox", "a"))
        .await
        .expect("sent");
    let refused = refusal(call(&world, &bound, "mailbox_send", send("user:1:outbox", "b")).await);
    assert_eq!(refused, scope("topic_class = inbox"));
}

#[tokio::test]
async fn quotas_are_used_up_and_what_is_refused_costs_nothing() {
    let world = world();
    let two = bearer(&["quota ops = 2"]);
    // A macaroon that was derived from it shares the count.
    let derived = bearer(&["quota ops = 2", "op = send"]);
    for (who, key) in [(&two, "a"), (&derived, "b")] {
        call(&world, who, "mailbox_send", send("t", key))
            .await
            .expect("sent");
    }
    for who in [&two, &derived] {
        let refused = refusal(call(&world, who, "mailbox_send", send("t", "c")).await);
        assert_eq!(refused, scope("quota ops = 2"));
    }
    let bytes = bearer(&["quota bytes = 12"]);
    let large = json!({ "topic": "t", "idem_key": "l", "payload_text": "1234567890123" });
    let refused = refusal(call(&world, &bytes, "mailbox_send", large).await);
    assert_eq!(refused, scope("quota bytes = 12"));
    for key in ["d", "e"] {
        call(&world, &bytes, "mailbox_send", send("t", key))
            .await
            .expect("sent");
    }
    let refused = refusal(call(&world, &bytes, "mailbox_send", send("t", "f")).await);
    assert_eq!(refused, scope("quota bytes = 12"));
    // The count does not begin again before the end of the macaroon.
    world.clock.advance(DAY_MS - 1_000);
    let refused = refusal(call(&world, &two, "mailbox_send", send("t", "g")).await);
    assert_eq!(refused, scope("quota ops = 2"));
}

#[tokio::test]
async fn the_end_of_a_macaroon_is_exact_and_looks_like_no_credential() {
    let world = world();
    let end = Timestamp::from_millis(START_MS + 1_000);
    let brief = bearer(&[&format!("time < {end}")]);
    world.clock.advance(999);
    call(&world, &brief, "list_tasks", json!({}))
        .await
        .expect("in time");
    world.clock.advance(1);
    let fault = call(&world, &brief, "list_tasks", json!({}))
        .await
        .expect_err("too late");
    assert_eq!((fault.code, fault.details.len()), (Code::ECapAuth, 0));
}

#[tokio::test]
async fn what_is_not_understood_forbids_everything() {
    let world = world();
    for condition in [
        "color = red",
        "tenant = 018f1a2a-6b45-7c7c-b80e-9ef2a5b1f22a",
    ] {
        let bound = bearer(&[condition]);
        let refused = refusal(call(&world, &bound, "get_config", json!({})).await);
        assert_eq!(refused, scope(condition));
    }
}

/// The failure mode lets calls pass whose limits cannot be counted. A condition of a credential is no such limit.
#[tokio::test]
async fn a_quota_that_cannot_be_counted_forbids_the_call() {
    let store = Arc::new(MemoryStore::with_admission_rows(0));
    let clock = Arc::new(FakeClock::at(START_MS));
    let world = TestEngine::over(store, clock, Settings::default());
    let bound = bearer(&["quota ops = 1"]);
    for key in ["a", "b"] {
        let sent = call(&world, &bound, "mailbox_send", send("t", key)).await;
        assert_eq!(sent.expect_err("not counted").code, Code::EUnavailable);
    }
    let free = bearer(&[]);
    call(&world, &free, "mailbox_send", send("t", "c"))
        .await
        .expect("sent");
}

#[tokio::test]
async fn a_macaroon_has_its_own_codes_on_every_plane() {
    let world = world();
    let bound = bearer(&[]);
    for name in ["lease_next", "mailbox_purge", "host_revocations"] {
        let fault = call(&world, &bound, name, json!({}))
            .await
            .expect_err("not an agent's");
        assert_eq!(fault.code, Code::ECapScope, "{name}");
    }
}
