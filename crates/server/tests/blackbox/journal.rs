//! Load that remembers what was promised to it, and the check that every promise was kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::calls::{text, types};
use crate::harness::Server;
use crate::http::{Connection, Request};

/// The agents that own the tasks of the load.
const OWNERS: [&str; 3] = ["alice", "bob", "carol"];

/// What the server has said yes to.
#[derive(Debug, Default)]
pub struct Journal {
    /// Keys of creates that were answered, with the task's id.
    created: Mutex<BTreeMap<String, String>>,
    /// Keys of creates that were sent; the answer may be lost.
    sent: Mutex<BTreeSet<String>>,
    /// Completes that were answered: the task, and the result it was given.
    completed: Mutex<BTreeMap<String, Value>>,
    /// Cancels that were answered.
    canceled: Mutex<BTreeSet<String>>,
    promises: AtomicUsize,
}

impl Journal {
    /// How many calls were answered with success.
    pub fn promises(&self) -> usize {
        self.promises.load(Ordering::Relaxed)
    }

    fn promised(&self) {
        self.promises.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts load on a server from several connections until it goes away or says it is out of order.
    /// Each connection creates, takes, finishes and sometimes cancels, and writes down every yes.
    pub fn load(&self, server: &Server, connections: usize, round: usize) {
        thread::scope(|scope| {
            for n in 0..connections {
                scope.spawn(move || {
                    let mut hand = Hand {
                        connection: Connection::open(server.address).ok(),
                        server,
                        journal: self,
                        name: format!("{round}-{n}"),
                        number: 0,
                    };
                    while hand.turn().is_some() {}
                });
            }
        });
    }

    /// Checks that nothing that was answered is lost or undone.
    #[track_caller]
    pub fn verify(&self, server: &Server) {
        let mut connection = server.connect();
        let mut ask = |request: Request| connection.send(&server.with_key(request)).unwrap();
        let created = self.created.lock().unwrap();
        let completed = self.completed.lock().unwrap();
        let canceled = self.canceled.lock().unwrap();
        for (key, id) in created.iter() {
            let task = ask(Request::get(&format!("/v1/tasks/{id}"))).expect(200);
            assert_eq!(task["idempotency_key"], *key);
            assert_eq!(task["payload"], payload(key), "{key}");
            if let Some(result) = completed.get(id) {
                assert_eq!(task["status"], "succeeded", "{task}");
                assert_eq!(&task["result"]["result"], result);
            }
            if canceled.contains(id) {
                assert_eq!(task["status"], "canceled", "{task}");
            }
        }
        for key in self.sent.lock().unwrap().iter() {
            let answer = ask(Request::post("/v1/tasks", input(key).to_string()));
            match created.get(key) {
                Some(id) => assert_eq!(answer.expect(200)["task_id"], *id, "{key}"),
                None => assert!(matches!(answer.status, 200 | 201), "{answer:?}"),
            }
        }
    }

    /// Takes everything there is to take, and checks that nothing finished is among it.
    #[track_caller]
    pub fn verify_claimable(&self, server: &Server) {
        let completed = self.completed.lock().unwrap();
        let canceled = self.canceled.lock().unwrap();
        loop {
            let held = server.claim(&json!({"worker_id": "auditor", "max_tasks": 100}));
            if held.is_empty() {
                return;
            }
            for held in held {
                assert!(
                    !completed.contains_key(&held.task_id),
                    "finished, yet claimable"
                );
                assert!(
                    !canceled.contains(&held.task_id),
                    "called off, yet claimable"
                );
            }
        }
    }
}

fn payload(key: &str) -> Value {
    json!({"key": key, "filler": "x".repeat(key.len() % 7 * 40)})
}

fn owner(key: &str) -> &'static str {
    OWNERS[key.bytes().map(usize::from).sum::<usize>() % OWNERS.len()]
}

fn input(key: &str) -> Value {
    json!({
        "type": "load",
        "payload": payload(key),
        "idempotency_key": key,
        "principal_id": owner(key),
    })
}

/// One connection's worth of load.
struct Hand<'a> {
    connection: Option<Connection>,
    server: &'a Server,
    journal: &'a Journal,
    name: String,
    number: usize,
}

