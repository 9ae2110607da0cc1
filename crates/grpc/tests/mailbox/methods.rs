//! Each method once, as it should go.

use asyncgate_grpc::pb::{self, ack_result, send_result};

use crate::world::{World, as_admin, message};

#[tokio::test]
async fn a_message_is_sent_received_and_acknowledged() {
    let world = World::new();
    let mut request = message("t", "k");
    request
        .attrs
        .insert("content-type".into(), "text/plain".into());
    request.priority = Some(7);
    request.partition_key = Some("p".into());
    let sent = world
        .client()
        .send(as_admin(request))
        .await
        .unwrap()
        .into_inner();
    assert!(!sent.duplicate);

    let [envelope] = &world.recv("t").await[..] else {
        panic!("one message")
    };
    assert_eq!(envelope.msg_id, sent.msg_id);
    assert_eq!(envelope.payload.as_deref(), Some(&b"payload of k"[..]));
    assert_eq!(
        (envelope.topic.as_str(), envelope.idem_key.as_str()),
        ("t", "k")
    );
    assert_eq!(envelope.attrs["content-type"], "text/plain");
    assert_eq!((envelope.attempt, envelope.priority), (1, 7));
    assert_eq!(envelope.partition_key.as_deref(), Some("p"));
    assert!(envelope.payload_hash.starts_with("b3:"));
    assert!(envelope.hash_chain.starts_with("b3:"));
    assert!(envelope.visible_at.is_some() && envelope.sig.is_none());

    let ack = pb::AckRequest {
        msg_id: sent.msg_id,
        lease: envelope.lease.clone(),
    };
    for _ in 0..2 {
        let acked = world.client().ack(as_admin(ack.clone())).await.unwrap();
        assert!(acked.into_inner().ok, "and repeating it is safe");
    }
    assert!(world.recv("t").await.is_empty());
}

#[tokio::test]
async fn sending_the_same_again_does_nothing() {
    let world = World::new();
    let first = world.send("t", "k").await;
    let again = world
        .client()
        .send(as_admin(message("t", "k")))
        .await
        .unwrap()
        .into_inner();
    assert_eq!((again.msg_id, again.duplicate), (first, true));
    assert_eq!(world.recv("t").await.len(), 1);
}

#[tokio::test]
async fn a_message_that_was_given_back_comes_again() {
    let world = World::new();
    let msg_id = world.send("t", "k").await;
    let lease = world.recv("t").await.remove(0).lease;
    let nack = pb::NackRequest {
        msg_id,
        reason: Some("transient_error".into()),
        delay_ms: Some(0),
        lease,
        ..pb::NackRequest::default()
    };
    assert!(
        world
            .client()
            .nack(as_admin(nack))
            .await
            .unwrap()
            .into_inner()
            .ok
    );
    assert_eq!(world.recv("t").await[0].attempt, 2);
}

#[tokio::test]
async fn a_message_can_be_kept_longer() {
    let world = World::new();
    let msg_id = world.send("t", "k").await;
    let envelope = world.recv("t").await.remove(0);
    let extend = pb::ExtendRequest {
        msg_id,
        visibility_ms: Some(20_000),
        lease: envelope.lease,
    };
    let kept = world
        .client()
        .extend(as_admin(extend))
        .await
        .unwrap()
        .into_inner();
    assert!(kept.ok && Some(kept.visible_at) > envelope.visible_at);
    world.advance(10_000).await;
    assert!(world.recv("t").await.is_empty());
}

#[tokio::test]
async fn batches_answer_each_item_in_order() {
    let world = World::new();
    let batch = pb::SendBatchRequest {
        messages: vec![message("t", "a"), message("", "b"), message("t", "c")],
    };
    let sent = world
        .client()
        .send_batch(as_admin(batch))
        .await
        .unwrap()
        .into_inner();
    let results: Vec<_> = sent
        .results
        .into_iter()
        .map(|r| r.result.unwrap())
        .collect();
    let [
        send_result::Result::Sent(a),
        send_result::Result::Refused(b),
        send_result::Result::Sent(c),
    ] = &results[..]
    else {
        panic!("{results:?}")
    };
    assert_eq!(b.code, "E_SCHEMA");

    assert_eq!(world.recv("t").await.len(), 2);
    let acks = [&a.msg_id, "01JAE6ZQX5AAAAAAAAAAAAAAAA", &c.msg_id];
    let batch = pb::AckBatchRequest {
        acks: acks
            .map(|msg_id| pb::AckRequest {
                msg_id: msg_id.to_owned(),
                lease: None,
            })
            .to_vec(),
    };
    let done = world
        .client()
        .ack_batch(as_admin(batch))
        .await
        .unwrap()
        .into_inner();
    let results: Vec<_> = done
        .results
        .into_iter()
        .map(|r| r.result.unwrap())
        .collect();
    let [
        ack_result::Result::Done(_),
        ack_result::Result::Refused(refused),
        ack_result::Result::Done(_),
    ] = &results[..]
    else {
        panic!("{results:?}")
    };
    assert_eq!(refused.code, "E_NOT_FOUND");
}

