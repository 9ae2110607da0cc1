//! Refusals and their codes.

use asyncgate_api::Code;
use asyncgate_core::TenantId;
use asyncgate_engine::{Caller, Role};
use serde_json::{Value, json};

use crate::world::World;

fn send(extra: Value) -> Value {
    let mut input = json!({ "topic": "t", "idem_key": "k", "payload_b64": "" });
    for (key, value) in extra.as_object().unwrap() {
        input[key] = value.clone();
    }
    input
}

#[tokio::test(start_paused = true)]
async fn values_out_of_bounds_are_schema_errors() {
    let world = World::new();
    let many: serde_json::Map<_, _> = (0..65).map(|n| (n.to_string(), json!(""))).collect();
    let long = "x".repeat(257);
    for input in [
        json!({ "topic": "" }),
        json!({ "topic": long }),
        json!({ "topic": "a\nb" }),
        json!({ "idem_key": "" }),
        json!({ "idem_key": long }),
        json!({ "partition_key": "" }),
        json!({ "payload_b64": "@" }),
        json!({ "attrs": many }),
        json!({ "attrs": { "a": "x".repeat(16 << 10) } }),
        json!({ "delay_ms": -1 }),
        json!({ "delay_ms": 604_800_001 }),
        json!({ "ttl_ms": 0 }),
        json!({ "ttl_ms": i64::MAX }),
        json!({ "idempotency_mode": "x" }),
        json!({ "bogus": 1 }),
    ] {
        world
            .refused("mailbox_send", send(input), Code::ESchema)
            .await;
    }
    for (operation, input) in [
        (
            "mailbox_recv",
            json!({ "topic": "t", "visibility_ms": 249 }),
        ),
        (
            "mailbox_recv",
            json!({ "topic": "t", "visibility_ms": 43_200_001 }),
        ),
        ("mailbox_recv", json!({ "topic": "t", "max_messages": 0 })),
        ("mailbox_recv", json!({ "topic": "t", "wait_seconds": 61 })),
        ("mailbox_recv", json!({})),
        ("mailbox_ack", json!({ "msg_id": "x" })),
        (
            "mailbox_ack",
            json!({ "msg_id": "01JAE6ZQX50000000000000000", "lease": "x" }),
        ),
        (
            "mailbox_nack",
            json!({ "msg_id": "01JAE6ZQX50000000000000000", "reason": long }),
        ),
        (
            "mailbox_nack",
            json!({ "msg_id": "01JAE6ZQX50000000000000000", "error": "x".repeat(4_097) }),
        ),
        ("mailbox_send_batch", json!({ "messages": [] })),
        (
            "mailbox_ack_batch",
            json!({ "acks": vec![json!({ "msg_id": "x" }); 1_001] }),
        ),
        ("mailbox_peek", json!({ "topic": "t", "max_messages": 0 })),
        ("mailbox_dlq", json!({ "cursor": "x" })),
        (
            "mailbox_dlq_reprocess",
            json!({ "topic": "t", "limit": 10_001 }),
        ),
        (
            "mailbox_dlq_reprocess",
            json!({ "topic": "t", "per_second": 0 }),
        ),
        ("mailbox_purge", json!({ "topic": "t", "state": "leased" })),
        ("mailbox_topics", json!({ "limit": 0 })),
    ] {
        world.refused(operation, input, Code::ESchema).await;
    }
}

