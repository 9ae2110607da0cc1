//! Load: connections that create, take, report, finish, fail, give back and call off at random, and
//! write down every success in the journal.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::harness::Server;
use crate::http::{Connection, Request};
use crate::journal::{Ack, Held, Journal, OWNERS, Wish};
use crate::random::Random;

/// Puts load on a server from several connections, until it goes away or says it is out of order.
/// `meanwhile` runs beside it and decides when that is.
pub fn load(
    server: &Server,
    journal: &Journal,
    random: &Random,
    connections: usize,
    meanwhile: impl FnOnce(),
) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..connections {
            let (over, random) = (&over, random.fork(n));
            scope.spawn(move || {
                let mut hand = Hand::new(server, journal, random);
                while !over.load(Ordering::Relaxed) && hand.turn().is_some() {}
                hand.journal.put_down(hand.held);
            });
        }
        meanwhile();
        over.store(true, Ordering::Relaxed);
    });
}

/// One connection's worth of load.
pub struct Hand<'a> {
    server: &'a Server,
    journal: &'a Journal,
    random: Random,
    connection: Option<Connection>,
    name: String,
    number: usize,
    held: Vec<Held>,
    created: Vec<(String, Wish)>,
}

impl<'a> Hand<'a> {
    pub fn new(server: &'a Server, journal: &'a Journal, mut random: Random) -> Self {
        Self {
            server,
            journal,
            name: format!("{:016x}", random.next()),
            random,
            connection: Connection::open(server.address).ok(),
            number: 0,
            held: journal.take_up(3),
            created: Vec::new(),
        }
    }

    /// One call. Nothing when the server is gone.
    pub fn turn(&mut self) -> Option<()> {
        let roll = self.random.below(100);
        match roll {
            0..26 => self.create(),
            26..46 => self.claim(),
            46..49 => self.cancel(),
            49..52 => self.create_again(),
            52..55 => self.head(),
            _ if self.held.is_empty() => self.claim(),
            55..67 => self.progress(),
            67..73 => self.start(),
            73..88 => self.complete(),
            88..97 => self.fail(),
            _ => self.release(),
        }
    }

    /// Creates a task, three times out of four with a key.
    pub fn create(&mut self) -> Option<()> {
        self.number += 1;
        let name = format!("{}-{}", self.name, self.number);
        let filler = [0, 40, 400, 3_000][self.random.below(4)];
        let wish = Wish {
            key: self.random.chance(75).then(|| name.clone()),
            owner: OWNERS[self.random.below(OWNERS.len())],
            payload: json!({"name": name, "filler": "x".repeat(filler)}),
            max_attempts: 1 + self.random.below(3),
        };
        let Some(created) = self.ask("/v1/tasks", &wish.input()) else {
            self.journal.note_unanswered(wish);
            return None;
        };
        let id = text(&created["task_id"]);
        self.created.push((id.clone(), wish.clone()));
        self.journal.note(Ack::Created { id, wish });
        Some(())
    }

    /// Sends a create again; a key must be known, whatever became of the task.
    fn create_again(&mut self) -> Option<()> {
        let mut known = self.created.iter().filter(|(_, wish)| wish.key.is_some());
        let Some((id, wish)) = known.next_back().cloned() else {
            return self.create();
        };
        let again = self.ask("/v1/tasks", &wish.input())?;
        assert_eq!(again["task_id"], *id, "{wish:?}");
        assert_eq!(again["duplicate"], true, "{wish:?}");
        Some(())
    }

    fn claim(&mut self) -> Option<()> {
        let most = 1 + self.random.below(3);
        let input = json!({
            "worker_id": self.name, "max_tasks": most, "lease_ttl_seconds": 1_800,
        });
        let claimed = self.ask("/v1/leases/claim", &input)?;
        for task in claimed["tasks"].as_array().unwrap() {
            let held = Held {
                id: text(&task["task_id"]),
                lease: text(&task["lease_id"]),
                worker: self.name.clone(),
                uncertain: false,
            };
            self.held.push(held.clone());
            self.journal.note(Ack::Claimed(held));
        }
        Some(())
    }

