//! What clients were told: every success that reached one, and every create whose answer was lost.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// The agents that own the tasks of the load.
pub const OWNERS: [&str; 3] = ["alice", "bob", "carol"];

/// A task that a client asked for.
#[derive(Debug, Clone)]
pub struct Wish {
    pub key: Option<String>,
    pub owner: &'static str,
    pub payload: Value,
    pub max_attempts: usize,
}

impl Wish {
    pub fn input(&self) -> Value {
        let mut input = json!({
            "type": "load",
            "payload": self.payload,
            "principal_id": self.owner,
            "max_attempts": self.max_attempts,
            "retry_backoff_seconds": 0,
        });
        if let Some(key) = &self.key {
            input["idempotency_key"] = json!(key);
        }
        input
    }
}

/// A task in a worker's hands.
#[derive(Debug, Clone)]
pub struct Held {
    pub id: String,
    pub lease: String,
    pub worker: String,
    /// Whether a call under the lease got no answer: nobody knows whether it counted.
    pub uncertain: bool,
}

/// A success that a client was told.
#[derive(Debug, Clone)]
pub enum Ack {
    Created {
        id: String,
        wish: Wish,
    },
    Claimed(Held),
    Started(Held),
    Progressed {
        held: Held,
        value: Value,
    },
    Released(Held),
    /// Without the result if an earlier call, whose answer was lost, may have ended the task: the
    /// result that was given first stands.
    Completed {
        held: Held,
        receipt: String,
        result: Option<Value>,
    },
    Failed {
        held: Held,
        receipt: String,
        requeued: bool,
    },
    Canceled {
        id: String,
    },
    /// Where the ledger stood when the server vouched for it.
    Head {
        seq: u64,
        link: String,
        open: u64,
    },
}

/// What all clients were told, across all lives of the server.
#[derive(Debug, Default)]
pub struct Journal {
    acks: Mutex<Vec<Ack>>,
    /// The log of the disk, if there is one, and how long it was at each acknowledgement: what was
    /// acknowledged rests on nothing that the log says later.
    log: Option<PathBuf>,
    log_lengths: Mutex<Vec<u64>>,
    unanswered: Mutex<Vec<Wish>>,
    in_hands: Mutex<Vec<Held>>,
    count: AtomicUsize,
}

impl Journal {
    /// A journal beside the log of a disk.
    pub fn beside(log: PathBuf) -> Self {
        Self {
            log: Some(log),
            ..Self::default()
        }
    }

    /// How many acknowledgements there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    pub fn note(&self, ack: Ack) {
        let length = self
            .log
            .as_ref()
            .map(|log| std::fs::metadata(log).unwrap().len());
        let mut acks = lock(&self.acks);
        acks.push(ack);
        lock(&self.log_lengths).extend(length);
        drop(acks);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// The acknowledgements from number `from` on.
    pub fn since(&self, from: usize) -> Vec<Ack> {
        lock(&self.acks)[from..].to_vec()
    }

    /// What was acknowledged when the log of the disk was so long.
    pub fn when_log_was(&self, length: u64) -> Vec<Ack> {
        let (acks, lengths) = (lock(&self.acks), lock(&self.log_lengths));
        let pairs = acks.iter().zip(lengths.iter());
        let known = pairs.filter(|(_, at)| **at <= length);
        known.map(|(ack, _)| ack.clone()).collect()
    }

    pub fn note_unanswered(&self, wish: Wish) {
        lock(&self.unanswered).push(wish);
    }

    pub fn unanswered(&self) -> Vec<Wish> {
        lock(&self.unanswered).clone()
    }

    /// What workers held when they last lost the server: their calls may or may not have counted.
    pub fn take_up(&self, most: usize) -> Vec<Held> {
        let mut held = lock(&self.in_hands);
        let from = held.len().saturating_sub(most);
        held.split_off(from)
    }

    pub fn put_down(&self, held: Vec<Held>) {
        lock(&self.in_hands).extend(held);
    }
}

/// A thread that panicked has failed the test already.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
