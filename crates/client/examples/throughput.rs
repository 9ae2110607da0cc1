//! Measures the number of tasks a second that the client and the worker do against a running server.
//!
//!     cargo run --release -p asyncgate-client --example throughput -- http://127.0.0.1:8080 KEY [MODE]...
//!
//! Each of 64 loops creates a task, claims one and completes it, one call after the other. In mode `raw`
//! a loop sends prepared bytes on a socket of its own, which ask for the same as the client does; in mode
//! `client` it uses the client. In mode `worker` a worker with concurrency 64 does tasks while 64 loops
//! create them, and in mode `batches` while they are created in batches of 100. Modes run in the order
//! they are given. Without any, the first three run in turns for three rounds, so
//! that a busy machine is equally unfair to each. `cargo xtask bench proof --only client` compares them.

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
    api::{CompleteInput, CreateTaskInput, CreateTasksInput, LeaseNextInput},
};
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    task::JoinSet,
    time::Instant,
};

const LOOPS: usize = 64;
/// The number of tasks that mode `batches` creates in a call.
const BATCH: u32 = 100;
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let (address, key) = (args.next(), args.next());
    let address = address.unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let key = key.unwrap_or_else(|| "secret".to_owned());
    let client = Client::new(&address, &key)?;
    client.get_config().await?;
    let mut modes: Vec<String> = args.collect();
    if modes.is_empty() {
        let all = ["raw", "client", "worker"].repeat(3);
        modes = all.into_iter().map(str::to_owned).collect();
    }
    for mode in modes {
        let rate = measure(&mode, &client, &address, &key).await?;
        println!("{mode}: {rate:.0} cycles/s");
    }
    Ok(())
}

async fn measure(mode: &str, client: &Client, address: &str, key: &str) -> Result<f64, Error> {
    match mode {
        "raw" => Ok(loops(|| raw_loop(address, key)).await),
        "client" => Ok(loops(|| std::future::ready(Loop::Client(client.clone()))).await),
        "batches" => worker(client, BATCH).await,
        _ => worker(client, 1).await,
    }
}

/// The allocator of the server's own worker.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const PAYLOAD: &str = r#"{"text":"hello, gate","n":1}"#;
const RESULT: &str = r#"{"text":"hello, worker"}"#;
const ARTIFACTS: &str = r#"[{"type":"inline"}]"#;

fn task() -> CreateTaskInput {
    CreateTaskInput {
        task_type: "echo".to_owned(),
        payload: json(PAYLOAD),
        principal_id: Some("bench".to_owned()),
        ..Default::default()
    }
}

fn json(text: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(text.to_owned()).ok()
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
            result: json(RESULT),
            artifacts: json(ARTIFACTS),
            worker_id: claim.worker_id.clone(),
            ..Default::default()
        };
        client.complete(&complete).await?;
    }
    Ok(())
}

/// Runs 64 loops and returns the number of cycles that they do in a second together.
async fn loops<F, A>(begin: F) -> f64
where
    F: Fn() -> A,
    A: Future<Output = Loop>,
{
    let done = Arc::new(AtomicU64::new(0));
    let mut running = JoinSet::new();
    for _ in 0..LOOPS {
        let (step, done) = (begin().await, Arc::clone(&done));
        running.spawn(async move {
            let mut step = step;
            while step.cycle().await.is_some() {
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    rate(&done).await
}

enum Loop {
    Client(Client),
    Raw(Raw),
}

impl Loop {
    async fn cycle(&mut self) -> Option<()> {
        match self {
            Self::Client(client) => cycle(client).await.ok(),
            Self::Raw(raw) => raw.cycle().await,
        }
    }
}

async fn raw_loop(address: &str, key: &str) -> Loop {
    let host = address.trim_start_matches("http://").to_owned();
    let stream = TcpStream::connect(&host).await.ok();
    if let Some(stream) = &stream {
        // If this fails, the loop works and is slower.
        let _ = stream.set_nodelay(true);
    }
    let head = format!(
        "host: {host}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    );
    Loop::Raw(Raw {
        head,
        stream,
        answer: Vec::new(),
    })
}

/// Returns a new idempotency key, in order of time as the client's are.
fn key() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    #[expect(
        clippy::disallowed_methods,
        reason = "no run may repeat another's keys"
    )]
    let now = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    let millis = now.map_or(0, |now| now.as_millis());
    format!("{millis:012x}{:020x}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// A connection that is used without the client.
struct Raw {
    head: String,
    stream: Option<TcpStream>,
    answer: Vec<u8>,
}

impl Raw {
    async fn cycle(&mut self) -> Option<()> {
        let create = format!(
            r#"{{"type":"echo","payload":{PAYLOAD},"principal_id":"bench","idempotency_key":"{}"}}"#,
            key()
        );
        self.post("/v1/tasks", &create).await?;
        let claim = r#"{"worker_id":"w1","max_tasks":1,"lease_ttl_seconds":300}"#;
        self.post("/v1/leases/claim", claim).await?;
        let Some((task, lease)) = self.field("task_id").zip(self.field("lease_id")) else {
            return Some(());
        };
        let complete = format!(
            r#"{{"worker_id":"w1","lease_id":"{lease}","result":{RESULT},"artifacts":{ARTIFACTS}}}"#
        );
        self.post(&format!("/v1/tasks/{task}/complete"), &complete)
            .await
    }

    async fn post(&mut self, path: &str, body: &str) -> Option<()> {
        let stream = self.stream.as_mut()?;
        let request = format!(
            "POST {path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        stream.write_all(request.as_bytes()).await.ok()?;
        self.answer.clear();
        loop {
            if stream.read_buf(&mut self.answer).await.ok()? == 0 {
                return None;
            }
            let text = std::str::from_utf8(&self.answer).ok()?;
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.split_once("content-length: ")?.1;
                let length: usize = length.split("\r\n").next()?.parse().ok()?;
                if body.len() == length {
                    return Some(());
                }
            }
        }
    }

    fn field(&self, name: &str) -> Option<String> {
        let text = std::str::from_utf8(&self.answer).ok()?;
        let value = text.split_once(&format!("\"{name}\":\""))?.1;
        Some(value.split('"').next()?.to_owned())
    }
}

/// Measures a worker. Creators keep a few hundred tasks waiting; a permit comes back for each task that
/// ends, so that the queue neither runs empty nor grows.
async fn worker(client: &Client, together: u32) -> Result<f64, Error> {
    let done = Arc::new(AtomicU64::new(0));
    // A batch is as much work as many creators bring.
    let (creators_wanted, waiting) = match together {
        1 => (LOOPS, 4 * LOOPS),
        _ => (4, 2_000),
    };
    let room = Arc::new(Semaphore::new(waiting));
    let mut creators = JoinSet::new();
    for _ in 0..creators_wanted {
        let (client, room) = (client.clone(), Arc::clone(&room));
        creators.spawn(async move {
            while let Ok(permits) = room.acquire_many(together).await {
                permits.forget();
                let created = match together {
                    1 => client.create_task(&task()).await.map(drop),
                    _ => {
                        let tasks = (0..together).map(|_| task()).collect();
                        let input = CreateTasksInput { tasks };
                        client.create_tasks(&input).await.map(drop)
                    }
                };
                if created.is_err() {
                    return;
                }
            }
        });
    }
    let counter = Arc::clone(&done);
    let worker = Worker::builder(client)
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
        summary?;
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
