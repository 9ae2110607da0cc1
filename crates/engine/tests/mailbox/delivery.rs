//! The life of messages.

use asyncgate_api::Code;
use asyncgate_core::MessageId;
use asyncgate_store::Store as _;
use serde_json::{Value, json};

use crate::world::{World, text};

#[tokio::test(start_paused = true)]
async fn a_message_is_sent_once_and_delivered_until_it_is_acknowledged() {
    let world = World::new();
    let id = world.send("user:42:inbox", "k").await;
    let again = json!({ "topic": "user:42:inbox", "idem_key": "k", "payload_b64": "aGk=" });
    let answer = world.done("mailbox_send", again).await;
    assert_eq!(answer, json!({ "msg_id": id, "duplicate": true }));
    let got = world.recv("user:42:inbox").await;
    assert_eq!(got.len(), 1);
    assert_eq!(got[0]["msg_id"], json!(id));
    assert_eq!(
        (&got[0]["attempt"], &got[0]["payload_b64"]),
        (&json!(1), &json!("aGk="))
    );
    assert_eq!(got[0]["sig"], Value::Null);
    assert!(text(&got[0]["hash_chain"]).starts_with("b3:"));
    assert!(world.recv("user:42:inbox").await.is_empty());
    world.pass(5_000).await;
    let second = world.recv("user:42:inbox").await;
    assert_eq!(second[0]["attempt"], 2);
    let stale = json!({ "msg_id": id, "lease": got[0]["lease"] });
    world.refused("mailbox_ack", stale, Code::EStaleLease).await;
    let ack = json!({ "msg_id": id, "lease": second[0]["lease"] });
    assert_eq!(
        world.done("mailbox_ack", ack.clone()).await,
        json!({ "ok": true })
    );
    assert_eq!(
        world.done("mailbox_ack", ack.clone()).await,
        json!({ "ok": true })
    );
    world.pass(300_000).await;
    world.refused("mailbox_ack", ack, Code::ENotFound).await;
    assert_eq!(world.topic("user:42:inbox").await, Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_send_is_answered_as_its_sender_wants_it() {
    let world = World::new();
    let id = world.send("t", "k").await;
    let conflict = json!({
        "topic": "t", "idem_key": "k", "payload_b64": "aGk=", "idempotency_mode": "409-conflict",
    });
    let fault = world
        .refused("mailbox_send", conflict, Code::EDuplicate)
        .await;
    assert_eq!(fault.details["msg_id"], json!(id));
    assert_eq!(fault.details["duplicate"], true);
    let other = json!({ "topic": "t", "idem_key": "k", "payload_b64": "aGkh" });
    let fault = world
        .refused("mailbox_send", other.clone(), Code::EIdemConflict)
        .await;
    assert_eq!(fault.details["msg_id"], json!(id));
    world.pass(300_000).await;
    assert_eq!(world.done("mailbox_send", other).await["duplicate"], false);
}

#[tokio::test(start_paused = true)]
async fn the_last_failed_delivery_makes_a_dead_letter_that_can_come_back() {
    let world = World::with(|policy| policy.max_attempts = 2);
    let id = world.send("t", "k").await;
    for _ in 0..2 {
        let got = world.recv("t").await;
        let nack = json!({
            "msg_id": id, "lease": got[0]["lease"], "reason": "E_PARSE", "error": "no", "delay_ms": 0,
        });
        world.done("mailbox_nack", nack).await;
    }
    assert!(world.recv("t").await.is_empty());
    let dead = world.done("mailbox_dlq", json!({ "topic": "t" })).await;
    let letter = &dead["messages"][0];
    assert_eq!(letter["msg_id"], json!(id));
    assert_eq!(
        (
            &letter["cause"],
            &letter["reason"],
            &letter["last_error"],
            &letter["attempt"]
        ),
        (
            &json!("max_attempts"),
            &json!("E_PARSE"),
            &json!("no"),
            &json!(2)
        )
    );
    assert_eq!(letter.get("lease"), None);
    assert_eq!(world.topic("t").await["dlq_depth"], 1);
    let reprocess = |extra: Value| {
        let mut input = json!({ "topic": "t" });
        input
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        world.done("mailbox_dlq_reprocess", input)
    };
    assert_eq!(reprocess(json!({ "reason": "other" })).await["moved"], 0);
    assert_eq!(
        reprocess(json!({ "older_than_secs": 60 })).await["moved"],
        0
    );
    assert_eq!(reprocess(json!({ "dry_run": true })).await["moved"], 1);
    assert_eq!(reprocess(json!({})).await["moved"], 1);
    let got = world.recv("t").await;
    assert_eq!(
        (&got[0]["msg_id"], &got[0]["attempt"]),
        (&json!(id), &json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn dead_letters_come_back_so_many_each_second() {
    let world = World::with(|policy| policy.max_attempts = 1);
    for n in 0..5 {
        let id = world.send("t", &n.to_string()).await;
        world.recv("t").await;
        world.done("mailbox_nack", json!({ "msg_id": id })).await;
    }
    let started = tokio::time::Instant::now();
    let input = json!({ "topic": "t", "limit": 4, "per_second": 2 });
    assert_eq!(world.done("mailbox_dlq_reprocess", input).await["moved"], 4);
    assert_eq!(started.elapsed().as_secs(), 1);
    assert_eq!(world.topic("t").await["ready"], 4);
}

#[tokio::test(start_paused = true)]
async fn what_grows_too_old_is_a_dead_letter_and_does_not_vanish() {
    let world = World::new();
    let input = json!({ "topic": "t", "idem_key": "k", "payload_b64": "", "ttl_ms": 1_000 });
    world.done("mailbox_send", input).await;
    world.pass(1_000).await;
    assert!(world.recv("t").await.is_empty());
    let dead = world.done("mailbox_dlq", json!({})).await;
    assert_eq!(dead["messages"][0]["cause"], "expired");
}

#[tokio::test(start_paused = true)]
async fn a_delivery_can_be_kept_longer_and_a_message_delayed() {
    let world = World::new();
    let input = json!({ "topic": "t", "idem_key": "k", "payload_b64": "", "delay_ms": 500 });
    let id = text(&world.done("mailbox_send", input).await["msg_id"]);
    assert!(world.recv("t").await.is_empty());
    assert_eq!(world.topic("t").await["delayed"], 1);
    world.pass(500).await;
    assert_eq!(world.recv("t").await.len(), 1);
    world.pass(4_000).await;
    world.done("mailbox_extend", json!({ "msg_id": id })).await;
    world.pass(4_000).await;
    assert!(world.recv("t").await.is_empty());
    world.pass(1_000).await;
    assert_eq!(world.recv("t").await[0]["attempt"], 2);
}

#[tokio::test(start_paused = true)]
async fn batches_answer_item_by_item() {
    let world = World::with(|policy| policy.max_payload_bytes = 2);
    let item =
        |key: &str, payload: &str| json!({ "topic": "t", "idem_key": key, "payload_b64": payload });
    let messages = json!({ "messages": [
        item("a", "aGk="), item("", "aGk="), item("a", "aGk="), item("a", "aGo="), item("b", "aGkh"),
    ]});
    let results = world.done("mailbox_send_batch", messages).await;
    let results = results["results"].as_array().unwrap();
    let id = &results[0]["msg_id"];
    assert_eq!(results[0]["duplicate"], false);
    assert_eq!(results[1]["code"], "E_SCHEMA");
    assert_eq!(
        (&results[2]["msg_id"], &results[2]["duplicate"]),
        (id, &json!(true))
    );
    assert_eq!(
        (&results[3]["msg_id"], &results[3]["code"]),
        (id, &json!("E_IDEM_CONFLICT"))
    );
    assert_eq!(results[4]["code"], "E_FRAME_TOO_LARGE");
    let got = world.recv("t").await;
    let unknown = "01JAE6ZQX50000000000000000";
    let acks = json!({ "acks": [
        { "msg_id": id, "lease": got[0]["lease"] }, { "msg_id": "x" }, { "msg_id": unknown },
        { "msg_id": id },
    ]});
    let results = world.done("mailbox_ack_batch", acks).await;
    assert_eq!(results["results"][0], json!({ "ok": true }));
    assert_eq!(results["results"][1]["code"], "E_SCHEMA");
    assert_eq!(results["results"][2]["code"], "E_NOT_FOUND");
    assert_eq!(results["results"][3], json!({ "ok": true }));
}

/// A large batch is several jobs, so that others have their turns in between. Its messages keep their order, and a key is
/// recognised wherever in the batch it came before.
#[tokio::test(start_paused = true)]
async fn a_large_batch_keeps_its_order() {
    for topics in [1, 3] {
        let world = World::new();
        let topic = |n: usize| format!("t{}", n % topics);
        let key = |n: usize| if n == 999 { 3 } else { n };
        let messages: Vec<Value> = (0..1_000)
            .map(|n| json!({ "topic": topic(key(n)), "idem_key": key(n).to_string(), "payload_text": "" }))
            .collect();
        let commits = world.store.metrics().commits.get();
        let sent = world
            .done("mailbox_send_batch", json!({ "messages": messages }))
            .await;
        assert!(world.store.metrics().commits.get() - commits > 3);
        let sent = sent["results"].as_array().unwrap();
        assert_eq!(sent.len(), 1_000);
        assert_eq!(sent[999]["msg_id"], sent[3]["msg_id"]);
        let again = sent.iter().map(|sent| sent["duplicate"] == true);
        assert_eq!(again.filter(|again| *again).count(), 1);
        for first in 0..topics {
            let wanted = sent[..999].iter().skip(first).step_by(topics);
            let wanted: Vec<&Value> = wanted.map(|sent| &sent["msg_id"]).collect();
            let mut got = Vec::new();
            while got.len() < wanted.len() {
                let more = world.recv(&topic(first)).await;
                got.extend(more.iter().map(|message| message["msg_id"].clone()));
            }
            let misplaced = got
                .iter()
                .zip(&wanted)
                .position(|(got, wanted)| got != *wanted);
            assert_eq!(misplaced, None, "of {topics} topics");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn purging_takes_what_waits_or_is_dead_but_nothing_that_is_leased() {
    let world = World::with(|policy| policy.max_attempts = 1);
    let dead = world.send("t", "dead").await;
    world.recv("t").await;
    world.done("mailbox_nack", json!({ "msg_id": dead })).await;
    world.send("t", "leased").await;
    world.recv("t").await;
    for n in 0..2_500 {
        world.send("t", &n.to_string()).await;
    }
    let purge = |state: &str| world.done("mailbox_purge", json!({ "topic": "t", "state": state }));
    assert_eq!(purge("ready").await["purged"], 2_500);
    let state = world.topic("t").await;
    assert_eq!(
        (&state["depth"], &state["inflight"]),
        (&json!(0), &json!(1))
    );
    assert_eq!(purge("all").await["purged"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_waits_is_woken_by_a_send() {
    let world = World::new();
    let waiting = tokio::spawn({
        let world = world.clone();
        async move {
            let input = json!({ "topic": "t", "wait_seconds": 30 });
            world.done("mailbox_recv", input).await
        }
    });
    tokio::task::yield_now().await;
    let started = tokio::time::Instant::now();
    let id = world.send("t", "k").await;
    assert_eq!(waiting.await.unwrap()["messages"][0]["msg_id"], json!(id));
    assert!(started.elapsed().is_zero());
    let input = json!({ "topic": "t", "wait_seconds": 2 });
    let none = world.done("mailbox_recv", input).await;
    assert_eq!(none, json!({ "messages": [] }));
    assert_eq!(started.elapsed().as_secs(), 2);
}

#[tokio::test(start_paused = true)]
async fn damaged_messages_are_told_of_and_never_delivered() {
    let world = World::with(|policy| policy.max_attempts = 1);
    let id: MessageId = world.send("t", "k").await.parse().unwrap();
    world.damage(id).await;
    let fault = world
        .refused("mailbox_recv", json!({ "topic": "t" }), Code::EIntegrity)
        .await;
    assert_eq!(fault.details["msg_ids"], json!([id.to_string()]));
    let dead = world.done("mailbox_dlq", json!({})).await;
    assert_eq!(dead["messages"][0]["cause"], "integrity");
    let id: MessageId = world.send("t", "k2").await.parse().unwrap();
    let intact = world.send("t", "k3").await;
    world.damage(id).await;
    assert_eq!(world.recv("t").await[0]["msg_id"], json!(intact));
}

#[tokio::test(start_paused = true)]
async fn messages_that_nobody_came_for_are_buried_by_the_watch() {
    let world = World::with(|policy| policy.ready_retention_ms = 1_000);
    world.send("t", "k").await;
    world.pass(2_000).await;
    assert_eq!(
        world.topic("t").await["ready"],
        1,
        "it has no deadline of its own"
    );
    let watch = tokio::spawn({
        let engine = world.engine.clone();
        async move { engine.watch_messages().await }
    });
    while world.topic("t").await["dlq_depth"] != 1 {
        tokio::task::yield_now().await;
    }
    world.engine.drain();
    watch.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn chains_end_where_the_last_message_says() {
    let world = World::new();
    world.send("t", "a").await;
    world.send("t", "b").await;
    let last = world.recv("t").await.pop().unwrap();
    let heads = world.done("mailbox_heads", json!({})).await;
    let head = &heads["heads"][0];
    assert_eq!((&head["seq"], &head["link"]), (&json!(2), &last["link"]));
    assert_eq!(head["shard"], last["shard"]);
}
