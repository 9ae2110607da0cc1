//! `cargo xtask bench proof`: the speed of the verifier and the simulator, the cost of the client and the
//! worker, and the cost of the hash chain.

mod chain;
mod client;
mod sim;
mod verify;

use anyhow::Result;
use clap::ValueEnum;

pub use client::rate as rate_told;

use super::{Bench, Options};

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

pub fn run(options: &Options<Part>) -> Result<()> {
    let bench = Bench::open(options)?;
    let mut sections = Vec::new();
    if options.wants(Part::Verify) {
        sections.push(verify::run(&bench)?);
    }
    if options.wants(Part::Sim) {
        sections.push(sim::run(&bench)?);
    }
    if options.wants(Part::Client) {
        sections.push(client::run(&bench)?);
    }
    if options.wants(Part::Chain) {
        sections.push(chain::run(&bench)?);
    }
    options.publish(&sections)
}
