//! The metrics that operators see, and the labels that they must not have.

use asyncgate_api::Code;
use asyncgate_engine::fakes::TENANT;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::json;

use crate::world::World;

pub async fn report(world: &World) -> String {
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
        "mailbox_dlq_total{topic_class=\"user_inbox\",reason=\"nack\"} 1",
        "mailbox_dlq_total{topic_class=\"other\",reason=\"expired\"} 0",
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
    for secret in ["user:42", "secret-key", "E_PARSE", id.as_str()] {
        assert!(!text.contains(secret), "{secret}");
    }
}

/// Everybody may read the metrics, so a receiver's own words are not among them.
#[tokio::test(start_paused = true)]
async fn receivers_make_no_labels() {
    let world = World::with(|policy| policy.max_attempts = 1);
    for n in 0..40 {
        let id = world.send("t", &n.to_string()).await;
        world.recv("t").await;
        let nack = json!({ "msg_id": id, "reason": format!("reason-{n}") });
        world.done("mailbox_nack", nack).await;
    }
    world.send("t", "left alone").await;
    world.recv("t").await;
    world.pass(5_000).await;
    let text = report(&world).await;
    let labels = text
        .lines()
        .filter(|line| line.starts_with("mailbox_dlq_total{"));
    assert_eq!(labels.count(), 8, "two classes, four reasons");
    for line in [
        "mailbox_dlq_total{topic_class=\"other\",reason=\"nack\"} 40",
        "mailbox_dlq_total{topic_class=\"other\",reason=\"visibility_timeout\"} 1",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(!text.contains("reason-"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn depth_deliveries_and_age_are_told_by_class() {
    let world = World::with(|policy| {
        (
            policy.topic_capacity,
            policy.global_inflight,
            policy.dedup_capacity,
        ) = (8, 4, 16);
    });
    for key in ["a", "b", "c"] {
        world.send("user:1", key).await;
    }
    world.send("user:2", "a").await;
    let later =
        json!({ "topic": "user:2", "idem_key": "b", "payload_b64": "", "delay_ms": 60_000 });
    world.done("mailbox_send", later).await;
    let one = json!({ "topic": "user:1", "max_messages": 1, "visibility_ms": 60_000 });
    world.done("mailbox_recv", one).await;
    world.pass(7_500).await;
    world.send("t", "a").await;
    let text = report(&world).await;
    for line in [
        "mailbox_depth{topic_class=\"user_inbox\"} 4",
        "mailbox_depth{topic_class=\"other\"} 1",
        "mailbox_inflight{topic_class=\"user_inbox\"} 1",
        "mailbox_inflight{topic_class=\"other\"} 0",
        "mailbox_oldest_age_seconds{topic_class=\"user_inbox\"} 7.5",
        "mailbox_oldest_age_seconds{topic_class=\"other\"} 0.0",
        "saturation{queue=\"work\",topic_class=\"user_inbox\"} 0.25",
        "saturation{queue=\"requeue\",topic_class=\"user_inbox\"} 0.125",
        "saturation{queue=\"inflight\",topic_class=\"\"} 0.25",
        "saturation{queue=\"dedup\",topic_class=\"\"} 0.375",
        "mailbox_dedup_entries 6",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
    let all = json!({ "topic": "user:2", "state": "all" });
    world.done("mailbox_purge", all).await;
    let text = report(&world).await;
    assert!(
        text.contains("mailbox_depth{topic_class=\"user_inbox\"} 2\n"),
        "{text}"
    );
}

/// An alert on a counter that is not there yet would never fire.
#[tokio::test]
async fn counters_are_there_before_anything_happens() {
    let text = report(&World::new()).await;
    let mut missing = Vec::new();
    for reason in [
        "unauth",
        "oversize",
        "ratio_cap",
        "saturated",
        "quota",
        "storage",
        "degraded",
        "schema",
        "integrity",
    ] {
        missing.push(format!("rejected_total{{reason=\"{reason}\"}} 0"));
    }
    for class in ["user_inbox", "other"] {
        for name in [
            "mailbox_enqueued",
            "mailbox_delivered",
            "mailbox_redelivered",
            "mailbox_visibility_timeout",
            "mailbox_dlq_reprocess",
            "mailbox_purged",
        ] {
            missing.push(format!("{name}_total{{topic_class=\"{class}\"}} 0"));
        }
        for reason in ["manual", "expiry"] {
            missing.push(format!(
                "dlq_purges_total{{topic_class=\"{class}\",reason=\"{reason}\"}} 0"
            ));
        }
    }
    missing.push("busy_rejections_total{endpoint=\"mailbox_send\"} 0".to_owned());
    missing.retain(|line| !text.contains(&format!("{line}\n")));
    assert_eq!(missing, Vec::<String>::new(), "{text}");
}

#[tokio::test(start_paused = true)]
async fn what_is_thrown_away_brought_back_or_forgotten_is_counted_and_told() {
    let world = World::with(|policy| (policy.max_attempts, policy.dlq_retention_ms) = (1, 60_000));
    let mut events = world.engine.events().subscribe(TENANT);
    let mut told = async |topic: &str| loop {
        let (_, event) = events.next().await.unwrap();
        if event.topic == topic {
            let mut body = event.body.clone();
            assert!(body["ts"].is_string());
            body.as_object_mut().unwrap().remove("ts");
            return body;
        }
    };
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(world.send("user:1", &n.to_string()).await);
    }
    for message in world.recv("user:1").await {
        let id = message["msg_id"].as_str().unwrap();
        let nack = json!({ "msg_id": id, "reason": "no" });
        world.done("mailbox_nack", nack).await;
    }
    let two = json!({ "topic": "user:1", "limit": 2 });
    world.done("mailbox_dlq_reprocess", two).await;
    assert_eq!(
        told("mailbox.dlq.reprocessed").await,
        json!({ "topic_class": "user_inbox", "count": 2 })
    );
    let ready = json!({ "topic": "user:1", "state": "ready" });
    world.done("mailbox_purge", ready).await;
    assert_eq!(
        told("mailbox.purged").await,
        json!({ "topic_class": "user_inbox", "waiting": 2, "dead": 0 })
    );
    world.send("user:2", "waits").await;
    let dead = world.send("user:2", "dead").await;
    world.recv("user:2").await;
    world.done("mailbox_nack", json!({ "msg_id": dead })).await;
    let all = json!({ "topic": "user:2", "state": "all" });
    world.done("mailbox_purge", all).await;
    assert_eq!(
        told("mailbox.purged").await,
        json!({ "topic_class": "user_inbox", "waiting": 0, "dead": 1 })
    );
    world.pass(300_000).await;
    world.engine.publish_counts();
    assert_eq!(
        told("mailbox.dlq.forgotten").await,
        json!({ "topic_class": "user_inbox", "count": 3 })
    );
    let text = report(&world).await;
    for line in [
        "mailbox_dlq_reprocess_total{topic_class=\"user_inbox\"} 2",
        "mailbox_purged_total{topic_class=\"user_inbox\"} 2",
        "dlq_purges_total{topic_class=\"user_inbox\",reason=\"manual\"} 1",
        "dlq_purges_total{topic_class=\"user_inbox\",reason=\"expiry\"} 3",
    ] {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
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
