//! A program that listens on a port of its own until it is dropped.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const START_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Running {
    child: Child,
    pub addr: SocketAddr,
}

impl Running {
    /// Starts a program that listens at `addr`, and waits until it does: these programs report nothing.
    pub(super) fn start(command: &mut Command, addr: SocketAddr) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        // Owned before the wait, so that a start that fails leaves no process behind.
        let started = Self { child, addr };
        let since = Instant::now();
        while TcpStream::connect(addr).is_err() {
            if since.elapsed() > START_TIMEOUT {
                bail!("{name} does not listen on {addr}");
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(started)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its data is not needed again, and it may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns a port that was free a moment ago. If another program takes it first, the start fails loudly.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

pub(super) fn free_address() -> io::Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}
