//! Creates per second: each connection creates a task as soon as its last one is acknowledged.

use std::time::Duration;

use anyhow::Result;

use super::cost::{Costs, Measured};
use super::histogram::Histogram;
use super::load::Plan;
use super::report::{Figure, Section, Unit, median};
use super::workload::Create;
use super::{Bench, CONNECTIONS};

#[derive(Debug, Default)]
pub struct Rounds {
    rates: Vec<f64>,
    latencies: Histogram,
    costs: Costs,
}

impl Rounds {
    pub fn run(&mut self, bench: &Bench) -> Result<()> {
        let server = bench.server()?;
        let mut create = Create::echo(&server.head());
        let plan = Plan::closed(CONNECTIONS, Duration::ZERO, bench.seconds(6, 2));
        let tally = self.costs.measure(&server, plan, &mut create)?;
        eprintln!("  create: {:.0}/s", tally.per_second());
        self.rates.push(tally.per_second());
        self.latencies.merge(&tally.all());
        Ok(())
    }

    /// Creates per second, and the server's processor time for each.
    pub fn measured(&self) -> Measured {
        Measured {
            rate: median(&self.rates),
            cost: self.costs.server(),
        }
    }

    pub fn section(&self) -> Section {
        let mut figures = vec![
            Figure::new("creates", median(&self.rates), Unit::PerSecond)
                .at_least(12_000.0)
                .goal(25_000.0),
            Figure::latency("create p50", self.latencies.quantile(0.5)),
            Figure::latency("create p99", self.latencies.quantile(0.99))
                .at_most(25.0)
                .goal(8.0),
            Figure::latency("create max", self.latencies.max()),
        ];
        figures.extend(self.costs.figures("create"));
        let how = format!(
            "`POST /v1/tasks` on {CONNECTIONS} connections, closed loop, SQLite: an answer means \
             that the commit was fsynced. Rates are medians of the rounds, latencies come from all of them."
        );
        Section {
            id: "create",
            how,
            figures,
        }
    }
}
