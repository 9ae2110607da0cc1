//! Tasks in batches of 100: created; created, claimed and finished; and done by the worker of the Rust client.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Bench;
use super::cost::Costs;
use super::load::http::{self, Head};
use super::load::{Plan, Then, Workload};
use super::proof::rate_told;
use super::report::{Figure, Section, Unit, median};
use super::server::{KEY, dist};
use super::workload::{WORKER, create_body, expect};
use crate::process;

/// The number of tasks in a call.
pub const SIZE: usize = 100;
/// Few callers keep the server busy, since each brings so much.
pub const CALLERS: usize = 8;

#[derive(Debug, Default)]
pub struct Rounds {
    creates: Vec<f64>,
    cycles: Vec<f64>,
    worker: Vec<f64>,
    create_costs: Costs,
    cycle_costs: Costs,
}

impl Rounds {
    pub fn run(&mut self, bench: &Bench) -> Result<()> {
        let plan = Plan::closed(CALLERS, Duration::ZERO, bench.seconds(6, 2));
        let server = bench.server()?;
        let mut create = Batches::new(&server.head(), Last::Create, &create_body(""));
        let tally = self.create_costs.measure(&server, plan, &mut create)?;
        self.creates.push(tally.per_second() * SIZE as f64);
        let server = bench.server()?;
        let mut cycle = Batches::new(&server.head(), Last::Finish, &create_body(""));
        let tally = self.cycle_costs.measure(&server, plan, &mut cycle)?;
        self.cycles.push(tally.per_second() * SIZE as f64);
        let server = bench.server()?;
        self.worker.push(worker(&server.url())?);
        let last = |rates: &[f64]| rates.last().copied().unwrap_or(0.0);
        eprintln!(
            "  batches: {:.0} creates/s, {:.0} tasks/s, {:.0} by the worker",
            last(&self.creates),
            last(&self.cycles),
            last(&self.worker)
        );
        Ok(())
    }

    pub fn section(&self) -> Section {
        let rate = |name: &str, rates: &[f64], asked: f64| {
            Figure::new(name, median(rates), Unit::PerSecond).at_least(asked)
        };
        let per_task = |name: &str, costs: &Costs| {
            let name = format!("server processor time per task {name}");
            Figure::new(name, costs.server() / SIZE as f64, Unit::Micros)
        };
        let figures = vec![
            rate("creates", &self.creates, 100_000.0),
            rate(
                "tasks created, claimed and finished",
                &self.cycles,
                60_000.0,
            ),
            rate("cycles by the worker", &self.worker, 20_000.0),
            per_task("created", &self.create_costs),
            per_task("created, claimed and finished", &self.cycle_costs),
        ];
        let how = format!(
            "`POST /v1/tasks/batch` with {SIZE} tasks on {CALLERS} connections, closed loop; the same, then a claim of \
             {SIZE} and `POST /v1/leases/finish/batch` with an artifact for each; and a worker of the Rust client with \
             concurrency 64 while others create in batches of {SIZE}. Every answer comes after its fsync."
        );
        Section {
            id: "batch",
            how,
            figures,
        }
    }
}

/// Measures the worker in a process of its own.
fn worker(url: &str) -> Result<f64> {
    let build = ["--package", "asyncgate-client", "--example", "throughput"];
    let binary = dist(&build)?.join("examples").join("throughput");
    let told = process::output(Command::new(binary).args([url, KEY, "batches"]))?;
    rate_told(&told).with_context(|| format!("no rate in what it told: {told}"))
}

/// The last call of a unit of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    Create,
    Finish,
}

/// Creates a batch, and perhaps claims as many tasks and finishes them.
#[derive(Debug)]
pub struct Batches {
    head: Head,
    create: Vec<u8>,
    claim: Vec<u8>,
    last: Last,
    /// For each connection its next request: the kind, and its bytes if it is a finish.
    next: Vec<(usize, Vec<u8>)>,
}