#[tokio::test(start_paused = true)]
async fn bounds_themselves_are_within_bounds() {
    let world = World::new();
    let full = "x".repeat(256);
    for (n, input) in [
        json!({ "topic": full }),
        json!({ "partition_key": full }),
        json!({ "attrs": { "a": "x".repeat((16 << 10) - 1) } }),
        json!({ "delay_ms": 604_800_000, "ttl_ms": 1 }),
    ]
    .into_iter()
    .enumerate()
    {
        let mut input = send(input);
        input["idem_key"] = n.to_string().into();
        world.done("mailbox_send", input).await;
    }
    for input in [
        json!({ "topic": "t", "visibility_ms": 250, "max_messages": 9_999, "max_bytes": 0 }),
        json!({ "topic": "t", "visibility_ms": 43_200_000 }),
    ] {
        world.done("mailbox_recv", input).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_payload_may_be_exactly_as_large_as_the_limit() {
    let world = World::new();
    let payload = |bytes: usize| asyncgate_api::Payload::from(vec![7; bytes]).to_base64();
    let fits = send(json!({ "payload_b64": payload(1 << 20) }));
    world.done("mailbox_send", fits).await;
    let over = send(json!({ "payload_b64": payload((1 << 20) + 1), "idem_key": "l" }));
    let fault = world
        .refused("mailbox_send", over, Code::EFrameTooLarge)
        .await;
    assert_eq!(fault.details["limit"], 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_full_topic_says_when_to_come_back_but_still_knows_repetitions() {
    let world = World::with(|policy| policy.topic_capacity = 1);
    let id = world.send("t", "a").await;
    let next = send(json!({ "idem_key": "b" }));
    let fault = world
        .refused("mailbox_send", next.clone(), Code::ESaturated)
        .await;
    assert_eq!(
        fault.retry_after_seconds,
        Some(60),
        "nothing has left so far"
    );
    let again = send(json!({ "idem_key": "a", "payload_b64": "aGk=" }));
    assert_eq!(world.done("mailbox_send", again).await["msg_id"], json!(id));
    world.recv("t").await;
    world.done("mailbox_ack", json!({ "msg_id": id })).await;
    world.done("mailbox_send", next).await;
    let next = send(json!({ "idem_key": "c" }));
    let fault = world.refused("mailbox_send", next, Code::ESaturated).await;
    assert_eq!(
        fault.retry_after_seconds,
        Some(10),
        "one left in ten seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn too_many_deliveries_or_remembered_sends_are_saturation() {
    let world = World::with(|policy| policy.global_inflight = 1);
    world.send("t", "a").await;
    world.send("t", "b").await;
    assert_eq!(world.recv("t").await.len(), 1);
    world
        .refused("mailbox_recv", json!({ "topic": "t" }), Code::ESaturated)
        .await;
    let world = World::with(|policy| policy.dedup_capacity = 1);
    world.send("t", "a").await;
    world.pass(270_000).await;
    let next = send(json!({ "idem_key": "b" }));
    let fault = world.refused("mailbox_send", next, Code::ESaturated).await;
    assert_eq!(
        fault.retry_after_seconds,
        Some(30),
        "when the first is forgotten"
    );
    assert_eq!(fault.details["queue"], "dedup");
    assert!(fault.message.contains("remembered"), "{}", fault.message);
}

/// A tenant that holds all messages that may be held, and has sent all that may be remembered, harms only
/// itself.
#[tokio::test(start_paused = true)]
async fn one_tenant_cannot_use_up_the_room_of_another() {
    let world = World::with(|policy| {
        (policy.global_inflight, policy.dedup_capacity) = (4, 8);
    });
    let neighbour = Caller {
        tenant: TenantId::from_bytes([77; 16]),
        ..world.caller()
    };
    for n in 0..8 {
        world.send("t", &n.to_string()).await;
    }
    let next = send(json!({ "idem_key": "next" }));
    world
        .refused("mailbox_send", next.clone(), Code::ESaturated)
        .await;
    assert_eq!(world.recv("t").await.len(), 4);
    let recv = json!({ "topic": "t", "visibility_ms": 43_200_000 });
    world
        .refused("mailbox_recv", recv.clone(), Code::ESaturated)
        .await;

    let ask =
        async |operation: &str, input: &Value| world.call_for(&neighbour, operation, input).await;
    for n in 0..4 {
        let message = send(json!({ "idem_key": n.to_string() }));
        ask("mailbox_send", &message).await.unwrap();
    }
    let refused = ask("mailbox_send", &next).await.unwrap_err();
    assert_eq!(refused.code, Code::ESaturated);
    let got = ask("mailbox_recv", &recv).await.unwrap();
    assert_eq!(got["messages"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn only_admins_purge_and_reprocess() {
    let world = World::new();
    for (operation, input) in [
        ("mailbox_purge", json!({ "topic": "t", "state": "all" })),
        ("mailbox_dlq_reprocess", json!({ "topic": "t" })),
    ] {
        let refused = world.call_as(Role::Agent, operation, input.clone()).await;
        let fault = refused.unwrap_err();
        assert_eq!(fault.code, Code::ECapScope);
        assert_eq!(fault.details["required_role"], "admin");
        assert_eq!(fault.details["your_role"], "agent");
        world.done(operation, input).await;
    }
}

#[tokio::test(start_paused = true)]
async fn leases_are_asked_for_where_the_server_wants_them() {
    let world = World::with(|policy| policy.require_lease = true);
    let id = world.send("t", "k").await;
    let got = world.recv("t").await;
    let fault = world
        .refused("mailbox_ack", json!({ "msg_id": id }), Code::ESchema)
        .await;
    assert_eq!(fault.details["field"], "lease");
    world
        .done(
            "mailbox_ack",
            json!({ "msg_id": id, "lease": got[0]["lease"] }),
        )
        .await;
    let world = World::new();
    let id = world.send("t", "k").await;
    world
        .refused("mailbox_ack", json!({ "msg_id": id }), Code::ENotLeased)
        .await;
}
