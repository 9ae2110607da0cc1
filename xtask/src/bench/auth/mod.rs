//! `cargo xtask bench auth`: what credentials, tenants and TLS cost, beside the shared key and classical cryptography.

mod admin;
mod first;
mod handshake;
mod login;
mod rates;
mod tenants;

use anyhow::Result;
use clap::ValueEnum;

use super::{Bench, Options, machine};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Requests with each kind of credential, beside the shared key
    Rates,
    /// The first use of a key
    First,
    /// Creates and cycles on a server with ten thousand tenants
    Tenants,
    /// TLS handshakes, classical and hybrid
    Handshake,
}

pub fn run(options: &Options<Part>) -> Result<()> {
    let bench = Bench::open(options)?;
    let mut sections = vec![machine::section(bench.scratch.path())?];
    if options.wants(Part::Rates) {
        sections.push(rates::run(&bench)?);
    }
    if options.wants(Part::First) {
        sections.push(first::run(&bench)?);
    }
    if options.wants(Part::Tenants) {
        sections.push(tenants::run(&bench)?);
    }
    if options.wants(Part::Handshake) {
        sections.push(handshake::run(&bench)?);
    }
    options.publish(&sections)
}
