//! The workloads on messages.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, bail};

use crate::bench::load::http::{self, Head};
use crate::bench::load::{Then, Workload};

pub const TOPIC: &str = "bench:inbox";
/// A hundred bytes.
const PAYLOAD: &str = "eyJzdWJqZWN0IjoiaGVsbG8sIGdhdGUiLCJib2R5IjoiYSBtZXNzYWdlIGxpa2UgbWFueSBvdGhlcnMsIG5laXRoZXIgc2hvcnQgbm9yIGxvbmcuLi4uIn0uLg==";

/// Names for messages that nobody else uses: the server takes a second send of one name for a repetition.
#[derive(Debug)]
pub struct Names {
    run: u32,
    next: u64,
}

impl Default for Names {
    fn default() -> Self {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        Self {
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            next: 0,
        }
    }
}

impl Names {
    pub fn next(&mut self) -> String {
        self.next += 1;
        format!("{:x}-{:x}-{:x}", std::process::id(), self.run, self.next)
    }
}

fn message(name: &str) -> String {
    format!(r#"{{"topic":"{TOPIC}","idem_key":"{name}","payload_b64":"{PAYLOAD}"}}"#)
}

pub fn send(head: &Head, names: &mut Names) -> Vec<u8> {
    head.post("/v1/send", &message(&names.next()))
}

pub fn receive(head: &Head, max: usize, visibility_ms: u64, wait_seconds: u64) -> Vec<u8> {
    let body = format!(
        r#"{{"topic":"{TOPIC}","max_messages":{max},"visibility_ms":{visibility_ms},"wait_seconds":{wait_seconds}}}"#
    );
    head.post("/v1/recv", &body)
}

/// A delivery that is to be acknowledged.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub id: String,
    lease: String,
}

