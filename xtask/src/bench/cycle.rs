//! Full cycles per second: create, claim one, complete with proof, three requests in a row.

use anyhow::Result;

use super::histogram::Histogram;
use super::load::{Plan, drive};
use super::report::{Figure, Section, Unit, median};
use super::server::cpu_time;
use super::workload::Cycle;
use super::{Bench, CONNECTIONS};

#[derive(Debug, Default)]
pub struct Rounds {
    rates: Vec<f64>,
    /// Create, claim, complete.
    latencies: [Histogram; 3],
    server_cpu: Vec<f64>,
    own_cpu: Vec<f64>,
    empty_claims: u64,
}

impl Rounds {
    pub fn run(&mut self, bench: &Bench) -> Result<()> {
        let server = bench.server()?;
        let mut cycle = Cycle::new(&server.head(), CONNECTIONS);
        // Warm up in a run of its own, so that the processor time covers what is counted and no more.
        drive(
            server.addr,
            Plan::closed(CONNECTIONS, bench.seconds(0, 0), bench.seconds(1, 1)),
            &mut cycle,
        )?;
        let mut cycle = Cycle::new(&server.head(), CONNECTIONS);
        let (theirs, ours) = (server.cpu()?, cpu_time("self")?);
        let plan = Plan::closed(CONNECTIONS, bench.seconds(0, 0), bench.seconds(10, 3));
        let tally = drive(server.addr, plan, &mut cycle)?;
        let per_unit = |used: std::time::Duration| used.as_secs_f64() * 1e6 / tally.units as f64;
        self.server_cpu
            .push(per_unit(server.cpu()?.saturating_sub(theirs)));
        self.own_cpu
            .push(per_unit(cpu_time("self")?.saturating_sub(ours)));
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
        figures.push(Figure::new(
            "server processor time per cycle",
            median(&self.server_cpu),
            Unit::Micros,
        ));
        figures.push(Figure::new(
            "load generator processor time per cycle",
            median(&self.own_cpu),
            Unit::Micros,
        ));
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
             after its fsync (SQLite, `synchronous=FULL`)."
        );
        Section {
            id: "cycle",
            how,
            figures,
        }
    }
}
