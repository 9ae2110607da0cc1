//! Events for operators as they happen: a bus within the process, and counts of things that happen too
//! often for an event each.
//!
//! Invariant: the bus never waits for a reader. It drops the oldest events instead.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use asyncgate_core::Timestamp;
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};
use tokio::sync::broadcast::{self, error::RecvError};

use crate::Engine;

/// The most events that a slow reader may be behind.
const CAPACITY: usize = 1_024;
/// The most kinds of counts that are kept until the next events.
const MAX_KINDS: usize = 1_024;
/// The time over which refused credentials are counted.
const WINDOW_SECONDS: i64 = 30;
/// The number of refusals within the window that makes an event.
const BURST: u64 = 10;

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// Its kind, such as `mailbox.dlq.moved`.
    pub topic: &'static str,
    /// Its details, as a JSON object.
    pub body: Value,
}

/// The bus. Publishing costs next to nothing while nobody reads.
#[derive(Debug)]
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    lagged: Counter,
}

impl Default for Events {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(CAPACITY),
            lagged: Counter::default(),
        }
    }
}

impl Events {
    /// Hands an event to all readers.
    pub fn publish(&self, topic: &'static str, body: Value) {
        // An error means that nobody reads, which is fine.
        let _ = self.sender.send(Arc::new(Event { topic, body }));
    }

    /// Returns a reader of the events from now on.
    pub fn subscribe(&self) -> Subscription {
        Subscription {
            receiver: self.sender.subscribe(),
            lagged: self.lagged.clone(),
        }
    }

    /// Returns the count of events that were dropped for slow readers.
    pub fn lagged(&self) -> Counter {
        self.lagged.clone()
    }
}

/// A reader of the bus.
#[derive(Debug)]
pub struct Subscription {
    receiver: broadcast::Receiver<Arc<Event>>,
    lagged: Counter,
}

impl Subscription {
    /// Waits for the next event. Returns it with the number of events that were lost before it, or
    /// nothing when the bus is gone.
    pub async fn next(&mut self) -> Option<(u64, Arc<Event>)> {
        let mut lost = 0;
        loop {
            match self.receiver.recv().await {
                Ok(event) => return Some((lost, event)),
                Err(RecvError::Lagged(missed)) => {
                    lost += missed;
                    self.lagged.inc_by(missed);
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Counts of things that happen too often for an event each.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Dead letters by class of the topic and reason.
    dead: BTreeMap<(String, String), u64>,
    /// Messages that came back, by shard.
    requeued: BTreeMap<u16, u64>,
    /// Refused credentials of the window by scope, and true where their burst was reported.
    denied: BTreeMap<&'static str, (u64, bool)>,
    /// The start of the window.
    window: Option<Timestamp>,
}

impl Tally {
    /// Counts a message that became a dead letter.
    pub(crate) fn died(&self, topic_class: &str, reason: &str) {
        self.change(|counts| {
            if counts.dead.len() < MAX_KINDS {
                let kind = (topic_class.to_owned(), reason.to_owned());
                *counts.dead.entry(kind).or_default() += 1;
            }
        });
    }

    /// Counts a message that came back because its receiver let the deadline pass.
    pub(crate) fn requeued(&self, shard: u16) {
        self.change(|counts| *counts.requeued.entry(shard).or_default() += 1);
    }

    /// Counts a credential that was refused.
    pub(crate) fn denied(&self, scope: &'static str) {
        self.change(|counts| counts.denied.entry(scope).or_default().0 += 1);
    }

    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the counts since the last call, as events.
    fn take(&self, now: Timestamp) -> Vec<Event> {
        self.change(|counts| {
            let mut events = Vec::new();
            for ((topic_class, reason), count) in std::mem::take(&mut counts.dead) {
                events.push(Event {
                    topic: "mailbox.dlq.moved",
                    body: json!({ "topic_class": topic_class, "reason": reason, "count": count }),
                });
            }
            for (shard, count) in std::mem::take(&mut counts.requeued) {
                events.push(Event {
                    topic: "mailbox.scanner.requeue",
                    body: json!({ "shard": shard, "count": count }),
                });
            }
            for (scope, (samples, reported)) in &mut counts.denied {
                if *samples >= BURST && !*reported {
                    *reported = true;
                    events.push(Event {
                        topic: "mailbox.auth.revoked",
                        body: json!({
                            "scope": scope, "samples": samples, "window_s": WINDOW_SECONDS,
                        }),
                    });
                }
            }
            let since = *counts.window.get_or_insert(now);
            if now.millis_since(since) >= WINDOW_SECONDS * 1_000 {
                counts.window = None;
                counts.denied.clear();
            }
            events
        })
    }
}

impl Engine {
    /// Returns the bus of events for operators.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// Publishes an event, with the time.
    pub fn publish_event(&self, topic: &'static str, mut body: Value) {
        if let Some(body) = body.as_object_mut() {
            body.insert("ts".to_owned(), self.now().to_string().into());
        }
        self.events.publish(topic, body);
    }

    /// Publishes the counts since the last call. Call it about once a second: that bounds the rate of
    /// events.
    pub fn publish_counts(&self) {
        for event in self.metrics.mailbox.tally.take(self.now()) {
            self.publish_event(event.topic, event.body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[tokio::test]
    async fn a_slow_reader_loses_the_oldest_and_is_told_how_many() {
        let events = Events::default();
        let mut reader = events.subscribe();
        for n in 0..CAPACITY + 3 {
            events.publish("x", json!(n));
        }
        let (lost, event) = reader.next().await.unwrap();
        assert_eq!((lost, &event.body), (3, &json!(3)));
        assert_eq!(events.lagged().get(), 3);
        drop(events);
        for _ in 0..CAPACITY - 1 {
            assert_eq!(reader.next().await.unwrap().0, 0);
        }
        assert!(reader.next().await.is_none());
    }

    #[test]
    fn what_happens_often_is_told_once_with_its_number() {
        let tally = Tally::default();
        for _ in 0..3 {
            tally.died("user_inbox", "E_PARSE");
            tally.requeued(7);
        }
        let told = tally.take(at(1));
        let bodies: Vec<&Value> = told.iter().map(|event| &event.body).collect();
        assert_eq!(
            bodies,
            [
                &json!({"topic_class": "user_inbox", "reason": "E_PARSE", "count": 3}),
                &json!({"shard": 7, "count": 3}),
            ]
        );
        assert_eq!(tally.take(at(2)), []);
    }

    #[test]
    fn refused_credentials_are_told_when_they_are_a_burst_and_once_a_window() {
        let tally = Tally::default();
        let refuse = |times: u64| (0..times).for_each(|_| tally.denied("send"));
        refuse(BURST - 1);
        assert_eq!(tally.take(at(0)), []);
        refuse(1);
        assert_eq!(tally.take(at(1))[0].body["samples"], 10);
        refuse(50);
        assert_eq!(tally.take(at(2)), []);
        assert_eq!(tally.take(at(31)), []);
        refuse(BURST);
        assert_eq!(tally.take(at(32)).len(), 1);
    }
}
