//! Simulated steps per second.

use std::process::Command;

use anyhow::{Context, Result};

use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::built;
use crate::bench::{Bench, ROUNDS};
use crate::process;

pub fn run(bench: &Bench) -> Result<Section> {
    let binary = built("sim", &["--package", "asyncgate-sim"])?.join("asyncgate-sim");
    let minutes = bench.seconds(20, 3).as_secs_f64() / 60.0;
    let mut rates = Vec::new();
    for round in 1..=ROUNDS {
        // Each round has worlds of its own: some are livelier than others.
        let seed = round * 1_000_000;
        let mut command = Command::new(&binary);
        command.args(["--minutes", &minutes.to_string()]);
        let told = process::output(command.args(["--seed", &seed.to_string()]))?;
        let rate = rate(&told).with_context(|| format!("no rate in what it told: {told}"))?;
        eprintln!("sim, round {round} of {ROUNDS}: {rate:.0} steps/s");
        rates.push(rate);
    }
    let figures =
        vec![Figure::new("simulated steps", median(&rates), Unit::PerSecond).at_least(100_000.0)];
    let how = "`cargo xtask sim`, one thread: the real engine on the memory store, every commit and answer checked against \
               the model, new worlds and whole audits included; three of four worlds call with typed values, as gRPC \
               does, the fourth with JSON. Median of the rounds, each from other seeds."
        .to_owned();
    Ok(Section {
        id: "sim",
        how,
        figures,
    })
}

/// Reads the last line: `614400 steps, 102400 steps/s, next seed 301`.
fn rate(told: &str) -> Option<f64> {
    let rate = told.lines().last()?.split(", ").nth(1)?;
    rate.strip_suffix(" steps/s")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_has_the_rate() {
        let told = "1 steps, 5 steps/s, next seed 2\n614400 steps, 102400 steps/s, next seed 301\n";
        assert_eq!(rate(told), Some(102_400.0));
        assert_eq!(rate("seed 7, step 3: leases"), None);
    }
}