impl Delivery {
    pub fn ack(&self, head: &Head, out: &mut Vec<u8>) {
        let body = [r#"{"lease":""#, &self.lease, r#""}"#];
        head.write_post(out, &["/v1/ack/", &self.id], &body);
    }
}

/// Reads the deliveries in an answer.
pub fn deliveries(body: &[u8]) -> Result<Vec<Delivery>> {
    let text = std::str::from_utf8(body)?;
    let ids = text.split(r#""msg_id":""#).skip(1);
    ids.map(|part| {
        let id = part.split('"').next().unwrap_or_default();
        let lease = part
            .split(r#""lease":""#)
            .nth(1)
            .and_then(|rest| rest.split('"').next());
        match lease {
            Some(lease) => Ok(Delivery {
                id: id.to_owned(),
                lease: lease.to_owned(),
            }),
            None => bail!("a message without a lease: {}", http::shown(body)),
        }
    })
    .collect()
}

fn expect_ok(status: u16, body: &[u8]) -> Result<()> {
    if status != 200 {
        bail!("expected 200, got {status}: {}", http::shown(body));
    }
    Ok(())
}

/// Sends, one message a request.
#[derive(Debug)]
pub struct Sends {
    head: Head,
    names: Names,
}

impl Sends {
    pub fn new(head: &Head) -> Self {
        Self {
            head: head.clone(),
            names: Names::default(),
        }
    }
}

impl Workload for Sends {
    fn kinds(&self) -> &'static [&'static str] {
        &["send"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        out.extend_from_slice(&send(&self.head, &mut self.names));
        Some(0)
    }

    fn answer(
        &mut self,
        _connection: usize,
        _kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        expect_ok(status, body)?;
        Ok(Then::Finished)
    }
}

/// Sends in batches, for ever or until a number of messages is sent.
#[derive(Debug)]
pub struct Batches {
    head: Head,
    names: Names,
    size: usize,
    left: Option<u64>,
}

impl Batches {
    pub fn new(head: &Head, size: usize) -> Self {
        Self {
            head: head.clone(),
            names: Names::default(),
            size,
            left: None,
        }
    }

    pub fn messages(mut self, count: u64) -> Self {
        self.left = Some(count);
        self
    }
}

impl Workload for Batches {
    fn kinds(&self) -> &'static [&'static str] {
        &["batch"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let mut size = self.size;
        if let Some(left) = &mut self.left {
            size = size.min(usize::try_from(*left).unwrap_or(size));
            if size == 0 {
                return None;
            }
            *left -= size as u64;
        }
        let mut body = String::with_capacity(size * 256);
        body.push_str(r#"{"messages":["#);
        for n in 0..size {
            if n > 0 {
                body.push(',');
            }
            body.push_str(&message(&self.names.next()));
        }
        body.push_str("]}");
        self.head.write_post(out, &["/v1/send/batch"], &[&body]);
        Some(0)
    }

    fn answer(
        &mut self,
        _connection: usize,
        _kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        expect_ok(status, body)?;
        if http::field(body, "\"code\":\"").is_some() {
            bail!("a message of a batch was refused: {}", http::shown(body));
        }
        Ok(Then::Finished)
    }
}

const SEND: usize = 0;
const RECEIVE: usize = 1;
const ACK: usize = 2;

/// Each connection sends a message, receives one (its own or another's) and acknowledges it.
#[derive(Debug)]
pub struct Cycle {
    head: Head,
    names: Names,
    receive: Vec<u8>,
    next: Vec<(usize, Option<Delivery>)>,
    last: usize,
    pub empty: u64,
}

impl Cycle {
    pub fn new(head: &Head, connections: usize) -> Self {
        Self {
            receive: receive(head, 1, 60_000, 0),
            head: head.clone(),
            names: Names::default(),
            next: vec![(SEND, None); connections],
            last: ACK,
            empty: 0,
        }
    }

    /// Leaves the received messages with the receiver, so that the number of ready messages stays the same.
    pub fn without_ack(mut self) -> Self {
        self.last = RECEIVE;
        self
    }
}

impl Workload for Cycle {
    fn kinds(&self) -> &'static [&'static str] {
        &["send", "recv", "ack"]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (kind, delivery) = &self.next[connection];
        match (*kind, delivery) {
            (ACK, Some(delivery)) => delivery.ack(&self.head, out),
            (RECEIVE, _) => out.extend_from_slice(&self.receive),
            _ => out.extend_from_slice(&send(&self.head, &mut self.names)),
        }
        Some(*kind)
    }

    fn answer(&mut self, connection: usize, kind: usize, status: u16, body: &[u8]) -> Result<Then> {
        expect_ok(status, body)?;
        let next = &mut self.next[connection];
        match kind {
            SEND => next.0 = RECEIVE,
            RECEIVE => match deliveries(body)?.pop() {
                None => self.empty += 1,
                Some(_) if self.last == RECEIVE => {
                    next.0 = SEND;
                    return Ok(Then::Finished);
                }
                Some(delivery) => *next = (ACK, Some(delivery)),
            },
            _ => {
                *next = (SEND, None);
                return Ok(Then::Finished);
            }
        }
        Ok(Then::Continue)
    }
}

/// Two sends, one receive of 32 and two acknowledgements in turn, each a unit of its own.
#[derive(Debug)]
pub struct Mixed {
    head: Head,
    names: Names,
    receive: Vec<u8>,
    turn: usize,
    received: VecDeque<Delivery>,
}

impl Mixed {
    const TURNS: [usize; 5] = [SEND, ACK, RECEIVE, SEND, ACK];

    pub fn new(head: &Head) -> Self {
        Self {
            receive: receive(head, 32, 60_000, 0),
            head: head.clone(),
            names: Names::default(),
            turn: 0,
            received: VecDeque::new(),
        }
    }
}

impl Workload for Mixed {
    fn kinds(&self) -> &'static [&'static str] {
        &["send", "recv", "ack"]
    }

    fn request(&mut self, _connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        self.turn += 1;
        let kind = Self::TURNS[self.turn % Self::TURNS.len()];
        Some(match kind {
            RECEIVE => {
                out.extend_from_slice(&self.receive);
                RECEIVE
            }
            // At the very start nothing has been received; then a send takes its place.
            ACK => match self.received.pop_front() {
                Some(delivery) => {
                    delivery.ack(&self.head, out);
                    ACK
                }
                None => {
                    out.extend_from_slice(&send(&self.head, &mut self.names));
                    SEND
                }
            },
            _ => {
                out.extend_from_slice(&send(&self.head, &mut self.names));
                SEND
            }
        })
    }

    fn answer(
        &mut self,
        _connection: usize,
        kind: usize,
        status: u16,
        body: &[u8],
    ) -> Result<Then> {
        expect_ok(status, body)?;
        if kind == RECEIVE {
            self.received.extend(deliveries(body)?);
        }
        Ok(Then::Finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_read_with_their_leases() {
        let body = br#"{"messages":[{"msg_id":"A","topic":"t","lease":"L1"},{"msg_id":"B","lease":"L2"}]}"#;
        let found = deliveries(body).unwrap();
        let pairs: Vec<_> = found
            .iter()
            .map(|d| (d.id.as_str(), d.lease.as_str()))
            .collect();
        assert_eq!(pairs, [("A", "L1"), ("B", "L2")]);
        assert!(deliveries(br#"{"messages":[]}"#).unwrap().is_empty());
        assert!(deliveries(br#"{"messages":[{"msg_id":"A"}]}"#).is_err());
    }

    #[test]
    fn a_batch_ends_with_what_is_left() {
        let mut batches = Batches::new(&Head::new("h", "k"), 100).messages(150);
        let mut sizes = Vec::new();
        loop {
            let mut out = Vec::new();
            if batches.request(0, &mut out).is_none() {
                break;
            }
            sizes.push(String::from_utf8(out).unwrap().matches("idem_key").count());
        }
        assert_eq!(sizes, [100, 50]);
    }
}
