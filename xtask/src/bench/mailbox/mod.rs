//! `cargo xtask bench mailbox`: the figures that the mailbox promises, beside peers in the same run.

mod depth;
mod grpc;
mod nats;
mod rates;
mod wake;
mod workload;

use anyhow::Result;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

use super::{Bench, machine};

#[derive(Debug, Args)]
pub struct Options {
    /// Shorter runs and 100,000 messages instead of ten million; docs/BENCHMARKS.md stays as it is
    #[arg(long)]
    pub quick: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
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
    /// Mixed, batches, cycles and sends beside beanstalkd and NATS JetStream
    Rates,
    /// gRPC beside REST
    Grpc,
    /// Waiting receivers and the scanner
    Wake,
    /// Ten million messages on one topic
    Depth,
}

/// Room for what the benchmarks leave lying, and a short memory of sends, so that millions can be sent
/// within minutes.
const ROOMY: [(&str, &str); 4] = [
    ("SVCMBX_SHARD_CAP", "50000000"),
    ("SVCMBX_GLOBAL_INFLIGHT", "50000000"),
    ("SVCMBX_T_REPLAY", "10s"),
    ("ASYNCGATE_MAILBOX_DEDUP_CAPACITY", "20000000"),
];

pub fn run(options: &Options) -> Result<()> {
    let bench = Bench::open(options.server.as_deref(), &options.dir, options.quick)?;
    let wants = |part| options.only.is_empty() || options.only.contains(&part);
    let mut sections = vec![machine::section(bench.scratch.path())?];
    if wants(Part::Rates) {
        sections.extend(rates::run(&bench)?);
    }
    if wants(Part::Grpc) {
        sections.push(grpc::run(&bench)?);
    }
    if wants(Part::Wake) {
        sections.push(wake::run(&bench)?);
    }
    if wants(Part::Depth) {
        sections.push(depth::run(&bench)?);
    }
    super::publish(options.quick, options.json, &sections)
}
