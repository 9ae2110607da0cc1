//! Many tasks in one call: each is answered by itself, and a renewal can wait for the loss of a lease.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{sync::Arc, time::Duration};

use asyncgate_core::Policy;
use asyncgate_engine::{
    Role, Settings,
    fakes::{FakeClock, START_MS, TestEngine},
};
use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use tokio::{task::yield_now, time::Instant};

async fn call(engine: &TestEngine, operation: &str, input: Value) -> Value {
    let answer = engine.call(Role::Admin, operation, &input).await;
    answer.expect("done")
}

/// Returns what each answer of a batch is: `ok`, or its code.
fn told(answer: &Value) -> Vec<&str> {
    let results = answer["results"].as_array().unwrap();
    let codes = results.iter().map(|result| result["code"].as_str());
    codes.map(|code| code.unwrap_or("ok")).collect()
}

/// Creates and claims so many tasks. Returns the leases.
async fn leases(engine: &TestEngine, count: usize, task: Value) -> Vec<Value> {
    call(
        engine,
        "create_tasks",
        json!({ "tasks": vec![task; count] }),
    )
    .await;
    let claim = json!({ "worker_id": "w", "max_tasks": count });
    let claimed = call(engine, "lease_next", claim).await;
    let leases = claimed["tasks"].as_array().unwrap().iter();
    let lease = |task: &Value| json!({ "task_id": task["task_id"], "lease_id": task["lease_id"] });
    leases.map(lease).collect()
}

#[tokio::test]
async fn every_task_of_a_batch_is_answered_by_itself() {
    let engine = TestEngine::default();
    let keyed = json!({ "type": "x", "payload": 1, "idempotency_key": "k" });
    let other = json!({ "type": "x", "payload": 2, "idempotency_key": "k" });
    let tasks = json!([keyed, { "type": 7 }, keyed, other, null, { "type": "" }, { "type": "y" }]);
    let answer = call(&engine, "create_tasks", json!({ "tasks": tasks })).await;
    let (bad, conflict) = ("BAD_REQUEST", "IDEMPOTENCY_CONFLICT");
    assert_eq!(
        told(&answer),
        ["ok", bad, "ok", conflict, bad, bad, "ok"],
        "{answer}"
    );
    let results = &answer["results"];
    assert_eq!(results[0]["task_id"], results[2]["task_id"]);
    assert_eq!(results[0]["duplicate"], false);
    assert_eq!(results[2]["duplicate"], true);
    assert_eq!(results[1]["field"], "type", "{answer}");
    assert_eq!(engine.ledger().await.len(), 2);
    // What is no batch is refused whole.
    let many = vec![json!({ "type": "x" }); 1_001];
    for tasks in [json!([]), json!({}), json!(many)] {
        let input = json!({ "tasks": tasks });
        let refused = engine.call(Role::Admin, "create_tasks", &input).await;
        assert_eq!(refused.unwrap_err().code.as_str(), bad);
    }
    assert_eq!(engine.ledger().await.len(), 2);
}

#[tokio::test]
async fn an_agent_creates_for_itself_and_for_nobody_else_in_a_batch_too() {
    let engine = TestEngine::default();
    let tasks = json!([{ "type": "x" }, { "type": "x", "principal_id": "somebody" }]);
    let input = json!({ "tasks": tasks });
    let answer = engine.call(Role::Agent, "create_tasks", &input).await;
    assert_eq!(told(&answer.unwrap()), ["ok", "FORBIDDEN"]);
}

#[tokio::test]
async fn reports_are_answered_as_the_single_calls_are() {
    let engine = TestEngine::default();
    let held = leases(&engine, 3, json!({ "type": "x" })).await;
    let item = |n: usize, name: &str, value: Value| {
        let mut item: Value = held[n].clone();
        item[name] = value;
        item
    };
    let proof = || json!({ "result": 7, "artifacts": ["s3://b/x"] });
    let items = json!([
        item(0, "complete", json!({ "result": 1 })),
        item(0, "complete", proof()),
        item(1, "fail", json!({ "error": "e", "retryable": true })),
        item(1, "complete", proof()),
        item(2, "fail", json!({ "error": "e" })),
        item(2, "fail", json!({ "error": "e" })),
        held[2],
        { "task_id": "x", "lease_id": "y", "complete": {} },
    ]);
    let answer = call(
        &engine,
        "finish_tasks",
        json!({ "worker_id": "w", "items": items }),
    )
    .await;
    let lost = "LEASE_INVALID_OR_EXPIRED";
    let bad = "BAD_REQUEST";
    assert_eq!(
        told(&answer),
        ["ok", "ok", "ok", lost, "ok", "ok", bad, bad],
        "{answer}"
    );
    let results = &answer["results"];
    assert_eq!(results[0]["discharged"], false);
    assert!(results[0]["hint"].is_string() && results[1]["hint"].is_null());
    assert_eq!(results[1]["discharged"], true);
    assert_eq!(results[2]["requeued"], true);
    let ends = [&results[4]["duplicate"], &results[5]["duplicate"]];
    assert_eq!(ends, [false, true]);
    let mut registry = Registry::default();
    engine.engine.register_metrics(&mut registry);
    let mut rendered = String::new();
    encode(&mut rendered, &registry).unwrap();
    let counted = "\nunproven_successes_total 1\n";
    assert!(rendered.contains(counted), "{rendered}");
}

