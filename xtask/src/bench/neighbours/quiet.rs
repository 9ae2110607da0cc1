//! The quiet tenant: a small, steady load whose latencies are measured, and now and then a new connection.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::bench::caller::Caller;
use crate::bench::histogram::Histogram;
use crate::bench::load::http::{self, Head};
use crate::bench::load::{Plan, Then, Workload, drive};
use crate::bench::mailbox::workload::{Delivery, Names, deliveries, receive, send};
use crate::bench::workload::{CLAIM, COMPLETE, create_body};

/// As many that a round finds one free, so that a latency tells of the server and not of the line before a connection.
const CONNECTIONS: usize = 32;
/// Units of work per second; each is seven requests.
const RATE: f64 = 50.0;
/// The pause between two new connections.
const VISITS: Duration = Duration::from_millis(50);
/// The time after which a newcomer gives up.
const PATIENCE: Duration = Duration::from_secs(5);
const LIST: &str = "/v1/tasks?limit=10";

/// The kinds of calls that are reported, by their places in [`Day::kinds`]; the last is a newcomer's.
pub const REPORTED: [(&str, usize); 5] = [
    ("create", 0),
    ("claim", 1),
    ("send", 3),
    ("list", 6),
    ("list on a new connection", 7),
];
const NEWCOMER: usize = 7;

/// What the quiet tenant met.
#[derive(Debug, Clone, Default)]
pub struct Met {
    latencies: Vec<Histogram>,
    length: Duration,
    /// Rounds of calls that were finished.
    rounds: u64,
    /// Answers that were not a success, by status, and newcomers that gave up (as 0).
    pub refused: BTreeMap<u16, u64>,
    /// Names of tasks and messages that were acknowledged.
    pub acknowledged: Acknowledged,
}

/// Everything that the server said it has, and still must have.
#[derive(Debug, Clone, Default)]
pub struct Acknowledged {
    pub tasks: Vec<String>,
    /// Messages that were sent and not acknowledged by their receiver.
    pub messages: BTreeSet<String>,
    /// Messages whose receiver acknowledged them; the send may have been in an earlier stretch.
    pub done: Vec<String>,
}

impl Met {
    /// Returns a quantile of the latencies of one kind of call. Calls that were never answered took all the time.
    pub fn quantile(&self, kind: usize, share: f64) -> Duration {
        let latencies = self.latencies.get(kind);
        let answered = latencies.filter(|latencies| latencies.count() > 0);
        answered.map_or(self.length, |latencies| latencies.quantile(share))
    }

    /// Returns the part of the rounds that were due which was finished, in percent. Rounds that could not even begin
    /// have no latency, so the latencies alone do not tell of them.
    pub fn finished(&self) -> f64 {
        100.0 * self.rounds as f64 / (RATE * self.length.as_secs_f64())
    }

    pub fn refusals(&self) -> u64 {
        self.refused.values().sum()
    }

    /// Adds what was met at another time.
    pub fn add(&mut self, other: Self) {
        if self.latencies.is_empty() {
            self.latencies = vec![Histogram::default(); other.latencies.len()];
        }
        for (all, one) in self.latencies.iter_mut().zip(&other.latencies) {
            all.merge(one);
        }
        self.length += other.length;
        self.rounds += other.rounds;
        for (status, count) in other.refused {
            *self.refused.entry(status).or_default() += count;
        }
        self.acknowledged.tasks.extend(other.acknowledged.tasks);
        self.acknowledged
            .messages
            .extend(other.acknowledged.messages);
        for id in other.acknowledged.done {
            self.acknowledged.messages.remove(&id);
        }
    }
}

