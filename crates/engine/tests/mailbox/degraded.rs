//! A server that is not well: it turns new work away, and the work that it has can be done.

use asyncgate_api::Code;
use serde_json::json;

use crate::world::{World, text};

#[tokio::test(start_paused = true)]
async fn writes_degrade_before_reads() {
    let world = World::new();
    world.send("t", "a").await;
    world.send("t", "b").await;
    world.engine.set_accepting(false);

    let message = json!({ "topic": "t", "idem_key": "c", "payload_b64": "aGk=" });
    let fault = world
        .refused("mailbox_send", message.clone(), Code::EUnavailable)
        .await;
    assert!(fault.retry_after_seconds.is_some());
    assert_eq!(fault.details["reason"], "degraded");
    let batch = json!({ "messages": [message] });
    world
        .refused("mailbox_send_batch", batch, Code::EUnavailable)
        .await;
    let task = json!({ "type": "x" });
    world.refused("create_task", task, Code::Unavailable).await;

    let got = world.recv("t").await;
    assert_eq!(got.len(), 2);
    for (message, operation) in got.iter().zip(["mailbox_ack", "mailbox_nack"]) {
        let id = text(&message["msg_id"]);
        world.done(operation, json!({ "msg_id": id })).await;
    }
    world.done("mailbox_topics", json!({})).await;

    world.engine.set_accepting(true);
    world.send("t", "c").await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_does_not_run_is_noticed() {
    let world = World::new();
    assert!(world.engine.is_scanning());
    world.pass(120_000).await;
    assert!(!world.engine.is_scanning());
    let watching = tokio::spawn({
        let engine = world.engine.clone();
        async move { engine.watch_messages().await }
    });
    tokio::task::yield_now().await;
    assert!(world.engine.is_scanning());
    world.engine.drain();
    watching.await.unwrap();
}