/// Renews with a wait, in a task of its own.
fn renewing(
    engine: &TestEngine,
    leases: &[Value],
    extend_by: u32,
) -> tokio::task::JoinHandle<(Value, Duration)> {
    let engine = engine.clone();
    let input = json!({
        "worker_id": "w", "leases": leases, "extend_by_seconds": extend_by, "wait_seconds": 40,
    });
    tokio::spawn(async move {
        let start = Instant::now();
        let answer = call(&engine, "renew_leases", input).await;
        (answer, start.elapsed())
    })
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_waits_is_answered_when_a_lease_is_lost() {
    for (operation, extra) in [
        ("cancel_task", json!({})),
        ("release_lease", json!({ "worker_id": "w" })),
        (
            "fail",
            json!({ "worker_id": "w", "error": "e", "retryable": true }),
        ),
        ("complete", json!({ "worker_id": "w" })),
    ] {
        let engine = TestEngine::default();
        let held = leases(&engine, 3, json!({ "type": "x" })).await;
        let waiting = renewing(&engine, &held, 900);
        yield_now().await;
        assert!(!waiting.is_finished(), "{operation}");
        let mut input = extra.clone();
        input["task_id"] = held[1]["task_id"].clone();
        if operation != "cancel_task" {
            input["lease_id"] = held[1]["lease_id"].clone();
        }
        call(&engine, operation, input).await;
        let (answer, waited) = waiting.await.unwrap();
        let lost = "LEASE_INVALID_OR_EXPIRED";
        assert_eq!(told(&answer), ["ok", lost, "ok"], "{operation}");
        assert!(waited.is_zero(), "{operation}: {waited:?}");
        assert!(answer["results"][0]["expires_at"].is_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_waits_hears_of_deadlines_and_of_its_own_end() {
    let settings = Settings {
        policy: Arc::new(Policy {
            expiry_jitter_ms: 0,
            ..Policy::default()
        }),
        ..Settings::default()
    };
    for (task, extend_by, seconds, told_of_it) in [
        (
            json!({ "type": "x", "timeouts": { "deadline_seconds": 400 } }),
            900,
            400 - 300 + 1,
            "ok",
        ),
        (
            json!({ "type": "x", "timeouts": { "deadline_seconds": 5 } }),
            900,
            5,
            "LEASE_INVALID_OR_EXPIRED",
        ),
        (
            json!({ "type": "x", "timeouts": { "lease_ttl_seconds": 2 } }),
            7,
            7,
            "LEASE_INVALID_OR_EXPIRED",
        ),
    ] {
        let engine = TestEngine::new(settings.clone(), FakeClock::running_from(START_MS));
        let watching = Arc::clone(&engine.engine);
        let watch = tokio::spawn(async move { watching.watch_deadlines().await });
        let held = leases(&engine, 2, task.clone()).await;
        let (answer, waited) = renewing(&engine, &held, extend_by).await.unwrap();
        assert!(told(&answer).contains(&told_of_it), "{task}: {answer}");
        let expected = u64::from(seconds.min(40_u32));
        let grace = Duration::from_secs(expected)..Duration::from_millis(expected * 1_000 + 500);
        assert!(grace.contains(&waited), "{task}: {waited:?}");
        watch.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_with_a_lease_that_is_lost_already_does_not_wait() {
    let engine = TestEngine::default();
    let mut held = leases(&engine, 2, json!({ "type": "x" })).await;
    held[0]["lease_id"] = held[1]["lease_id"].clone();
    let (answer, waited) = renewing(&engine, &held, 900).await.unwrap();
    assert_eq!(told(&answer), ["LEASE_INVALID_OR_EXPIRED", "ok"]);
    assert!(waited.is_zero());
    let many = vec![held[1].clone(); 257];
    let input = json!({ "worker_id": "w", "leases": many });
    let refused = engine.call(Role::Admin, "renew_leases", &input).await;
    assert_eq!(refused.unwrap_err().code.as_str(), "BAD_REQUEST");
}
