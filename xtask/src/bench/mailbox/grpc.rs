//! The same cycles over gRPC and over REST, in turns: as many callers, the same steps.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mio::{Events, Interest, Poll, Token};

use super::ROOMY;
use super::workload::{Cycle, TOPIC};
use crate::bench::cost::Costs;
use crate::bench::load::Plan;
use crate::bench::load::http2::{Answer, Channel};
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::{KEY, Server, cpu_time};
use crate::bench::{Bench, CONNECTIONS, ROUNDS};

/// Connections that the callers share, as the callers of one process do.
const CHANNELS: usize = 4;
const WARMUP: Duration = Duration::from_secs(1);

pub fn run(bench: &Bench) -> Result<Section> {
    let (mut rest, mut grpc, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let (mut rest_costs, mut costs) = (Costs::default(), Vec::new());
    let mut own = Vec::new();
    let length = bench.seconds(10, 3);
    for round in 1..=ROUNDS {
        eprintln!("gRPC beside REST, round {round} of {ROUNDS}");
        let plan = Plan::closed(CONNECTIONS, Duration::ZERO, length);
        let server = bench.server_with(&ROOMY)?;
        let mut cycle = Cycle::new(&server.head(), CONNECTIONS);
        let tally = rest_costs.measure(&server, plan, &mut cycle)?;
        drop(server);
        rest.push(tally.per_second());
        let server = bench.server_with(&ROOMY)?;
        Callers::connect(&server, "warm")?.drive(WARMUP)?;
        let (theirs, ours) = (server.cpu()?, cpu_time("self")?);
        let mut callers = Callers::connect(&server, "timed")?;
        callers.drive(length)?;
        let each = |used: Duration| used.as_secs_f64() * 1e6 / callers.cycles as f64;
        costs.push(each(server.cpu()?.saturating_sub(theirs)));
        own.push(each(cpu_time("self")?.saturating_sub(ours)));
        grpc.push(callers.cycles as f64 / length.as_secs_f64());
        let (rest, grpc) = (rest[round - 1], grpc[round - 1]);
        eprintln!("  REST {rest:.0}/s, gRPC {grpc:.0}/s");
        ratios.push(grpc / rest);
    }
    let mut figures = vec![
        Figure::new("cycles over REST", median(&rest), Unit::PerSecond),
        Figure::new("cycles over gRPC", median(&grpc), Unit::PerSecond),
        Figure::new("gRPC to REST", median(&ratios), Unit::Times).at_least(1.2),
    ];
    figures.extend(rest_costs.figures("cycle over REST"));
    let cost = |who: &str, costs: &[f64]| {
        let name = format!("{who} processor time per cycle over gRPC");
        Figure::new(name, median(costs), Unit::Micros)
    };
    figures.extend([cost("server", &costs), cost("load generator", &own)]);
    let how = format!(
        "Send, receive, acknowledge, one message each, 100 bytes of content, {CONNECTIONS} callers in a closed loop: over REST with \
         a connection each, over gRPC (unary calls) on {CHANNELS} connections that they share. The ratio is the median of the ratios within a round."
    );
    Ok(Section {
        id: "mailbox-grpc",
        how,
        figures,
    })
}

#[derive(Debug, Clone)]
enum Step {
    Send,
    Receive,
    Ack(Vec<u8>),
}

struct Callers {
    channels: Vec<Channel>,
    poll: Poll,
    steps: Vec<Step>,
    /// What its messages are called.
    name: &'static str,
    sent: u64,
    cycles: u64,
}

impl Callers {
    fn connect(server: &Server, name: &'static str) -> Result<Self> {
        let poll = Poll::new()?;
        let mut channels = Vec::new();
        for n in 0..CHANNELS {
            let mut channel = Channel::open(server.addr, KEY)?;
            poll.registry()
                .register(&mut channel.stream, Token(n), Interest::READABLE)?;
            channels.push(channel);
        }
        Ok(Self {
            channels,
            poll,
            steps: vec![Step::Send; CONNECTIONS],
            name,
            sent: 0,
            cycles: 0,
        })
    }

    fn drive(&mut self, length: Duration) -> Result<()> {
        let ends = Instant::now() + length;
        for caller in 0..CONNECTIONS {
            self.call(caller);
        }
        for channel in &mut self.channels {
            channel.send()?;
        }
        let mut events = Events::with_capacity(64);
        let mut answers = Vec::new();
        while Instant::now() < ends {
            self.poll.poll(&mut events, Some(Duration::from_secs(1)))?;
            for event in &events {
                let channel = event.token().0;
                self.channels[channel].receive(&mut answers)?;
                for answer in answers.drain(..) {
                    self.answered(answer)?;
                }
                self.channels[channel].send()?;
            }
        }
        Ok(())
    }

    fn call(&mut self, caller: usize) {
        let channel = &mut self.channels[caller % CHANNELS];
        match &self.steps[caller] {
            Step::Send => {
                self.sent += 1;
                let name = format!("{}-{:x}", self.name, self.sent);
                let mut message = Vec::with_capacity(256);
                field(&mut message, 1, TOPIC.as_bytes());
                field(&mut message, 2, name.as_bytes());
                field(&mut message, 4, &[b'x'; 100]);
                channel.call(caller, "/ron.mailbox.v1.Mailbox/Send", &message);
            }
            Step::Receive => {
                let mut message = Vec::with_capacity(64);
                field(&mut message, 1, TOPIC.as_bytes());
                // visibility_ms = 60000, max_messages = 1.
                message.extend_from_slice(&[0x10, 0xe0, 0xd4, 0x03, 0x18, 1]);
                channel.call(caller, "/ron.mailbox.v1.Mailbox/Recv", &message);
            }
            Step::Ack(ack) => channel.call(caller, "/ron.mailbox.v1.Mailbox/Ack", ack),
        }
    }

    fn answered(&mut self, (caller, message): Answer) -> Result<()> {
        let message = message.context("a call failed")?;
        self.steps[caller] = match &self.steps[caller] {
            Step::Send => Step::Receive,
            Step::Receive => match found(&message, 1) {
                None => Step::Receive,
                Some(envelope) => {
                    let mut ack = Vec::with_capacity(96);
                    field(&mut ack, 1, found(envelope, 1).context("no msg_id")?);
                    field(&mut ack, 2, found(envelope, 13).context("no lease")?);
                    Step::Ack(ack)
                }
            },
            Step::Ack(_) => {
                self.cycles += 1;
                Step::Send
            }
        };
        self.call(caller);
        Ok(())
    }
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    assert!(number < 16 && bytes.len() < 128, "one byte each");
    out.extend_from_slice(&[number << 3 | 2, bytes.len() as u8]);
    out.extend_from_slice(bytes);
}

/// The first field with this number, which must be of bytes.
fn found(mut message: &[u8], wanted: u64) -> Option<&[u8]> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        let value = match tag & 7 {
            0 => {
                varint(&mut message)?;
                continue;
            }
            2 => {
                let length = varint(&mut message)? as usize;
                let value = message.get(..length)?;
                message = &message[length..];
                value
            }
            _ => return None,
        };
        if tag >> 3 == wanted {
            return Some(value);
        }
    }
    None
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}
