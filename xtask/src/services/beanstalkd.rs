//! beanstalkd with its binary log, fsynced at every write (`-f0`): the same durability as the gate's.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::apt;
use super::running::{Running, free_address};

const BINARY: &str = "/usr/bin/beanstalkd";

/// Starts a server with its log in `dir`, which must exist.
pub fn start(dir: &Path) -> Result<Running> {
    apt::ensure("beanstalkd", || Path::new(BINARY).exists())?;
    let addr = free_address()?;
    let port = addr.port().to_string();
    let mut command = Command::new(BINARY);
    command.args(["-l", "127.0.0.1", "-p", &port, "-f0", "-b"]);
    Running::start(command.arg(dir), addr)
}
