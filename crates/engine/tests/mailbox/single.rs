//! One message by its id: looking at it, throwing it away, bringing it back.

use asyncgate_api::Code;
use asyncgate_engine::{Role, fakes::TENANT};
use serde_json::{Value, json};

use crate::{
    metrics::report,
    world::{World, text},
};

fn one(id: &str) -> Value {
    json!({ "msg_id": id })
}

async fn look(world: &World, id: &str) -> Value {
    world.done("mailbox_get_message", one(id)).await
}

fn keyed(key: &str, extra: &Value) -> Value {
    let mut input = json!({ "topic": "t", "idem_key": key, "payload_text": "hi" });
    for (name, value) in extra.as_object().unwrap() {
        input[name] = value.clone();
    }
    input
}

#[tokio::test(start_paused = true)]
async fn a_message_is_shown_in_each_of_its_states_and_never_with_a_lease() {
    let world = World::with(|policy| policy.max_attempts = 1);
    let send = async |key: &str, extra: Value| {
        text(&world.done("mailbox_send", keyed(key, &extra)).await["msg_id"])
    };
    let first = send("a", json!({ "partition_key": "p" })).await;
    let behind = send("b", json!({ "partition_key": "p" })).await;
    let later = send("c", json!({ "delay_ms": 5_000 })).await;
    let shown = look(&world, &first).await;
    assert_eq!(
        (&shown["state"], &shown["payload_text"]),
        (&json!("ready"), &json!("hi"))
    );
    assert_eq!(look(&world, &behind).await["state"], "blocked");
    let shown = look(&world, &later).await;
    assert_eq!(shown["state"], "delayed");
    assert!(shown["visible_at"].is_string());

    let held = world.recv("t").await;
    assert_eq!(held[0]["msg_id"], first.as_str());
    let shown = look(&world, &first).await;
    assert_eq!(
        (&shown["state"], &shown["attempt"]),
        (&json!("leased"), &json!(1))
    );
    assert_eq!(shown["visible_at"], held[0]["visible_at"]);
    assert_eq!(shown.get("lease"), None, "it is the receiver's secret");

    let nack = json!({ "msg_id": first, "reason": "no", "error": "it broke" });
    world.done("mailbox_nack", nack).await;
    let shown = look(&world, &first).await;
    let why = [
        &shown["state"],
        &shown["cause"],
        &shown["reason"],
        &shown["last_error"],
    ];
    assert_eq!(why, ["dead", "max_attempts", "no", "it broke"]);
    assert!(shown["died_at"].is_string());

    let held = world.recv("t").await;
    assert_eq!(held[0]["msg_id"], behind.as_str());
    world.done("mailbox_ack", one(&behind)).await;
    for gone in [behind.as_str(), "01JAE6ZQX50000000000000000"] {
        world
            .refused("mailbox_get_message", one(gone), Code::ENotFound)
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_damaged_message_is_shown_only_as_a_dead_letter() {
    let world = World::with(|policy| policy.max_attempts = 1);
    let id = world.send("t", "k").await;
    world.damage(id.parse().unwrap()).await;
    world
        .refused("mailbox_get_message", one(&id), Code::EIntegrity)
        .await;
    world
        .refused("mailbox_recv", json!({ "topic": "t" }), Code::EIntegrity)
        .await;
    let shown = look(&world, &id).await;
    assert_eq!([&shown["state"], &shown["cause"]], ["dead", "integrity"]);
}

#[tokio::test(start_paused = true)]
async fn what_is_thrown_away_passes_its_turn_on_and_is_told_like_a_purge() {
    let world = World::with(|policy| policy.max_attempts = 1);
    let mut events = world.engine.events().subscribe(TENANT);
    let in_line = json!({ "partition_key": "p" });
    let first = world.done("mailbox_send", keyed("a", &in_line)).await;
    world.done("mailbox_send", keyed("b", &in_line)).await;
    let first = text(&first["msg_id"]);
    for _ in 0..2 {
        let done = world.done("mailbox_delete_message", one(&first)).await;
        assert_eq!(done, json!({ "ok": true }), "repeating it is safe");
    }
    let held = world.recv("t").await;
    assert_eq!(held[0]["idem_key"], "b", "it has the turn");
    let second = text(&held[0]["msg_id"]);
    world
        .refused("mailbox_delete_message", one(&second), Code::ELeased)
        .await;
    world.done("mailbox_nack", one(&second)).await;
    world.done("mailbox_delete_message", one(&second)).await;
    world
        .refused("mailbox_get_message", one(&second), Code::ENotFound)
        .await;

    for (waiting, dead) in [(1, 0), (0, 1)] {
        let body = loop {
            let (_, event) = events.next().await.unwrap();
            if event.topic == "mailbox.purged" {
                break event.body.clone();
            }
        };
        assert_eq!(
            (&body["waiting"], &body["dead"]),
            (&json!(waiting), &json!(dead))
        );
    }
    let text = report(&world).await;
    for line in [
        "mailbox_purged_total{topic_class=\"other\"} 1\n",
        "dlq_purges_total{topic_class=\"other\",reason=\"manual\"} 1\n",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_dead_letter_comes_back_under_the_rules_of_many() {
    let world = World::with(|policy| (policy.max_attempts, policy.topic_capacity) = (1, 1));
    let mut events = world.engine.events().subscribe(TENANT);
    let dead = world.send("t", "a").await;
    world.recv("t").await;
    world.done("mailbox_nack", one(&dead)).await;
    let waits = world.send("t", "b").await;
    world
        .refused("mailbox_redrive_message", one(&dead), Code::ESaturated)
        .await;
    world.done("mailbox_delete_message", one(&waits)).await;
    for moved in [1, 0] {
        let answer = world.done("mailbox_redrive_message", one(&dead)).await;
        assert_eq!(answer, json!({ "moved": moved }));
    }
    let shown = look(&world, &dead).await;
    assert_eq!(
        (&shown["state"], &shown["attempt"]),
        (&json!("ready"), &json!(0))
    );
    world
        .refused("mailbox_redrive_message", one(&waits), Code::ENotFound)
        .await;
    let body = loop {
        let (_, event) = events.next().await.unwrap();
        if event.topic == "mailbox.dlq.reprocessed" {
            break event.body.clone();
        }
    };
    assert_eq!(body["count"], 1);
}

#[tokio::test(start_paused = true)]
async fn only_admins_throw_away_and_bring_back() {
    let world = World::new();
    let id = world.send("t", "k").await;
    for operation in ["mailbox_delete_message", "mailbox_redrive_message"] {
        let refused = world.call_as(Role::Agent, operation, one(&id)).await;
        let fault = refused.unwrap_err();
        assert_eq!(fault.code, Code::ECapScope);
        assert_eq!(fault.details["required_role"], "admin");
    }
    let shown = world.call_as(Role::Agent, "mailbox_get_message", one(&id));
    assert_eq!(shown.await.unwrap()["state"], "ready");
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_must_be_escaped_may_still_be_as_large_as_the_limit() {
    let world = World::new();
    let most = world.engine.settings().policy.mailbox.max_payload_bytes;
    let text = "\u{1}".repeat(most);
    let entry = asyncgate_engine::registry()
        .iter()
        .find(|entry| entry.spec.name == "mailbox_send")
        .unwrap();
    let input = json!({ "topic": "t", "idem_key": "k", "payload_text": text });
    let largest = entry.input_limit(&world.engine, 1);
    assert!(input.to_string().len() <= largest, "a body has the room");
    let sent = world.done("mailbox_send", input).await;
    let shown = look(&world, sent["msg_id"].as_str().unwrap()).await;
    assert_eq!(shown["payload_text"], text.as_str());
}
