//! Receiving that goes on by itself.

use asyncgate_grpc::pb;
use tonic::Code;

use crate::world::{World, as_admin, refusal, with_key};

fn wish(window: u32) -> pb::RecvRequest {
    pb::RecvRequest {
        topic: "t".into(),
        visibility_ms: Some(60_000),
        max_messages: Some(window),
        ..pb::RecvRequest::default()
    }
}

#[tokio::test]
async fn a_stream_gives_what_is_there_and_what_comes_within_its_window() {
    let world = World::new();
    world.send("t", "a").await;
    world.send("t", "b").await;
    world.send("t", "c").await;
    let stream = world.client().recv_stream(as_admin(wish(2))).await.unwrap();
    assert!(stream.metadata().contains_key("x-corr-id"));
    let mut stream = stream.into_inner();
    let a = stream.message().await.unwrap().unwrap();
    let b = stream.message().await.unwrap().unwrap();
    assert_eq!((a.idem_key.as_str(), b.idem_key.as_str()), ("a", "b"));

    let third = tokio::spawn(async move {
        let third = stream.message().await.unwrap().unwrap();
        (third, stream)
    });
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!third.is_finished(), "the window is full");
    let ack = pb::AckRequest {
        msg_id: a.msg_id,
        lease: a.lease,
    };
    world.client().ack(as_admin(ack)).await.unwrap();
    let (c, mut stream) = third.await.unwrap();
    assert_eq!(c.idem_key, "c");

    world.engine.drain();
    assert_eq!(stream.message().await.unwrap(), None, "a drain ends it");
}

#[tokio::test]
async fn what_refuses_a_receiver_refuses_a_stream() {
    let world = World::new();
    let (code, reason, _) = refusal(world.client().recv_stream(as_admin(wish(0))).await);
    assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "E_SCHEMA"));
    let answer = world.client().recv_stream(with_key("wrong", wish(1))).await;
    assert_eq!(refusal(answer).0, Code::Unauthenticated);
}
