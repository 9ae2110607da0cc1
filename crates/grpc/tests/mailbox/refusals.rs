//! Each refusal once: its status, its reason, and whether to try again.

use std::sync::Arc;

use asyncgate_core::{Policy, mailbox};
use asyncgate_engine::Settings;
use asyncgate_grpc::pb;
use axum::body::Body;
use bytes::Bytes;
use http::Request;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;
use tower::ServiceExt as _;

use crate::world::{World, as_admin, message, refusal, with_key};

const UNKNOWN_ID: &str = "01JAE6ZQX5AAAAAAAAAAAAAAAA";

fn ack(msg_id: &str, lease: Option<String>) -> pb::AckRequest {
    pb::AckRequest {
        msg_id: msg_id.to_owned(),
        lease,
    }
}

/// A world with so much room.
fn narrow(mailbox: mailbox::Policy) -> World {
    World::with(Settings {
        policy: Arc::new(Policy {
            mailbox,
            ..Policy::default()
        }),
        ..Settings::default()
    })
}

#[tokio::test]
async fn what_cannot_be_understood_is_an_invalid_argument() {
    let world = World::new();
    let (code, reason, _) = refusal(world.client().send(as_admin(message("", "k"))).await);
    assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "E_SCHEMA"));

    let mut strange = message("t", "k");
    strange.idempotency_mode = 9;
    let (code, ..) = refusal(world.client().send(as_admin(strange)).await);
    assert_eq!(code, Code::InvalidArgument);

    let mut strange = as_admin(message("t", "k"));
    let mode = "300-maybe".parse().unwrap();
    strange.metadata_mut().insert("x-idempotency-mode", mode);
    let (code, ..) = refusal(world.client().send(strange).await);
    assert_eq!(code, Code::InvalidArgument);

    let unsaid = pb::PurgeRequest {
        topic: "t".into(),
        state: 0,
    };
    let (code, ..) = refusal(world.client().purge(as_admin(unsaid)).await);
    assert_eq!(code, Code::InvalidArgument);

    let none = pb::RecvRequest {
        topic: "t".into(),
        max_messages: Some(0),
        ..pb::RecvRequest::default()
    };
    let (code, ..) = refusal(world.client().recv(as_admin(none)).await);
    assert_eq!(code, Code::InvalidArgument);
}

#[tokio::test]
async fn bytes_that_are_no_message_are_an_invalid_argument() {
    let world = World::new();
    for body in [
        &b"\0\0\0\0\x03\xff\xff\xff"[..],
        b"",
        b"\0\0\0\0\x7fshort",
        b"\x07\0\0\0\0",
    ] {
        let status = raw(&world, "Send", Bytes::from_static(body)).await;
        let info = status.get_details_error_info().unwrap();
        let got = (status.code(), info.reason.as_str());
        assert_eq!(got, (Code::InvalidArgument, "E_SCHEMA"), "{body:?}");
    }
}

#[tokio::test]
async fn a_method_that_does_not_exist_is_unimplemented() {
    let status = raw(&World::new(), "Fly", Bytes::new()).await;
    assert_eq!(status.code(), Code::Unimplemented);
}

/// Posts bytes to a method.
async fn raw(world: &World, method: &str, body: Bytes) -> Status {
    let request = Request::post(format!("/ron.mailbox.v1.Mailbox/{method}"))
        .header("content-type", "application/grpc")
        .header("authorization", "Bearer admin")
        .body(Body::from(body))
        .unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    assert!(response.headers().contains_key("x-corr-id"));
    Status::from_header_map(response.headers()).unwrap()
}

#[tokio::test]
async fn who_is_not_known_is_unauthenticated() {
    let world = World::new();
    for request in [
        tonic::Request::new(message("t", "k")),
        with_key("wrong", message("t", "k")),
    ] {
        let (code, reason, status) = refusal(world.client().send(request).await);
        assert_eq!(
            (code, reason.as_str()),
            (Code::Unauthenticated, "E_CAP_AUTH")
        );
        assert!(status.get_details_retry_info().is_none());
    }
    assert!(world.recv("t").await.is_empty(), "nothing was sent");
}

#[tokio::test]
async fn who_may_not_is_denied() {
    let purge = pb::PurgeRequest {
        topic: "t".into(),
        state: pb::PurgeState::All.into(),
    };
    let answer = World::new().client().purge(with_key("agent", purge)).await;
    let (code, reason, status) = refusal(answer);
    assert_eq!(
        (code, reason.as_str()),
        (Code::PermissionDenied, "E_CAP_SCOPE")
    );
    let info = status.get_details_error_info().unwrap();
    assert_eq!(info.metadata["required_role"], "admin");
}

#[tokio::test]
async fn a_repetition_can_be_an_error() {
    let world = World::new();
    let first = world.send("t", "k").await;
    let mut by_field = message("t", "k");
    by_field.idempotency_mode = pb::IdempotencyMode::Conflict.into();
    let mut by_metadata = as_admin(message("t", "k"));
    let mode = "409-conflict".parse().unwrap();
    by_metadata
        .metadata_mut()
        .insert("x-idempotency-mode", mode);
    for request in [as_admin(by_field), by_metadata] {
        let (code, reason, status) = refusal(world.client().send(request).await);
        assert_eq!(
            (code, reason.as_str()),
            (Code::AlreadyExists, "E_DUPLICATE")
        );
        let info = status.get_details_error_info().unwrap();
        assert_eq!(info.metadata["msg_id"], first);
    }
}

