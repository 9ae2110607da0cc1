//! The same cycles over gRPC and over REST, in turns: as many callers, the same steps.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mio::{Events, Interest, Poll, Token};

use super::ROOMY;
use super::workload::{Cycle, TOPIC};
use crate::bench::cost::Costs;
use crate::bench::load::http2::{Answer, Channel};
use crate::bench::load::{Plan, drive};
use crate::bench::report::{Figure, Section, Unit, median};
use crate::bench::server::{KEY, Server};
use crate::bench::{Bench, CONNECTIONS, ROUNDS};

/// The connections that the callers share, as the callers of one process do.
const CHANNELS: usize = 4;
const WARMUP: Duration = Duration::from_secs(1);

pub fn run(bench: &Bench) -> Result<Section> {
    let mut rest = Way::default();
    let (mut unary, mut streams) = (Way::default(), Way::default());
    let (mut to_unary, mut to_streams) = (Vec::new(), Vec::new());
    let length = bench.seconds(10, 3);
    for round in 1..=ROUNDS {
        eprintln!("gRPC beside REST, round {round} of {ROUNDS}");
        let mut cycle = None;
        let by_rest = |server: &Server, length| {
            // The warm-up and the rest share it, so that it never sends a name twice.
            let cycle = cycle.get_or_insert_with(|| Cycle::new(&server.head(), CONNECTIONS));
            let plan = Plan::closed(CONNECTIONS, Duration::ZERO, length);
            Ok(drive(server.addr, plan, cycle)?.units)
        };
        let by_rest = rest.measure(bench, by_rest, length)?;
        let by_unary = unary.measure(bench, Callers::run, length)?;
        let by_streams = streams.measure(bench, Streams::run, length)?;
        eprintln!("  REST {by_rest:.0}/s, calls {by_unary:.0}/s, streams {by_streams:.0}/s");
        to_unary.push(by_unary / by_rest);
        to_streams.push(by_streams / by_rest);
    }
    let mut figures = Vec::new();
    for (name, way) in [
        ("REST", &rest),
        ("gRPC calls", &unary),
        ("gRPC streams", &streams),
    ] {
        figures.push(Figure::new(
            format!("cycles over {name}"),
            median(&way.rates),
            Unit::PerSecond,
        ));
        figures.extend(way.costs.figures(&format!("cycle over {name}")));
    }
    figures.push(Figure::new(
        "gRPC calls to REST",
        median(&to_unary),
        Unit::Times,
    ));
    let streams = Figure::new("gRPC streams to REST", median(&to_streams), Unit::Times);
    figures.push(streams.at_least(1.2));
    let how = format!(
        "Send, receive, acknowledge, 100 bytes of content, {CONNECTIONS} messages under way in a closed loop: over REST with a \
         connection each; over gRPC on {CHANNELS} connections that the callers share, by a call for each step (`Send`, `Recv`, \
         `Ack`) and by streams (`SendStream`, `RecvStream`, `AckStream`). Ratios are medians of the ratios within a round."
    );
    Ok(Section {
        id: "mailbox-grpc",
        how,
        figures,
    })
}

/// A way to do the cycles.
#[derive(Debug, Default)]
struct Way {
    rates: Vec<f64>,
    costs: Costs,
}

impl Way {
    /// Runs on a server of its own, which is warm when the clock starts. `cycles` returns their number.
    fn measure(
        &mut self,
        bench: &Bench,
        mut cycles: impl FnMut(&Server, Duration) -> Result<u64>,
        length: Duration,
    ) -> Result<f64> {
        let server = bench.server_with(&ROOMY)?;
        cycles(&server, WARMUP)?;
        let cycles = self.costs.around(&server, || cycles(&server, length))?;
        let rate = cycles as f64 / length.as_secs_f64();
        self.rates.push(rate);
        Ok(rate)
    }
}

/// Connections that callers share.
struct Channels {
    all: Vec<Channel>,
    poll: Poll,
}

impl Channels {
    fn connect(server: &Server) -> Result<Self> {
        let poll = Poll::new()?;
        let mut all = Vec::new();
        for n in 0..CHANNELS {
            let mut channel = Channel::open(server.addr, KEY)?;
            let stream = &mut channel.connection.stream;
            poll.registry()
                .register(stream, Token(n), Interest::READABLE)?;
            all.push(channel);
        }
        Ok(Self { all, poll })
    }

    /// Sends the output, and returns each answer with its channel, whose next calls are sent together.
    fn drive(
        &mut self,
        length: Duration,
        mut answered: impl FnMut(usize, &mut Channel, Answer) -> Result<()>,
    ) -> Result<()> {
        let ends = Instant::now() + length;
        for channel in &mut self.all {
            channel.send()?;
        }
        let mut events = Events::with_capacity(64);
        let mut answers = Vec::new();
        while Instant::now() < ends {
            self.poll.poll(&mut events, Some(Duration::from_secs(1)))?;
            for event in &events {
                let n = event.token().0;
                let channel = &mut self.all[n];
                channel.receive(&mut answers)?;
                for answer in answers.drain(..) {
                    answered(n, channel, answer)?;
                }
                channel.send()?;
            }
        }
        Ok(())
    }
}

#[derive(Debug, Clone)]
enum Step {
    Send,
    Receive,
    Ack(Vec<u8>),
}

/// A call for each step.
struct Callers {
    steps: Vec<Step>,
    /// The prefix of the names of its messages.
    name: String,
    sent: u64,
    cycles: u64,
}

