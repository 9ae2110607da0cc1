//! `cargo xtask sim`: simulates the engine in a build profile of its own, which takes some minutes to
//! build. A failure is shrunk and kept among the simulator's regressions, which its tests replay.

use anyhow::Result;
use clap::Args;

use crate::process;

#[derive(Debug, Args)]
pub struct Options {
    /// How long to run
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The first seed; each world has the next one
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub fn run(options: &Options) -> Result<()> {
    let regressions = process::root().join("crates/sim/regressions");
    process::run(
        process::cargo()
            .args(["run", "--profile", "sim", "--package", "asyncgate-sim"])
            .arg("--")
            .args(["--minutes", &options.minutes.to_string()])
            .args(["--seed", &options.seed.to_string()])
            .arg("--regressions")
            .arg(regressions),
    )
}
