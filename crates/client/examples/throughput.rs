//! How many tasks a second the client and the worker do against a running server.
//!
//!     cargo run --release -p asyncgate-client --example throughput -- http://127.0.0.1:8080 KEY
//!
//! `client`: each of 64 loops creates a task, claims one and completes it, one call after the other:
//! the loop of `cargo xtask bench tasks --only cycle`, with the client in the place of raw bytes.
//! `worker`: a worker with concurrency 64 does tasks while others are created.

#![expect(clippy::print_stdout, reason = "this is what it is for")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use asyncgate_client::{
    Client, Error, Event, Outcome, Worker,
    api::{CompleteInput, CreateTaskInput, LeaseNextInput},
};
use serde_json::value::{RawValue, to_raw_value};
use tokio::{sync::Semaphore, task::JoinSet, time::Instant};

const LOOPS: usize = 64;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let (address, key) = (args.next(), args.next());
    let address = address.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let client = Client::new(address, key.unwrap_or_else(|| "secret".to_owned()))?;
    client.get_config().await?;
    println!("client: {:.0} cycles/s", loops(&client).await);
    println!("worker: {:.0} cycles/s", worker(&client).await?);
    Ok(())
}

fn task() -> CreateTaskInput {
    CreateTaskInput {
        task_type: "echo".to_owned(),
        payload: json(&serde_json::json!({ "text": "hello, gate", "n": 1 })),
        principal_id: Some("bench".to_owned()),
        ..Default::default()
    }
}

fn json(value: &serde_json::Value) -> Option<Box<RawValue>> {
    to_raw_value(value).ok()
}

async fn cycle(client: &Client) -> Result<(), Error> {
    client.create_task(&task()).await?;
    let claim = LeaseNextInput {
        worker_id: Some("w1".to_owned()),
        lease_ttl_seconds: Some(300),
        ..Default::default()
    };
    for leased in client.lease_next(&claim).await?.tasks {
        let complete = CompleteInput {
            task_id: leased.task_id,
            lease_id: leased.lease_id,
            result: json(&serde_json::json!({ "text": "hello, worker" })),
            artifacts: json(&serde_json::json!([{ "type": "inline" }])),
            worker_id: claim.worker_id.clone(),
            ..Default::default()
        };
        client.complete(&complete).await?;
    }
    Ok(())
}

async fn loops(client: &Client) -> f64 {
    let done = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for _ in 0..LOOPS {
        let (client, done) = (client.clone(), Arc::clone(&done));
        running.spawn(async move {
            while cycle(&client).await.is_ok() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    rate(&done).await
}

/// Creators keep a few hundred tasks waiting; the worker's observer makes room for the next.
async fn worker(client: &Client) -> Result<f64, Error> {
    let done = Arc::new(AtomicU64::new(0));
    let room = Arc::new(Semaphore::new(4 * LOOPS));
    let mut creators = JoinSet::new();
    for _ in 0..LOOPS {
        let (client, room) = (client.clone(), Arc::clone(&room));
        creators.spawn(async move {
            while let Ok(permit) = room.acquire().await {
                permit.forget();
                if client.create_task(&task()).await.is_err() {
                    return;
                }
            }
        });
    }
    let counter = Arc::clone(&done);
    let worker = Worker::builder(client.clone())
        .id("w1")
        .concurrency(LOOPS)
        .observe(move |event| {
            if let Event::Ended { .. } = event {
                counter.fetch_add(1, Ordering::Relaxed);
                room.add_permits(1);
            }
        })
        .handle("echo", |_, _| async {
            Outcome::json(&serde_json::json!({ "text": "hello, worker" }))?
                .with_artifacts(&serde_json::json!([{ "type": "inline" }]))
        })
        .build()?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run(async { drop(stopped.await) }));
    let rate = rate(&done).await;
    drop(creators);
    drop(stop);
    if let Ok(summary) = running.await {
        println!("  {:?}", summary?);
    }
    Ok(rate)
}

async fn rate(done: &AtomicU64) -> f64 {
    tokio::time::sleep(WARM_UP).await;
    let (before, start) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(MEASURED).await;
    let count = done.load(Ordering::Relaxed) - before;
    count as f64 / start.elapsed().as_secs_f64()
}
