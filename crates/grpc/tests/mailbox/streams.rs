//! Calls that go on by themselves.

use asyncgate_grpc::pb;
use futures_util::{Stream, stream};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tonic::Code;
use tonic_types::StatusExt as _;

use crate::world::{World, as_admin, message, refusal, with_key};

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

#[tokio::test]
async fn every_stream_ends_with_its_credential() {
    let world = World::new();
    let ended = |status: Result<_, tonic::Status>| {
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated);
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.reason, "E_CAP_AUTH");
    };
    let wish = with_key("brief", wish(1));
    let mut received = world.client().recv_stream(wish).await.unwrap();
    ended(received.get_mut().message().await.map(drop));
    let sends = with_key("brief", stream::pending());
    let mut sent = world.client().send_stream(sends).await.unwrap();
    ended(sent.get_mut().message().await.map(drop));
    let acks = with_key("brief", stream::pending());
    let mut acked = world.client().ack_stream(acks).await.unwrap();
    ended(acked.get_mut().message().await.map(drop));
}

#[tokio::test]
async fn sends_and_acks_have_their_results_in_order() {
    let world = World::new();
    let sends = ["a", "b", "a", "", "c"].map(|key| message("t", key));
    let results = world
        .client()
        .send_stream(as_admin(stream::iter(sends)))
        .await;
    let results = all(results.unwrap().into_inner()).await;
    let sent: Vec<_> = results
        .into_iter()
        .map(|result| match result.result.unwrap() {
            pb::send_result::Result::Sent(sent) => Ok((sent.msg_id, sent.duplicate)),
            pb::send_result::Result::Refused(refused) => Err(refused.code),
        })
        .collect();
    let id = |n: usize| sent[n].as_ref().unwrap().0.clone();
    assert_eq!(sent[2], Ok((id(0), true)), "the same key again");
    assert_eq!(sent[3], Err("E_SCHEMA".to_owned()));
    assert_eq!(sent[4], Ok((id(4), false)), "others go on");

    let received = world.client().recv(as_admin(wish(10))).await.unwrap();
    let received = received.into_inner().messages;
    let mut acks: Vec<_> = received
        .into_iter()
        .map(|message| pb::AckRequest {
            msg_id: message.msg_id,
            lease: message.lease,
        })
        .collect();
    assert_eq!(acks.len(), 3);
    acks.push(pb::AckRequest {
        msg_id: "01JAE6ZQX5AAAAAAAAAAAAAAAA".into(),
        lease: None,
    });
    let results = world
        .client()
        .ack_stream(as_admin(stream::iter(acks)))
        .await;
    let results = all(results.unwrap().into_inner()).await;
    let codes: Vec<_> = results
        .into_iter()
        .map(|result| match result.result.unwrap() {
            pb::ack_result::Result::Done(_) => "done".to_owned(),
            pb::ack_result::Result::Refused(refused) => refused.code,
        })
        .collect();
    assert_eq!(codes, ["done", "done", "done", "E_NOT_FOUND"]);
}

#[tokio::test]
async fn a_stream_of_sends_ends_with_the_fault_that_stops_it() {
    let world = World::new();
    let mut strange = message("t", "b");
    strange.idempotency_mode = 9;
    let (sender, sends) = by_hand();
    let results = world.client().send_stream(as_admin(sends)).await;
    let mut results = results.unwrap().into_inner();
    sender.send(message("t", "a")).unwrap();
    assert!(results.message().await.unwrap().is_some(), "the first goes");
    sender.send(strange).unwrap();
    let refused = results.message().await.unwrap().unwrap().result.unwrap();
    let pb::send_result::Result::Refused(refusal) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        refusal.code, "E_SCHEMA",
        "one item does not stop the others"
    );
    world.engine.set_accepting(false);
    sender.send(message("t", "c")).unwrap();
    let status = results.message().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(
        status.get_details_error_info().unwrap().reason,
        "E_UNAVAILABLE",
        "with the reason in its details"
    );
}

#[tokio::test]
async fn a_drain_ends_a_stream_of_sends_that_has_nothing_to_do() {
    let world = World::new();
    let (sender, sends) = by_hand();
    let results = world.client().send_stream(as_admin(sends)).await;
    let mut results = results.unwrap().into_inner();
    sender.send(message("t", "a")).unwrap();
    assert!(results.message().await.unwrap().is_some());
    world.engine.drain();
    assert_eq!(results.message().await.unwrap(), None);
}

/// Messages that are sent when the test says so.
fn by_hand() -> (
    UnboundedSender<pb::SendRequest>,
    impl Stream<Item = pb::SendRequest>,
) {
    let (sender, receiver) = unbounded_channel();
    let sends = stream::unfold(receiver, async |mut receiver| {
        Some((receiver.recv().await?, receiver))
    });
    (sender, sends)
}

async fn all<M>(mut stream: tonic::Streaming<M>) -> Vec<M> {
    let mut all = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        all.push(message);
    }
    all
}