    pub fn head(&mut self) -> Option<()> {
        let request = self.server.with_key(Request::get("/v1/ledger/head"));
        let answer = self.connection.as_mut()?.send(&request).ok()?;
        let head = answer.expect(200);
        self.journal.note(Ack::Head {
            seq: head["seq"].as_u64().unwrap(),
            link: text(&head["link"]),
            open: head["open_obligations"].as_u64().unwrap(),
        });
        Some(())
    }

    fn cancel(&mut self) -> Option<()> {
        if self.created.is_empty() {
            return self.create();
        }
        let n = self.random.below(self.created.len());
        let id = self.created[n].0.clone();
        let input = json!({"reason": format!("called off by {}", self.name)});
        // Refused means that it had ended before.
        if !self
            .ask(&format!("/v1/tasks/{id}/cancel"), &input)?
            .is_null()
        {
            self.journal.note(Ack::Canceled { id });
        }
        Some(())
    }

    fn progress(&mut self) -> Option<()> {
        self.number += 1;
        let value = json!({"by": self.name, "at": self.number});
        let (held, answer) = self.under("progress", &json!({"progress": value}))?;
        if !answer.is_null() {
            self.held.push(held.clone());
            self.journal.note(Ack::Progressed { held, value });
        }
        Some(())
    }

    fn start(&mut self) -> Option<()> {
        let (held, answer) = self.under("running", &json!({}))?;
        if !answer.is_null() {
            self.held.push(held.clone());
            self.journal.note(Ack::Started(held));
        }
        Some(())
    }

    fn release(&mut self) -> Option<()> {
        let (held, answer) = self.under("release", &json!({}))?;
        if !answer.is_null() {
            self.journal.note(Ack::Released(held));
        }
        Some(())
    }

    /// Ends a task, three times out of four with proof.
    fn complete(&mut self) -> Option<()> {
        self.number += 1;
        let result = json!({"by": self.name, "number": self.number});
        let mut more = json!({"result": result});
        if self.random.chance(75) {
            more["artifacts"] = json!([{"url": format!("s3://out/{}", self.number)}]);
        }
        let (held, answer) = self.under("complete", &more)?;
        if !answer.is_null() {
            self.journal.note(Ack::Completed {
                receipt: text(&answer["receipt_id"]),
                result: (!held.uncertain).then_some(result),
                held,
            });
        }
        Some(())
    }

    fn fail(&mut self) -> Option<()> {
        self.number += 1;
        let more = json!({
            "error": {"by": self.name, "number": self.number},
            "retryable": self.random.chance(60),
        });
        let (held, answer) = self.under("fail", &more)?;
        if !answer.is_null() {
            self.journal.note(Ack::Failed {
                held,
                receipt: text(&answer["receipt_id"]),
                requeued: answer["requeued"] == true,
            });
        }
        Some(())
    }

    /// Makes a call under one of the leases at hand. It stays at hand if the server does not answer:
    /// then nobody knows whether the call counted.
    fn under(&mut self, call: &str, more: &Value) -> Option<(Held, Value)> {
        let n = self.random.below(self.held.len());
        let held = self.held.swap_remove(n);
        let mut input = more.clone();
        input["worker_id"] = json!(held.worker);
        input["lease_id"] = json!(held.lease);
        let target = if call == "release" {
            input["task_id"] = json!(held.id);
            "/v1/leases/release".to_owned()
        } else {
            format!("/v1/tasks/{}/{call}", held.id)
        };
        match self.ask(&target, &input) {
            Some(answer) => Some((held, answer)),
            None => {
                self.held.push(Held {
                    uncertain: true,
                    ..held
                });
                None
            }
        }
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
            _ => panic!("{target}: {answer:?}"),
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}
