//! `kill -9` under a load of messages: what was sent is there, and once; what was acknowledged is
//! never delivered again; a repeated send is recognised; the chains hold.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::ask::Ask;
use crate::harness::{Launch, Server, eventually};
use crate::http::{Connection, Request};
use crate::offline::verify;
use crate::random::Random;

const KILLS: usize = 40;
const CONNECTIONS: usize = 4;
const TOPICS: [&str; 3] = ["orders", "mails", "bills"];

/// What a sender gave.
#[derive(Debug, Clone, PartialEq)]
struct Letter {
    topic: &'static str,
    key: String,
    payload: String,
}

impl Letter {
    fn input(&self) -> Value {
        json!({"topic": self.topic, "idem_key": self.key, "payload_b64": self.payload})
    }
}

/// What clients were told, across all lives of the server.
#[derive(Debug, Default)]
struct Told {
    /// By id.
    sent: BTreeMap<String, Letter>,
    /// Sends whose answer was lost.
    unanswered: Vec<Letter>,
    acked: BTreeSet<String>,
    /// Acknowledgements whose answer was lost: they may count.
    maybe_acked: BTreeSet<String>,
    /// Acknowledged messages that were delivered all the same.
    resurrected: Vec<String>,
}

#[derive(Debug, Default)]
struct Post {
    told: Mutex<Told>,
    count: AtomicUsize,
}

impl Post {
    fn note(&self, note: impl FnOnce(&mut Told)) {
        note(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
        self.count.fetch_add(1, Ordering::Release);
    }
}

/// One connection's worth of load.
struct Hand<'a> {
    server: &'a Server,
    post: &'a Post,
    random: Random,
    connection: Connection,
    name: String,
    number: usize,
    sent: Vec<(String, Letter)>,
    /// Ids and leases.
    held: Vec<(String, String)>,
}

impl Hand<'_> {
    fn turn(&mut self) -> Option<()> {
        match self.random.below(100) {
            0..40 => self.send(),
            40..50 => self.send_again(),
            50..70 => self.receive(),
            _ => self.ack(),
        }
    }

    fn send(&mut self) -> Option<()> {
        self.number += 1;
        let sizes = [4, 400, 8_000];
        let letter = Letter {
            topic: TOPICS[self.random.below(TOPICS.len())],
            key: format!("{}-{}", self.name, self.number),
            payload: "QUJD".repeat(sizes[self.random.below(sizes.len())] / 4),
        };
        let Some(answer) = self.ask("/v1/send", &letter.input()) else {
            self.post.note(|told| told.unanswered.push(letter));
            return None;
        };
        assert_eq!(answer["duplicate"], false);
        let id = text(&answer["msg_id"]);
        self.sent.push((id.clone(), letter.clone()));
        self.post.note(|told| told.sent.extend([(id, letter)]));
        Some(())
    }

    fn send_again(&mut self) -> Option<()> {
        if self.sent.is_empty() {
            return self.send();
        }
        let n = self.random.below(self.sent.len());
        let (id, letter) = self.sent[n].clone();
        let again = self.ask("/v1/send", &letter.input())?;
        assert_eq!(
            (&again["msg_id"], &again["duplicate"]),
            (&json!(id), &json!(true))
        );
        Some(())
    }

    fn receive(&mut self) -> Option<()> {
        let topic = TOPICS[self.random.below(TOPICS.len())];
        let input = json!({"topic": topic, "max_messages": 4, "visibility_ms": 1_000});
        // What was acknowledged before this call was made must not come.
        let mut acked = BTreeSet::new();
        self.post.note(|told| acked.clone_from(&told.acked));
        let answer = self.ask("/v1/recv", &input)?;
        for message in answer["messages"].as_array().unwrap() {
            let id = text(&message["msg_id"]);
            if acked.contains(&id) {
                self.post.note(|told| told.resurrected.push(id.clone()));
            }
            self.held.push((id, text(&message["lease"])));
        }
        Some(())
    }

    fn ack(&mut self) -> Option<()> {
        let Some((id, lease)) = self.held.pop() else {
            return self.receive();
        };
        let input = json!({"lease": lease});
        match self.ask(&format!("/v1/ack/{id}"), &input) {
            None => {
                self.post.note(|told| told.maybe_acked.extend([id]));
                return None;
            }
            // Refused means that its time was over and another has it.
            Some(Value::Null) => {}
            Some(_) => self.post.note(|told| told.acked.extend([id])),
        }
        Some(())
    }

    /// What the server says; `null` if it refuses because of the message's state. Nothing if it is
    /// gone.
    fn ask(&mut self, target: &str, input: &Value) -> Option<Value> {
        let request = Request::post(target, input.to_string());
        let answer = self.connection.send(&self.server.with_key(request)).ok()?;
        match answer.status {
            200 => Some(answer.json()),
            404 | 409 | 410 => Some(Value::Null),
            _ => panic!("{target}: {answer:?}"),
        }
    }
}

