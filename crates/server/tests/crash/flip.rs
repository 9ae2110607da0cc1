//! One flipped byte in a copy of the files: the start refuses, or every answer is right, or an answer
//! says that it cannot be given. What is silently wrong must be noticed by who checks the ledger.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde_json::Value;

use crate::ask::Ask;
use crate::audit::Audit;
use crate::harness::{Launch, Server};
use crate::http::Request;
use crate::journal::{Ack, Journal, OWNERS};
use crate::load::Hand;
use crate::offline::verify;
use crate::random::Random;

const DATABASE: &str = "asyncgate.db";
const LOG: &str = "asyncgate.db-wal";
const HEADER: usize = 100;

/// What can be read, by target.
type Answers = BTreeMap<String, Answer>;

#[derive(Debug, Clone, PartialEq)]
enum Answer {
    Told(Value),
    /// An error of the server, which says so.
    Failed,
}

/// What became of a damaged copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// It did not start, and said why.
    Refused,
    /// Every answer is right.
    Harmless,
    /// Answers are right or say that they cannot be given.
    Loud,
    /// Something is wrong, and who checks the ledger notices.
    Noticed,
    /// Something is wrong and nobody can tell.
    Silent,
}

/// Files of a server that has worked, and all that it answered.
struct Original {
    launch: Launch,
    targets: Vec<String>,
    answers: Answers,
    heads: Vec<Ack>,
}

impl Original {
    /// A server with some history, ended by `end`.
    fn make(random: Random, acks: usize, end: impl FnOnce(Server) -> Launch) -> Self {
        let server = Server::start();
        let journal = Journal::default();
        let mut hand = Hand::new(&server, &journal, random);
        while journal.count() < acks {
            hand.turn().expect("it is alive");
        }
        hand.head().expect("it is alive");
        let mut audit = Audit::default();
        audit.settle(&server, &journal.since(0)).unwrap();
        let targets = targets(&audit);
        let answers = read(&server, &targets);
        assert!(
            answers
                .values()
                .all(|answer| matches!(answer, Answer::Told(_)))
        );
        let heads = journal.since(0);
        let is_head = |ack: &Ack| matches!(ack, Ack::Head { .. });
        Self {
            heads: heads.into_iter().filter(is_head).collect(),
            launch: end(server),
            targets,
            answers,
        }
    }

    fn bytes(&self, file: &str) -> Vec<u8> {
        std::fs::read(self.launch.data().join(file)).unwrap()
    }

    /// What becomes of a copy in which the bytes of `file` are these, and what it would tell wrong. Who
    /// looks at the files beforehand finds whatever is found later, with one exception: `may_be_lost`.
    fn fate_with(&self, file: &str, bytes: &[u8], may_be_lost: bool) -> (Fate, BTreeSet<String>) {
        let copy = Launch::new();
        copy_dir(self.launch.data(), copy.data());
        std::fs::write(copy.data().join(file), bytes).unwrap();
        let found = verify(copy.data());
        let (fate, wrong) = self.fate_of(&copy);
        let must_be_found = fate != Fate::Harmless && !may_be_lost;
        assert!(found.is_err() || !must_be_found, "{fate:?}: {wrong:?}");
        (fate, wrong)
    }

    fn fate_of(&self, copy: &Launch) -> (Fate, BTreeSet<String>) {
        let Some(server) = start(copy) else {
            return (Fate::Refused, BTreeSet::new());
        };
        let answers = read(&server, &self.targets);
        let mut wrong = BTreeSet::new();
        let mut loud = false;
        for (target, right) in &self.answers {
            match (&answers[target], right) {
                (Answer::Failed, _) => loud = true,
                (Answer::Told(told), Answer::Told(right)) => {
                    differences(right, told, kind(target), &mut wrong)
                }
                (Answer::Told(_), _) => panic!("the original had no answer for {target}"),
            }
        }
        if wrong.is_empty() {
            return (if loud { Fate::Loud } else { Fate::Harmless }, wrong);
        }
        // An audit from outside, by who has no journal.
        let noticed = Audit::default().check_whole(&server, &self.heads);
        match noticed {
            Err(why) => {
                wrong.insert(why.split(':').next().unwrap_or_default().to_owned());
                (Fate::Noticed, wrong)
            }
            Ok(()) => (Fate::Silent, wrong),
        }
    }
}

