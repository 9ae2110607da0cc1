//! Creates per second: each connection creates a task as soon as its last one is acknowledged.

use anyhow::Result;

use super::histogram::Histogram;
use super::load::{Plan, drive};
use super::report::{Figure, Section, Unit, median};
use super::server::cpu_time;
use super::workload::Create;
use super::{Bench, CONNECTIONS};

#[derive(Debug, Default)]
pub struct Rounds {
    rates: Vec<f64>,
    latencies: Histogram,
    /// Processor microseconds per create: the server's and the load generator's.
    server_cpu: Vec<f64>,
    own_cpu: Vec<f64>,
}

impl Rounds {
    pub fn run(&mut self, bench: &Bench) -> Result<()> {
        let server = bench.server()?;
        let mut create = Create::echo(&server.head());
        // Warm up in a run of its own, so that the processor time covers what is counted and no more.
        drive(
            server.addr,
            Plan::closed(CONNECTIONS, bench.seconds(0, 0), bench.seconds(1, 1)),
            &mut create,
        )?;
        let (theirs, ours) = (server.cpu()?, cpu_time("self")?);
        let plan = Plan::closed(CONNECTIONS, bench.seconds(0, 0), bench.seconds(6, 2));
        let tally = drive(server.addr, plan, &mut create)?;
        let per_unit = |used: std::time::Duration| used.as_secs_f64() * 1e6 / tally.units as f64;
        self.server_cpu
            .push(per_unit(server.cpu()?.saturating_sub(theirs)));
        self.own_cpu
            .push(per_unit(cpu_time("self")?.saturating_sub(ours)));
        eprintln!("  create: {:.0}/s", tally.per_second());
        self.rates.push(tally.per_second());
        self.latencies.merge(&tally.all());
        Ok(())
    }

    pub fn section(&self) -> Section {
        let figures = vec![
            Figure::new("creates", median(&self.rates), Unit::PerSecond)
                .at_least(12_000.0)
                .goal(25_000.0),
            Figure::latency("create p50", self.latencies.quantile(0.5)),
            Figure::latency("create p99", self.latencies.quantile(0.99))
                .at_most(25.0)
                .goal(8.0),
            Figure::latency("create max", self.latencies.max()),
            Figure::new(
                "server processor time per create",
                median(&self.server_cpu),
                Unit::Micros,
            ),
            Figure::new(
                "load generator processor time per create",
                median(&self.own_cpu),
                Unit::Micros,
            ),
        ];
        let how = format!(
            "`POST /v1/tasks` on {CONNECTIONS} connections, closed loop, SQLite with `synchronous=FULL`: an answer means \
             that the commit was fsynced. Rates are medians of the rounds, latencies come from all of them."
        );
        Section {
            id: "create",
            how,
            figures,
        }
    }
}
