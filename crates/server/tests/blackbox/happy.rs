//! The whole path of a task, every field of it, from its creation to its last receipt.

use serde_json::{Value, json};

use crate::calls::{Held, is_id, members, millis, types};
use crate::harness::Server;
use crate::http::Request;

pub const OWNER: &str = "alice";

fn full_input() -> Value {
    json!({
        "type": "report.render",
        "payload": {"page": 7, "title": "Q3"},
        "payload_pointer": "s3://inputs/q3",
        "requirements": {"capabilities": ["pdf", "fonts"], "tags": ["quarterly"]},
        "priority": 5,
        "idempotency_key": "render-q3",
        "max_attempts": 4,
        "retry_backoff_seconds": 11,
        "expected_outcome_kind": "artifact_pointer",
        "expected_artifact_mime": "application/pdf",
        "principal_kind": "agent",
        "principal_id": OWNER,
        "principal_instance_id": "laptop",
    })
}

/// A task that `render-1` holds.
pub fn taken(server: &Server) -> Held {
    server.create(&full_input());
    let claim = json!({
        "worker_id": "render-1",
        "worker_kind": "worker",
        "worker_instance_id": "pod-9",
        "capabilities": ["fonts", "gpu", "pdf"],
        "accept_types": ["report.render", "report.print"],
        "max_tasks": 3,
        "lease_ttl_seconds": 120,
    });
    let mut held = server.claim(&claim);
    assert_eq!(held.len(), 1);
    held.remove(0)
}

pub fn owner() -> Value {
    json!({"kind": "agent", "id": OWNER, "instance_id": "laptop"})
}

pub fn worker() -> Value {
    json!({"kind": "worker", "id": "render-1"})
}

pub fn system() -> Value {
    json!({"kind": "system", "id": "asyncgate"})
}

#[test]
fn creating_answers_201_and_creating_again_200_with_the_same_task() {
    let server = Server::start();
    let first = server.post("/v1/tasks", &full_input());
    let body = first.expect(201);
    assert_eq!(members(&body), ["duplicate", "status", "task_id"]);
    is_id(&body["task_id"]);
    assert_eq!(
        (&body["status"], &body["duplicate"]),
        (&json!("queued"), &json!(false))
    );
    is_id(&json!(first.header("X-Corr-Id")));
    assert_eq!(first.header("Content-Type"), Some("application/json"));

    let again = server.post("/v1/tasks", &full_input()).expect(200);
    assert_eq!(again["task_id"], body["task_id"]);
    assert_eq!(
        (&again["status"], &again["duplicate"]),
        (&json!("queued"), &json!(true))
    );
    assert_eq!(server.ledger().len(), 1, "a duplicate leaves no trace");
}

#[test]
fn a_new_task_is_told_with_every_field() {
    let server = Server::start();
    let id = server.create(&full_input());
    let mut task = server.task(&id);
    let created = millis(&task["created_at"]);
    assert_eq!(millis(&task["updated_at"]), created);
    assert_eq!(millis(&task["next_eligible_at"]), created);
    for time in ["created_at", "updated_at", "next_eligible_at"] {
        task.as_object_mut().unwrap().remove(time);
    }
    assert_eq!(
        task,
        json!({
            "task_id": id,
            "type": "report.render",
            "status": "queued",
            "payload": {"page": 7, "title": "Q3"},
            "payload_pointer": "s3://inputs/q3",
            "created_by": owner(),
            "principal_ai": OWNER,
            "requirements": {"capabilities": ["fonts", "pdf"], "tags": ["quarterly"]},
            "priority": 5,
            "attempt": 0,
            "max_attempts": 4,
            "retry_backoff_seconds": 11,
            "lease_expiries": 0,
            "idempotency_key": "render-q3",
            "expected_outcome_kind": "artifact_pointer",
            "expected_artifact_mime": "application/pdf",
            "asyncgate_instance": "asyncgate-1",
        })
    );
}

#[test]
fn a_bare_task_gets_the_defaults_and_belongs_to_whoever_created_it() {
    let server = Server::start();
    let task = server.task(&server.create(&json!({"type": "x"})));
    assert_eq!(
        task["created_by"],
        json!({"kind": "service", "id": "admin"})
    );
    assert_eq!(task["payload"], Value::Null);
    assert_eq!(task["requirements"], json!({}));
    assert_eq!(
        [
            &task["priority"],
            &task["max_attempts"],
            &task["retry_backoff_seconds"]
        ],
        [&json!(0), &json!(3), &json!(30)]
    );
    let aliased = server.create(&json!({"type": "x", "principal_ai": "bob"}));
    let task = server.task(&aliased);
    assert_eq!(task["created_by"], json!({"kind": "agent", "id": "bob"}));
    assert_eq!(task["principal_ai"], "bob");
}

#[test]
fn the_principal_may_be_named_in_the_query_or_in_the_body() {
    let server = Server::start();
    let target = "/v1/tasks?principal_kind=human&principal_id=carol%20c";
    let created = server.post(target, &json!({"type": "x"})).expect(201);
    let task = server.task(created["task_id"].as_str().unwrap());
    assert_eq!(
        task["created_by"],
        json!({"kind": "human", "id": "carol c"})
    );
    let target = "/v1/obligations/open?principal_kind=human&principal_id=carol+c";
    let open = server.get(target).expect(200);
    assert_eq!(open["open_obligations"].as_array().unwrap().len(), 1);
}

