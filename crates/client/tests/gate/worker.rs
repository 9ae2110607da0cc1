//! A worker's ordinary life: claims, renewals, progress, restarts and shutdown.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use asyncgate_client::{
    Client, End, Error, Event, Failure, Outcome, Retry, Summary, Worker, WorkerBuilder,
    api::{
        CheckNoncesInput, Code, CreateTaskInput, ListOpenObligationsInput, Requirements, TaskStatus,
    },
    handlers,
};
use futures_util::StreamExt;
use serde_json::json;
use tokio::{
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
    time::Instant,
};

use crate::{
    proxy::{Fault, NO_HOST, Proxy},
    server::{Gate, PATIENCE, client, create, ended, now, quick, task},
};

/// A worker that runs.
pub struct Hired {
    stop: oneshot::Sender<()>,
    run: JoinHandle<Result<Summary, Error>>,
}

impl Hired {
    pub async fn stop(self) -> Summary {
        self.stop.send(()).expect("it runs");
        self.run.await.expect("no panic").expect("a summary")
    }
}

pub fn builder(client: Client) -> WorkerBuilder {
    Worker::builder(&client)
        .id("w")
        .pause(quick())
        .cancel_grace(Duration::from_millis(500))
}

pub fn hire(builder: WorkerBuilder) -> Hired {
    let worker = builder.build().expect("a worker");
    let (stop, stopped) = oneshot::channel::<()>();
    let run = tokio::spawn(worker.run(async { drop(stopped.await) }));
    Hired { stop, run }
}

