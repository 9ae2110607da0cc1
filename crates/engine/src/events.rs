//! Events for operators as they happen: a bus within the process, and counts of things that happen too
//! often for an event each.
//!
//! Invariant: the bus never waits for a reader. It drops the oldest events instead.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use asyncgate_core::{TenantId, Timestamp};
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
    /// The tenant that it happened to. An event without one tells of the server itself, and of nobody's
    /// things.
    pub tenant: Option<TenantId>,
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
    /// Hands an event to its readers.
    pub fn publish(&self, event: Event) {
        // An error means that nobody reads, which is fine.
        let _ = self.sender.send(Arc::new(event));
    }

    /// Returns a reader of a tenant's events from now on, and of those about the server itself.
    pub fn subscribe(&self, tenant: TenantId) -> Subscription {
        Subscription {
            tenant,
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
    tenant: TenantId,
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
                Ok(event) if event.tenant.is_some_and(|tenant| tenant != self.tenant) => {}
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
    /// Dead letters by tenant, class of the topic and reason.
    dead: BTreeMap<(TenantId, String, String), u64>,
    /// Dead letters that were kept long enough, by tenant and class of the topic.
    buried: BTreeMap<(TenantId, String), u64>,
    /// Messages that came back, by tenant and shard.
    requeued: BTreeMap<(TenantId, u16), u64>,
    /// Refused credentials of the window by scope, and true where their burst was reported.
    denied: BTreeMap<&'static str, (u64, bool)>,
    /// The start of the window.
    window: Option<Timestamp>,
}

impl Tally {
    /// Counts a message that became a dead letter.
    pub(crate) fn died(&self, tenant: TenantId, topic_class: &str, reason: &str) {
        self.change(|counts| {
            if counts.dead.len() < MAX_KINDS {
                let kind = (tenant, topic_class.to_owned(), reason.to_owned());
                *counts.dead.entry(kind).or_default() += 1;
            }
        });
    }

    /// Counts dead letters that were forgotten.
    pub(crate) fn buried(&self, tenant: TenantId, topic_class: &str, count: u64) {
        self.change(|counts| {
            if counts.buried.len() < MAX_KINDS {
                let kind = (tenant, topic_class.to_owned());
                *counts.buried.entry(kind).or_default() += count;
            }
        });
    }

    /// Counts a message that came back because its receiver let the deadline pass.
    pub(crate) fn requeued(&self, tenant: TenantId, shard: u16) {
        self.change(|counts| {
            if counts.requeued.len() < MAX_KINDS {
                *counts.requeued.entry((tenant, shard)).or_default() += 1;
            }
        });
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
            for ((tenant, topic_class, reason), count) in std::mem::take(&mut counts.dead) {
                events.push(Event {
                    tenant: Some(tenant),
                    topic: "mailbox.dlq.moved",
                    body: json!({ "topic_class": topic_class, "reason": reason, "count": count }),
                });
            }
            for ((tenant, topic_class), count) in std::mem::take(&mut counts.buried) {
                events.push(Event {
                    tenant: Some(tenant),
                    topic: "mailbox.dlq.forgotten",
                    body: json!({ "topic_class": topic_class, "count": count }),
                });
            }
            for ((tenant, shard), count) in std::mem::take(&mut counts.requeued) {
                events.push(Event {
                    tenant: Some(tenant),
                    topic: "mailbox.scanner.requeue",
                    body: json!({ "shard": shard, "count": count }),
                });
            }
            for (scope, (samples, reported)) in &mut counts.denied {
                if *samples >= BURST && !*reported {
                    *reported = true;
                    events.push(Event {
                        // A credential that is refused belongs to nobody that the server knows.
                        tenant: None,
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
    pub fn publish_event(&self, mut event: Event) {
        if let Some(body) = event.body.as_object_mut() {
            body.insert("ts".to_owned(), self.now().to_string().into());
        }
        self.events.publish(event);
    }

    /// Publishes the counts since the last call. Call it about once a second: that bounds the rate of
    /// events.
    pub fn publish_counts(&self) {
        for event in self.metrics.mailbox.tally.take(self.now()) {
            self.publish_event(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: TenantId = TenantId::from_bytes([1; 16]);
    const THEIRS: TenantId = TenantId::from_bytes([2; 16]);

    fn of(tenant: Option<TenantId>, n: usize) -> Event {
        Event {
            tenant,
            topic: "x",
            body: json!(n),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[tokio::test]
    async fn a_slow_reader_loses_the_oldest_and_is_told_how_many() {
        let events = Events::default();
        let mut reader = events.subscribe(OURS);
        for n in 0..CAPACITY + 3 {
            events.publish(of(Some(OURS), n));
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

    #[tokio::test]
    async fn a_reader_sees_its_own_tenant_and_the_server_only() {
        let events = Events::default();
        let mut reader = events.subscribe(OURS);
        for (n, tenant) in [Some(THEIRS), Some(OURS), Some(THEIRS), None]
            .into_iter()
            .enumerate()
        {
            events.publish(of(tenant, n));
        }
        drop(events);
        let mut seen = Vec::new();
        while let Some((_, event)) = reader.next().await {
            seen.push(event.body.clone());
        }
        assert_eq!(seen, [json!(1), json!(3)]);
    }

    #[test]
    fn what_happens_often_is_told_once_with_its_number() {
        let tally = Tally::default();
        for _ in 0..3 {
            tally.died(OURS, "user_inbox", "E_PARSE");
            tally.requeued(OURS, 7);
        }
        tally.requeued(THEIRS, 7);
        let told = tally.take(at(1));
        let bodies: Vec<&Value> = told.iter().map(|event| &event.body).collect();
        assert_eq!(
            bodies,
            [
                &json!({"topic_class": "user_inbox", "reason": "E_PARSE", "count": 3}),
                &json!({"shard": 7, "count": 3}),
                &json!({"shard": 7, "count": 1}),
            ]
        );
        let tenants: Vec<_> = told.iter().map(|event| event.tenant).collect();
        assert_eq!(tenants, [Some(OURS), Some(OURS), Some(THEIRS)]);
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