/// Starts a server, unless it refuses and says what is wrong with which file.
fn start(launch: &Launch) -> Option<Server> {
    let started = catch_unwind(AssertUnwindSafe(|| launch.start()));
    if started.is_err() {
        let ended = launch.refused();
        let told = ended.stderr.starts_with("asyncgate: ") && ended.stderr.contains(DATABASE);
        assert!(told && !ended.stderr.contains("panicked"), "{ended:?}");
    }
    started.ok()
}

/// All that can be read of what the audit has seen.
fn targets(audit: &Audit) -> Vec<String> {
    let mut targets = vec![
        "/v1/ledger/head".to_owned(),
        "/metrics".to_owned(),
        "/v1/tasks?limit=200".to_owned(),
    ];
    targets.extend(audit.stories.keys().map(|id| format!("/v1/tasks/{id}")));
    for receipt in audit.receipts.iter().step_by(100) {
        targets.push(format!(
            "/v1/ledger?limit=100&since_receipt_id={}",
            receipt.id
        ));
    }
    for kind in ["task.assigned", "task.accepted", "task.completed"] {
        targets.push(format!("/v1/receipts/ledger?limit=200&receipt_type={kind}"));
    }
    for owner in OWNERS {
        targets.push(format!("/v1/receipts?limit=200&principal_id={owner}"));
        targets.push(format!(
            "/v1/obligations/open?limit=200&principal_id={owner}"
        ));
    }
    targets
}

fn read(server: &Server, targets: &[String]) -> Answers {
    let mut ask = Ask::new(server);
    let mut read = |target: &String| match ask.send(Request::get(target)) {
        Err(error) => panic!("{target}: the server went away: {error}"),
        Ok(answer) if answer.status >= 500 => {
            let code = answer.json()["code"].clone();
            assert!(code.is_string(), "{target}: {answer:?}");
            Answer::Failed
        }
        Ok(answer) if target == "/metrics" => {
            let depths = answer.text().lines();
            let depths = depths.filter(|line| line.starts_with("asyncgate_tasks{"));
            let mut depths: Vec<&str> = depths.collect();
            depths.sort_unstable();
            Answer::Told(depths.into())
        }
        Ok(answer) => Answer::Told(lasting(answer.json())),
    };
    let answers = targets.iter().map(|target| (target.clone(), read(target)));
    answers.collect()
}

/// Without what is different in each answer.
fn lasting(mut answer: Value) -> Value {
    if let Some(members) = answer.as_object_mut() {
        for name in [
            "signed_at",
            "signed_at_millis",
            "signature",
            "server",
            "relationship",
            "corr_id",
        ] {
            members.remove(name);
        }
    }
    answer
}

/// The sort of answer that a target gives.
fn kind(target: &str) -> &str {
    let path = target.split('?').next().unwrap_or(target);
    if path.starts_with("/v1/tasks/") {
        "/v1/tasks/{id}"
    } else {
        path
    }
}

