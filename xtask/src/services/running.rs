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
    /// Starts what is to listen at `addr`, and waits until it does: these programs report nothing.
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
}

impl Drop for Running {
    fn drop(&mut self) {
        // It keeps nothing that anybody reads again, and it may be gone already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A port that was free a moment ago. Another program may take it first; then the start fails loudly.
pub(super) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
        .local_addr()?
        .port())
}

pub(super) fn free_address() -> io::Result<SocketAddr> {
    Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?)))
}
