//! The loop that keeps the connections busy and takes the times.
//!
//! Closed loop: each connection sends its next request as soon as the last one is answered.
//! Paced: units of work start on a fixed schedule, and a unit's first request is timed from when it
//! should have started, so that a stall shows in every request that it delayed.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mio::{Events, Interest, Poll, Token};

use super::connection::Connection;
use super::{Then, Workload};
use crate::bench::histogram::Histogram;

/// The time without an answer after which the server counts as stuck.
const STUCK: Duration = Duration::from_secs(30);

/// The settings of a run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub connections: usize,
    /// Runs before the clock starts; its requests are not counted.
    pub warmup: Duration,
    /// Ends the run; `None` runs until the workload has no more requests.
    pub length: Option<Duration>,
    /// Units of work started per second; `None` is the closed loop.
    pub rate: Option<f64>,
}

impl Plan {
    pub fn closed(connections: usize, warmup: Duration, length: Duration) -> Self {
        Self {
            connections,
            warmup,
            length: Some(length),
            rate: None,
        }
    }

    pub fn to_the_end(connections: usize) -> Self {
        Self {
            connections,
            warmup: Duration::ZERO,
            length: None,
            rate: None,
        }
    }
}

/// The measurements of a run.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Units of work finished within the time.
    pub units: u64,
    pub elapsed: Duration,
    /// The latencies by kind of request.
    pub latencies: Vec<Histogram>,
}

impl Tally {
    pub fn per_second(&self) -> f64 {
        self.units as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns the latencies of all kinds of requests together.
    pub fn all(&self) -> Histogram {
        let mut all = Histogram::default();
        self.latencies.iter().for_each(|one| all.merge(one));
        all
    }
}

pub fn drive(addr: SocketAddr, plan: Plan, workload: &mut impl Workload) -> Result<Tally> {
    let mut run = Run::connect(addr, plan, workload)?;
    run.start()?;
    run.turn()?;
    Ok(run.tally)
}

struct Run<'a, W> {
    workload: &'a mut W,
    poll: Poll,
    connections: Vec<Connection>,
    /// Connections without a unit of work. The one that rested longest comes next, because a server closes those that
    /// never say anything.
    idle: VecDeque<usize>,
    /// Requests that wait for their answer.
    under_way: usize,
    pace: Option<Pace>,
    began: Instant,
    ends: Option<Instant>,
    tally: Tally,
}

struct Pace {
    interval: Duration,
    next: Instant,
}

impl<'a, W: Workload> Run<'a, W> {
    fn connect(addr: SocketAddr, plan: Plan, workload: &'a mut W) -> Result<Self> {
        let poll = Poll::new()?;
        let mut connections = Vec::with_capacity(plan.connections);
        for index in 0..plan.connections {
            let mut connection = Connection::open(addr)?;
            poll.registry()
                .register(&mut connection.stream, Token(index), Interest::READABLE)?;
            connections.push(connection);
        }
        let now = Instant::now();
        let began = now + plan.warmup;
        let latencies = vec![Histogram::default(); workload.kinds().len()];
        Ok(Self {
            workload,
            poll,
            idle: (0..connections.len()).collect(),
            connections,
            under_way: 0,
            pace: plan.rate.map(|rate| Pace {
                interval: Duration::from_secs_f64(1.0 / rate),
                next: now,
            }),
            began,
            ends: plan.length.map(|length| began + length),
            tally: Tally {
                units: 0,
                elapsed: Duration::ZERO,
                latencies,
            },
        })
    }

    fn start(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.pace.is_some() {
            return self.start_due(now);
        }
        while let Some(index) = self.idle.pop_front() {
            self.send(index, now)?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut last_answer = Instant::now();
        loop {
            let now = Instant::now();
            let over = self.ends.is_some_and(|ends| now >= ends);
            if !over {
                self.start_due(now)?;
            }
            // After the end, the requests under way are still awaited: a stall must not hide there.
            if self.under_way == 0 && (over || self.pace.is_none()) {
                let ended = self.ends.unwrap_or(now);
                self.tally.elapsed = ended.saturating_duration_since(self.began);
                return Ok(());
            }
            if self.under_way > 0 && now.duration_since(last_answer) > STUCK {
                bail!(
                    "no answer for {} s with {} requests under way",
                    STUCK.as_secs(),
                    self.under_way
                );
            }
            if let Err(error) = self.poll.poll(&mut events, Some(self.patience(now))) {
                if error.kind() == std::io::ErrorKind::Interrupted {
                    continue;
                }
                return Err(error).context("cannot wait for answers");
            }
            for event in &events {
                last_answer = Instant::now();
                self.receive(event.token().0, last_answer)?;
            }
        }
    }

    /// Returns the time to sleep when nothing arrives.
    fn patience(&self, now: Instant) -> Duration {
        let wakes = [self.pace.as_ref().map(|pace| pace.next), self.ends];
        let next = wakes.into_iter().flatten().filter(|&at| at > now).min();
        next.map_or(Duration::from_secs(1), |at| {
            (at - now).min(Duration::from_secs(1))
        })
    }

    /// Starts the units of work whose time has come, as far as connections are free.
    fn start_due(&mut self, now: Instant) -> Result<()> {
        loop {
            let Some(pace) = self.pace.as_mut() else {
                return Ok(());
            };
            if pace.next > now {
                return Ok(());
            }
            let Some(index) = self.idle.pop_front() else {
                return Ok(());
            };
            let due = pace.next;
            pace.next += pace.interval;
            self.send(index, due)?;
        }
    }

    fn send(&mut self, index: usize, since: Instant) -> Result<()> {
        let connection = &mut self.connections[index];
        let Some(kind) = self.workload.request(index, &mut connection.out) else {
            return Ok(());
        };
        connection.kind = kind;
        connection.since = Some(since);
        self.under_way += 1;
        connection.send()
    }

    fn receive(&mut self, index: usize, now: Instant) -> Result<()> {
        let connection = &mut self.connections[index];
        connection.receive()?;
        let Some(frame) = self.workload.frame(connection.received())? else {
            return Ok(());
        };
        let since = connection
            .since
            .take()
            .context("an answer that nobody asked for")?;
        let kind = connection.kind;
        let then = self.workload.answer(
            index,
            kind,
            frame.status,
            &connection.received()[frame.body],
        )?;
        connection.consume(frame.len);
        self.under_way -= 1;

        let over = self.ends.is_some_and(|ends| now >= ends);
        if now >= self.began {
            self.tally.latencies[kind].record(now.duration_since(since));
            self.tally.units += u64::from(then == Then::Finished && !over);
        }
        match then {
            _ if over => Ok(()),
            Then::Finished if self.pace.is_some() => {
                self.idle.push_back(index);
                Ok(())
            }
            Then::Continue | Then::Finished => self.send(index, now),
        }
    }
}

#[cfg(test)]
mod tests;
