//! `cargo xtask bench admission`: the speed of decisions, alone and over HTTP, and the memory of keys.

mod http;
mod inside;
mod redis;

pub use http::checks;

use anyhow::Result;
use clap::ValueEnum;

use super::{Bench, Options, machine};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Decisions within the process: buckets and warrants
    Inside,
    /// `limits/check` beside a bare axum handler
    Http,
    /// Ten million keys
    Keys,
    /// The Redis backend beside redis-benchmark
    Redis,
}

pub fn run(options: &Options<Part>) -> Result<()> {
    let bench = Bench::open(options)?;
    let mut sections = vec![machine::section(bench.scratch.path())?];
    if options.wants(Part::Inside) {
        sections.push(inside::decisions(&bench)?);
    }
    if options.wants(Part::Http) {
        sections.push(http::run(&bench)?);
    }
    if options.wants(Part::Keys) {
        sections.push(inside::keys(&bench)?);
    }
    if options.wants(Part::Redis) {
        sections.push(redis::run(&bench)?);
    }
    options.publish(&sections)
}