fn kill_under_load(server: &Server, post: &Post, random: &mut Random) {
    let enough = post.count.load(Ordering::Acquire) + 20 + random.below(150);
    let moment = Duration::from_micros(random.below(3_000) as u64);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for n in 0..CONNECTIONS {
            let (over, mut random) = (&over, random.fork(n));
            scope.spawn(move || {
                let mut hand = Hand {
                    server,
                    post,
                    name: format!("{:016x}", random.next()),
                    random,
                    connection: Connection::open(server.address).unwrap(),
                    number: 0,
                    sent: Vec::new(),
                    held: Vec::new(),
                };
                while !over.load(Ordering::Relaxed) && hand.turn().is_some() {}
            });
        }
        eventually("enough was acknowledged", || {
            (post.count.load(Ordering::Acquire) >= enough).then_some(())
        });
        thread::sleep(moment);
        server.signal("KILL");
        over.store(true, Ordering::Relaxed);
    });
    random.next();
}

/// Every repeated send is recognised, whatever became of the message. Sends without an answer are made
/// up for, and may have been there.
fn send_all_again(server: &Server, told: &mut Told) {
    let mut ask = Ask::new(server);
    for (id, letter) in &told.sent {
        let (status, again) = ask.post("/v1/send", &letter.input()).unwrap();
        assert_eq!(status, 200, "{letter:?}: {again}");
        assert_eq!(again["msg_id"], **id, "{letter:?}: {again}");
        assert_eq!(again["duplicate"], true, "{letter:?}: {again}");
    }
    for letter in std::mem::take(&mut told.unanswered) {
        let (status, answer) = ask.post("/v1/send", &letter.input()).unwrap();
        assert_eq!(status, 200, "{letter:?}: {answer}");
        told.sent.insert(text(&answer["msg_id"]), letter);
    }
}

/// Takes what is left, until nothing is missing that must be there. Each comes once.
fn drain(server: &Server, told: &Told) -> usize {
    let mut ask = Ask::new(server);
    let must_come = |id: &&String| !told.acked.contains(*id) && !told.maybe_acked.contains(*id);
    let missing: BTreeSet<&String> = told.sent.keys().filter(must_come).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut seen = BTreeSet::new();
    loop {
        for topic in TOPICS {
            let input = json!({"topic": topic, "max_messages": 32, "visibility_ms": 600_000});
            let (_, answer) = ask.post("/v1/recv", &input).unwrap();
            for message in answer["messages"].as_array().unwrap() {
                let id = look(message, told);
                assert!(seen.insert(id.clone()), "{id} came twice");
            }
        }
        let dead = dead_letters(&mut ask, told);
        assert!(dead.is_disjoint(&seen), "dead and alive");
        let mut lost = missing
            .iter()
            .filter(|id| !seen.contains(**id) && !dead.contains(**id));
        match lost.next() {
            None => return seen.len() + dead.len(),
            Some(id) => assert!(Instant::now() < deadline, "{id} is lost"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}

/// A message that is still there must be as it was sent, and not acknowledged.
fn look(message: &Value, told: &Told) -> String {
    let id = text(&message["msg_id"]);
    assert!(!told.acked.contains(&id), "{id} was acknowledged");
    assert_eq!(message["payload_b64"], told.sent[&id].payload, "{id}");
    id
}

/// Messages that were given up after too many deliveries whose answer was lost.
fn dead_letters(ask: &mut Ask<'_>, told: &Told) -> BTreeSet<String> {
    let mut dead = BTreeSet::new();
    let mut target = "/v1/dlq?limit=200".to_owned();
    loop {
        let page = ask.get(&target).unwrap();
        let messages = page["messages"].as_array().unwrap();
        dead.extend(messages.iter().map(|message| look(message, told)));
        match page["next_cursor"].as_str() {
            Some(cursor) => target = format!("/v1/dlq?limit=200&cursor={cursor}"),
            None => return dead,
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

#[test]
fn no_message_is_lost_or_raised_from_the_dead_by_kills_under_load() {
    let mut random = Random::of_test("mail");
    let post = Post::default();
    let launch = Launch::new();
    for _ in 0..KILLS {
        let server = launch.start();
        kill_under_load(&server, &post, &mut random);
        server.wait();
        verify(launch.data()).unwrap();
    }
    let server = launch.start();
    let mut told = post.told.into_inner().unwrap();
    assert_eq!(told.resurrected, Vec::<String>::new());
    let lost_answers = told.unanswered.len();
    send_all_again(&server, &mut told);
    let left = drain(&server, &told);
    verify(launch.data()).unwrap();
    server.stop();
    eprintln!(
        "{KILLS} kills, {} messages, {} acknowledged, {lost_answers} sends without an answer, {left} \
         left to receive",
        told.sent.len(),
        told.acked.len(),
    );
    assert!(
        told.sent.len() > KILLS * 5 && told.acked.len() > KILLS,
        "too little load"
    );
}