/// Lives quietly for a while.
pub fn live(addr: SocketAddr, key: &str, length: Duration) -> Result<Met> {
    let head = Head::new(&addr.to_string(), key);
    let over = AtomicBool::new(false);
    let mut day = Day::new(&head);
    let (driven, visits) = thread::scope(|scope| {
        let visitor = scope.spawn(|| visit(addr, &head, &over));
        let plan = Plan {
            connections: CONNECTIONS,
            warmup: Duration::ZERO,
            length: Some(length),
            rate: Some(RATE),
        };
        let driven = drive(addr, plan, &mut day);
        over.store(true, Ordering::Relaxed);
        (driven, visitor.join())
    });
    let Ok((newcomers, gave_up)) = visits else {
        anyhow::bail!("the newcomers' thread failed");
    };
    let driven = driven?;
    let mut met = Met {
        latencies: driven.latencies,
        length,
        rounds: day.rounds,
        refused: day.refused,
        acknowledged: day.acknowledged,
    };
    met.latencies.push(newcomers);
    if gave_up > 0 {
        met.refused.insert(0, gave_up);
    }
    debug_assert_eq!(met.latencies.len(), NEWCOMER + 1);
    Ok(met)
}

/// Comes again and again on a new connection. One that gives up counts with the time it waited.
fn visit(addr: SocketAddr, head: &Head, over: &AtomicBool) -> (Histogram, u64) {
    let (mut latencies, mut gave_up) = (Histogram::default(), 0);
    while !over.load(Ordering::Relaxed) {
        let came = Instant::now();
        let visit = || -> Result<Vec<u8>> {
            let mut caller = Caller::within(addr, PATIENCE)?;
            caller.send(&head.get(LIST))?;
            caller.answer(200)
        };
        gave_up += u64::from(visit().is_err());
        latencies.record(came.elapsed());
        thread::sleep(VISITS);
    }
    (latencies, gave_up)
}

/// Each connection creates a task, claims and completes one, sends a message, receives and acknowledges one, and
/// looks at the list.
struct Day {
    head: Head,
    names: Names,
    /// For each connection, the kind of the next request, and the request if the last answer decides about it.
    next: Vec<(usize, Vec<u8>)>,
    /// For each connection, the message that it is about to acknowledge.
    held: Vec<String>,
    rounds: u64,
    refused: BTreeMap<u16, u64>,
    acknowledged: Acknowledged,
}

const CREATE: usize = 0;
const CLAIMED: usize = 1;
const COMPLETED: usize = 2;
const SENT: usize = 3;
const RECEIVED: usize = 4;
const ACKED: usize = 5;
const LISTED: usize = 6;

impl Day {
    fn new(head: &Head) -> Self {
        Self {
            head: head.clone(),
            names: Names::default(),
            next: vec![(CREATE, Vec::new()); CONNECTIONS],
            held: vec![String::new(); CONNECTIONS],
            rounds: 0,
            refused: BTreeMap::new(),
            acknowledged: Acknowledged::default(),
        }
    }

    /// Returns the kind of the next request, and the request itself if the answer decides about it.
    fn after(&mut self, connection: usize, kind: usize, body: &[u8]) -> Result<(usize, Vec<u8>)> {
        Ok(match kind {
            CREATE => {
                let id = http::field(body, "\"task_id\":\"").context("a task without an id")?;
                self.acknowledged.tasks.push(id.to_owned());
                (CLAIMED, Vec::new())
            }
            CLAIMED => {
                let found = (
                    http::field(body, "\"task_id\":\""),
                    http::field(body, "\"lease_id\":\""),
                );
                // Another connection can have taken the task of this one.
                let (Some(task), Some(lease)) = found else {
                    return Ok((SENT, Vec::new()));
                };
                let mut request = Vec::new();
                let body = [COMPLETE[0], lease, COMPLETE[1]];
                let path = ["/v1/tasks/", task, "/complete"];
                self.head.write_post(&mut request, &path, &body);
                (COMPLETED, request)
            }
            COMPLETED => (SENT, Vec::new()),
            SENT => {
                let id = http::field(body, "\"msg_id\":\"").context("a message without an id")?;
                self.acknowledged.messages.insert(id.to_owned());
                (RECEIVED, Vec::new())
            }
            RECEIVED => match deliveries(body)?.pop() {
                None => (LISTED, Vec::new()),
                Some(delivery) => {
                    delivery.id.clone_into(&mut self.held[connection]);
                    (ACKED, self.ack(&delivery))
                }
            },
            ACKED => {
                let id = std::mem::take(&mut self.held[connection]);
                self.acknowledged.done.push(id);
                (LISTED, Vec::new())
            }
            _ => (CREATE, Vec::new()),
        })
    }

