//! Tasks that do not simply succeed: panics, hangs, lost leases, refused results, drain.

use std::time::Duration;

use asyncgate_client::{
    Cause, Failure, Outcome,
    api::{CancelTaskInput, LeaseNextInput, TaskRecord, TaskStatus},
};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    server::{Gate, create, ended, now},
    worker::{builder, hire},
};

fn error_of(record: TaskRecord) -> String {
    let error = record.result.and_then(|result| result.error);
    error.expect("an error").get().to_owned()
}

#[tokio::test]
async fn a_panic_fails_the_task_for_good() {
    let gate = Gate::start().await;
    let client = gate.client();
    let hired = hire(
        builder(client.clone()).handle("t", |_, payload| async move {
            assert!(payload.text() != "1", "a defect");
            Ok(Outcome::empty())
        }),
    );
    let bad = create(&client, "t", "1").await;
    let record = ended(&client, &bad).await;
    assert_eq!((record.status, record.attempt), (TaskStatus::Failed, 1));
    assert_eq!(
        error_of(record),
        r#"{"kind":"panic","message":"the handler panicked: a defect"}"#
    );
    // The worker lives on.
    let good = create(&client, "t", "2").await;
    assert_eq!(ended(&client, &good).await.status, TaskStatus::Succeeded);
    hired.stop().await;
}

#[tokio::test]
async fn a_panic_can_be_retried() {
    let gate = Gate::start().await;
    let client = gate.client();
    let hired = hire(
        builder(client.clone())
            .retry_panics(true)
            .handle("t", |_, _| async { panic!("once more") }),
    );
    let task_id = create(&client, "t", "1").await;
    while now(&client, &task_id).await.attempt == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(now(&client, &task_id).await.status, TaskStatus::Queued);
    assert_eq!(hired.stop().await.failed, 1);
}

#[tokio::test]
async fn a_handler_that_hangs_is_stopped_and_its_task_retried() {
    let gate = Gate::start().await;
    let client = gate.client();
    let (dropped, mut drops) = mpsc::unbounded_channel::<()>();
    let hired = hire(
        builder(client.clone())
            .handler_timeout(Duration::from_millis(50))
            .handle("t", move |_, _| {
                let dropped = dropped.clone();
                async move {
                    let _guard = Guard(dropped);
                    std::future::pending().await
                }
            }),
    );
    let task_id = create(&client, "t", "1").await;
    drops.recv().await.expect("the handler is dropped");
    while now(&client, &task_id).await.attempt == 0 {
        tokio::task::yield_now().await;
    }
    let record = now(&client, &task_id).await;
    assert_eq!(record.status, TaskStatus::Queued);
    assert_eq!(hired.stop().await.failed, 1);
    assert_eq!(gate.count("task.retry_scheduled").await, 1);
}

