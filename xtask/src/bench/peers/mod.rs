//! `cargo xtask bench peers`: the same work by other programs, in the same minutes and with the same durability: hand
//! a task in, take it out, remove it, each step on disk before its answer.
//!
//! One contender runs at a time and is stopped after its turn, so that its work for later, a vacuum for example, does
//! not slow down another.

pub mod beanstalkd;
mod nats;
mod node;
mod pgbench;
mod redis;
mod resp;
mod restate;
mod table;

use anyhow::Result;
use clap::ValueEnum;

use self::table::{Table, Way, Who};
use super::batch::{self, Batches, Last};
use super::load::Plan;
use super::report::{self, Figure, Section, Unit};
use super::workload::{Cycle, create_body_of};
use super::{Bench, CONNECTIONS, Options, ROUNDS, cost, machine};
use crate::services::restate::Restate;
use crate::services::{self, Postgres, queues};

/// Few connections favour a peer that syncs each request, many one that shares a commit.
const CLIENTS: [usize; 2] = [8, CONNECTIONS];
/// The number of tasks in a call of the queues on PostgreSQL.
const BATCH: usize = 1_000;
/// The size of a task's payload in bytes, the same for all.
const PAYLOAD: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Redis Streams
    Redis,
    /// BullMQ on Redis
    Bullmq,
    /// NATS JetStream
    Nats,
    /// beanstalkd
    Beanstalkd,
    /// Restate
    Restate,
    /// A queue written by hand on PostgreSQL
    Postgres,
    /// pg-boss on PostgreSQL
    PgBoss,
    /// graphile-worker on PostgreSQL
    GraphileWorker,
}

/// The figures of a ratio: its peers, one of which is the best, and what is asked.
type Ratio = (&'static str, &'static [Part], Option<f64>);

const RATIOS: [Ratio; 8] = [
    ("AsyncGate to Redis Streams", &[Part::Redis], Some(1.2)),
    ("AsyncGate to BullMQ", &[Part::Bullmq], Some(1.5)),
    ("AsyncGate to NATS JetStream", &[Part::Nats], None),
    (
        "AsyncGate to beanstalkd's better",
        &[Part::Beanstalkd],
        Some(5.0),
    ),
    (
        "AsyncGate to PostgreSQL's better",
        &[Part::Postgres],
        Some(1.4),
    ),
    ("AsyncGate to Restate", &[Part::Restate], None),
    ("AsyncGate to pg-boss", &[Part::PgBoss], None),
    (
        "AsyncGate to graphile-worker",
        &[Part::GraphileWorker],
        None,
    ),
];

const BATCH_RATIOS: [Ratio; 1] = [(
    "AsyncGate to the better of pg-boss and graphile-worker",
    &[Part::PgBoss, Part::GraphileWorker],
    Some(3.0),
)];

pub fn run(options: &Options<Part>) -> Result<()> {
    let bench = Bench::open(options)?;
    let mut sections = vec![machine::section(bench.scratch.path())?];
    let parts = Part::value_variants().iter().copied();
    let parts: Vec<Part> = parts.filter(|part| options.wants(*part)).collect();
    let mut table = Table::default();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        gate(&bench, &mut table)?;
        if parts.iter().any(|part| part.has_batches()) {
            gate_in_batches(&bench, &mut table)?;
        }
        for part in &parts {
            part.round(&bench, &mut table)?;
        }
    }
    sections.extend(tables(&table));
    if options.only.is_empty() {
        return options.publish(&sections);
    }
    // A table in the document without some of the peers would hide what they reach.
    report::print(&sections, options.quick, options.json);
    Ok(())
}

impl Part {
    fn has_batches(self) -> bool {
        matches!(self, Self::PgBoss | Self::GraphileWorker)
    }

    fn round(self, bench: &Bench, table: &mut Table) -> Result<()> {
        match self {
            Self::Redis => redis_streams(bench, table),
            Self::Bullmq => bullmq(bench, table),
            Self::Nats => jetstream(bench, table),
            Self::Beanstalkd => beanstalkd_jobs(bench, table),
            Self::Restate => restate_calls(bench, table),
            Self::Postgres => by_hand(bench, table),
            Self::PgBoss => pg_boss(bench, table),
            Self::GraphileWorker => graphile_worker(bench, table),
        }
    }
}

fn gate(bench: &Bench, table: &mut Table) -> Result<()> {
    let server = bench.server()?;
    let cycles = || Cycle::new(&server.head(), CONNECTIONS).with_payload(&payload());
    let plan = plan(bench, CONNECTIONS);
    let measured = cost::measure(server.pid(), server.addr, plan, cycles)?;
    table.add(Who::Gate, Way::One, "AsyncGate", measured);
    Ok(())
}

fn gate_in_batches(bench: &Bench, table: &mut Table) -> Result<()> {
    let server = bench.server()?;
    let body = create_body_of(&payload(), "");
    let batches = || Batches::new(&server.head(), Last::Finish, &body);
    let plan = plan(bench, batch::CALLERS);
    let measured = cost::measure(server.pid(), server.addr, plan, batches)?;
    let name = format!("AsyncGate, batches of {}", batch::SIZE);
    table.add(Who::Gate, Way::Batch, name, measured.split(batch::SIZE));
    Ok(())
}

