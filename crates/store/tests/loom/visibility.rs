//! The end of a delivery: acknowledgement, deadline and the next receiver at the same moment.
//!
//! The rules are the product's. The store is one lock around one row, as the memory store is one lock
//! around all.

use std::collections::BTreeMap;

use asyncgate_core::{
    Env, Ids, LeaseId, Policy, Stamp, Timestamp,
    mailbox::{
        self, Changes, Decision, Kind, Lines, Message, Outgoing, Rejection, SendContext, Share,
        Wish,
    },
};
use loom::{
    sync::{Arc, Mutex},
    thread,
};

use crate::explore;

const SENT: Timestamp = Timestamp::from_millis(1_000);
const VISIBILITY_MS: i64 = 250;

#[derive(Debug)]
struct Row {
    message: Message,
    /// The states of the message, one for each commit.
    commits: Vec<Kind>,
}

#[derive(Debug)]
struct Store(Mutex<Row>);

fn env(now: Timestamp, seed: u64) -> Env {
    Env {
        now,
        ids: Ids::new(Stamp::from_u64(seed), seed),
        instance: "asyncgate-1".into(),
        policy: std::sync::Arc::new(Policy::default()),
        quotas: None,
    }
}

fn only(changes: Changes) -> Option<Message> {
    let written = changes.messages.into_iter().next();
    written.map(|write| write.message)
}

impl Store {
    /// Returns a store with a message that a receiver holds, and the lease.
    fn new() -> (Arc<Self>, LeaseId) {
        let sent = Outgoing {
            topic: "inbox".to_owned(),
            idem_key: "a".to_owned(),
            payload: "a".into(),
            is_text: false,
            attrs: BTreeMap::new(),
            partition_key: None,
            delay_ms: 0,
            ttl_ms: None,
            priority: 0,
            corr_id: None,
        };
        let changes = mailbox::send(env(SENT, 1), SendContext::default(), vec![sent]).changes;
        let store = Self(Mutex::new(Row {
            message: only(changes).unwrap(),
            commits: Vec::new(),
        }));
        let lease = store.receive(SENT, 2).unwrap();
        store.0.lock().unwrap().commits.clear();
        (Arc::new(store), lease)
    }

    fn transact<T>(
        &self,
        decide: impl FnOnce(Message) -> Result<Decision<T>, Rejection>,
    ) -> Result<T, Rejection> {
        let mut row = self.0.lock().unwrap();
        let Decision { changes, output } = decide(row.message.clone())?;
        if let Some(message) = only(changes) {
            row.commits.push(message.standing().kind);
            row.message = message;
        }
        Ok(output)
    }

    fn receive(&self, now: Timestamp, seed: u64) -> Option<LeaseId> {
        let wish = Wish {
            visibility_ms: VISIBILITY_MS,
            max_messages: 1,
            max_bytes: 9,
        };
        let received = self.transact(|message| {
            let ready = message.standing().kind == Kind::Ready;
            let candidates = ready.then_some(message).into_iter().collect();
            mailbox::receive(
                env(now, seed),
                &wish,
                Share::default(),
                candidates,
                Lines::new(),
            )
        });
        let message = received.unwrap().messages.pop()?;
        message.delivery.map(|delivery| delivery.lease)
    }

    fn ack(&self, now: Timestamp, lease: LeaseId) -> Result<bool, Rejection> {
        let acked = self.transact(|message| {
            mailbox::ack(&env(now, 9), Some(message), Some(lease), Lines::new())
        });
        acked.map(|said| said.repeated)
    }

    fn sweep(&self, now: Timestamp) -> usize {
        let swept =
            self.transact(|message| Ok(mailbox::sweep(&env(now, 9), vec![message], Lines::new())));
        swept.unwrap().moved()
    }
}

#[test]
fn acknowledgement_and_deadline_end_a_delivery_once() {
    explore(|| {
        let (store, lease) = Store::new();
        let deadline = SENT.plus_millis(VISIBILITY_MS);
        let run = |act: fn(&Store, Timestamp, LeaseId) -> bool| {
            let store = Arc::clone(&store);
            thread::spawn(move || act(&store, deadline, lease))
        };
        let acking = run(|store, now, lease| store.ack(now, lease) == Ok(false));
        let sweeping = run(|store, now, _| store.sweep(now) == 1);
        let taken = store.receive(deadline, 3).is_some();
        let (acked, requeued) = (acking.join().unwrap(), sweeping.join().unwrap());
        let row = store.0.lock().unwrap();
        let expected: &[Kind] = match (acked, requeued, taken) {
            // The acknowledgement came first, or after the deadline and before anybody else.
            (true, false, false) => &[Kind::Gone],
            (true, true, false) => &[Kind::Ready, Kind::Gone],
            // Somebody took the message over: the acknowledgement is refused.
            (false, true, true) => &[Kind::Ready, Kind::Leased],
            other => panic!("{other:?}: {:?}", row.commits),
        };
        assert_eq!(row.commits, expected);
    });
}

#[test]
fn one_of_two_acknowledgements_is_a_repetition() {
    explore(|| {
        let (store, lease) = Store::new();
        let other = thread::spawn({
            let store = Arc::clone(&store);
            move || store.ack(SENT, lease)
        });
        let mine = store.ack(SENT, lease);
        let mut answers = [mine, other.join().unwrap()];
        answers.sort_by_key(|answer| answer.clone().ok());
        assert_eq!(answers, [Ok(false), Ok(true)]);
        assert_eq!(store.0.lock().unwrap().commits, [Kind::Gone]);
    });
}
