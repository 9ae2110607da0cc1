//! Measures cycles of create, claim and complete against a database that is given by its address:
//!
//! ```text
//! cargo run --release -p asyncgate-store-postgres --example cycles -- "host=127.0.0.1 user=postgres" 5
//! ```
//!
//! The second argument is the time of each run in seconds. The database should be empty, and sync its commits.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures, prints what it found, and fails by panicking"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use asyncgate_core::{
    Env, Ids, Json, Policy, Principal, PrincipalKind, Reach, Stamp, TenantId, Timestamp,
    task::{Claim, Completion, Ending, Hold, NewTask, Report},
};
use asyncgate_store::{ReadSet, Store, transact};
use asyncgate_store_postgres::{Options, PostgresStore};

const TENANTS: u8 = 8;

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    Timestamp::from_millis(since.unwrap().as_millis() as i64)
}

/// What a client needs to make decisions.
struct Client {
    store: Arc<dyn Store>,
    tenant: TenantId,
    policy: Arc<Policy>,
    seed: u64,
}

impl Client {
    fn env(&mut self) -> Env {
        self.seed += 1_000;
        let now = now();
        Env {
            now,
            ids: Ids::new(Stamp::of_millis(now.as_millis()), self.seed),
            instance: "asyncgate-1".into(),
            policy: Arc::clone(&self.policy),
            quotas: None,
        }
    }

    async fn cycle(&mut self) {
        let payload = format!("\"{}\"", "x".repeat(300));
        let owner = Principal::new(PrincipalKind::Agent, "alice");
        let new = NewTask::new(owner, "echo", Json::from_text(payload).unwrap());
        let reads = ReadSet::to_create(&new);
        let (env, store) = (self.env(), Arc::clone(&self.store));
        let created = transact(
            &*store,
            self.tenant,
            env,
            300,
            reads,
            move |env, snapshot| snapshot.create(env, new.clone()),
        );
        created.await.unwrap().unwrap();
        let worker = Principal::new(PrincipalKind::Worker, "bob");
        let reads = ReadSet {
            claimable: Some((Reach::default(), 1)),
            ..ReadSet::default()
        };
        let claim = Claim {
            worker: worker.clone(),
            capabilities: Vec::new(),
            lease_ttl_ms: None,
            expected_duration_seconds: None,
        };
        let env = self.env();
        let claimed = transact(&*store, self.tenant, env, 0, reads, move |env, snapshot| {
            Ok(snapshot.claim(env, &claim))
        });
        let claimed = claimed.await.unwrap().unwrap().output;
        for task in claimed.leased {
            let lease_id = task.lease().unwrap().id;
            let hold = Hold {
                worker: worker.clone(),
                lease_id,
            };
            let artifacts = Json::from_text(r#"[{"url":"s3://bucket/result"}]"#.to_owned());
            let completion = Completion {
                result: Json::from_text(r#"{"answer":42}"#.to_owned()),
                artifacts,
                ..Completion::default()
            };
            let ending = Ending {
                task_id: task.id,
                hold,
                report: Report::Completed(completion),
            };
            let reads = ReadSet::to_hold(std::iter::once(task.id));
            let env = self.env();
            let done = transact(
                &*store,
                self.tenant,
                env,
                300,
                reads,
                move |env, snapshot| Ok(snapshot.finish_all(env, vec![ending.clone()])),
            );
            done.await.unwrap().unwrap();
        }
    }
}

async fn measure(store: &Arc<dyn Store>, in_flight: u64, time: Duration, round: u64) -> f64 {
    let (stop, cycles) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let clients: Vec<_> = (0..in_flight)
        .map(|number| {
            let mut client = Client {
                store: Arc::clone(store),
                tenant: TenantId::from_bytes([1 + (number % u64::from(TENANTS)) as u8; 16]),
                policy: Arc::default(),
                seed: (round << 48) | (number << 32),
            };
            let (stop, cycles) = (Arc::clone(&stop), Arc::clone(&cycles));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    client.cycle().await;
                    cycles.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    // The first second warms everything up.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (begun, before) = (Instant::now(), cycles.load(Ordering::Relaxed));
    tokio::time::sleep(time).await;
    let done = cycles.load(Ordering::Relaxed) - before;
    let rate = done as f64 / begun.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    rate
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap();
    let seconds = args.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&address, &Options::default()).unwrap());
    for (round, in_flight) in (1..).zip([64, 256]) {
        let commits = store.metrics().commits.get();
        let rate = measure(&store, in_flight, Duration::from_secs(seconds), round).await;
        let commits = store.metrics().commits.get() - commits;
        println!("{in_flight} in flight: {rate:.0} cycles/s ({commits} commits)");
    }
}