impl Hand<'_> {
    /// One create, one claim, one end. Nothing when the server is gone.
    fn turn(&mut self) -> Option<()> {
        self.number += 1;
        let key = format!("{}-{}", self.name, self.number);
        self.journal.sent.lock().unwrap().insert(key.clone());
        let created = self.ask("/v1/tasks", &input(&key))?;
        let id = text(&created["task_id"]);
        self.journal.created.lock().unwrap().insert(key, id.clone());
        self.journal.promised();
        if self.number.is_multiple_of(5) {
            return self.cancel(&id);
        }
        let claim = json!({"worker_id": self.name});
        let claimed = self.ask("/v1/leases/claim", &claim)?;
        let Some(task) = claimed["tasks"].as_array().unwrap().first().cloned() else {
            return Some(());
        };
        self.journal.promised();
        if self.number.is_multiple_of(7) {
            // Left in a worker's hands.
            return Some(());
        }
        self.complete(&task)
    }

    fn complete(&mut self, task: &Value) -> Option<()> {
        let id = text(&task["task_id"]);
        let result = json!({"by": self.name, "number": self.number});
        let input = json!({
            "worker_id": self.name,
            "lease_id": task["lease_id"],
            "result": result,
            "artifacts": [{"url": format!("s3://out/{id}")}],
        });
        // Nothing means that it was called off under its worker.
        if self.ask(&format!("/v1/tasks/{id}/complete"), &input)? != Value::Null {
            self.journal.completed.lock().unwrap().insert(id, result);
            self.journal.promised();
        }
        Some(())
    }

    fn cancel(&mut self, id: &str) -> Option<()> {
        // Nothing means that another connection has finished it before.
        if self.ask(&format!("/v1/tasks/{id}/cancel"), &json!({}))? != Value::Null {
            self.journal.canceled.lock().unwrap().insert(id.to_owned());
            self.journal.promised();
        }
        Some(())
    }

    /// What the server says; `null` if it refuses because of the task's state. Nothing if it is gone
    /// or out of order.
    fn ask(&mut self, target: &str, input: &Value) -> Option<Value> {
        let request = Request::post(target, input.to_string());
        let request = self.server.with_key(request);
        let answer = self.connection.as_mut()?.send(&request).ok()?;
        match answer.status {
            200 | 201 => Some(answer.json()),
            409 => Some(Value::Null),
            503 => None,
            _ => panic!("{answer:?}"),
        }
    }
}

/// Checks that the ledger has no gaps, that its receipts are whole, and that what is listed as owed
/// is what the ledger says is owed.
#[track_caller]
pub fn verify_ledger(server: &Server) -> Vec<Value> {
    let ledger = server.ledger();
    let ids: BTreeSet<&str> = ledger
        .iter()
        .map(|receipt| receipt["receipt_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), ledger.len(), "ids are unique");
    let mut discharged = BTreeSet::new();
    for receipt in &ledger {
        for parent in receipt["parents"].as_array().unwrap() {
            let parent = parent.as_str().unwrap();
            assert!(
                ids.contains(parent),
                "a parent that is not there: {receipt}"
            );
            let kind = receipt["receipt_type"].as_str().unwrap();
            if ["task.completed", "task.failed", "task.canceled"].contains(&kind) {
                discharged.insert(parent);
            }
        }
    }
    assert_eq!(server.ledger_by_type(), ledger, "the lists agree");
    let mut open = 0;
    for owner in OWNERS {
        let owed: Vec<&Value> = ledger
            .iter()
            .filter(|receipt| receipt["receipt_type"] == "task.assigned")
            .filter(|receipt| receipt["to"]["id"] == owner)
            .filter(|receipt| !discharged.contains(receipt["receipt_id"].as_str().unwrap()))
            .collect();
        open += owed.len();
        let listed = server.obligations(owner);
        assert_eq!(
            listed.iter().collect::<Vec<_>>(),
            owed,
            "what {owner} is owed"
        );
    }
    let head = server.get("/v1/ledger/head").expect(200);
    assert_eq!(head["seq"], ledger.len());
    assert_eq!(head["open_obligations"], open);
    let last = ledger.last().expect("a receipt");
    assert_eq!(head["link"], last["link"]);
    ledger
}

/// Checks that each task's state is what its receipts say.
#[track_caller]
pub fn verify_stories(server: &Server, ledger: &[Value]) {
    let mut stories: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for receipt in ledger {
        if let Some(task) = receipt["task_id"].as_str() {
            stories.entry(task).or_default().push(receipt.clone());
        }
    }
    let mut connection = server.connect();
    for (id, story) in stories {
        let names = types(&story);
        let request = server.with_key(Request::get(&format!("/v1/tasks/{id}")));
        let task = connection.send(&request).unwrap().expect(200);
        let says = if names.contains(&"task.completed") {
            "succeeded"
        } else if names.contains(&"task.canceled") {
            "canceled"
        } else if names.last() == Some(&"task.accepted") {
            "leased"
        } else {
            "queued"
        };
        assert_eq!(task["status"], says, "{names:?}");
        let ready = names
            .iter()
            .filter(|name| **name == "task.result_ready")
            .count();
        let ended = matches!(says, "succeeded" | "canceled");
        assert_eq!(ready, usize::from(ended), "{names:?}");
    }
}