const CREATE: usize = 0;
const CLAIM: usize = 1;
const FINISH: usize = 2;

impl Batches {
    /// Each task of a batch has this body.
    pub fn new(head: &Head, last: Last, body: &str) -> Self {
        let tasks = vec![body; SIZE].join(",");
        let claim = format!(r#"{{"worker_id":"{WORKER}","max_tasks":{SIZE}}}"#);
        Self {
            head: head.clone(),
            create: head.post("/v1/tasks/batch", &format!(r#"{{"tasks":[{tasks}]}}"#)),
            claim: head.post("/v1/leases/claim", &claim),
            last,
            next: vec![(CREATE, Vec::new()); CALLERS],
        }
    }

    /// Writes the reports of the tasks that a claim gave.
    fn finish(&self, body: &[u8]) -> Result<Vec<u8>> {
        let text = str::from_utf8(body)?;
        let mut items = Vec::with_capacity(SIZE);
        for task in text.split("\"task_id\":\"").skip(1) {
            let id = task.split('"').next().unwrap_or_default();
            let lease = http::field(task.as_bytes(), "\"lease_id\":\"").unwrap_or_default();
            items.push(format!(
                r#"{{"task_id":"{id}","lease_id":"{lease}","complete":{{"result":{{"text":"hello, worker"}},"artifacts":[{{"type":"inline"}}]}}}}"#
            ));
        }
        if items.len() != SIZE {
            bail!("a claim of {}: {}", items.len(), http::shown(body));
        }
        let items = items.join(",");
        let body = format!(r#"{{"worker_id":"{WORKER}","items":[{items}]}}"#);
        Ok(self.head.post("/v1/leases/finish/batch", &body))
    }
}

impl Workload for Batches {
    fn kinds(&self) -> &'static [&'static str] {
        &["create", "claim", "finish"]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (kind, finish) = &self.next[connection];
        out.extend_from_slice(match *kind {
            CREATE => &self.create,
            CLAIM => &self.claim,
            _ => finish,
        });
        Some(*kind)
    }

    fn answer(&mut self, connection: usize, kind: usize, status: u16, body: &[u8]) -> Result<Then> {
        expect(200, status, body)?;
        if kind != CLAIM && body.windows(7).any(|part| part == b"\"code\":") {
            bail!("an item was refused: {}", http::shown(body));
        }
        if kind == CLAIM {
            self.next[connection] = (FINISH, self.finish(body)?);
            return Ok(Then::Continue);
        }
        if kind == CREATE && self.last == Last::Finish {
            self.next[connection].0 = CLAIM;
            return Ok(Then::Continue);
        }
        self.next[connection].0 = CREATE;
        Ok(Then::Finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_creates_claims_and_finishes_as_many() {
        let mut cycle = Batches::new(&Head::new("h", "k"), Last::Finish, &create_body(""));
        let leased = vec![r#"{"task_id":"t","lease_id":"l"}"#; SIZE].join(",");
        let leased = format!(r#"{{"tasks":[{leased}]}}"#);
        for (kind, answer) in [(CREATE, "{}"), (CLAIM, leased.as_str()), (FINISH, "{}")] {
            let mut out = Vec::new();
            assert_eq!(cycle.request(0, &mut out), Some(kind));
            let items = String::from_utf8(out)
                .unwrap()
                .matches("\"lease_id\"")
                .count();
            assert_eq!(items, if kind == FINISH { SIZE } else { 0 });
            cycle.answer(0, kind, 200, answer.as_bytes()).unwrap();
        }
        assert_eq!(cycle.request(0, &mut Vec::new()), Some(CREATE));
        assert!(cycle.answer(0, CLAIM, 200, b"{\"tasks\":[]}").is_err());
        let refused = br#"{"results":[{"code":"BAD_REQUEST"}]}"#;
        assert!(cycle.answer(0, FINISH, 200, refused).is_err());
    }
}