fn redis_streams(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.folder()?;
    let server = services::redis::start_synced(folder.path())?;
    redis::prepare(server.addr)?;
    let entries = || redis::Entries::new(CONNECTIONS, &payload());
    let plan = plan(bench, CONNECTIONS);
    let measured = cost::measure(server.pid(), server.addr, plan, entries)?;
    let name = format!("{} Streams", services::redis::version()?);
    table.add(Who::Peer(Part::Redis), Way::One, name, measured);
    Ok(())
}

fn bullmq(bench: &Bench, table: &mut Table) -> Result<()> {
    let packages = queues::BULLMQ.install()?;
    let folder = bench.folder()?;
    let server = services::redis::start_synced(folder.path())?;
    let run = node::Run {
        driver: include_str!("bullmq.mjs"),
        packages: &packages,
        pid: server.pid(),
        port: server.addr.port(),
        batch: 1,
        payload: &payload(),
    };
    let measured = run.measure(bench)?;
    table.add(Who::Peer(Part::Bullmq), Way::One, "BullMQ 6.7", measured);
    Ok(())
}

fn jetstream(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.folder()?;
    let server = services::nats::start(folder.path())?;
    let messages = || nats::Messages::new(CONNECTIONS, &payload());
    let plan = plan(bench, CONNECTIONS);
    let measured = cost::measure(server.pid(), server.addr, plan, messages)?;
    table.add(Who::Peer(Part::Nats), Way::One, "NATS JetStream", measured);
    Ok(())
}

fn beanstalkd_jobs(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.folder()?;
    let server = services::beanstalkd::start(folder.path())?;
    for clients in CLIENTS {
        let jobs = || beanstalkd::Jobs::new(clients, &payload());
        let plan = plan(bench, clients);
        let measured = cost::measure(server.pid(), server.addr, plan, jobs)?;
        let name = format!("beanstalkd, {clients} connections");
        table.add(Who::Peer(Part::Beanstalkd), Way::One, name, measured);
    }
    Ok(())
}

fn restate_calls(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.folder()?;
    let restate = Restate::start(folder.path())?;
    let addr = restate.server.addr;
    let service = services::restate::service_address()?;
    let driver = include_str!("restate.mjs");
    let packages = services::restate::PACKAGES.install()?;
    let _service = node::serve(&packages, driver, service.port())?;
    restate::register(restate.admin, service)?;
    let calls = || restate::Calls::new(addr, &payload());
    let measured = cost::measure(restate.server.pid(), addr, plan(bench, CONNECTIONS), calls)?;
    table.add(Who::Peer(Part::Restate), Way::One, "Restate 1.7", measured);
    Ok(())
}

fn by_hand(bench: &Bench, table: &mut Table) -> Result<()> {
    let folder = bench.folder()?;
    let server = Postgres::start(folder.path())?;
    pgbench::prepare(&server)?;
    for clients in CLIENTS {
        let measured = pgbench::measure(&server, folder.path(), clients, &payload(), bench)?;
        let name = format!("{}, {clients} connections", server.version()?);
        table.add(Who::Peer(Part::Postgres), Way::One, name, measured);
    }
    Ok(())
}

fn pg_boss(bench: &Bench, table: &mut Table) -> Result<()> {
    let queue = Queue {
        part: Part::PgBoss,
        name: "pg-boss 12.35",
        driver: include_str!("pg-boss.mjs"),
        packages: &queues::PG_BOSS,
    };
    queue.round(bench, table)
}

fn graphile_worker(bench: &Bench, table: &mut Table) -> Result<()> {
    let queue = Queue {
        part: Part::GraphileWorker,
        name: "graphile-worker 0.18",
        driver: include_str!("graphile-worker.mjs"),
        packages: &queues::GRAPHILE_WORKER,
    };
    queue.round(bench, table)
}

/// A queue for Node on PostgreSQL.
struct Queue {
    part: Part,
    name: &'static str,
    driver: &'static str,
    packages: &'static queues::Packages,
}

impl Queue {
    /// Measures tasks one by one, then in batches, each on a database of its own: what is left of finished tasks is
    /// not to slow down the other.
    fn round(&self, bench: &Bench, table: &mut Table) -> Result<()> {
        let packages = self.packages.install()?;
        let batches = format!("{}, batches of {BATCH}", self.name);
        let ways = [
            (Way::One, 1, self.name.to_owned()),
            (Way::Batch, BATCH, batches),
        ];
        for (way, batch, name) in ways {
            let folder = bench.folder()?;
            let server = Postgres::start(folder.path())?;
            let run = node::Run {
                driver: self.driver,
                packages: &packages,
                pid: server.pid(),
                port: server.port(),
                batch,
                payload: &payload(),
            };
            table.add(Who::Peer(self.part), way, name, run.measure(bench)?);
        }
        Ok(())
    }
}

