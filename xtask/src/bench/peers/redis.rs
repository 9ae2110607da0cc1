//! Redis Streams with a group of consumers, driven by the same load generator as the gate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, bail};

use super::resp;
use crate::bench::load::{Frame, Then, Workload, http};

const ADD: usize = 0;
const READ: usize = 1;
const ACK: usize = 2;

/// Creates the stream and its group.
pub fn prepare(addr: SocketAddr) -> Result<()> {
    let mut command = Vec::new();
    resp::write(
        &mut command,
        &["XGROUP", "CREATE", "jobs", "workers", "$", "MKSTREAM"],
    );
    let mut stream = TcpStream::connect(addr)?;
    stream.write_all(&command)?;
    let mut answer = [0; 64];
    let read = stream.read(&mut answer)?;
    if &answer[..read] != b"+OK\r\n" {
        bail!("Redis answered {}", http::shown(&answer[..read]));
    }
    Ok(())
}

/// A workload: each connection adds an entry, reads one as a consumer of its own and acknowledges it.
pub struct Entries {
    add: Vec<u8>,
    reads: Vec<Vec<u8>>,
    /// For each connection, the kind of the next request, and the acknowledgement that a read prepared.
    next: Vec<(usize, Vec<u8>)>,
}

impl Entries {
    pub fn new(connections: usize, payload: &str) -> Self {
        let mut add = Vec::new();
        resp::write(&mut add, &["XADD", "jobs", "*", "body", payload]);
        let read = |connection: usize| {
            let consumer = format!("c{connection}");
            let group = ["XREADGROUP", "GROUP", "workers", &consumer];
            let mut read = Vec::new();
            resp::write(
                &mut read,
                &[&group[..], &["COUNT", "1", "STREAMS", "jobs", ">"]].concat(),
            );
            read
        };
        Self {
            add,
            reads: (0..connections).map(read).collect(),
            next: vec![(ADD, Vec::new()); connections],
        }
    }
}

impl Workload for Entries {
    fn kinds(&self) -> &'static [&'static str] {
        &["add", "read", "acknowledge"]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (kind, ack) = &self.next[connection];
        out.extend_from_slice(match *kind {
            ADD => &self.add,
            READ => &self.reads[connection],
            _ => ack,
        });
        Some(*kind)
    }

    fn frame(&self, input: &[u8]) -> Result<Option<Frame>> {
        Ok(resp::length(input)?.map(|len| Frame {
            len,
            status: 200,
            body: 0..len,
        }))
    }

    fn answer(
        &mut self,
        connection: usize,
        kind: usize,
        _status: u16,
        reply: &[u8],
    ) -> Result<Then> {
        let (next, ack) = &mut self.next[connection];
        match kind {
            ADD if reply.starts_with(b"$") => *next = READ,
            READ => {
                // The name of the stream comes first, then the id of the entry.
                let id = resp::text(reply, 1)?;
                let id = id.with_context(|| format!("a read found {}", http::shown(reply)))?;
                ack.clear();
                resp::write(ack, &["XACK", "jobs", "workers", id]);
                *next = ACK;
            }
            ACK if reply == b":1\r\n" => {
                *next = ADD;
                return Ok(Then::Finished);
            }
            _ => bail!("Redis answered {}", http::shown(reply)),
        }
        Ok(Then::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cycle_is_add_read_acknowledge() {
        let mut entries = Entries::new(2, "hello");
        let mut out = Vec::new();
        assert_eq!(entries.request(1, &mut out), Some(ADD));
        assert!(out.ends_with(b"$4\r\nbody\r\n$5\r\nhello\r\n"));
        let added = b"$3\r\n7-0\r\n";
        assert_eq!(entries.answer(1, ADD, 200, added).unwrap(), Then::Continue);
        out.clear();
        assert_eq!(entries.request(1, &mut out), Some(READ));
        assert!(out.windows(4).any(|part| part == b"\nc1\r"));
        let read = b"*1\r\n*2\r\n$4\r\njobs\r\n*1\r\n*2\r\n$3\r\n7-0\r\n*2\r\n$4\r\nbody\r\n$5\r\nhello\r\n";
        assert_eq!(entries.answer(1, READ, 200, read).unwrap(), Then::Continue);
        out.clear();
        assert_eq!(entries.request(1, &mut out), Some(ACK));
        assert!(out.ends_with(b"$7\r\nworkers\r\n$3\r\n7-0\r\n"));
        assert_eq!(
            entries.answer(1, ACK, 200, b":1\r\n").unwrap(),
            Then::Finished
        );
        assert_eq!(entries.request(1, &mut out), Some(ADD));
        // The other connection has a cycle of its own.
        assert_eq!(entries.request(0, &mut out), Some(ADD));
    }

    #[test]
    fn what_is_no_cycle_is_an_error() {
        let mut entries = Entries::new(1, "hello");
        assert!(entries.answer(0, ADD, 200, b"-OOM too much\r\n").is_err());
        assert!(entries.answer(0, READ, 200, b"*-1\r\n").is_err());
        assert!(entries.answer(0, ACK, 200, b":0\r\n").is_err());
    }
}
