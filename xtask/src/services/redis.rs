//! Redis: one that keeps nothing on disk, and one that syncs every write, which is the same durability as the gate's.
//! The tests start their own, many at a time.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::apt;
use super::running::{Running, free_address};
use crate::process;

const BINARY: &str = "/usr/bin/redis-server";

pub fn install() -> Result<()> {
    apt::ensure("redis-server", || Path::new(BINARY).exists())
}

/// Returns the version, for example "Redis 7.0.15".
pub fn version() -> Result<String> {
    install()?;
    let told = process::output(Command::new(BINARY).arg("--version"))?;
    let number = number(&told).with_context(|| format!("no version in {told}"))?;
    Ok(format!("Redis {number}"))
}

/// Starts a server in `dir`, which must exist.
pub fn start(dir: &Path) -> Result<Running> {
    start_with(dir, &["--appendonly", "no"])
}

/// Starts a server that syncs its log before it answers. It never rewrites the log: that is work for later, and a
/// short measurement that met it would be unfair.
pub fn start_synced(dir: &Path) -> Result<Running> {
    let log = ["--appendonly", "yes", "--appendfsync", "always"];
    let settings = [&log[..], &["--auto-aof-rewrite-percentage", "0"]].concat();
    start_with(dir, &settings)
}

fn start_with(dir: &Path, settings: &[&str]) -> Result<Running> {
    install()?;
    let addr = free_address()?;
    let port = addr.port().to_string();
    let mut command = Command::new(BINARY);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
    command.args(settings).arg("--dir");
    Running::start(command.arg(dir), addr)
}

/// Reads the number from `Redis server v=7.0.15 sha=...`.
fn number(told: &str) -> Option<&str> {
    told.split_whitespace()
        .find_map(|word| word.strip_prefix("v="))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let told = "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=x\n";
        assert_eq!(number(told), Some("7.0.15"));
        assert_eq!(number("nothing"), None);
    }
}
