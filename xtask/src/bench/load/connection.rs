//! One connection of the load generator: bytes out, bytes in, nothing about their meaning.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use mio::net::TcpStream;

/// Larger than any answer but a page of receipts, so that one read takes a whole answer.
const INPUT: usize = 64 * 1024;

#[derive(Debug)]
pub struct Connection {
    pub stream: TcpStream,
    /// The time at which the current request was sent, or should have been; `None` while idle.
    pub since: Option<Instant>,
    pub kind: usize,
    pub out: Vec<u8>,
    input: Vec<u8>,
    filled: usize,
}

impl Connection {
    pub fn open(addr: SocketAddr) -> Result<Self> {
        let stream = std::net::TcpStream::connect(addr)
            .with_context(|| format!("cannot connect to {addr}"))?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream: TcpStream::from_std(stream),
            since: None,
            kind: 0,
            out: Vec::with_capacity(1024),
            input: vec![0; INPUT],
            filled: 0,
        })
    }

    /// Sends the content of `out`. A request is far smaller than a socket's buffer and the one before it
    /// was answered, so a short write means that something is wrong.
    pub fn send(&mut self) -> Result<()> {
        let sent = self.stream.write(&self.out).context("cannot send")?;
        if sent != self.out.len() {
            bail!("only {sent} of {} bytes were taken", self.out.len());
        }
        self.out.clear();
        Ok(())
    }

    /// Reads the bytes that have arrived. The event is edge-triggered: after a short read the socket is
    /// empty, after a full buffer it must be read again.
    pub fn receive(&mut self) -> Result<()> {
        loop {
            if self.filled == self.input.len() {
                self.input.resize(2 * self.input.len(), 0);
            }
            match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(read) => {
                    self.filled += read;
                    if self.filled < self.input.len() {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("cannot receive"),
            }
        }
    }

    pub fn received(&self) -> &[u8] {
        &self.input[..self.filled]
    }

    /// Drops an answer that was handled.
    pub fn consume(&mut self, len: usize) {
        self.input.copy_within(len..self.filled, 0);
        self.filled -= len;
    }
}
