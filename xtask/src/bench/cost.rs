//! A run on a warm server together with the processor time that it took on both sides.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::family;
use super::load::{Plan, Tally, Workload, drive};
use super::report::{Figure, Unit, median};
use super::server::{Server, cpu_time};

const WARMUP: Duration = Duration::from_secs(1);

/// What one part tells of one server: units of work per second, and the server's processor microseconds for each.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    pub rate: f64,
    pub cost: f64,
}

impl Measured {
    /// Tells of units of work that took this long, and this much of the server's processor time.
    pub fn of(units: f64, elapsed: Duration, used: Duration) -> Self {
        Self {
            rate: units / elapsed.as_secs_f64(),
            cost: used.as_secs_f64() * 1e6 / units,
        }
    }

    /// Tells of the parts of units that are made of so many.
    pub fn split(self, parts: usize) -> Self {
        Self {
            rate: self.rate * parts as f64,
            cost: self.cost / parts as f64,
        }
    }
}

/// Measures any server by its process: warms it up in a run of its own, then drives it. Each run has its own workload,
/// since some must greet on every new connection.
pub fn measure<W: Workload>(
    pid: u32,
    addr: SocketAddr,
    plan: Plan,
    workload: impl Fn() -> W,
) -> Result<Measured> {
    let run = |length| Plan {
        warmup: Duration::ZERO,
        length,
        ..plan
    };
    drive(addr, run(Some(plan.warmup)), &mut workload())?;
    let before = family::cpu_time(pid)?;
    let tally = drive(addr, run(plan.length), &mut workload())?;
    let used = family::cpu_time(pid)?.saturating_sub(before);
    Ok(Measured::of(tally.units as f64, tally.elapsed, used))
}

/// Processor microseconds per unit of work, by round.
#[derive(Debug, Default)]
pub struct Costs {
    server: Vec<f64>,
    own: Vec<f64>,
}

impl Costs {
    /// Warms up in a run of its own, so that the processor time covers what is counted and no more.
    pub fn measure(
        &mut self,
        server: &Server,
        plan: Plan,
        workload: &mut impl Workload,
    ) -> Result<Tally> {
        let warm = Plan {
            length: Some(WARMUP),
            ..plan
        };
        drive(server.addr, warm, workload)?;
        let mut tally = None;
        self.around(server, || {
            let driven = tally.insert(drive(server.addr, plan, workload)?);
            Ok(driven.units)
        })?;
        tally.context("nothing was measured")
    }

    /// Measures a run that tells how many units of work it did.
    pub fn around(&mut self, server: &Server, run: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let (theirs, ours) = (server.cpu()?, cpu_time("self")?);
        let units = run()?;
        let per_unit = |used: Duration| used.as_secs_f64() * 1e6 / units as f64;
        self.server
            .push(per_unit(server.cpu()?.saturating_sub(theirs)));
        self.own
            .push(per_unit(cpu_time("self")?.saturating_sub(ours)));
        Ok(units)
    }

    /// Returns the server's cost, the median of the rounds.
    pub fn server(&self) -> f64 {
        median(&self.server)
    }

    pub fn figures(&self, unit: &str) -> [Figure; 2] {
        let figure = |who: &str, costs: &[f64]| {
            Figure::new(
                format!("{who} processor time per {unit}"),
                median(costs),
                Unit::Micros,
            )
        };
        [
            figure("server", &self.server),
            figure("load generator", &self.own),
        ]
    }
}