#[tokio::test]
async fn a_key_for_other_content_is_a_failed_precondition() {
    let world = World::new();
    world.send("t", "k").await;
    let mut other = message("t", "k");
    other.payload = "other".into();
    let (code, reason, _) = refusal(world.client().send(as_admin(other)).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::FailedPrecondition, "E_IDEM_CONFLICT")
    );
}

#[tokio::test]
async fn what_is_too_large_is_exhausted_and_not_to_be_tried_again() {
    let world = World::new();
    let mut exact = message("t", "exact");
    exact.payload = vec![0; 1 << 20].into();
    world.client().send(as_admin(exact)).await.unwrap();
    // The first is refused by the rule, the second by the gate.
    for size in [(1 << 20) + 1, 2 << 20] {
        let mut large = message("t", "large");
        large.payload = vec![0; size].into();
        let (code, reason, status) = refusal(world.client().send(as_admin(large)).await);
        assert_eq!(
            (code, reason.as_str()),
            (Code::ResourceExhausted, "E_FRAME_TOO_LARGE")
        );
        assert!(status.get_details_retry_info().is_none());
    }
    let mut batch = pb::SendBatchRequest::default();
    for n in 0..17 {
        let mut item = message("t", &n.to_string());
        item.payload = vec![0; 1 << 20].into();
        batch.messages.push(item);
    }
    let (code, reason, _) = refusal(world.client().send_batch(as_admin(batch.clone())).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::ResourceExhausted, "E_FRAME_TOO_LARGE")
    );
    batch.messages.truncate(4);
    world.client().send_batch(as_admin(batch)).await.unwrap();
}

#[tokio::test]
async fn what_is_full_is_exhausted_and_to_be_tried_again() {
    let world = narrow(mailbox::Policy {
        topic_capacity: 1,
        ..mailbox::Policy::default()
    });
    world.send("t", "a").await;
    let (code, reason, status) = refusal(world.client().send(as_admin(message("t", "b"))).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::ResourceExhausted, "E_SATURATED")
    );
    assert!(
        status
            .get_details_retry_info()
            .unwrap()
            .retry_delay
            .is_some()
    );
}

#[tokio::test]
async fn what_cannot_be_done_now_is_unavailable_and_to_be_tried_again() {
    let answer = World::new()
        .client()
        .send(with_key("down", message("t", "k")))
        .await;
    let (code, reason, status) = refusal(answer);
    assert_eq!(
        (code, reason.as_str()),
        (Code::Unavailable, "E_UNAVAILABLE")
    );
    let delay = status
        .get_details_retry_info()
        .unwrap()
        .retry_delay
        .unwrap();
    assert_eq!(delay.as_secs(), 3);
}

#[tokio::test]
async fn leases_and_messages_that_are_not_there() {
    let world = World::new();
    let (code, reason, _) = refusal(world.client().ack(as_admin(ack(UNKNOWN_ID, None))).await);
    assert_eq!((code, reason.as_str()), (Code::NotFound, "E_NOT_FOUND"));

    let msg_id = world.send("t", "k").await;
    let (code, reason, _) = refusal(world.client().ack(as_admin(ack(&msg_id, None))).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::FailedPrecondition, "E_NOT_LEASED")
    );

    let stale = world.recv("t").await.remove(0).lease;
    world.advance(6_000).await;
    assert_eq!(world.recv("t").await[0].attempt, 2);
    let (code, reason, _) = refusal(world.client().ack(as_admin(ack(&msg_id, stale))).await);
    assert_eq!(
        (code, reason.as_str()),
        (Code::FailedPrecondition, "E_STALE_LEASE")
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_arrive_is_given_up() {
    let world = World::new();
    let never = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let request = Request::post("/ron.mailbox.v1.Mailbox/Send")
        .header("content-type", "application/grpc")
        .header("authorization", "Bearer admin")
        .body(Body::from_stream(never))
        .unwrap();
    let response = world.router.clone().oneshot(request).await.unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("in time"), "{status:?}");
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_call_ends_its_waiting() {
    let world = World::new();
    let wish = pb::RecvRequest {
        topic: "t".into(),
        wait_seconds: Some(60),
        ..pb::RecvRequest::default()
    };
    let wish = prost::Message::encode_to_vec(&wish);
    let mut framed = vec![0];
    framed.extend((wish.len() as u32).to_be_bytes());
    framed.extend(wish);
    let request = Request::post("/ron.mailbox.v1.Mailbox/Recv")
        .header("content-type", "application/grpc")
        .header("authorization", "Bearer admin")
        .header("grpc-timeout", "2S")
        .body(Body::from(framed))
        .unwrap();
    let start = tokio::time::Instant::now();
    let response = world.router.clone().oneshot(request).await.unwrap();
    let status = Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(start.elapsed().as_secs(), 2);
    // Nobody is left waiting who would take what comes now.
    world
        .client()
        .send(as_admin(message("t", "k")))
        .await
        .unwrap();
    assert_eq!(world.recv("t").await.len(), 1);
}
