//! The delay until a waiting receiver has a message, new or given back by the scanner.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::workload::{Delivery, Names, deliveries, receive, send};
use crate::bench::Bench;
use crate::bench::caller::Caller;
use crate::bench::histogram::Histogram;
use crate::bench::load::http::Head;
use crate::bench::machine::Syncs;
use crate::bench::report::{Figure, Section, Unit};

/// Time for the receive to reach the server and find nothing.
const PARK: Duration = Duration::from_millis(3);
const VISIBILITY: Duration = Duration::from_millis(300);

pub fn run(bench: &Bench) -> Result<Section> {
    let samples = if bench.quick { 200 } else { 1000 };
    let server = bench.server()?;
    let mut pair = Pair {
        receiver: Caller::connect(server.addr)?,
        sender: Caller::connect(server.addr)?,
        head: server.head(),
        names: Names::default(),
    };
    let (mut fresh, mut late) = (Histogram::default(), Histogram::default());
    let (mut disk, mut syncs) = (Syncs::create(bench.scratch.path())?, Histogram::default());
    for _ in 0..samples {
        fresh.record(pair.fresh()?);
        syncs.record(disk.sync()?);
    }
    for _ in 0..samples / 20 {
        late.record(pair.late()?);
    }
    let figures = vec![
        Figure::latency("send sent to receive answered, p50", fresh.quantile(0.5)),
        Figure::latency("send sent to receive answered, p99", fresh.quantile(0.99)).at_most(10.0),
        Figure::latency("send sent to receive answered, max", fresh.max()),
        Figure::latency("fdatasync of 4 KiB in between, p50", syncs.quantile(0.5)),
        Figure::latency("fdatasync of 4 KiB in between, p99", syncs.quantile(0.99)),
        Figure::latency("lateness of the scanner, p50", late.quantile(0.5)),
        Figure::latency("lateness of the scanner, max", late.max()).at_most(100.0),
        Figure::new(
            "samples",
            (fresh.count() + late.count()) as f64,
            Unit::Count,
        ),
    ];
    let how = "A receiver waits in `POST /v1/recv` with `wait_seconds`; a message is sent on another connection. Both \
               the send and the delivery are fsynced within the time. Lateness: a message \
               that is not acknowledged within its 300 ms, from the end of these to the answer of the next receive, which waits."
        .to_owned();
    Ok(Section {
        id: "mailbox-wake",
        how,
        figures,
    })
}

struct Pair {
    receiver: Caller,
    sender: Caller,
    head: Head,
    names: Names,
}

impl Pair {
    fn fresh(&mut self) -> Result<Duration> {
        self.receiver.send(&receive(&self.head, 1, 60_000, 30))?;
        thread::sleep(PARK);
        let message = send(&self.head, &mut self.names);
        let sent = Instant::now();
        self.sender.send(&message)?;
        let delivery = self.received()?;
        let latency = sent.elapsed();
        self.sender.answer(200)?;
        self.ack(&delivery)?;
        Ok(latency)
    }

    fn late(&mut self) -> Result<Duration> {
        self.sender.send(&send(&self.head, &mut self.names))?;
        self.sender.answer(200)?;
        let visibility = VISIBILITY.as_millis() as u64;
        self.receiver.send(&receive(&self.head, 1, visibility, 0))?;
        self.received()?;
        let ends = Instant::now() + VISIBILITY;
        self.receiver.send(&receive(&self.head, 1, 60_000, 30))?;
        let delivery = self.received()?;
        let late = Instant::now().saturating_duration_since(ends);
        self.ack(&delivery)?;
        Ok(late)
    }

    fn received(&mut self) -> Result<Delivery> {
        match deliveries(&self.receiver.answer(200)?)?.pop() {
            Some(delivery) => Ok(delivery),
            None => bail!("a waiting receive came back without a message"),
        }
    }

    fn ack(&mut self, delivery: &Delivery) -> Result<()> {
        let mut request = Vec::new();
        delivery.ack(&self.head, &mut request);
        self.receiver.send(&request)?;
        self.receiver.answer(200)?;
        Ok(())
    }
}
