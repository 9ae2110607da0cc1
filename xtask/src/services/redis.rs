//! Redis that keeps nothing on disk. The tests start their own, many at a time.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::apt;
use super::running::{Running, free_address};

const BINARY: &str = "/usr/bin/redis-server";

pub fn install() -> Result<()> {
    apt::ensure("redis-server", || Path::new(BINARY).exists())
}

/// Starts a server in `dir`, which must exist.
pub fn start(dir: &Path) -> Result<Running> {
    install()?;
    let addr = free_address()?;
    let port = addr.port().to_string();
    let mut command = Command::new(BINARY);
    command.args(["--port", &port, "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no", "--dir"]);
    Running::start(command.arg(dir), addr)
}
