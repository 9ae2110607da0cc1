//! Full cycles per second: create, claim one, complete with proof, three requests in a row.

use std::time::Duration;

use anyhow::Result;

use super::cost::{Costs, Measured};
use super::histogram::Histogram;
use super::load::Plan;
use super::report::{Figure, Section, Unit, median};
use super::workload::Cycle;
use super::{Bench, CONNECTIONS};

#[derive(Debug, Default)]
pub struct Rounds {
    rates: Vec<f64>,
    /// The latencies of create, claim and complete.
    latencies: [Histogram; 3],
    costs: Costs,
    empty_claims: u64,
}

impl Rounds {
    pub fn run(&mut self, bench: &Bench) -> Result<()> {
        let server = bench.server()?;
        let mut cycle = Cycle::new(&server.head(), CONNECTIONS);
        let plan = Plan::closed(CONNECTIONS, Duration::ZERO, bench.seconds(10, 3));
        let tally = self.costs.measure(&server, plan, &mut cycle)?;
        eprintln!("  cycle: {:.0}/s", tally.per_second());
        self.rates.push(tally.per_second());
        for (all, one) in self.latencies.iter_mut().zip(&tally.latencies) {
            all.merge(one);
        }
        self.empty_claims += cycle.empty_claims();
        Ok(())
    }

    /// Cycles per second.
    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }

    /// Cycles per second, and the server's processor time for each.
    pub fn measured(&self) -> Measured {
        Measured {
            rate: self.rate(),
            cost: self.costs.server(),
        }
    }

    pub fn section(&self) -> Section {
        let mut figures = vec![
            Figure::new("cycles", self.rate(), Unit::PerSecond)
                .at_least(4_500.0)
                .goal(8_000.0),
        ];
        for (name, latencies) in ["create", "claim", "complete"]
            .into_iter()
            .zip(&self.latencies)
        {
            figures.push(Figure::latency(
                format!("{name} p50"),
                latencies.quantile(0.5),
            ));
            figures.push(
                Figure::latency(format!("{name} p99"), latencies.quantile(0.99))
                    .at_most(25.0)
                    .goal(8.0),
            );
            figures.push(Figure::latency(format!("{name} max"), latencies.max()));
        }
        figures.extend(self.costs.figures("cycle"));
        figures.push(
            Figure::new(
                "claims that found nothing",
                self.empty_claims as f64,
                Unit::Count,
            )
            .at_most(0.0),
        );
        let how = format!(
            "Create, claim one task, complete it with an artifact; {CONNECTIONS} connections, closed loop, every answer \
             after its fsync (SQLite)."
        );
        Section {
            id: "cycle",
            how,
            figures,
        }
    }
}
