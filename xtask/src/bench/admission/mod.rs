//! `cargo xtask bench admission`: how fast the gate decides, alone and over HTTP, and what its keys weigh.

mod http;
mod inside;

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};

use super::report::Section;
use super::{Bench, machine};

#[derive(Debug, Args)]
pub struct Options {
    /// Shorter runs and 100,000 keys instead of ten million; docs/BENCHMARKS.md stays as it is
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
    /// Decisions within the process: buckets and warrants
    Inside,
    /// `limits/check` beside a bare axum handler
    Http,
    /// Ten million keys
    Keys,
    /// The Redis backend beside redis-benchmark
    Redis,
}

pub fn run(options: &Options) -> Result<()> {
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    let bench = Bench::open(options.server.as_deref(), &options.dir, options.quick)?;
    let mut sections = vec![machine::section(bench.scratch.path())?];
    if wants(Part::Inside) {
        sections.push(inside::decisions(&bench)?);
    }
    if wants(Part::Http) {
        sections.push(http::run(&bench)?);
    }
    if wants(Part::Keys) {
        sections.push(inside::keys(&bench)?);
    }
    if wants(Part::Redis) {
        sections.push(redis());
    }
    super::publish(options.quick, options.json, &sections)
}

/// A gap, told as one: nothing here is measured.
fn redis() -> Section {
    let how = "**Not measured.** There is no Redis backend yet. Asked for: at least 70 % of what `redis-benchmark -t set` \
               reaches with the same connections in the same run, and a batch of 100 nonces at least 10 times as fast \
               as one by one.";
    Section {
        id: "admission-redis",
        how: how.to_owned(),
        figures: Vec::new(),
    }
}