#[test]
fn a_claim_hands_over_everything_that_a_worker_needs() {
    let server = Server::start();
    let mut held = taken(&server);
    is_id(&held.record["task_id"]);
    is_id(&held.record["lease_id"]);
    let record = held.record.as_object_mut().unwrap();
    let expires = millis(&record.remove("expires_at").unwrap());
    let task = server.task(&held.task_id);
    assert_eq!(
        held.record,
        json!({
            "task_id": held.task_id,
            "lease_id": held.lease_id,
            "type": "report.render",
            "payload": {"page": 7, "title": "Q3"},
            "payload_pointer": "s3://inputs/q3",
            "attempt": 0,
            "requirements": {"capabilities": ["fonts", "pdf"], "tags": ["quarterly"]},
            "created_by": owner(),
            "principal_ai": OWNER,
            "expected_outcome_kind": "artifact_pointer",
            "expected_artifact_mime": "application/pdf",
        })
    );
    assert_eq!(task["status"], "leased");
    let lease = &task["lease"];
    assert_eq!(
        members(lease),
        ["created_at", "expires_at", "lease_id", "renewals", "worker"]
    );
    assert_eq!(lease["lease_id"], held.lease_id);
    assert_eq!(
        lease["worker"],
        json!({"kind": "worker", "id": "render-1", "instance_id": "pod-9"})
    );
    assert_eq!(lease["renewals"], 0);
    assert_eq!(millis(&lease["expires_at"]), expires);
    assert_eq!(expires - millis(&lease["created_at"]), 120_000);
    server.nothing_to_take();
}

#[test]
fn the_owner_sees_how_far_the_work_is() {
    let server = Server::start();
    let held = taken(&server);
    let started = server.under(&held, "running", &json!({})).expect(200);
    assert_eq!(started, json!({"ok": true}));
    assert_eq!(server.status(&held.task_id), "running");
    server.under(&held, "running", &json!({})).expect(200);
    for percent in [10, 60] {
        let more = json!({"progress": {"percent": percent}});
        let answer = server.under(&held, "progress", &more).expect(200);
        assert_eq!(answer, json!({"ok": true}));
        let task = server.task(&held.task_id);
        assert_eq!(task["progress"], json!({"percent": percent}));
        assert!(millis(&task["progress_at"]) >= millis(&task["created_at"]));
        assert_eq!(task["status"], "running");
    }
    let story = server.story(&held.task_id);
    assert_eq!(
        types(&story),
        [
            "task.assigned",
            "task.accepted",
            "task.started",
            "task.progress",
            "task.progress"
        ],
        "starting twice is told once"
    );
    for receipt in &story[1..] {
        assert_eq!(receipt["to"], system(), "{receipt}");
    }
    assert_eq!(story[4]["body"]["progress"], json!({"percent": 60}));
}

#[test]
fn a_success_with_proof_is_told_with_every_field() {
    let server = Server::start();
    let held = taken(&server);
    let more = json!({
        "result": {"pages": 12},
        "artifacts": [{"type": "s3", "url": "s3://out/q3.pdf"}],
        "delivery_proof": {"target": "mail:alice", "status": "succeeded"},
    });
    let done = server.under(&held, "complete", &more).expect(200);
    assert_eq!(
        members(&done),
        ["discharged", "duplicate", "ok", "receipt_id"]
    );
    assert_eq!(done["discharged"], true);
    assert_eq!(
        (&done["ok"], &done["duplicate"]),
        (&json!(true), &json!(false))
    );
    is_id(&done["receipt_id"]);

    let task = server.task(&held.task_id);
    assert_eq!(task["status"], "succeeded");
    assert_eq!(task.get("lease"), None);
    assert_eq!(task["attempt"], 0);
    let mut result = task["result"].clone();
    let completed_at = result.as_object_mut().unwrap().remove("completed_at");
    assert_eq!(completed_at.as_ref(), task.get("updated_at"));
    assert_eq!(
        result,
        json!({
            "outcome": "succeeded",
            "result": {"pages": 12},
            "error": null,
            "artifacts": [{"type": "s3", "url": "s3://out/q3.pdf"}],
            "delivery_proof": {"target": "mail:alice", "status": "succeeded"},
        })
    );
    server.nothing_to_take();
}

#[test]
fn the_settings_that_matter_to_callers_are_told() {
    let server = Server::start();
    let mut config = server.get("/v1/config").expect(200);
    let object = config.as_object_mut().unwrap();
    let version = object.remove("version").unwrap();
    let capabilities = object.remove("capabilities").unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    assert!(!capabilities.as_array().unwrap().is_empty());
    assert_eq!(
        config,
        json!({
            "receipt_mode": "standalone",
            "instance_id": "asyncgate-1",
            "durability": "fsync",
            "profile": "macronode",
            "dlq_profile": "durable",
            "locatability": "lenient",
            "default_lease_ttl_seconds": 300,
            "max_lease_ttl_seconds": 1800,
            "default_max_attempts": 3,
            "default_retry_backoff_seconds": 30,
            "max_retry_backoff_seconds": 900,
            "default_list_limit": 50,
            "max_list_limit": 200,
            "max_payload_bytes": 1_048_576,
        })
    );
}

#[test]
fn health_is_told_to_everyone() {
    let server = Server::start();
    let answer = server.send_bare(&Request::get("/v1/health"));
    assert_eq!(
        answer.expect(200),
        json!({
            "status": "healthy",
            "service": "AsyncGate",
            "version": env!("CARGO_PKG_VERSION"),
            "instance_id": "asyncgate-1",
        })
    );
    is_id(&json!(answer.header("X-Corr-Id")));
}
