//! `cargo xtask bench proof`: how fast a ledger is verified and the engine simulated, how little the
//! client and the worker take from the rate, and what the hash chain costs.

mod chain;
mod client;
mod sim;
mod verify;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::Bench;

#[derive(Debug, Args)]
pub struct Options {
    /// Shorter runs and 40,000 receipts instead of 500,000; docs/BENCHMARKS.md stays as it is
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',')]
    only: Vec<Part>,
    /// Measure this binary instead of building one
    #[arg(long, value_name = "BINARY")]
    server: Option<PathBuf>,
    /// Keep the data here while measuring
    #[arg(long, default_value = super::SCRATCH)]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The verifier
    Verify,
    /// The simulator
    Sim,
    /// The client and the worker
    Client,
    /// The hash chain
    Chain,
}

pub fn run(options: &Options) -> Result<()> {
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    let bench = Bench::open(options.server.as_deref(), &options.dir, options.quick)?;
    let mut sections = Vec::new();
    if wants(Part::Verify) {
        sections.push(verify::run(&bench)?);
    }
    if wants(Part::Sim) {
        sections.push(sim::run(&bench)?);
    }
    if wants(Part::Client) {
        sections.push(client::run(&bench)?);
    }
    if wants(Part::Chain) {
        sections.push(chain::run(&bench)?);
    }
    super::publish(options.quick, options.json, &sections)
}