    fn ack(&self, delivery: &Delivery) -> Vec<u8> {
        let mut request = Vec::new();
        delivery.ack(&self.head, &mut request);
        request
    }
}

impl Workload for Day {
    fn kinds(&self) -> &'static [&'static str] {
        &["create", "claim", "complete", "send", "recv", "ack", "list"]
    }

    fn request(&mut self, connection: usize, out: &mut Vec<u8>) -> Option<usize> {
        let (kind, prepared) = &mut self.next[connection];
        match *kind {
            CREATE => out.extend_from_slice(&self.head.post("/v1/tasks", &create_body(""))),
            CLAIMED => out.extend_from_slice(&self.head.post("/v1/leases/claim", CLAIM)),
            SENT => out.extend_from_slice(&send(&self.head, &mut self.names)),
            RECEIVED => out.extend_from_slice(&receive(&self.head, 1, 60_000, 0)),
            LISTED => out.extend_from_slice(&self.head.get(LIST)),
            _ => out.append(prepared),
        }
        Some(*kind)
    }

    fn answer(&mut self, connection: usize, kind: usize, status: u16, body: &[u8]) -> Result<Then> {
        if !(200..300).contains(&status) {
            // A refusal is counted, and the next unit of work begins from the start.
            *self.refused.entry(status).or_default() += 1;
            self.next[connection] = (CREATE, Vec::new());
            return Ok(Then::Finished);
        }
        self.next[connection] = self.after(connection, kind, body)?;
        if kind != LISTED {
            return Ok(Then::Continue);
        }
        self.rounds += 1;
        Ok(Then::Finished)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_goes_round() {
        let mut day = Day::new(&Head::new("h", "k"));
        let answers = [
            (201, r#"{"task_id":"t"}"#),
            (200, r#"{"tasks":[{"task_id":"t","lease_id":"l"}]}"#),
            (200, "{}"),
            (200, r#"{"msg_id":"m"}"#),
            (200, r#"{"messages":[{"msg_id":"m","lease":"x"}]}"#),
            (200, "{}"),
            (200, r#"{"tasks":[]}"#),
        ];
        for (n, (status, body)) in answers.into_iter().enumerate() {
            let kind = day.request(0, &mut Vec::new()).unwrap();
            assert_eq!(kind, n);
            day.answer(0, kind, status, body.as_bytes()).unwrap();
        }
        assert_eq!(day.next[0].0, CREATE);
        assert_eq!(day.rounds, 1);
        assert_eq!(day.acknowledged.tasks, ["t"]);
        let mut met = Met::default();
        assert_eq!(day.acknowledged.messages.len(), 1);
        met.add(Met {
            acknowledged: day.acknowledged,
            ..Met::default()
        });
        assert!(
            met.acknowledged.messages.is_empty(),
            "it was received and acknowledged"
        );
    }

    #[test]
    fn a_call_that_was_never_answered_is_no_quick_call() {
        let met = Met {
            latencies: vec![Histogram::default(); NEWCOMER + 1],
            length: Duration::from_secs(5),
            ..Met::default()
        };
        assert_eq!(met.quantile(CREATE, 0.99), Duration::from_secs(5));
        assert!(met.finished() < 1.0);
    }

    #[test]
    fn a_refusal_is_counted_and_the_day_begins_again() {
        let mut day = Day::new(&Head::new("h", "k"));
        day.next[0].0 = SENT;
        assert_eq!(day.answer(0, SENT, 429, b"{}").unwrap(), Then::Finished);
        assert_eq!(day.next[0].0, CREATE);
        assert_eq!(day.refused, BTreeMap::from([(429, 1)]));
    }
}
