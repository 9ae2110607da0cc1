//! The part of the history that is about messages.

use serde_json::{Value, json};

use crate::script::{Step, done, refused};

const SENT: &[(&str, &str)] = &[("msg", "/msg_id")];
const RECEIVED: &[(&str, &str)] = &[("msg", "/messages/0/msg_id"), ("hold", "/messages/0/lease")];
const NO_MESSAGE: &str = "01JAE6ZQX50000000000000000";
const NO_LEASE: &str = "0190a0b0-0000-7000-8000-000000000000";

fn send(topic: &str, key: &str, extra: Value) -> Value {
    let mut input = json!({ "topic": topic, "idem_key": key, "payload_b64": "aGk=" });
    for (name, value) in extra.as_object().into_iter().flatten() {
        input[name] = value.clone();
    }
    input
}

fn held(extra: Value) -> Value {
    let mut input = json!({ "msg_id": "$msg", "lease": "$hold" });
    for (name, value) in extra.as_object().into_iter().flatten() {
        input[name] = value.clone();
    }
    input
}

fn one(id: &str) -> Value {
    json!({ "msg_id": id })
}

fn topic(name: &str) -> Value {
    json!({ "topic": name })
}

/// Sending, receiving, settling, dying and coming back.
pub fn messages() -> Vec<Step> {
    let conflict = json!({ "idempotency_mode": "409-conflict" });
    let mut steps = vec![
        done(
            "mailbox_send",
            send("t", "a", json!({ "attrs": { "k": "v" } })),
        )
        .keep(SENT),
        done("mailbox_send", send("t", "a", json!({}))),
        refused("mailbox_send", send("t", "a", conflict), "E_DUPLICATE"),
        refused(
            "mailbox_send",
            send("t", "a", json!({ "payload_b64": "aGkh" })),
            "E_IDEM_CONFLICT",
        ),
        refused("mailbox_send", send("", "a", json!({})), "E_SCHEMA"),
        refused(
            "mailbox_send",
            send("t", "b", json!({ "payload_b64": "@" })),
            "E_SCHEMA",
        ),
        refused(
            "mailbox_send",
            send("t", "b", json!({ "ttl_ms": 0 })),
            "E_SCHEMA",
        ),
        done(
            "mailbox_send_batch",
            json!({ "messages": [
                send("t", "b", json!({ "priority": 5, "partition_key": "p" })),
                send("t", "", json!({})),
                send("t", "c", json!({ "delay_ms": 1_000 })),
                send("t", "a", json!({ "payload_b64": "" })),
            ]}),
        ),
        refused("mailbox_send_batch", json!({ "messages": [] }), "E_SCHEMA"),
        done("mailbox_get_message", one("$msg")),
        refused("mailbox_get_message", one(NO_MESSAGE), "E_NOT_FOUND"),
        refused("mailbox_get_message", one("7"), "E_SCHEMA"),
        done("mailbox_peek", topic("t")),
        refused(
            "mailbox_peek",
            json!({ "topic": "t", "max_messages": 0 }),
            "E_SCHEMA",
        ),
        done("mailbox_topics", json!({})),
        refused("mailbox_topics", json!({ "limit": 0 }), "E_SCHEMA"),
        refused(
            "mailbox_recv",
            json!({ "topic": "t", "visibility_ms": 1 }),
            "E_SCHEMA",
        ),
        refused("mailbox_ack", json!({ "msg_id": "$msg" }), "E_NOT_LEASED"),
        done("mailbox_recv", json!({ "topic": "t", "max_messages": 1 })).keep(RECEIVED),
        refused(
            "mailbox_extend",
            held(json!({ "lease": NO_LEASE })),
            "E_STALE_LEASE",
        ),
        done("mailbox_extend", held(json!({ "visibility_ms": 10_000 }))).after(1_000),
        done("mailbox_get_message", one("$msg")),
        refused("mailbox_delete_message", one("$msg"), "E_LEASED"),
        done("mailbox_redrive_message", one("$msg")),
        done("mailbox_ack", held(json!({}))),
        done("mailbox_ack", held(json!({}))),
        refused(
            "mailbox_ack",
            json!({ "msg_id": NO_MESSAGE }),
            "E_NOT_FOUND",
        ),
        refused("mailbox_ack", json!({ "msg_id": "7" }), "E_SCHEMA"),
        refused("mailbox_nack", held(json!({})), "E_NOT_LEASED"),
        done(
            "mailbox_recv",
            json!({ "topic": "t", "max_bytes": 1, "wait_seconds": 0 }),
        )
        .keep(RECEIVED),
        done(
            "mailbox_ack_batch",
            json!({ "acks": [
                { "msg_id": "$msg", "lease": "$hold" }, { "msg_id": "$msg" },
                { "msg_id": "7" }, { "msg_id": NO_MESSAGE },
            ]}),
        ),
        refused("mailbox_ack_batch", json!({ "acks": [] }), "E_SCHEMA"),
        // One that its receiver forgets, and one that grows too old.
        done(
            "mailbox_recv",
            json!({ "topic": "t", "visibility_ms": 250 }),
        )
        .after(1_000),
        done("mailbox_recv", topic("t")).after(250).keep(RECEIVED),
        done(
            "mailbox_nack",
            held(json!({ "reason": "later", "delay_ms": 0 })),
        ),
        done("mailbox_send", send("old", "a", json!({ "ttl_ms": 10 }))),
        done("mailbox_recv", topic("old")).after(10),
        done("mailbox_send", send("poison", "a", json!({}))),
    ];
    for _ in 0..5 {
        let why = json!({ "reason": "E_PARSE", "error": "not JSON" });
        steps.push(
            done("mailbox_recv", topic("poison"))
                .after(60_000)
                .keep(RECEIVED),
        );
        steps.push(done("mailbox_nack", held(why)));
    }
    steps.extend([
        done("mailbox_dlq", json!({})),
        done("mailbox_get_message", one("$msg")),
        done("mailbox_redrive_message", one("$msg")),
        refused("mailbox_redrive_message", one(NO_MESSAGE), "E_NOT_FOUND"),
        done("mailbox_recv", topic("poison")).keep(RECEIVED),
        done("mailbox_nack", held(json!({}))),
        done("mailbox_get_message", one("$msg")),
        done("mailbox_delete_message", one("$msg")),
        done("mailbox_delete_message", one("$msg")),
        refused("mailbox_get_message", one("$msg"), "E_NOT_FOUND"),
        done("mailbox_send", send("poison", "b", json!({}))),
        done(
            "mailbox_recv",
            json!({ "topic": "poison", "visibility_ms": 250 }),
        ),
        done("mailbox_dlq", json!({ "reason": "E_PARSE", "limit": 1 })),
        refused("mailbox_dlq", json!({ "cursor": "x" }), "E_SCHEMA"),
        done(
            "mailbox_dlq_reprocess",
            json!({ "topic": "poison", "dry_run": true }),
        ),
        done("mailbox_dlq_reprocess", topic("poison")),
        refused(
            "mailbox_dlq_reprocess",
            json!({ "topic": "poison", "limit": 0 }),
            "E_SCHEMA",
        ),
        done("mailbox_recv", topic("poison")),
        done("mailbox_purge", json!({ "topic": "old", "state": "all" })),
        refused(
            "mailbox_purge",
            json!({ "topic": "old", "state": "x" }),
            "E_SCHEMA",
        ),
        done("mailbox_topics", json!({ "limit": 1 })),
        done("mailbox_heads", json!({})),
        refused("mailbox_heads", json!({ "x": "1" }), "E_SCHEMA"),
        // Past every window: what was only remembered is forgotten.
        done("mailbox_topics", json!({})).after(300_000),
    ]);
    steps
}
