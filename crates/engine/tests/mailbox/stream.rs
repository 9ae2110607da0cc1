//! Streams: the window of unsettled messages, signs of life, the end.

use std::time::Duration;

use asyncgate_api::{Envelope, RecvInput};
use asyncgate_engine::{Fault, MessageStream, Streamed};
use serde_json::json;

use crate::world::World;

fn input(window: u32) -> Result<RecvInput, Fault> {
    Ok(RecvInput {
        topic: "t".to_owned(),
        max_messages: Some(window),
        ..RecvInput::default()
    })
}

async fn messages(stream: &mut MessageStream) -> Vec<Envelope> {
    match stream.next().await {
        Some(Streamed::Messages(messages)) => messages,
        other => panic!("{other:?}"),
    }
}

/// Returns what the stream gives within a second, if it gives anything.
async fn soon(stream: &mut MessageStream) -> Option<Streamed> {
    let next = tokio::time::timeout(Duration::from_secs(1), stream.next());
    next.await.ok().flatten()
}

#[tokio::test(start_paused = true)]
async fn the_window_is_what_the_receiver_has_not_settled() {
    let world = World::new();
    for n in 0..5 {
        world.send("t", &n.to_string()).await;
    }
    let caller = world.caller();
    let mut stream = world
        .engine
        .receive_stream(&caller, input(2))
        .await
        .unwrap();
    let got = messages(&mut stream).await;
    assert_eq!(got.len(), 2);
    assert_eq!(soon(&mut stream).await, None, "the window is full");
    let ack = json!({ "msg_id": got[0].msg_id, "lease": got[0].lease });
    world.done("mailbox_ack", ack).await;
    assert_eq!(messages(&mut stream).await.len(), 1);
    let nack = json!({ "msg_id": got[1].msg_id, "delay_ms": 60_000 });
    world.done("mailbox_nack", nack).await;
    assert_eq!(messages(&mut stream).await.len(), 1);
    assert_eq!(soon(&mut stream).await, None);
    world.pass(5_000).await;
    let mut after_timeout = messages(&mut stream).await;
    after_timeout.retain(|message| message.attempt == 2);
    assert!(!after_timeout.is_empty(), "those that timed out come again");
}

#[tokio::test(start_paused = true)]
async fn keeping_a_message_longer_keeps_its_place_in_the_window() {
    let world = World::new();
    let id = world.send("t", "a").await;
    world.send("t", "b").await;
    let caller = world.caller();
    let mut stream = world
        .engine
        .receive_stream(&caller, input(1))
        .await
        .unwrap();
    messages(&mut stream).await;
    world.pass(4_000).await;
    world.done("mailbox_extend", json!({ "msg_id": id })).await;
    world.pass(4_000).await;
    assert_eq!(soon(&mut stream).await, None);
    world.done("mailbox_ack", json!({ "msg_id": id })).await;
    assert_eq!(messages(&mut stream).await[0].idem_key, "b");
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gives_a_sign_of_life_and_ends_when_the_server_does() {
    let world = World::new();
    let caller = world.caller();
    let mut stream = world
        .engine
        .receive_stream(&caller, input(1))
        .await
        .unwrap();
    let started = tokio::time::Instant::now();
    for beat in 1..=2 {
        assert_eq!(stream.next().await, Some(Streamed::Heartbeat));
        assert_eq!(started.elapsed().as_secs(), 15 * beat);
    }
    let sending = world.clone();
    tokio::spawn(async move {
        sending.send("t", "k").await;
    });
    assert_eq!(messages(&mut stream).await.len(), 1);
    // A stream whose window is full is not silent for longer.
    assert_eq!(stream.next().await, Some(Streamed::Heartbeat));
    world.engine.drain();
    assert_eq!(stream.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn what_refuses_a_receiver_refuses_a_stream() {
    let world = World::with(|policy| policy.global_inflight = 1);
    let caller = world.caller();
    let refused = world.engine.receive_stream(&caller, input(0)).await;
    assert_eq!(refused.unwrap_err().code.as_str(), "E_SCHEMA");
    world.send("t", "a").await;
    world.send("t", "b").await;
    let stream = world
        .engine
        .receive_stream(&caller, input(1))
        .await
        .unwrap();
    let refused = world.engine.receive_stream(&caller, input(1)).await;
    assert_eq!(refused.unwrap_err().code.as_str(), "E_SATURATED");
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn a_stream_goes_on_when_receivers_hold_fewer_messages() {
    let world = World::with(|policy| policy.global_inflight = 1);
    let caller = world.caller();
    let mut stream = world
        .engine
        .receive_stream(&caller, input(2))
        .await
        .unwrap();
    world.send("other", "a").await;
    let held = world.recv("other").await.remove(0);
    world.send("t", "b").await;
    let started = tokio::time::Instant::now();
    assert_eq!(stream.next().await, Some(Streamed::Heartbeat));
    assert_eq!(started.elapsed().as_secs(), 15, "no message, no error");
    world
        .done("mailbox_ack", json!({ "msg_id": held["msg_id"] }))
        .await;
    assert_eq!(messages(&mut stream).await[0].idem_key, "b");
    assert!(started.elapsed().as_secs() <= 15, "it looked again soon");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_is_dropped_while_it_may_not_take_passes_its_wake_up_on() {
    let world = World::with(|policy| policy.global_inflight = 1);
    let caller = world.caller();
    let open = || world.engine.receive_stream(&caller, input(1));
    let (mut gone, mut here) = (open().await.unwrap(), open().await.unwrap());
    let gone = tokio::spawn(async move { gone.next().await });
    tokio::task::yield_now().await;
    let here = tokio::spawn(async move { messages(&mut here).await });
    tokio::task::yield_now().await;
    world.send("other", "a").await;
    let held = world.recv("other").await.remove(0);
    world.send("t", "b").await;
    // The first stream is woken, and may not take the message.
    tokio::time::sleep(Duration::from_secs(1)).await;
    world
        .done("mailbox_ack", json!({ "msg_id": held["msg_id"] }))
        .await;
    gone.abort();
    let given = tokio::time::timeout(Duration::from_secs(1), here).await;
    assert_eq!(given.unwrap().unwrap()[0].idem_key, "b");
}