#[tokio::test]
async fn tasks_go_to_the_handler_of_their_type_and_obligations_close() {
    let gate = Gate::start().await;
    let client = gate.client();
    let hired = hire(
        builder(client.clone())
            .capabilities(["paint"])
            .concurrency(4)
            .handle("echo", handlers::echo)
            .handle("sleep_then_return", handlers::sleep_then_return),
    );
    let payload = r#"{ "z":1, "a":1.10 }"#;
    let needs = |capability: &str| CreateTaskInput {
        requirements: Some(Requirements {
            capabilities: vec![capability.to_owned()],
            ..Default::default()
        }),
        ..task("echo", payload)
    };
    let sculpt = client.create_task(&needs("sculpt")).await.expect("a task");
    let unknown = create(&client, "unknown", "1").await;
    let paint = client.create_task(&needs("paint")).await.expect("a task");
    let slept = create(
        &client,
        "sleep_then_return",
        r#"{"seconds":0,"return":[ 7]}"#,
    )
    .await;
    for (task_id, expected) in [(&paint.task_id, payload), (&slept, "[ 7]")] {
        let record = ended(&client, task_id).await;
        assert_eq!(record.status, TaskStatus::Succeeded);
        let result = record.result.and_then(|result| result.result);
        assert_eq!(result.expect("a result").get(), expected);
    }
    let wrong = create(&client, "sleep_then_return", r#"{"seconds":"x"}"#).await;
    let record = ended(&client, &wrong).await;
    let error = record.result.and_then(|result| result.error);
    assert!(
        error
            .expect("an error")
            .get()
            .contains(r#""kind":"payload""#)
    );
    let summary = hired.stop().await;
    assert_eq!((summary.completed, summary.failed), (2, 1));
    for left in [&sculpt.task_id, &unknown] {
        assert_eq!(now(&client, left).await.status, TaskStatus::Queued);
    }
    let owed = client.open_obligations(ListOpenObligationsInput {
        principal_id: Some("alice".to_owned()),
        ..Default::default()
    });
    assert_eq!(owed.count().await, 2);
}

#[tokio::test]
async fn no_more_handlers_run_than_allowed_and_none_waits_without_need() {
    let gate = Gate::start().await;
    let client = gate.client();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let gathered = Arc::new(tokio::sync::Barrier::new(3));
    let counters = (Arc::clone(&running), Arc::clone(&most));
    let mut tasks = Vec::new();
    for n in 0..9 {
        tasks.push(create(&client, "t", &n.to_string()).await);
    }
    let hired = hire(
        builder(client.clone())
            .concurrency(3)
            .handle("t", move |_, _| {
                let (running, most) = counters.clone();
                let gathered = Arc::clone(&gathered);
                async move {
                    let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                    most.fetch_max(now, Ordering::SeqCst);
                    // Nobody gets past this unless three are here.
                    gathered.wait().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    Ok(Outcome::empty())
                }
            }),
    );
    for task in &tasks {
        ended(&client, task).await;
    }
    assert_eq!(hired.stop().await.completed, 9);
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_lease_is_renewed_while_the_handler_works() {
    let gate = Gate::start().await;
    let client = gate.client();
    let go = Arc::new(Semaphore::new(0));
    let open = Arc::clone(&go);
    let hired = hire(
        builder(client.clone())
            .lease_ttl(Duration::from_secs(3))
            .handle("t", move |_, _| {
                let go = Arc::clone(&go);
                async move {
                    drop(go.acquire().await);
                    Ok(Outcome::empty())
                }
            }),
    );
    let task_id = create(&client, "t", "1").await;
    loop {
        let lease = now(&client, &task_id).await.lease;
        if lease.is_some_and(|lease| lease.renewals >= 2) {
            break;
        }
        tokio::task::yield_now().await;
    }
    open.add_permits(1);
    assert_eq!(ended(&client, &task_id).await.status, TaskStatus::Succeeded);
    assert_eq!(hired.stop().await.completed, 1);
}

#[tokio::test]
async fn progress_is_seen_by_the_owner() {
    let gate = Gate::start().await;
    let client = gate.client();
    let hired = hire(
        builder(client.clone()).handle("t", |context, _| async move {
            context.start().await?;
            context.progress(&json!({ "half": true })).await?;
            Ok(Outcome::empty())
        }),
    );
    let task_id = create(&client, "t", "1").await;
    let record = ended(&client, &task_id).await;
    assert_eq!(record.progress.expect("progress").get(), r#"{"half":true}"#);
    hired.stop().await;
    assert_eq!(gate.count("task.started").await, 1);
}

#[tokio::test]
async fn a_restart_of_the_server_loses_nothing() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let go = Arc::new(Semaphore::new(0));
    let open = Arc::clone(&go);
    let (began, mut begun) = mpsc::unbounded_channel();
    let (failed, mut failing) = mpsc::unbounded_channel();
    let hired = hire(
        builder(client(proxy.addr))
            .concurrency(2)
            .observe(move |event| {
                if let Event::ClaimFailed { failures, .. } = event {
                    let _ = failed.send(*failures);
                }
            })
            .handle("t", move |_, _| {
                let _ = began.send(());
                let go = Arc::clone(&go);
                async move {
                    drop(go.acquire().await);
                    Ok(Outcome::empty())
                }
            }),
    );
    let first = create(&gate.client(), "t", "1").await;
    begun.recv().await.expect("a handler");
    proxy.lead_to(None);
    // The handler ends while nobody is there to be told, and claims fail.
    open.add_permits(1);
    while failing.recv().await.expect("a failed claim") < 3 {}
    let gate = gate.restart().await;
    let client = gate.client();
    let second = create(&client, "t", "2").await;
    proxy.lead_to(Some(gate.addr));
    for task_id in [&first, &second] {
        assert_eq!(ended(&client, task_id).await.status, TaskStatus::Succeeded);
    }
    assert_eq!(hired.stop().await.completed, 2);
    assert_eq!(gate.count("lease.expired").await, 0);
}

#[tokio::test]
async fn a_lost_answer_to_the_report_is_asked_for_again() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let (told, mut ends) = mpsc::unbounded_channel();
    let hired = hire(
        builder(client(proxy.addr))
            .observe(move |event| {
                if let Event::Ended { end, .. } = event {
                    let _ = told.send(*end);
                }
            })
            .handle("t", |_, _| async { Ok(Outcome::empty()) }),
    );
    proxy.next("/complete", Fault::DropAfter);
    proxy.next("/complete", Fault::DropBefore);
    create(&gate.client(), "t", "1").await;
    let end = ends.recv().await;
    assert_eq!(end, Some(End::Completed { duplicate: true }));
    hired.stop().await;
    assert_eq!(gate.count("task.completed").await, 1);
}

#[tokio::test]
async fn a_backend_that_hangs_for_a_moment_fails_no_task_for_good() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    // Its calls are not repeated by the client; what is reported is repeated all the same.
    let hasty = client(proxy.addr).with_retry(Retry::NONE);
    let caller = hasty.clone();
    let hired = hire(
        builder(hasty)
            .handle("reports", |_, _| async { Ok(Outcome::empty()) })
            .handle("asks", move |_, _| {
                let caller = caller.clone();
                async move {
                    caller.check_nonces(&CheckNoncesInput::default()).await?;
                    Ok(Outcome::empty())
                }
            }),
    );
    proxy.next("/complete", Fault::Answer(NO_HOST));
    let client = gate.client();
    let reports = create(&client, "reports", "1").await;
    assert_eq!(ended(&client, &reports).await.status, TaskStatus::Succeeded);
    proxy.next("/nonces/check", Fault::Answer(NO_HOST));
    let asks = create(&client, "asks", "1").await;
    while now(&client, &asks).await.attempt == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(now(&client, &asks).await.status, TaskStatus::Queued);
    hired.stop().await;
}

#[tokio::test]
async fn a_lease_that_is_told_twice_has_one_handler() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let runs = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&runs);
    let go = Arc::new(Semaphore::new(0));
    let open = Arc::clone(&go);
    let hired = hire(
        builder(client(proxy.addr))
            .concurrency(2)
            .handle("t", move |_, _| {
                count.fetch_add(1, Ordering::SeqCst);
                let go = Arc::clone(&go);
                async move {
                    drop(go.acquire().await);
                    Ok(Outcome::empty())
                }
            }),
    );
    let client = gate.client();
    let first = create(&client, "t", "1").await;
    while proxy.seen("/claim").len() < 2 {
        tokio::task::yield_now().await;
    }
    // The claim under way is cut off; the next one is answered with the lease that is in hand.
    proxy.next("/claim", Fault::Replay);
    proxy.lead_to(Some(gate.addr));
    while proxy.seen("/claim").len() < 4 {
        tokio::task::yield_now().await;
    }
    open.add_permits(1);
    ended(&client, &first).await;
    assert_eq!(hired.stop().await.completed, 1);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_wrong_key_or_no_handler_ends_the_worker_with_a_reason() {
    let gate = Gate::start().await;
    let wrong = Client::new(format!("http://{}", gate.addr), "wrong").expect("a client");
    let worker = Worker::builder(&wrong).handle("t", |_, _| async { Ok(Outcome::empty()) });
    let error = worker
        .build()
        .expect("a worker")
        .run(std::future::pending());
    let error = error.await.expect_err("a wrong key");
    assert_eq!(error.code(), Some(Code::Unauthorized));
    assert!(Worker::builder(&gate.client()).build().is_err());
}

#[tokio::test]
async fn an_idle_worker_stops_at_once() {
    let gate = Gate::start().await;
    let proxy = Proxy::to(gate.addr).await;
    let handler = |_, _| async { Err(Failure::permanent("never")) };
    // Its claim would wait for a task much longer than this test waits for the worker.
    let patient = builder(client(proxy.addr)).wait(PATIENCE);
    let hired = hire(patient.handle("t", handler));
    while proxy.seen("/claim").is_empty() {
        tokio::task::yield_now().await;
    }
    let start = Instant::now();
    assert_eq!(hired.stop().await, Summary::default());
    assert!(start.elapsed() < PATIENCE / 6);
}
