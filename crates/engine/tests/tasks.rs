//! The contract of a task as callers see it: what they send, where it stands, and how the server ends it.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_engine::{
    Caller, Engine, Fault, Principal, PrincipalKind, Role, Settings, Source, TenantId,
    fakes::{Counter, FakeClock},
    registry,
};
use asyncgate_store::memory::MemoryStore;
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};

const START: i64 = 1_767_610_800_000;

/// An engine whose time only the test moves.
struct Gate {
    engine: Engine,
    clock: Arc<FakeClock>,
}

impl Gate {
    fn new() -> Self {
        let clock = Arc::new(FakeClock::at(START));
        let store = Arc::new(MemoryStore::new());
        let ids = Arc::new(Counter::default());
        Self {
            engine: Engine::new(store, clock.clone(), ids, Settings::default()),
            clock,
        }
    }

    async fn call(&self, by: &Caller, operation: &str, input: &str) -> Result<Value, Fault> {
        let mut entries = registry().iter();
        let entry = entries.find(|entry| entry.spec.name == operation).unwrap();
        let answer = (entry.call)(&self.engine, by, Source::Json(input.as_bytes())).await?;
        Ok(serde_json::from_slice(&answer.json).unwrap())
    }

    async fn admin(&self, operation: &str, input: Value) -> Value {
        let answer = self.call(&admin(), operation, &input.to_string()).await;
        answer.unwrap()
    }

    async fn refused(&self, operation: &str, input: &str) -> Code {
        let answer = self.call(&admin(), operation, input).await;
        answer.unwrap_err().code
    }

    async fn create(&self, more: Value) -> String {
        let mut input = json!({ "type": "echo", "principal_id": "alice" });
        for (name, value) in more.as_object().unwrap() {
            input[name] = value.clone();
        }
        let created = self.admin("create_task", input).await;
        created["task_id"].as_str().unwrap().to_owned()
    }

    async fn take(&self, worker: &str) -> Value {
        let input = json!({ "worker_id": worker, "expected_duration_seconds": 30 });
        let mut leased = self.admin("lease_next", input).await;
        leased["tasks"][0].take()
    }

    async fn task(&self, id: &str) -> Value {
        self.admin("get_task", json!({ "task_id": id })).await
    }

    async fn story(&self, id: &str) -> Vec<Value> {
        let ledger = self.admin("list_ledger", json!({ "task_id": id })).await;
        ledger["receipts"].as_array().unwrap().clone()
    }

    /// Returns the body of the last receipt of a type.
    async fn body(&self, id: &str, receipt_type: &str) -> Value {
        let story = self.story(id).await;
        let mut found = story.iter().rev();
        let found = found.find(|receipt| receipt["receipt_type"] == receipt_type);
        found.unwrap()["body"].clone()
    }