impl Callers {
    fn run(server: &Server, length: Duration) -> Result<u64> {
        let mut callers = Self {
            steps: vec![Step::Send; CONNECTIONS],
            name: name(),
            sent: 0,
            cycles: 0,
        };
        let mut channels = Channels::connect(server)?;
        for caller in 0..CONNECTIONS {
            callers.call(&mut channels.all[caller % CHANNELS], caller);
        }
        channels.drive(length, |_, channel, answer| {
            callers.answered(channel, answer)
        })?;
        Ok(callers.cycles)
    }

    fn call(&mut self, channel: &mut Channel, caller: usize) {
        match &self.steps[caller] {
            Step::Send => {
                self.sent += 1;
                let message = message(&format!("{}-{:x}", self.name, self.sent));
                channel.call(caller, "/ron.mailbox.v1.Mailbox/Send", &message);
            }
            Step::Receive => channel.call(caller, "/ron.mailbox.v1.Mailbox/Recv", &wish(1)),
            Step::Ack(ack) => channel.call(caller, "/ron.mailbox.v1.Mailbox/Ack", ack),
        }
    }

    fn answered(&mut self, channel: &mut Channel, (caller, message): Answer) -> Result<()> {
        let message = message.context("a call failed")?;
        self.steps[caller] = match &self.steps[caller] {
            Step::Send => Step::Receive,
            Step::Receive => match found(&message, 1) {
                None => Step::Receive,
                Some(envelope) => Step::Ack(ack(envelope)?),
            },
            Step::Ack(_) => {
                self.cycles += 1;
                Step::Send
            }
        };
        self.call(channel, caller);
        Ok(())
    }
}

/// Three streams for each channel: a message is sent, comes back to any of them, is acknowledged, and
/// then the next is sent.
struct Streams {
    of_channels: Vec<[u32; 3]>,
    name: String,
    sent: u64,
    cycles: u64,
}

const METHODS: [&str; 3] = ["SendStream", "RecvStream", "AckStream"];
const SENT: usize = 0;
const RECEIVED: usize = 1;
const ACKED: usize = 2;
/// The number of deliveries that a stream may have open.
const WINDOW: u8 = 32;

impl Streams {
    fn run(server: &Server, length: Duration) -> Result<u64> {
        let mut channels = Channels::connect(server)?;
        let mut streams = Self {
            of_channels: channels.all.iter_mut().map(Self::open).collect(),
            name: name(),
            sent: 0,
            cycles: 0,
        };
        for n in 0..CONNECTIONS {
            streams.send(n % CHANNELS, &mut channels.all[n % CHANNELS]);
        }
        channels.drive(length, |n, channel, (kind, message)| {
            streams.answered(n, channel, kind, &message.context("a stream ended")?)
        })?;
        Ok(streams.cycles)
    }

    fn open(channel: &mut Channel) -> [u32; 3] {
        let streams = [SENT, RECEIVED, ACKED].map(|kind| {
            let path = format!("/ron.mailbox.v1.Mailbox/{}", METHODS[kind]);
            channel.begin_stream(kind, &path)
        });
        channel.say(streams[RECEIVED], &wish(WINDOW));
        channel.end(streams[RECEIVED]);
        streams
    }

    fn send(&mut self, n: usize, channel: &mut Channel) {
        self.sent += 1;
        let message = message(&format!("{}-{:x}", self.name, self.sent));
        channel.say(self.of_channels[n][SENT], &message);
    }

    fn answered(
        &mut self,
        n: usize,
        channel: &mut Channel,
        kind: usize,
        message: &[u8],
    ) -> Result<()> {
        match kind {
            SENT => {
                found(message, 1).context("a message was refused")?;
            }
            RECEIVED => channel.say(self.of_channels[n][ACKED], &ack(message)?),
            _ => {
                found(message, 1).context("an ack was refused")?;
                self.cycles += 1;
                self.send(n, channel);
            }
        }
        Ok(())
    }
}

/// Asks for at most `most` messages, for a minute.
fn wish(most: u8) -> Vec<u8> {
    let mut wish = Vec::with_capacity(64);
    field(&mut wish, 1, TOPIC.as_bytes());
    // visibility_ms = 60000, max_messages = most.
    wish.extend_from_slice(&[0x10, 0xe0, 0xd4, 0x03, 0x18, most]);
    wish
}

/// Returns a name for messages that no other run has.
fn name() -> String {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    format!("run-{:x}", RUNS.fetch_add(1, Ordering::Relaxed))
}

fn message(name: &str) -> Vec<u8> {
    let mut message = Vec::with_capacity(256);
    field(&mut message, 1, TOPIC.as_bytes());
    field(&mut message, 2, name.as_bytes());
    field(&mut message, 4, &[b'x'; 100]);
    message
}

fn ack(envelope: &[u8]) -> Result<Vec<u8>> {
    let mut ack = Vec::with_capacity(96);
    field(&mut ack, 1, found(envelope, 1).context("no msg_id")?);
    field(&mut ack, 2, found(envelope, 13).context("no lease")?);
    Ok(ack)
}

fn field(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    assert!(number < 16 && bytes.len() < 128, "one byte each");
    out.extend_from_slice(&[number << 3 | 2, bytes.len() as u8]);
    out.extend_from_slice(bytes);
}

/// Returns the first field with this number, which must be of bytes.
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
