//! The watch over deadlines, on the runtime's clock.

use serde_json::json;
use tokio::time::Instant;

use crate::world::World;

fn watch(world: &World) -> tokio::task::JoinHandle<()> {
    let engine = world.engine.clone();
    tokio::spawn(async move { engine.watch_messages().await })
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_acted_on_when_it_comes() {
    let world = World::new();
    let watching = watch(&world);
    // The watch looks first, so that only the signal of a new deadline can wake it in time.
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    world.send("t", "k").await;
    let hold = json!({ "topic": "t", "visibility_ms": 250 });
    world.done("mailbox_recv", hold).await;
    let started = Instant::now();
    let wait = json!({ "topic": "t", "wait_seconds": 5 });
    let again = world.done("mailbox_recv", wait).await;
    assert_eq!(again["messages"][0]["attempt"], 2);
    let late = started.elapsed().as_millis() - 250;
    assert!(late < 100, "{late} ms late");
    world.engine.drain();
    watching.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_deadlines_at_once_are_all_acted_on() {
    let world = World::with(|policy| policy.max_attempts = 1);
    for n in 0..1_000 {
        let input = json!({
            "topic": "t", "idem_key": n.to_string(), "payload_b64": "", "ttl_ms": 500,
        });
        world.done("mailbox_send", input).await;
    }
    let watching = watch(&world);
    tokio::time::sleep(std::time::Duration::from_millis(550)).await;
    assert_eq!(world.topic("t").await["dlq_depth"], 1_000);
    world.engine.drain();
    watching.await.unwrap();
}
