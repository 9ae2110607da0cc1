//! `cargo xtask bench mailbox`: the figures that the mailbox promises, beside peers in the same run.

mod depth;
mod grpc;
pub mod nats;
mod rates;
mod wake;
pub mod workload;

pub use rates::mixed;

use super::{Bench, Options, machine};
use anyhow::Result;
use clap::ValueEnum;

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

/// Settings with room for the messages that the benchmarks leave, and a short replay window, so that
/// millions can be sent within minutes.
const ROOMY: [(&str, &str); 4] = [
    ("SVCMBX_SHARD_CAP", "50000000"),
    ("SVCMBX_GLOBAL_INFLIGHT", "50000000"),
    ("SVCMBX_T_REPLAY", "10s"),
    ("ASYNCGATE_MAILBOX_DEDUP_CAPACITY", "20000000"),
];

pub fn run(options: &Options<Part>) -> Result<()> {
    let bench = Bench::open(options)?;
    let mut sections = vec![machine::section(bench.scratch.path())?];
    if options.wants(Part::Rates) {
        sections.extend(rates::run(&bench)?);
    }
    if options.wants(Part::Grpc) {
        sections.push(grpc::run(&bench)?);
    }
    if options.wants(Part::Wake) {
        sections.push(wake::run(&bench)?);
    }
    if options.wants(Part::Depth) {
        sections.push(depth::run(&bench)?);
    }
    options.publish(&sections)
}
