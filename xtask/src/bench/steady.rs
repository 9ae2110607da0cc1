//! A minute at 80 % of the measured rate: the latencies that a user sees when the gate is busy but not
//! overloaded, and the disk space that finished tasks take.

use std::time::Duration;

use anyhow::Result;

use super::load::{Plan, drive};
use super::report::{Figure, Section, Unit};
use super::workload::Cycle;
use super::{Bench, CONNECTIONS, cycle};

const SHARE: f64 = 0.8;

pub fn run(bench: &Bench, cycles_per_second: Option<f64>) -> Result<Section> {
    let full = match cycles_per_second {
        Some(rate) => rate,
        None => measured(bench)?,
    };
    let rate = full * SHARE;
    let length = bench.seconds(60, 10);
    eprintln!("{} s at {rate:.0} cycles/s", length.as_secs());
    let server = bench.server()?;
    let empty = server.disk()?;
    let mut workload = Cycle::new(&server.head(), CONNECTIONS);
    let plan = Plan {
        rate: Some(rate),
        ..Plan::closed(CONNECTIONS, Duration::ZERO, length)
    };
    let tally = drive(server.addr, plan, &mut workload)?;
    let all = tally.all();
    let running = server.disk()?;
    let (resident, _) = server.memory()?;
    // Measured after a clean stop: the log that is still to be folded in is not the space of a task.
    let stopped = server.stop()?;
    let per_task = |size: u64| size.saturating_sub(empty) as f64 / tally.units as f64;
    let figures = vec![
        Figure::new("cycles asked for", rate, Unit::PerSecond),
        Figure::new("cycles reached", tally.per_second(), Unit::PerSecond).at_least(rate * 0.99),
        Figure::latency("request p50", all.quantile(0.5)),
        Figure::latency("request p99", all.quantile(0.99)),
        Figure::latency("request p99.9", all.quantile(0.999)),
        Figure::latency("request max", all.max()).at_most(100.0),
        Figure::new(
            "disk per finished task with its receipts",
            per_task(stopped),
            Unit::Bytes,
        )
        .at_most(2_000.0),
        Figure::new(
            "disk per finished task while running, log included",
            per_task(running),
            Unit::Bytes,
        ),
        Figure::new("finished tasks", tally.units as f64, Unit::Count),
        Figure::new(
            "resident memory at the end",
            resident as f64 / f64::from(1 << 20),
            Unit::MiB,
        ),
    ];
    let how = format!(
        "{} s of full cycles at {:.0} % of the measured rate, started on a fixed schedule over {CONNECTIONS} connections; a \
         cycle that starts late is timed from when it was due. Every answer after its fsync.",
        length.as_secs(),
        SHARE * 100.0
    );
    Ok(Section {
        id: "steady",
        how,
        figures,
    })
}

/// Measures the full rate, if no earlier part has.
fn measured(bench: &Bench) -> Result<f64> {
    let mut rounds = cycle::Rounds::default();
    rounds.run(bench)?;
    Ok(rounds.rate())
}