/// Tells that it was dropped.
struct Guard(mpsc::UnboundedSender<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn a_handler_learns_that_its_task_was_cancelled_or_its_lease_lost() {
    let gate = Gate::start().await;
    let client = gate.client();
    let (began, mut begun) = mpsc::unbounded_channel();
    let (told, mut causes) = mpsc::unbounded_channel();
    let hired = hire(
        builder(client.clone())
            .lease_ttl(Duration::from_secs(3))
            .handle("t", move |context, payload| {
                let (began, told) = (began.clone(), told.clone());
                async move {
                    let _ = began.send(());
                    let _ = told.send(context.cancelled().await);
                    assert_eq!(context.cause(), Some(Cause::LeaseLost));
                    if payload.text() == "1" {
                        return Ok(Outcome::empty());
                    }
                    // Dropped, because it does not stop.
                    std::future::pending().await
                }
            }),
    );
    let cancelled = create(&client, "t", "1").await;
    begun.recv().await.expect("a handler");
    let cancel = CancelTaskInput {
        task_id: cancelled.clone(),
        ..Default::default()
    };
    client.cancel_task(&cancel).await.expect("cancelled");
    assert_eq!(causes.recv().await, Some(Cause::LeaseLost));

    let expired = create(&client, "t", "2").await;
    begun.recv().await.expect("a handler");
    gate.advance(Duration::from_secs(60)).await;
    assert_eq!(causes.recv().await, Some(Cause::LeaseLost));
    let summary = hired.stop().await;
    assert_eq!((summary.completed, summary.lost), (0, 2));
    let record = now(&client, &cancelled).await;
    assert_eq!(record.status, TaskStatus::Canceled);
    let record = now(&client, &expired).await;
    assert_eq!((record.attempt, record.lease_expiries), (0, 1));
}

#[tokio::test]
async fn progress_under_a_lost_lease_stops_the_handler() {
    let gate = Gate::start().await;
    let client = gate.client();
    let (told, mut causes) = mpsc::unbounded_channel();
    let owner = client.clone();
    let hired = hire(builder(client.clone()).handle("t", move |context, _| {
        let (told, owner) = (told.clone(), owner.clone());
        async move {
            let cancel = CancelTaskInput {
                task_id: context.task().task_id.clone(),
                ..Default::default()
            };
            owner.cancel_task(&cancel).await?;
            let refused = context.progress(&json!(1)).await;
            assert!(refused.is_err());
            let _ = told.send(context.cancelled().await);
            Err(Failure::permanent("nobody hears this"))
        }
    }));
    create(&client, "t", "1").await;
    assert_eq!(causes.recv().await, Some(Cause::LeaseLost));
    assert_eq!(hired.stop().await.lost, 1);
}

#[tokio::test]
async fn a_result_that_is_not_accepted_is_a_failure() {
    let gate = Gate::start().await;
    let client = gate.client();
    let hired = hire(builder(client.clone()).handle("t", |_, _| async {
        Outcome::json(&"x".repeat((1 << 20) + 1))
    }));
    let task_id = create(&client, "t", "1").await;
    let record = ended(&client, &task_id).await;
    assert_eq!(record.status, TaskStatus::Failed);
    let error = error_of(record);
    assert!(error.contains("TOO_LARGE"), "{error}");
    assert_eq!(hired.stop().await.failed, 1);
}

#[tokio::test]
async fn a_drain_lets_handlers_finish() {
    let gate = Gate::start().await;
    let client = gate.client();
    let (began, mut begun) = mpsc::unbounded_channel();
    let hired = hire(builder(client.clone()).handle("t", move |_, _| {
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        drop(began.send(go));
        async move {
            drop(gone.await);
            Ok(Outcome::empty())
        }
    }));
    let running = create(&client, "t", "1").await;
    let go = begun.recv().await.expect("a handler");
    let waiting = create(&client, "t", "2").await;
    let stopping = tokio::spawn(hired.stop());
    go.send(()).expect("it waits");
    let summary = stopping.await.expect("no panic");
    assert_eq!(summary.completed, 1);
    assert_eq!(now(&client, &running).await.status, TaskStatus::Succeeded);
    let record = now(&client, &waiting).await;
    assert!(record.status == TaskStatus::Queued, "{:?}", record.status);
}

#[tokio::test]
async fn a_drain_gives_back_what_does_not_finish() {
    let gate = Gate::start().await;
    let client = gate.client();
    let (began, mut begun) = mpsc::unbounded_channel();
    let hired = hire(
        builder(client.clone())
            .concurrency(3)
            .grace(Duration::from_millis(20))
            .handle("t", move |context, payload| {
                let _ = began.send(());
                async move {
                    match payload.text() {
                        // Never listens.
                        "1" => std::future::pending().await,
                        // Stops, and has nothing.
                        "2" => {
                            context.cancelled().await;
                            Err(Failure::retryable("stopped"))
                        }
                        // Has a result after all.
                        _ => {
                            assert_eq!(context.cancelled().await, Cause::Shutdown);
                            Ok(Outcome::empty())
                        }
                    }
                }
            }),
    );
    let mut tasks = Vec::new();
    for payload in ["1", "2", "3"] {
        tasks.push(create(&client, "t", payload).await);
        begun.recv().await.expect("a handler");
    }
    let summary = hired.stop().await;
    assert_eq!((summary.completed, summary.released), (1, 2));
    for task_id in &tasks[..2] {
        let record = now(&client, task_id).await;
        assert_eq!((record.status, record.attempt), (TaskStatus::Queued, 0));
    }
    let claim = LeaseNextInput {
        worker_id: Some("other".to_owned()),
        max_tasks: Some(3),
        ..Default::default()
    };
    let free = client.lease_next(&claim).await.expect("a claim");
    assert_eq!(free.tasks.len(), 2);
}