#[tokio::test]
async fn peeking_leaves_messages_where_they_are() {
    let world = World::new();
    world.send("t", "a").await;
    world.send("t", "b").await;
    let peek = pb::PeekRequest {
        topic: "t".into(),
        max_messages: Some(1),
        max_bytes: None,
    };
    let seen = world
        .client()
        .peek(as_admin(peek))
        .await
        .unwrap()
        .into_inner()
        .messages;
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].lease, None);
    assert_eq!(world.recv("t").await.len(), 2);
}

#[tokio::test]
async fn topics_are_listed_and_purged() {
    let world = World::new();
    for topic in ["a", "b"] {
        world.send(topic, "1").await;
        world.send(topic, "2").await;
    }
    let list = |cursor| pb::TopicsRequest {
        limit: Some(1),
        cursor,
    };
    let first = world
        .client()
        .topics(as_admin(list(None)))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(
        (first.topics[0].topic.as_str(), first.topics[0].ready),
        ("a", 2)
    );
    assert!(first.next_cursor.is_some());
    let second = world
        .client()
        .topics(as_admin(list(first.next_cursor)))
        .await
        .unwrap();
    assert_eq!(second.into_inner().topics[0].topic, "b");

    let purge = pb::PurgeRequest {
        topic: "a".into(),
        state: pb::PurgeState::Ready.into(),
    };
    let purged = world
        .client()
        .purge(as_admin(purge))
        .await
        .unwrap()
        .into_inner();
    assert_eq!(purged.purged, 2);
    assert!(world.recv("a").await.is_empty());
}

#[tokio::test]
async fn dead_letters_are_listed_and_brought_back() {
    let world = World::new();
    let mut request = message("t", "k");
    request.ttl_ms = Some(1_000);
    world.client().send(as_admin(request)).await.unwrap();
    world.advance(2_000).await;
    let list = pb::DlqRequest {
        topic: Some("t".into()),
        ..pb::DlqRequest::default()
    };
    let dead = world
        .client()
        .dlq(as_admin(list))
        .await
        .unwrap()
        .into_inner();
    let [letter] = &dead.messages[..] else {
        panic!("{dead:?}")
    };
    assert_eq!(letter.cause, "expired");
    assert_eq!(letter.envelope.as_ref().unwrap().idem_key, "k");

    let back = pb::DlqReprocessRequest {
        topic: "t".into(),
        ..pb::DlqReprocessRequest::default()
    };
    let back = world.client().dlq_reprocess(as_admin(back)).await.unwrap();
    assert_eq!(back.into_inner().moved, 1);
}

#[tokio::test]
async fn the_ends_of_the_chains_are_told() {
    let world = World::new();
    world.send("t", "k").await;
    let heads = world
        .client()
        .heads(as_admin(pb::HeadsRequest {}))
        .await
        .unwrap();
    let heads = heads.into_inner().heads;
    assert_eq!(heads.len(), 1);
    assert_eq!(heads[0].seq, 1);
}

#[tokio::test]
async fn the_correlation_id_comes_back_and_follows_the_message() {
    const ID: &str = "0190a0b0-0000-7000-8000-000000000000";
    let world = World::new();
    let mut request = as_admin(message("t", "k"));
    request
        .metadata_mut()
        .insert("x-corr-id", ID.parse().unwrap());
    let sent = world.client().send(request).await.unwrap();
    assert_eq!(sent.metadata().get("x-corr-id").unwrap(), ID);
    assert_eq!(world.recv("t").await[0].corr_id, ID);
    let other = world
        .client()
        .send(as_admin(message("t", "l")))
        .await
        .unwrap();
    let drawn = other.metadata().get("x-corr-id").unwrap().to_str().unwrap();
    assert_eq!(world.recv("t").await[0].corr_id, drawn, "a new one");
    let named = |given: &str| {
        let mut request = as_admin(message("t", given));
        request.get_mut().corr_id = Some(ID.to_owned());
        let metadata = request.metadata_mut();
        metadata.insert("x-corr-id", given.parse().unwrap());
        request
    };
    world.client().send(named(ID)).await.unwrap();
    let refused = world.client().send(named("other")).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}
