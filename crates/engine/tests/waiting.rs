//! Waiting workers and wake-ups, in an order that the test decides: all run on one thread, and a worker
//! runs only when the test yields.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use asyncgate_engine::{Role, fakes::TestEngine};
use serde_json::{Value, json};
use tokio::task::yield_now;

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