/// The paths at which two answers differ.
fn differences(right: &Value, told: &Value, path: &str, found: &mut BTreeSet<String>) {
    match (right, told) {
        (Value::Object(right), Value::Object(told)) => {
            let names: BTreeSet<&String> = right.keys().chain(told.keys()).collect();
            for name in names {
                let path = format!("{path} {name}");
                let of = |members: &serde_json::Map<String, Value>| {
                    members.get(name).cloned().unwrap_or_default()
                };
                differences(&of(right), &of(told), &path, found);
            }
        }
        (Value::Array(right), Value::Array(told)) if right.len() == told.len() => {
            for (right, told) in right.iter().zip(told) {
                differences(right, told, path, found);
            }
        }
        _ if right != told => {
            found.insert(path.to_owned());
        }
        _ => {}
    }
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

/// What became of many damaged copies.
#[derive(Debug, Default)]
struct Tally {
    fates: BTreeMap<Fate, usize>,
    /// What was silently wrong, and how often.
    silent: BTreeMap<String, usize>,
}

impl Tally {
    /// Flips one bit of a byte in a copy.
    fn flip(&mut self, original: &Original, file: &str, at: usize, random: &mut Random) -> Fate {
        let mut bytes = original.bytes(file);
        let may_be_lost = file == LOG && at >= last_transaction(&bytes);
        bytes[at] ^= 1 << random.below(8);
        let (fate, wrong) = original.fate_with(file, &bytes, may_be_lost);
        *self.fates.entry(fate.clone()).or_default() += 1;
        if fate == Fate::Silent {
            for what in wrong {
                *self.silent.entry(what).or_default() += 1;
            }
        }
        fate
    }
}

#[test]
fn a_flipped_byte_in_the_database_is_told_or_noticed() {
    let mut random = Random::of_test("flips");
    let original = Original::make(random.fork(1), 160, |server| {
        let launch = server.launch().clone();
        server.stop();
        launch
    });
    verify(original.launch.data()).unwrap();
    let bytes = original.bytes(DATABASE);
    let mut tally = Tally::default();
    for _ in 0..60 {
        let at = random.below(bytes.len());
        tally.flip(&original, DATABASE, at, &mut random);
    }
    for _ in 0..10 {
        let at = random.below(HEADER);
        tally.flip(&original, DATABASE, at, &mut random);
    }
    // Where receipts and payloads stand, nothing passes unnoticed.
    for marker in [
        "{\"type\":\"load\"}",
        "{\"progress\":{",
        "\"result_payload\":",
        "\"filler\":\"xxxx",
    ] {
        let found = find_all(&bytes, marker.as_bytes());
        for _ in 0..8 {
            let at = found[random.below(found.len())] + random.below(marker.len());
            let fate = tally.flip(&original, DATABASE, at, &mut random);
            assert!(fate != Fate::Silent, "at {at}: {:?}", tally.silent);
        }
    }
    eprintln!("{tally:?}");
    assert!(tally.silent.is_empty(), "{tally:?}");
    for fate in [Fate::Harmless, Fate::Loud, Fate::Noticed] {
        assert!(tally.fates.contains_key(&fate), "never {fate:?}: {tally:?}");
    }
}

/// SQLite takes a damaged frame for the end of the log, and would drop the commits behind it. Only the
/// last transaction may be lost so: after a loss of power it looks the same, if it was never
/// acknowledged. That is logged, and who kept a head of the ledger can tell.
#[test]
fn a_flipped_byte_in_the_log_is_refused_before_the_last_transaction() {
    let mut random = Random::of_test("flips of the log");
    let original = Original::make(random.fork(2), 60, Server::kill);
    let log = original.bytes(LOG);
    let last = last_transaction(&log);
    let mut tally = Tally::default();
    for n in 0..60 {
        // Also in its header, and in the last commit.
        let at = match n {
            0..8 => random.below(32),
            8..16 => last + random.below(log.len() - last),
            _ => random.below(log.len()),
        };
        let fate = tally.flip(&original, LOG, at, &mut random);
        let told = [Fate::Refused, Fate::Harmless, Fate::Loud].contains(&fate);
        assert!(told || at >= last, "at {at} of {last}: {fate:?}");
    }
    eprintln!("{tally:?}");
    assert!(tally.silent.is_empty(), "{tally:?}");
    assert!(tally.fates[&Fate::Refused] > 40, "{tally:?}");
}

/// Where the last transaction in a log begins. All frames must be of one use of the log.
fn last_transaction(log: &[u8]) -> usize {
    const FRAME: usize = 24 + 4_096;
    let frames = (32..log.len()).step_by(FRAME);
    let ends = frames.filter(|at| {
        assert_eq!(log[at + 8..at + 16], log[16..24], "the log was used anew");
        log[at + 4..at + 8] != [0; 4]
    });
    let ends: Vec<usize> = ends.collect();
    ends[ends.len() - 2] + FRAME
}

fn find_all(bytes: &[u8], marker: &[u8]) -> Vec<usize> {
    let places = bytes.windows(marker.len()).enumerate();
    places
        .filter(|(_, window)| *window == marker)
        .map(|(at, _)| at)
        .collect()
}
