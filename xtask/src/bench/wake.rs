//! The delay of a wake-up: a claim waits, another connection creates a task, and the clock runs from
//! sending the create to receiving the claim's answer.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Bench;
use super::caller::Caller;
use super::histogram::Histogram;
use super::load::http::{self, Head};
use super::report::{Figure, Section, Unit};
use super::workload::{COMPLETE, WORKER, create_body};

/// The time for the claim to reach the server and find nothing. A claim that does not wait yet would
/// find the task without being woken, which measures less.
const PARK: Duration = Duration::from_millis(3);

pub fn run(bench: &Bench) -> Result<Section> {
    let samples = if bench.quick { 200 } else { 1000 };
    let server = bench.server()?;
    let head = server.head();
    let mut pair = Pair {
        worker: Caller::connect(server.addr)?,
        agent: Caller::connect(server.addr)?,
        head,
    };
    let mut latencies = Histogram::default();
    for _ in 0..samples {
        latencies.record(pair.sample()?);
    }
    let figures = vec![
        Figure::latency(
            "create sent to claim answered, p50",
            latencies.quantile(0.5),
        ),
        Figure::latency(
            "create sent to claim answered, p99",
            latencies.quantile(0.99),
        )
        .at_most(10.0),
        Figure::latency("create sent to claim answered, max", latencies.max()),
        Figure::new("samples", latencies.count() as f64, Unit::Count),
    ];
    let how = "A worker waits in `POST /v1/leases/claim` with `wait_seconds`; a task is created on another connection. Both \
               the create and the lease are fsynced within the time."
        .to_owned();
    Ok(Section {
        id: "wake",
        how,
        figures,
    })
}

struct Pair {
    worker: Caller,
    agent: Caller,
    head: Head,
}

impl Pair {
    fn sample(&mut self) -> Result<Duration> {
        let claim = format!(
            r#"{{"worker_id":"{WORKER}","capabilities":[],"max_tasks":1,"lease_ttl_seconds":300,"wait_seconds":30}}"#
        );
        self.worker
            .send(&self.head.post("/v1/leases/claim", &claim))?;
        thread::sleep(PARK);
        let create = self.head.post("/v1/tasks", &create_body(""));
        let sent = Instant::now();
        self.agent.send(&create)?;
        let claimed = self.worker.answer(200)?;
        let latency = sent.elapsed();
        self.agent.answer(201)?;

        let ids = (
            http::field(&claimed, "\"task_id\":\""),
            http::field(&claimed, "\"lease_id\":\""),
        );
        let (Some(task), Some(lease)) = ids else {
            bail!(
                "a waiting claim came back without a task: {}",
                http::shown(&claimed)
            );
        };
        let mut complete = Vec::new();
        let body = [COMPLETE[0], lease, COMPLETE[1]];
        self.head
            .write_post(&mut complete, &["/v1/tasks/", task, "/complete"], &body);
        self.worker.send(&complete)?;
        self.worker.answer(200)?;
        Ok(latency)
    }
}
