//! Independence of size: a claim with 1,000 ready tasks beside one with a million ready, a million
//! delayed and a million for other workers; the memory for those; and a page of obligations.

use anyhow::Result;

use super::histogram::Histogram;
use super::load::{Plan, drive};
use super::report::{Figure, Section, Unit, median, thousands};
use super::server::Server;
use super::workload::{Create, Cycle, Pages};
use super::{Bench, CONNECTIONS, ROUNDS};

const FEW: u64 = 1_000;
const CLAIM: usize = 1;
/// More connections share a commit better, and the latency of seeding is not measured.
const SEEDING_CONNECTIONS: usize = 128;

pub fn run(bench: &Bench) -> Result<Section> {
    let many: u64 = if bench.quick { 20_000 } else { 1_000_000 };
    let (small, large) = (bench.server()?, bench.server()?);
    seed(&small, FEW, "", "ready")?;
    seed(&large, many, "", "ready")?;
    seed(&large, many, r#","delay_seconds":86400"#, "delayed")?;
    seed(
        &large,
        many,
        r#","requirements":{"capabilities":["gpu"]}"#,
        "for another worker",
    )?;
    let seeded = large.disk()?;

    // In turns, so that a slow minute of the machine affects both.
    let mut one = Pair::default();
    let mut busy = Pair::default();
    for round in 1..=ROUNDS {
        eprintln!("claims, round {round} of {ROUNDS}");
        one.run(bench, &small, &large, 1)?;
        busy.run(bench, &small, &large, CONNECTIONS)?;
    }
    let page = obligations(&large)?;
    let (resident, anonymous) = large.memory()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);

    let mut figures = Vec::new();
    figures.extend(one.figures("1 connection", many));
    figures.extend(busy.figures(&format!("{CONNECTIONS} connections"), many));
    figures.extend([
        Figure::latency("page of 50 open obligations, p50", page.quantile(0.5)),
        Figure::latency("page of 50 open obligations, p99", page.quantile(0.99)).at_most(5.0),
        Figure::new("resident memory", mib(resident), Unit::MiB).at_most(200.0),
        Figure::new(
            "resident memory that is not file pages",
            mib(anonymous),
            Unit::MiB,
        ),
        Figure::new(
            "disk per stored task",
            seeded as f64 / (3 * many) as f64,
            Unit::Bytes,
        ),
    ]);
    let many = thousands(many as f64);
    let how = format!(
        "Two servers: one with 1,000 ready tasks; one with {many} ready, {many} delayed by a day and {many} that need a \
         capability which the worker lacks. Each claim follows a create on the same connection, so that the number of \
         ready tasks stays; in turns, medians of the rounds. Seeded over HTTP; every answer after its fsync."
    );
    Ok(Section {
        id: "flat",
        how,
        figures,
    })
}

fn seed(server: &Server, count: u64, extra: &str, what: &str) -> Result<()> {
    eprintln!("seeding {count} tasks, {what}");
    let mut create = Create::with(&server.head(), extra)
        .times(count)
        .shown_as(what);
    let tally = drive(
        server.addr,
        Plan::to_the_end(SEEDING_CONNECTIONS),
        &mut create,
    )?;
    eprintln!("  {:.0}/s", tally.per_second());
    Ok(())
}

/// The p50 of a claim on the small and the large server, by round.
#[derive(Debug, Default)]
struct Pair {
    small: Vec<f64>,
    large: Vec<f64>,
}

impl Pair {
    fn run(
        &mut self,
        bench: &Bench,
        small: &Server,
        large: &Server,
        connections: usize,
    ) -> Result<()> {
        self.small.push(claim_p50(bench, small, connections)?);
        self.large.push(claim_p50(bench, large, connections)?);
        Ok(())
    }

    fn figures(&self, connections: &str, many: u64) -> [Figure; 3] {
        let (small, large) = (median(&self.small), median(&self.large));
        [
            Figure::new(
                format!("claim p50, 1,000 ready, {connections}"),
                small,
                Unit::Millis,
            ),
            Figure::new(
                format!(
                    "claim p50, {} stored, {connections}",
                    thousands((3 * many) as f64)
                ),
                large,
                Unit::Millis,
            ),
            Figure::new(
                format!("large to small, {connections}"),
                large / small,
                Unit::Times,
            )
            .at_most(1.5),
        ]
    }
}

fn claim_p50(bench: &Bench, server: &Server, connections: usize) -> Result<f64> {
    let mut workload = Cycle::new(&server.head(), connections).without_completion();
    let plan = Plan::closed(connections, bench.seconds(1, 0), bench.seconds(3, 1));
    let tally = drive(server.addr, plan, &mut workload)?;
    Ok(tally.latencies[CLAIM].quantile(0.5).as_secs_f64() * 1e3)
}

fn obligations(server: &Server) -> Result<Histogram> {
    // Fewer pages than there are even in a quick run, so that each of them is full.
    let mut pages = Pages::of_obligations(&server.head(), 1000);
    Ok(drive(server.addr, Plan::to_the_end(1), &mut pages)?.all())
}
