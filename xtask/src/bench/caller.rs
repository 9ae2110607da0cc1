//! A blocking connection, for measurements that need one request at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::load::http;

/// A blocking connection: two of them need no event loop.
pub struct Caller {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Caller {
    pub fn connect(addr: SocketAddr) -> Result<Self> {
        Self::within(addr, Duration::from_secs(40))
    }

    /// Connects, and waits so long for the connection and for each answer.
    pub fn within(addr: SocketAddr, patience: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&addr, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self {
            stream,
            input: Vec::new(),
        })
    }

    pub fn send(&mut self, request: &[u8]) -> Result<()> {
        self.stream.write_all(request).context("cannot send")
    }

    pub fn answer(&mut self, wanted: u16) -> Result<Vec<u8>> {
        let mut chunk = [0; 16 * 1024];
        loop {
            if let Some(frame) = http::frame(&self.input)? {
                let body = self.input[frame.body].to_vec();
                self.input.drain(..frame.len);
                if frame.status != wanted {
                    bail!(
                        "expected {wanted}, got {}: {}",
                        frame.status,
                        http::shown(&body)
                    );
                }
                return Ok(body);
            }
            let read = self.stream.read(&mut chunk).context("no answer")?;
            if read == 0 {
                bail!("the server closed a connection");
            }
            self.input.extend_from_slice(&chunk[..read]);
        }
    }
}
