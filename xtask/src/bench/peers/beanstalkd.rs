//! beanstalkd's text protocol, driven by the same load generator as the gate.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};

use crate::bench::Bench;
use crate::bench::load::{Frame, Plan, Then, Workload, drive, http};
use crate::bench::workload::create_body;

const PUT: usize = 0;
const RESERVE: usize = 1;

/// Measures cycles per second with this many connections.
pub fn rate(addr: SocketAddr, clients: usize, bench: &Bench) -> Result<f64> {
    let plan = Plan::closed(clients, bench.seconds(1, 1), bench.seconds(6, 2));
    Ok(drive(addr, plan, &mut Jobs::new(clients, &create_body("")))?.per_second())
}

/// A workload: each connection puts a job, reserves one and deletes it.
pub struct Jobs {
    put: Vec<u8>,
    /// For each connection, the kind of the next request, and the id to delete.
    next: Vec<(usize, u64)>,
}

impl Jobs {
    pub fn new(connections: usize, body: &str) -> Self {
        let put = format!("put 0 0 300 {}\r\n{body}\r\n", body.len()).into_bytes();
        Self {
            put,
            next: vec![(PUT, 0); connections],
        }
    }
}

impl Workload for Jobs {
    fn kinds(&self) -> &'static [&'static str] {
        &["put", "reserve", "delete"]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (kind, id) = self.next[connection];
        match kind {
            PUT => out.extend_from_slice(&self.put),
            RESERVE => out.extend_from_slice(b"reserve\r\n"),
            _ => out.extend_from_slice(format!("delete {id}\r\n").as_bytes()),
        }
        Some(kind)
    }

    fn frame(&self, input: &[u8]) -> Result<Option<Frame>> {
        let Some(end) = input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let mut len = end + 2;
        if input.starts_with(b"RESERVED ") {
            // The job itself follows, and ends with its own line break.
            len += reserved(&input[..end])?.1 + 2;
        }
        Ok((input.len() >= len).then_some(Frame {
            len,
            status: 200,
            body: 0..end,
        }))
    }

    fn answer(
        &mut self,
        connection: usize,
        kind: usize,
        _status: u16,
        line: &[u8],
    ) -> Result<Then> {
        let next = &mut self.next[connection];
        match kind {
            PUT if line.starts_with(b"INSERTED ") => next.0 = RESERVE,
            RESERVE if line.starts_with(b"RESERVED ") => *next = (RESERVE + 1, reserved(line)?.0),
            _ if kind > RESERVE && line == b"DELETED" => {
                next.0 = PUT;
                return Ok(Then::Finished);
            }
            _ => bail!("beanstalkd answered {}", http::shown(line)),
        }
        Ok(Then::Continue)
    }
}

/// Reads id and size from `RESERVED <id> <bytes>`.
fn reserved(line: &[u8]) -> Result<(u64, usize)> {
    let text = std::str::from_utf8(line)?;
    let mut parts = text.split(' ').skip(1);
    let mut number = || parts.next().and_then(|part| part.parse().ok());
    let (id, size) = (number(), number());
    id.zip(size)
        .and_then(|(id, size)| Some((id, usize::try_from(size).ok()?)))
        .with_context(|| format!("beanstalkd answered {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_job_is_cut_with_its_body() {
        let jobs = Jobs::new(1, "x");
        let input = b"RESERVED 17 5\r\nhello\r\nDELETED\r\n";
        for cut in 0..22 {
            assert_eq!(
                jobs.frame(&input[..cut]).unwrap(),
                None,
                "after {cut} bytes"
            );
        }
        let frame = jobs.frame(input).unwrap().unwrap();
        assert_eq!((frame.len, frame.body.clone()), (22, 0..13));
        assert_eq!(reserved(&input[frame.body]).unwrap(), (17, 5));
        assert_eq!(jobs.frame(&input[22..]).unwrap().unwrap().len, 9);
    }

    #[test]
    fn a_cycle_is_put_reserve_delete() {
        let mut jobs = Jobs::new(1, "x");
        let mut out = Vec::new();
        assert_eq!(jobs.request(0, &mut out), Some(PUT));
        assert_eq!(
            jobs.answer(0, PUT, 200, b"INSERTED 9").unwrap(),
            Then::Continue
        );
        assert_eq!(jobs.request(0, &mut out), Some(RESERVE));
        assert_eq!(
            jobs.answer(0, RESERVE, 200, b"RESERVED 9 5").unwrap(),
            Then::Continue
        );
        out.clear();
        assert_eq!(jobs.request(0, &mut out), Some(RESERVE + 1));
        assert_eq!(out, b"delete 9\r\n");
        assert_eq!(
            jobs.answer(0, RESERVE + 1, 200, b"DELETED").unwrap(),
            Then::Finished
        );
        assert!(jobs.answer(0, PUT, 200, b"OUT_OF_MEMORY").is_err());
    }
}
