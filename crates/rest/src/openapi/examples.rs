//! Bodies to begin with, for readers of the document who try things out.

use serde_json::{Value, json};

const LEASE: &str = "0190d8c2-7c1e-7a3b-8e21-000000040000";
const NAMESPACE: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// Returns the body of an example call of an operation, if there is one.
pub(super) fn of(operation: &str) -> Option<Value> {
    let example = match operation {
        "create_task" => json!({
            "type": "report.render",
            "payload": { "page": 7 },
            "principal_id": "alice",
            "idempotency_key": "render-7",
        }),
        "lease_next" => json!({ "worker_id": "w1", "wait_seconds": 30 }),
        "complete" => json!({
            "worker_id": "w1",
            "lease_id": LEASE,
            "result": { "pages": 12 },
            "artifacts": [{ "type": "s3", "url": "s3://reports/7.pdf" }],
        }),
        "fail" => json!({
            "worker_id": "w1",
            "lease_id": LEASE,
            "error": { "message": "the printer is on fire" },
            "retryable": true,
        }),
        "mailbox_send" => json!({
            "topic": "jobs",
            "idem_key": "fence-1",
            "payload_b64": "cGFpbnQgdGhlIGZlbmNl",
        }),
        "mailbox_recv" => json!({ "topic": "jobs", "visibility_ms": 60_000, "wait_seconds": 30 }),
        "mailbox_ack" => json!({ "lease": LEASE }),
        "mailbox_nack" => json!({ "lease": LEASE, "reason": "parse_error" }),
        "limits_check" => json!({ "policy": "client", "key": "alice" }),
        "host_check_nonces" => json!({
            "namespace": NAMESPACE,
            "nonce": "ZGVsaXZlcnktMTc",
            "ttl_secs": 3_600,
        }),
        "host_increment_counter" => json!({
            "namespace": NAMESPACE,
            "window_secs": 60,
            "limit": 100,
        }),
        "host_revoke" => json!({
            "subject": { "kind": "holder_key", "hash": NAMESPACE },
            "reason": "laptop stolen",
        }),
        "set_tier" => json!({ "tier": "trusted", "reason": "our own batch jobs" }),
        _ => return None,
    };
    Some(example)
}
