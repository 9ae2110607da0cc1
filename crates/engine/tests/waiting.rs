//! Waiting workers and wake-ups, in an order that the test decides: all run on one thread, and a worker
//! runs only when the test yields.

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
use serde_json::{Value, json};
use tokio::{task::yield_now, time::Instant};

async fn call(engine: &TestEngine, operation: &str, input: Value) -> Value {
    let answer = engine.call(Role::Admin, operation, &input).await;
    answer.expect("done")
}

/// A worker that waits for tasks of these types, and the types it got.
fn waiting(engine: &TestEngine, types: &[&str]) -> tokio::task::JoinHandle<Vec<String>> {
    let engine = engine.clone();
    let input = json!({ "worker_id": "w", "accept_types": types, "wait_seconds": 30 });
    tokio::spawn(async move {
        let answer = call(&engine, "lease_next", input).await;
        let tasks = answer["tasks"].as_array().unwrap();
        tasks
            .iter()
            .map(|task| task["type"].as_str().unwrap().to_owned())
            .collect()
    })
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_takes_something_better_passes_its_wake_up_on() {
    let engine = TestEngine::default();
    let both = waiting(&engine, &["x", "y"]);
    yield_now().await;
    let only_x = waiting(&engine, &["x"]);
    yield_now().await;
    // The first worker is woken for x, but before it looks there is something better.
    call(&engine, "create_task", json!({ "type": "x" })).await;
    call(
        &engine,
        "create_task",
        json!({ "type": "y", "priority": 9 }),
    )
    .await;
    assert_eq!(both.await.unwrap(), ["y"]);
    assert_eq!(only_x.await.unwrap(), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn workers_that_wait_are_woken_in_the_order_they_came() {
    let engine = TestEngine::default();
    let first = waiting(&engine, &["x"]);
    yield_now().await;
    let second = waiting(&engine, &["x"]);
    yield_now().await;
    call(&engine, "create_task", json!({ "type": "x" })).await;
    assert_eq!(first.await.unwrap(), ["x"]);
    assert!(!second.is_finished());
    call(&engine, "create_task", json!({ "type": "x" })).await;
    assert_eq!(second.await.unwrap(), ["x"]);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_given_up_passes_its_wake_up_on() {
    let engine = TestEngine::default();
    let gone = waiting(&engine, &["x"]);
    yield_now().await;
    let here = waiting(&engine, &["x"]);
    yield_now().await;
    call(&engine, "create_task", json!({ "type": "x" })).await;
    gone.abort();
    assert_eq!(here.await.unwrap(), ["x"]);
}

/// Starts a call that waits, and lets it run until it does.
async fn begin(
    engine: &TestEngine,
    operation: &'static str,
    input: Value,
) -> tokio::task::JoinHandle<Value> {
    let waiter = engine.clone();
    let waiting = tokio::spawn(async move { call(&waiter, operation, input).await });
    yield_now().await;
    assert!(!waiting.is_finished(), "{operation} does not wait");
    waiting
}

/// Returns the input of a call under the first lease of a claim.
fn under(claimed: &Value, more: &Value) -> Value {
    let held = &claimed["tasks"][0];
    let mut input = json!({
        "task_id": held["task_id"], "lease_id": held["lease_id"], "worker_id": "w",
    });
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    input
}

/// The clock of the runtime moves only if nothing can run before a timer. So it stands still if each of these calls
/// is woken by the event itself, and a poll would move it.
#[tokio::test(start_paused = true)]
async fn those_who_wait_are_woken_by_the_event_and_not_by_a_clock() {
    let engine = TestEngine::default();
    let start = Instant::now();
    let claim = json!({ "worker_id": "w", "wait_seconds": 30 });
    for (operation, end, status) in [
        ("complete", json!({ "artifacts": [1] }), "succeeded"),
        ("fail", json!({ "error": "x" }), "failed"),
        ("cancel_task", json!({}), "canceled"),
    ] {
        let claiming = begin(&engine, "lease_next", claim.clone()).await;
        let task = json!({ "type": "x", "retry_backoff_seconds": 0 });
        let created = call(&engine, "create_task", task).await;
        let held = claiming.await.unwrap();

        let claiming = begin(&engine, "lease_next", claim.clone()).await;
        call(&engine, "release_lease", under(&held, &json!({}))).await;
        let held = claiming.await.unwrap();

        let claiming = begin(&engine, "lease_next", claim.clone()).await;
        let again = json!({ "error": "x", "retryable": true });
        call(&engine, "fail", under(&held, &again)).await;
        let held = claiming.await.unwrap();

        let read = json!({ "task_id": created["task_id"], "wait_seconds": 30 });
        let reading = begin(&engine, "get_task", read).await;
        let input = match operation {
            "cancel_task" => json!({ "task_id": created["task_id"] }),
            _ => under(&held, &end),
        };
        call(&engine, operation, input).await;
        assert_eq!(reading.await.unwrap()["status"], status);
    }
    assert!(start.elapsed().is_zero(), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_in_vain_are_answered_when_their_time_is_over() {
    let engine = TestEngine::default();
    let start = Instant::now();
    let claim = json!({ "worker_id": "w", "wait_seconds": 30 });
    let none = call(&engine, "lease_next", claim).await;
    assert_eq!(none["tasks"], json!([]));
    assert_eq!(start.elapsed().as_secs(), 30);
    let created = call(&engine, "create_task", json!({ "type": "x" })).await;
    let read = json!({ "task_id": created["task_id"], "wait_seconds": 20 });
    assert_eq!(call(&engine, "get_task", read).await["status"], "queued");
    assert_eq!(start.elapsed().as_secs(), 50);
}

/// The end of a lease, of a delay and of the pause before a retry: whoever waits for the task has it in that moment,
/// and not when a timer comes round.
#[tokio::test(start_paused = true)]
async fn a_deadline_is_acted_on_when_it_comes() {
    let settings = Settings {
        policy: Arc::new(Policy {
            expiry_jitter_ms: 0,
            ..Policy::default()
        }),
        ..Settings::default()
    };
    let engine = TestEngine::new(settings, FakeClock::running_from(START_MS));
    let watching = Arc::clone(&engine.engine);
    tokio::spawn(async move { watching.watch_deadlines().await });
    let in_three_seconds = async |what: &str, claim: Value| {
        let start = Instant::now();
        let held = call(&engine, "lease_next", claim).await;
        assert_eq!(held["tasks"].as_array().unwrap().len(), 1, "{what}");
        let waited = start.elapsed();
        let expected = Duration::from_secs(3)..Duration::from_millis(3_100);
        assert!(expected.contains(&waited), "{what}: {waited:?}");
        held
    };
    let brief = json!({ "worker_id": "w", "wait_seconds": 30, "lease_ttl_seconds": 3 });
    let delayed = json!({ "type": "x", "delay_seconds": 3, "retry_backoff_seconds": 3 });
    call(&engine, "create_task", delayed).await;
    in_three_seconds("a delay", brief.clone()).await;
    let held = in_three_seconds("a lease", brief.clone()).await;
    let again = json!({ "error": "x", "retryable": true });
    call(&engine, "fail", under(&held, &again)).await;
    in_three_seconds("a retry", brief).await;
}