    fn unproven(&self) -> Option<String> {
        let mut registry = Registry::with_prefix("asyncgate");
        self.engine.register_metrics(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let mut lines = text.lines();
        lines.find_map(|line| {
            let count = line.strip_prefix("asyncgate_unproven_successes_total ")?;
            Some(count.to_owned())
        })
    }
}

fn caller(role: Role, kind: PrincipalKind, id: &str) -> Caller {
    let tenant = TenantId::from_bytes([1; 16]);
    Caller::new(tenant, Principal::new(kind, id), role)
}

fn admin() -> Caller {
    caller(Role::Admin, PrincipalKind::Service, "admin")
}

fn held(leased: &Value, more: Value) -> Value {
    let mut input = json!({
        "task_id": leased["task_id"], "lease_id": leased["lease_id"], "worker_id": "bob",
    });
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    input
}

fn terms() -> Value {
    json!({
        "instructions": "Render it.",
        "success_criteria": { "pages": 3 },
        "result_delivery": ["mail"],
        "timeouts": { "lease_ttl_seconds": 60, "deadline_seconds": 3_600 },
        "max_lease_expiries": 7,
    })
}

#[tokio::test]
async fn every_field_of_the_contract_stands_where_it_belongs() {
    let gate = Gate::new();
    let id = gate.create(terms()).await;
    let leased = gate.take("bob").await;
    let (task, assigned) = (gate.task(&id).await, gate.body(&id, "task.assigned").await);
    for (name, value) in terms().as_object().unwrap() {
        assert_eq!(&task[name], value, "{name} in get_task");
        assert_eq!(&assigned[name], value, "{name} in the receipt");
        if name != "max_lease_expiries" {
            assert_eq!(&leased[name], value, "{name} in lease_next");
        }
    }
    let deadline = "2026-01-05T12:00:00.000Z";
    assert_eq!(
        (&task["deadline_at"], &leased["deadline_at"]),
        (&json!(deadline), &json!(deadline))
    );
    assert_eq!(leased["expires_at"], "2026-01-05T11:01:00.000Z");
    assert_eq!(task["lease"]["expected_duration_seconds"], 30);
    assert_eq!(
        (&task["lease"]["worker"]["id"], &task["lease"]["renewals"]),
        (&json!("bob"), &json!(0))
    );
    let accepted = gate.body(&id, "task.accepted").await;
    assert_eq!(accepted["expected_duration_seconds"], 30);

    let fail = json!({ "error": { "why": "net" }, "retryable": true, "retry_after_seconds": 7 });
    let failed = gate.admin("fail", held(&leased, fail)).await;
    assert_eq!(failed["next_eligible_at"], "2026-01-05T11:00:07.000Z");
    assert_eq!(
        gate.body(&id, "task.retry_scheduled").await["retry_after_seconds"],
        7
    );
    let task = gate.task(&id).await;
    assert_eq!(task["last_error"], json!({ "why": "net" }));
    assert_eq!(task["next_eligible_at"], failed["next_eligible_at"]);
    gate.clock.advance(7_000);
    gate.engine.act_on_deadlines().await.unwrap();

    let leased = gate.take("bob").await;
    let said = json!({
        "result": 1, "result_summary": "Three pages.", "completion_metadata": { "model": "m" },
        "artifacts": "s3://b/x", "delivery_proof": { "sent": true },
    });
    let done = gate.admin("complete", held(&leased, said.clone())).await;
    assert_eq!(done["discharged"], true, "a text is one artifact");
    assert!(done["hint"].is_null());
    let result = gate.task(&id).await["result"].clone();
    for name in [
        "result_summary",
        "completion_metadata",
        "delivery_proof",
        "artifacts",
    ] {
        assert_eq!(result[name], said[name], "{name} in get_task");
        for receipt_type in ["task.completed", "task.result_ready"] {
            let body = gate.body(&id, receipt_type).await;
            assert_eq!(body[name], said[name], "{name} in {receipt_type}");
        }
    }
}

#[tokio::test]
async fn what_is_over_a_bound_is_refused_and_changes_nothing() {
    let gate = Gate::new();
    let long = |bytes: usize| "x".repeat(bytes);
    for (field, bytes, fits) in [
        ("instructions", 16_384, true),
        ("instructions", 16_385, false),
        ("success_criteria", 16_382, true),
        ("success_criteria", 16_383, false),
        ("result_delivery", 16_383, false),
    ] {
        let input = json!({ "type": "x", field: long(bytes) }).to_string();
        let answer = gate.call(&admin(), "create_task", &input).await;
        let code = answer.err().map(|fault| fault.code);
        assert_eq!(
            code,
            (!fits).then_some(Code::LimitExceeded),
            "{field} {bytes}"
        );
    }
    let create = |timeouts: &str| format!(r#"{{"type":"x","timeouts":{timeouts}}}"#);
    for (timeouts, code) in [
        (r#"{"deadline_seconds":315360001}"#, Code::LimitExceeded),
        (r#"{"deadline_seconds":0}"#, Code::BadRequest),
        (r#"{"lease_ttl_seconds":0}"#, Code::BadRequest),
        (r#"{"deadline_at":"soon"}"#, Code::BadRequest),
        (
            r#"{"deadline_at":"2026-01-05T12:00:00Z","deadline_seconds":1}"#,
            Code::BadRequest,
        ),
        (r#"{"other":1}"#, Code::BadRequest),
    ] {
        assert_eq!(
            gate.refused("create_task", &create(timeouts)).await,
            code,
            "{timeouts}"
        );
    }
    let claim = r#"{"worker_id":"bob","expected_duration_seconds":315360001}"#;
    assert_eq!(gate.refused("lease_next", claim).await, Code::LimitExceeded);
    let leased = gate.take("bob").await;
    for (operation, more, code) in [
        (
            "complete",
            json!({ "result_summary": long(4_097) }),
            Code::LimitExceeded,
        ),
        (
            "complete",
            json!({ "completion_metadata": { "m": long(16_400) } }),
            Code::LimitExceeded,
        ),
        (
            "complete",
            json!({ "completion_metadata": [1] }),
            Code::BadRequest,
        ),
        (
            "complete",
            json!({ "artifacts": [long(40_000)], "delivery_proof": [long(30_000)] }),
            Code::LimitExceeded,
        ),
        (
            "fail",
            json!({ "error": 1, "retry_after_seconds": 86_401 }),
            Code::LimitExceeded,
        ),
    ] {
        let input = held(&leased, more).to_string();
        assert_eq!(gate.refused(operation, &input).await, code, "{operation}");
    }
    let id = leased["task_id"].as_str().unwrap();
    assert_eq!(gate.task(id).await["status"], "leased");
}

#[tokio::test]
async fn a_deadline_ends_the_task_and_fences_its_holder() {
    let gate = Gate::new();
    let id = gate
        .create(json!({ "timeouts": { "deadline_at": "2026-01-05T13:01:00+02:00" } }))
        .await;
    let leased = gate.take("bob").await;
    gate.clock.advance(60_000);
    let complete = held(&leased, json!({ "artifacts": ["x"] })).to_string();
    assert_eq!(
        gate.refused("complete", &complete).await,
        Code::LeaseInvalidOrExpired
    );
    gate.engine.act_on_deadlines().await.unwrap();
    assert_eq!(
        gate.refused("complete", &complete).await,
        Code::LeaseInvalidOrExpired
    );
    let task = gate.task(&id).await;
    assert_eq!(
        (&task["status"], &task["result"]["error"]),
        (&json!("failed"), &json!({ "code": "deadline" }))
    );
    assert_eq!(task["last_error"], json!({ "code": "deadline" }));
    let story = gate.story(&id).await;
    let failed = &story[2];
    assert_eq!(failed["receipt_type"], "task.failed");
    assert_eq!(
        failed["from"],
        json!({ "kind": "system", "id": "asyncgate" })
    );
    assert_eq!(failed["parents"], json!([story[0]["receipt_id"]]));
    let open = gate
        .admin("list_open_obligations", json!({ "principal_id": "alice" }))
        .await;
    assert_eq!(open["open_obligations"], json!([]));
}

/// A task whose time is over stands in front of another one: the worker is given that one.
#[tokio::test]
async fn a_claim_looks_behind_tasks_that_are_too_late() {
    let gate = Gate::new();
    for _ in 0..3 {
        gate.create(json!({ "timeouts": { "deadline_seconds": 1 }, "priority": 9 }))
            .await;
    }
    let id = gate.create(json!({})).await;
    gate.clock.advance(1_000);
    assert_eq!(gate.take("bob").await["task_id"], id.as_str());
}

#[tokio::test]
async fn too_many_expiries_end_the_task() {
    let gate = Gate::new();
    let id = gate.create(json!({ "max_lease_expiries": 2 })).await;
    for worker in ["one", "two"] {
        assert_eq!(gate.take(worker).await["task_id"], id.as_str());
        gate.clock.advance(300_000);
        gate.engine.act_on_deadlines().await.unwrap();
        gate.clock.advance(10_000);
        gate.engine.act_on_deadlines().await.unwrap();
    }
    let task = gate.task(&id).await;
    assert_eq!(
        (&task["status"], &task["lease_expiries"]),
        (&json!("failed"), &json!(2))
    );
    let error = json!({ "code": "lease_expiries", "workers": ["one", "two"] });
    assert_eq!(task["result"]["error"], error);
    assert_eq!(gate.body(&id, "lease.expired").await["requeued"], false);
}

#[tokio::test]
async fn a_success_without_proof_is_told_hinted_at_and_counted_once() {
    let gate = Gate::new();
    gate.create(json!({})).await;
    let leased = gate.take("bob").await;
    for duplicate in [false, true] {
        let done = gate
            .admin("complete", held(&leased, json!({ "result": 1 })))
            .await;
        assert_eq!(
            (&done["discharged"], &done["duplicate"]),
            (&json!(false), &json!(duplicate))
        );
        assert!(done["hint"].as_str().unwrap().contains("delivery_proof"));
        assert_eq!(gate.unproven().as_deref(), Some("1"));
    }
    let done = gate
        .admin("complete", held(&leased, json!({ "artifacts": ["x"] })))
        .await;
    assert_eq!(
        (&done["discharged"], &done["duplicate"]),
        (&json!(true), &json!(false))
    );
    let done = gate
        .admin("complete", held(&leased, json!({ "result": 1 })))
        .await;
    assert_eq!(
        (&done["discharged"], &done["duplicate"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(gate.unproven().as_deref(), Some("1"));
}

#[tokio::test]
async fn a_receipt_is_acknowledged_once_by_each_principal() {
    let gate = Gate::new();
    let id = gate.create(json!({})).await;
    let receipt = gate.story(&id).await[0]["receipt_id"].clone();
    for by in ["alice", "alice", "carol", "alice", "carol"] {
        let input =
            json!({ "receipt_id": receipt, "principal_id": by, "principal_instance_id": by });
        assert_eq!(gate.admin("ack_receipt", input).await["ok"], true);
    }
    let story = gate.story(&id).await;
    let acked = story
        .iter()
        .filter(|r| r["receipt_type"] == "receipt.acknowledged");
    let by: Vec<&Value> = acked.map(|receipt| &receipt["from"]["id"]).collect();
    assert_eq!(by, ["alice", "carol"]);
}

#[tokio::test]
async fn bootstrap_begins_with_the_newest_receipts() {
    let gate = Gate::new();
    for _ in 0..5 {
        gate.create(json!({})).await;
    }
    let seqs = |answer: &Value| -> Vec<u64> {
        let receipts = answer["attention"]["inbox_receipts"].as_array().unwrap();
        receipts
            .iter()
            .map(|receipt| receipt["seq"].as_u64().unwrap())
            .collect()
    };
    let mut input = json!({
        "agent_id": "alice", "max_items": 2, "client_capabilities": { "stream": [true] },
    });
    let newest = gate.admin("bootstrap", input.clone()).await;
    assert_eq!(seqs(&newest), [4, 5]);
    let last = &newest["attention"]["inbox_receipts"][1];
    assert_eq!(newest["cursor"]["latest_receipt_id"], last["receipt_id"]);
    assert!(last["delivered_at"].is_string());
    input["since_receipt_id"] = newest["cursor"]["latest_receipt_id"].clone();
    let nothing = gate.admin("bootstrap", input.clone()).await;
    assert!(seqs(&nothing).is_empty());
    assert_eq!(nothing["cursor"], newest["cursor"]);
    gate.create(json!({})).await;
    assert_eq!(seqs(&gate.admin("bootstrap", input).await), [6]);
}

#[tokio::test]
async fn instances_that_take_turns_begin_no_sessions() {
    let gate = Gate::new();
    for (n, instance) in ["phone", "laptop"].into_iter().cycle().take(10).enumerate() {
        gate.clock.advance(2_000);
        let input = json!({ "principal_id": "alice", "principal_instance_id": instance });
        let answer = gate.admin("list_open_obligations", input).await;
        let sessions = 1 + n.min(1);
        assert_eq!(answer["relationship"]["sessions_count"], sessions, "{n}");
    }
}

#[tokio::test]
async fn the_story_of_anothers_task_is_forbidden() {
    let gate = Gate::new();
    let id = gate.create(json!({})).await;
    let input = json!({ "task_id": id }).to_string();
    for (by, allowed) in [
        (caller(Role::Agent, PrincipalKind::Agent, "alice"), true),
        (caller(Role::Agent, PrincipalKind::Agent, "mallory"), false),
        (caller(Role::Worker, PrincipalKind::Worker, "bob"), false),
    ] {
        let answer = gate.call(&by, "list_ledger", &input).await;
        let code = answer.err().map(|fault| fault.code);
        assert_eq!(code, (!allowed).then_some(Code::Forbidden), "{by:?}");
    }
    gate.take("bob").await;
    let bob = caller(Role::Worker, PrincipalKind::Worker, "bob");
    assert!(
        gate.call(&bob, "list_ledger", &input).await.is_ok(),
        "it holds the task"
    );
}

#[tokio::test]
async fn an_owner_may_be_named_twice_if_both_names_are_the_same() {
    let gate = Gate::new();
    let same = r#"{"type":"x","principal_id":"dora","principal_ai":"dora"}"#;
    let created = gate.call(&admin(), "create_task", same).await.unwrap();
    let task = gate.task(created["task_id"].as_str().unwrap()).await;
    assert_eq!(task["created_by"]["id"], "dora");
    for input in [
        r#"{"type":"x","principal_id":"dora","principal_ai":"emil"}"#,
        r#"{"type":"x","principal_ai":"dora","principal_ai":"dora"}"#,
    ] {
        assert_eq!(gate.refused("create_task", input).await, Code::BadRequest);
    }
}

#[tokio::test]
async fn half_a_pair_of_surrogates_is_refused_wherever_it_stands() {
    let gate = Gate::new();
    gate.create(json!({})).await;
    let leased = gate.take("bob").await;
    let id = leased["task_id"].as_str().unwrap().to_owned();
    let odd = r#"{"a":["\ud800"]}"#;
    let base = held(&leased, json!({})).to_string();
    let with = |field: &str| format!("{},\"{field}\":{odd}}}", base.trim_end_matches('}'));
    for (operation, input) in [
        ("create_task", format!(r#"{{"type":"x","payload":{odd}}}"#)),
        (
            "create_task",
            format!(r#"{{"type":"x","success_criteria":{odd}}}"#),
        ),
        ("create_task", r#"{"type":"\udc00"}"#.to_owned()),
        ("complete", with("result")),
        ("complete", with("artifacts")),
        ("complete", with("completion_metadata")),
        ("fail", with("error")),
        ("report_progress", with("progress")),
    ] {
        assert_eq!(
            gate.refused(operation, &input).await,
            Code::BadRequest,
            "{input}"
        );
    }
    assert_eq!(gate.task(&id).await["status"], "leased");
}