fn plan(bench: &Bench, connections: usize) -> Plan {
    Plan::closed(connections, bench.seconds(2, 1), bench.seconds(10, 3))
}

/// The payload of every task: a JSON object, which all peers take.
fn payload() -> String {
    let text = "x".repeat(PAYLOAD - r#"{"text":""}"#.len());
    format!(r#"{{"text":"{text}"}}"#)
}

fn tables(table: &Table) -> Vec<Section> {
    let mut sections = vec![Section {
        id: "peers",
        how: how_one_by_one(),
        figures: with_ratios(table, Way::One, &RATIOS),
    }];
    let batches = with_ratios(table, Way::Batch, &BATCH_RATIOS);
    if !batches.is_empty() {
        sections.push(Section {
            id: "peers-batch",
            how: how_in_batches(),
            figures: batches,
        });
    }
    sections
}

fn with_ratios(table: &Table, way: Way, ratios: &[Ratio]) -> Vec<Figure> {
    let mut figures = table.figures(way);
    for (name, peers, asked) in ratios {
        if let Some(ratio) = table.ratio(way, peers) {
            let figure = Figure::new(*name, ratio, Unit::Times);
            figures.push(match asked {
                Some(asked) => figure.at_least(*asked),
                None => figure,
            });
        }
    }
    figures
}

fn how_one_by_one() -> String {
    format!(
        "A task is handed in, taken out and removed, {CONNECTIONS} at a time, with a payload of {PAYLOAD} bytes; every answer comes \
         after an fsync. In turns; rates are medians of the rounds, ratios medians of the ratios within a round. The \
         processor time is that of all processes of the server. AsyncGate, Redis, JetStream and beanstalkd are \
         driven by the same load generator, a connection for each task under way. Redis with `appendfsync always` and no \
         rewriting of its log: `XADD`, `XREADGROUP COUNT 1`, `XACK`; entries stay in the stream. BullMQ on the same Redis: \
         {CONNECTIONS} adds under way, up to 1,000 tasks ahead of a worker with concurrency {CONNECTIONS}, which removes what it has completed. JetStream with a \
         file store and `sync_interval: always`: publish, pull, acknowledge, of which only the publish is synced. beanstalkd \
         `-f0`: put, reserve, delete, with 8 and with 64 connections. Restate as it comes: a call to a service in Node that does nothing, answered \
         when it is done; the time of the service is not counted. PostgreSQL with `fsync=on`, `synchronous_commit=on`: \
         insert, claim with `FOR UPDATE SKIP LOCKED`, delete, three prepared statements in three transactions, by pgbench \
         with 8 and with 64 connections. pg-boss on it (a partition for the queue, no jit): {CONNECTIONS} loops of send, fetch, complete. \
         graphile-worker on it: {CONNECTIONS} adds under way, as far ahead of a worker with concurrency {CONNECTIONS}; a task counts when its row \
         is gone. No peer writes receipts."
    )
}

fn how_in_batches() -> String {
    format!(
        "The same tasks, many in a call. AsyncGate: create, claim and finish {} at a time on {} connections. pg-boss: insert, fetch \
         and complete {BATCH} at a time. graphile-worker: {BATCH} in a call of `addJobs`, and a worker with a local queue \
         of {BATCH} that completes in batches. Both on PostgreSQL with `fsync=on`, `synchronous_commit=on`.",
        batch::SIZE,
        batch::CALLERS
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cost::Measured;

    #[test]
    fn the_payload_is_json_of_its_size() {
        let payload = payload();
        assert_eq!(payload.len(), PAYLOAD);
        assert!(serde_json::from_str::<serde_json::Value>(&payload).is_ok());
    }

    #[test]
    fn a_missed_ratio_is_shown_as_missed() {
        let measured = |rate| Measured { rate, cost: 1.0 };
        let mut table = Table::default();
        table.add(Who::Gate, Way::One, "AsyncGate", measured(110.0));
        table.add(Who::Peer(Part::Redis), Way::One, "Redis", measured(100.0));
        let sections = tables(&table);
        assert_eq!(sections.len(), 1);
        assert!(sections[0].is_missed());
        let text = sections[0].markdown();
        let row = "| AsyncGate to Redis Streams | 1.10x | ≥ 1.20x |  | **missed** |";
        assert!(text.contains(row), "{text}");
        assert!(!text.contains("to BullMQ"), "{text}");
    }

    #[test]
    fn batches_have_a_table_of_their_own() {
        let measured = |rate| Measured { rate, cost: 1.0 };
        let mut table = Table::default();
        table.add(Who::Gate, Way::One, "AsyncGate", measured(10.0));
        table.add(Who::Gate, Way::Batch, "AsyncGate", measured(90.0));
        table.add(
            Who::Peer(Part::PgBoss),
            Way::Batch,
            "pg-boss",
            measured(20.0),
        );
        let sections = tables(&table);
        assert_eq!(sections[1].id, "peers-batch");
        assert!(!sections[1].is_missed());
        assert!(sections[1].markdown().contains("| 4.50x | ≥ 3.00x |"));
    }
}
