//! The rates of the mailbox, in turns with its peers.

use std::time::Duration;

use anyhow::Result;

use super::ROOMY;
use super::nats;
use super::workload::{Batches, Cycle, Mixed, Sends};
use crate::bench::cost::{Costs, Measured};
use crate::bench::histogram::Histogram;
use crate::bench::load::{Plan, drive};
use crate::bench::peers::beanstalkd;
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::{Bench, CONNECTIONS, ROUNDS};
use crate::services;

const BATCH: usize = 100;

#[derive(Debug, Default)]
struct Rates {
    mixed: Vec<f64>,
    /// Send, receive, acknowledge.
    latencies: [Histogram; 3],
    mixed_costs: Costs,
    batched: Vec<f64>,
    cycles: Vec<f64>,
    sends: Vec<f64>,
    send_costs: Costs,
    /// With 8 and with 64 connections.
    beanstalkd: [Vec<f64>; 2],
    nats: [Vec<f64>; 2],
}

pub fn run(bench: &Bench) -> Result<Vec<Section>> {
    let mut rates = Rates::default();
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}");
        rates.round(bench)?;
    }
    Ok(rates.sections())
}

/// Measures one round of mixed requests.
pub fn mixed(bench: &Bench) -> Result<Measured> {
    let mut rates = Rates::default();
    rates.mixed(bench, plan(bench))?;
    Ok(Measured {
        rate: median(&rates.mixed),
        cost: rates.mixed_costs.server(),
    })
}

fn plan(bench: &Bench) -> Plan {
    Plan::closed(CONNECTIONS, Duration::ZERO, bench.seconds(10, 3))
}

impl Rates {
    fn round(&mut self, bench: &Bench) -> Result<()> {
        let plan = plan(bench);
        self.mixed(bench, plan)?;
        {
            let server = bench.server_with(&ROOMY)?;
            let mut cycle = Cycle::new(&server.head(), CONNECTIONS);
            let warm = Plan {
                warmup: Duration::from_secs(1),
                ..plan
            };
            let tally = drive(server.addr, warm, &mut cycle)?;
            eprintln!("  cycle: {:.0}/s", tally.per_second());
            self.cycles.push(tally.per_second());
        }
        {
            let server = bench.server_with(&ROOMY)?;
            let mut sends = Sends::new(&server.head());
            let tally = self.send_costs.measure(&server, plan, &mut sends)?;
            eprintln!("  send: {:.0}/s", tally.per_second());
            self.sends.push(tally.per_second());
        }
        {
            let server = bench.server_with(&ROOMY)?;
            let mut batches = Batches::new(&server.head(), BATCH);
            let warm = Plan {
                warmup: Duration::from_secs(1),
                ..plan
            };
            let rate = drive(server.addr, warm, &mut batches)?.per_second() * BATCH as f64;
            eprintln!("  batches of {BATCH}: {rate:.0} messages/s");
            self.batched.push(rate);
        }
        self.peers(bench)
    }

    fn mixed(&mut self, bench: &Bench, plan: Plan) -> Result<()> {
        let server = bench.server_with(&ROOMY)?;
        let mut mixed = Mixed::new(&server.head());
        let tally = self.mixed_costs.measure(&server, plan, &mut mixed)?;
        eprintln!("  mixed: {:.0}/s", tally.per_second());
        self.mixed.push(tally.per_second());
        for (all, one) in self.latencies.iter_mut().zip(&tally.latencies) {
            all.merge(one);
        }
        Ok(())
    }

    fn peers(&mut self, bench: &Bench) -> Result<()> {
        for (n, clients) in [8, CONNECTIONS].into_iter().enumerate() {
            let folder = bench.folder()?;
            let server = services::beanstalkd::start(folder.path())?;
            let rate = beanstalkd::rate(server.addr, clients, bench)?;
            eprintln!("  beanstalkd, {clients} connections: {rate:.0}/s");
            self.beanstalkd[n].push(rate);
            drop(server);
            let server = services::nats::start(folder.path())?;
            let rate = nats::rate(server.addr, clients, bench)?;
            eprintln!("  NATS JetStream publish, {clients} connections: {rate:.0}/s");
            self.nats[n].push(rate);
        }
        Ok(())
    }

    fn sections(&self) -> Vec<Section> {
        vec![self.mixed_section(), self.peer_section()]
    }

    fn mixed_section(&self) -> Section {
        let mut figures = vec![
            Figure::new("mixed requests", median(&self.mixed), Unit::PerSecond).at_least(20_000.0),
        ];
        let bounds = [("send", 35.0), ("recv", 35.0), ("ack", 20.0)];
        for ((name, bound), latencies) in bounds.into_iter().zip(&self.latencies) {
            figures.push(Figure::latency(
                format!("{name} p50"),
                latencies.quantile(0.5),
            ));
            let p95 = Figure::latency(format!("{name} p95"), latencies.quantile(0.95));
            figures.push(p95.at_most(bound));
            figures.push(Figure::latency(
                format!("{name} p99"),
                latencies.quantile(0.99),
            ));
        }
        figures.extend(self.mixed_costs.figures("mixed request"));
        figures.push(
            Figure::new(
                format!("messages sent in batches of {BATCH}"),
                median(&self.batched),
                Unit::PerSecond,
            )
            .at_least(100_000.0),
        );
        let how = format!(
            "40 % send, 20 % receive of up to 32, 40 % acknowledge with the lease; {CONNECTIONS} connections, closed loop, one \
             topic, 100 bytes of content, every answer after its fsync (SQLite)."
        );
        Section {
            id: "mailbox",
            how,
            figures,
        }
    }

    fn peer_section(&self) -> Section {
        let better =
            |rates: &[Vec<f64>]| rates.iter().map(|rates| median(rates)).fold(0.0, f64::max);
        let (cycles, sends) = (median(&self.cycles), median(&self.sends));
        let (beanstalkd, nats) = (better(&self.beanstalkd), better(&self.nats));
        let mut figures = vec![
            Figure::new("send, receive, acknowledge", cycles, Unit::PerSecond),
            Figure::new(
                "beanstalkd put, reserve, delete",
                beanstalkd,
                Unit::PerSecond,
            ),
            Figure::new("cycles to beanstalkd", cycles / beanstalkd, Unit::Times).at_least(3.0),
            Figure::new("send", sends, Unit::PerSecond),
            Figure::new("NATS JetStream publish with ack", nats, Unit::PerSecond),
            Figure::new("sends to JetStream", sends / nats, Unit::Times).at_least(3.0),
        ];
        figures.extend(self.send_costs.figures("send"));
        let how = format!(
            "The same steps by others with the same durability, in turns: beanstalkd `-f0`, NATS JetStream with a file store and \
             `sync_interval: always`. {CONNECTIONS} connections for AsyncGate; peers with 8 and with {CONNECTIONS}, the better counts."
        );
        Section {
            id: "mailbox-peers",
            how,
            figures,
        }
    }
}
