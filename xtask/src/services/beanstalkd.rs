//! beanstalkd with its binary log, fsynced at every write (`-f0`): the durability that the gate has.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use super::{apt, await_port, free_port};

#[derive(Debug)]
pub struct Beanstalkd {
    child: Child,
    pub addr: SocketAddr,
}

impl Beanstalkd {
    pub fn install() -> Result<()> {
        apt::ensure("beanstalkd", || Path::new(BINARY).exists())
    }

    /// Starts one with its log in `dir`, which must exist.
    pub fn start(dir: &Path) -> Result<Self> {
        Self::install()?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let child = Command::new(BINARY)
            .args([
                "-l",
                "127.0.0.1",
                "-p",
                &addr.port().to_string(),
                "-f0",
                "-b",
            ])
            .arg(dir)
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start beanstalkd")?;
        // Owned before the wait, so that a start that fails leaves no process behind.
        let started = Self { child, addr };
        await_port(addr, "beanstalkd")?;
        Ok(started)
    }
}

impl Drop for Beanstalkd {
    fn drop(&mut self) {
        // It keeps nothing that anybody reads again, and it may be gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

const BINARY: &str = "/usr/bin/beanstalkd";
