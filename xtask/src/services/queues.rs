//! Task queues for Node, which the benchmark measures beside the gate, and a Node that is new enough for them.

use std::path::PathBuf;

use anyhow::Result;

pub use super::npm::Set as Packages;

pub const BULLMQ: Packages = Packages {
    name: "bullmq",
    packages: &["bullmq@6.7.0", "ioredis@6.0.0"],
    program: "node_modules/bullmq/package.json",
};

pub const PG_BOSS: Packages = Packages {
    name: "pg-boss",
    packages: &["pg-boss@12.35.0"],
    program: "node_modules/pg-boss/package.json",
};

pub const GRAPHILE_WORKER: Packages = Packages {
    name: "graphile-worker",
    packages: &["graphile-worker@0.18.0"],
    program: "node_modules/graphile-worker/package.json",
};

/// Installed by itself: the queues need version 22, which many systems do not have yet, and one will do for all.
const NODE: Packages = Packages {
    name: "node",
    packages: &["node@22.20.0"],
    program: "node_modules/node/bin/node",
};

/// Returns the program that runs the drivers of the queues.
pub fn node() -> Result<PathBuf> {
    Ok(NODE.install()?.join(NODE.program))
}
