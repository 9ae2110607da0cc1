//! The metrics that operators see, and the labels that they must not have.

use asyncgate_api::Code;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;

use crate::world::World;

async fn report(world: &World) -> String {
    let mut registry = Registry::default();
    world.engine.register_mailbox_metrics(&mut registry);
    world.engine.refresh_metrics().await;
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn the_life_of_messages_is_counted_by_class() {
    let world = World::with(|policy| policy.max_attempts = 2);
    let id = world.send("user:42:inbox", "secret-key").await;
    world.send("user:42:inbox", "secret-key").await;
    world.recv("user:42:inbox").await;
    world.pass(5_000).await;
    world.recv("user:42:inbox").await;
    let nack = json!({ "msg_id": id, "reason": "E_PARSE" });
    world.done("mailbox_nack", nack).await;
    let other = world.send("other", "k").await;
    world.recv("other").await;
    world.done("mailbox_ack", json!({ "msg_id": other })).await;
    world
        .done("mailbox_dlq_reprocess", json!({ "topic": "user:42:inbox" }))
        .await;
    world
        .refused("mailbox_recv", json!({}), Code::ESchema)
        .await;
    let text = report(&world).await;
    for line in [
        "mailbox_enqueued_total{topic_class=\"user_inbox\"} 1",
        "mailbox_delivered_total{topic_class=\"other\"} 1",
        "mailbox_redelivered_total{topic_class=\"user_inbox\"} 1",
        "mailbox_visibility_timeout_total{topic_class=\"user_inbox\"} 1",
        "mailbox_dlq_total{topic_class=\"user_inbox\",reason=\"E_PARSE\"} 1",
        "mailbox_dlq_reprocess_total{topic_class=\"user_inbox\"} 1",
        "mailbox_attempts_histogram_count{topic_class=\"user_inbox\"} 1",
        "rejected_total{reason=\"schema\"} 1",
        "enqueue_latency_seconds_count 3",
        "dequeue_latency_seconds_count 3",
        "ack_commit_latency_seconds_count 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    for name in [
        "queue_depth{queue=\"work\",shard=",
        "saturation{queue=",
        "inflight{shard=",
    ] {
        assert!(text.contains(name), "{name}");
    }
    for secret in ["user:42", "secret-key", id.as_str()] {
        assert!(!text.contains(secret), "{secret}");
    }
}

#[tokio::test(start_paused = true)]
async fn receivers_cannot_make_more_and_more_labels() {
    let world = World::with(|policy| policy.max_attempts = 1);
    for n in 0..40 {
        let id = world.send("t", &n.to_string()).await;
        world.recv("t").await;
        let nack = json!({ "msg_id": id, "reason": format!("reason-{n}") });
        world.done("mailbox_nack", nack).await;
    }
    let text = report(&world).await;
    let labels = text
        .lines()
        .filter(|line| line.starts_with("mailbox_dlq_total{"));
    assert_eq!(labels.count(), 33);
    let line = "mailbox_dlq_total{topic_class=\"other\",reason=\"other\"} 8";
    assert!(text.contains(line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn disorder_that_was_asked_for_is_none() {
    let world = World::with(|policy| (policy.max_attempts, policy.shards) = (1, 1));
    let delayed = json!({ "topic": "t", "idem_key": "late", "payload_b64": "", "delay_ms": 1_000 });
    world.done("mailbox_send", delayed).await;
    let dead = world.send("t", "dead").await;
    world.recv("t").await;
    let nack = json!({ "msg_id": dead, "reason": "no" });
    world.done("mailbox_nack", nack).await;
    for n in 0..5 {
        world.send("t", &n.to_string()).await;
        world.recv("t").await;
    }
    world.pass(500).await;
    let topic = json!({ "topic": "t" });
    world.done("mailbox_dlq_reprocess", topic).await;
    world.pass(500).await;
    world.recv("t").await;
    let text = report(&world).await;
    let line = "reorder_depth_max{shard=\"0\"} 0\n";
    assert!(text.contains(line), "{text}");
}
