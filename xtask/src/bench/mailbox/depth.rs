//! Independence of depth: receiving from a topic with 1,000 messages beside one with ten million.

use anyhow::{Result, bail};

use super::ROOMY;
use super::workload::{Batches, Cycle};
use crate::bench::load::{Plan, drive};
use crate::bench::report::{Figure, Section, Unit, median, thousands};
use crate::bench::server::Server;
use crate::bench::{Bench, CONNECTIONS, ROUNDS};

const FEW: u64 = 1_000;
const RECEIVE: usize = 1;

pub fn run(bench: &Bench) -> Result<Section> {
    let many: u64 = if bench.quick { 100_000 } else { 10_000_000 };
    let (small, large) = (bench.server_with(&ROOMY)?, bench.server_with(&ROOMY)?);
    seed(&small, FEW)?;
    seed(&large, many)?;
    let disk = large.disk()?;
    let mut p50: [[Vec<f64>; 2]; 2] = Default::default();
    for round in 1..=ROUNDS {
        eprintln!("receives, round {round} of {ROUNDS}");
        for (n, connections) in [1, CONNECTIONS].into_iter().enumerate() {
            for (m, server) in [&small, &large].into_iter().enumerate() {
                p50[n][m].push(receive_p50(bench, server, connections)?);
            }
        }
    }
    let (resident, anonymous) = large.memory()?;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let deep = thousands(many as f64);
    let mut figures = Vec::new();
    for ([small, large], connections) in p50.iter().zip(["1 connection", "64 connections"]) {
        let (small, large) = (median(small), median(large));
        figures.extend([
            Figure::new(
                format!("receive p50, depth 1,000, {connections}"),
                small,
                Unit::Millis,
            ),
            Figure::new(
                format!("receive p50, depth {deep}, {connections}"),
                large,
                Unit::Millis,
            ),
            Figure::new(
                format!("deep to shallow, {connections}"),
                large / small,
                Unit::Times,
            )
            .at_most(1.5),
        ]);
    }
    figures.extend([
        Figure::new("resident memory", mib(resident), Unit::MiB),
        Figure::new(
            "resident memory that is not file pages",
            mib(anonymous),
            Unit::MiB,
        ),
        Figure::new(
            "disk per waiting message",
            disk as f64 / many as f64,
            Unit::Bytes,
        ),
    ]);
    let how = format!(
        "Two servers, one topic each, with 1,000 and with {deep} messages of 100 bytes, sent over HTTP in batches of 1,000. Each \
         receive follows a send on the same connection, so that the depth stays; in turns, medians of the rounds."
    );
    Ok(Section {
        id: "mailbox-depth",
        how,
        figures,
    })
}

fn seed(server: &Server, count: u64) -> Result<()> {
    eprintln!("sending {count} messages");
    let mut batches = Batches::new(&server.head(), 1_000).messages(count);
    let tally = drive(server.addr, Plan::to_the_end(16), &mut batches)?;
    eprintln!("  {:.0}/s", tally.per_second() * 1_000.0);
    Ok(())
}

fn receive_p50(bench: &Bench, server: &Server, connections: usize) -> Result<f64> {
    let mut workload = Cycle::new(&server.head(), connections).without_ack();
    let plan = Plan::closed(connections, bench.seconds(1, 0), bench.seconds(3, 1));
    let tally = drive(server.addr, plan, &mut workload)?;
    if workload.empty > 0 {
        bail!(
            "{} receives found nothing: the depth did not stay",
            workload.empty
        );
    }
    Ok(tally.latencies[RECEIVE].quantile(0.5).as_secs_f64() * 1e3)
}
