//! Promises broken on purpose: each must be noticed by the same audit that is green without it.
//!
//! The binary is the real one. What is changed is what lies below it: syncs that do not count, syncs
//! that come after the answer, and commits that leave the process after the answer.

use crate::audit::Audit;
use crate::disk::{DataDir, Mode, Recorder};
use crate::image::Survives;
use crate::journal::{Ack, Journal};
use crate::load::Hand;
use crate::power::Outage;
use crate::random::Random;

/// Creates tasks one after the other on a disk that behaves so, and kills the server as soon as the
/// last is acknowledged. Gives back the verdict on what survives a loss of power.
fn verdict_on(mode: Mode, survives: Survives) -> Option<Result<(), String>> {
    const CREATES: usize = 20;
    let recorder = Recorder::build()?;
    let random = Random::of_test("mutation");
    let mut outage = Outage::new(recorder.disk("disk", DataDir::Exists), random);
    // Something to come back to, so that a mutant is not noticed only by an empty disk.
    let left = outage.crash(Mode::Honest, 20);
    outage.come_back(&left, Survives::Nothing).unwrap();
    outage.goes_on();

    let before = outage.disk.at_rest();
    let server = outage.disk.recorded(mode).start();
    let mut hand = Hand::new(&server, &outage.journal, outage.random.fork(0));
    for _ in 0..CREATES {
        hand.create().expect("it is alive");
    }
    server.kill();
    let left = outage.disk.replay(before);
    Some(outage.come_back(&left, survives))
}

#[track_caller]
fn is_noticed(mode: Mode) {
    let Some(verdict) = verdict_on(mode, Survives::Nothing) else {
        return;
    };
    let wrong = verdict.expect_err("nobody noticed");
    assert!(wrong.contains("lost: "), "{wrong}");
}

#[test]
fn without_a_mutation_nothing_is_noticed() {
    for survives in Survives::ALL {
        if let Some(verdict) = verdict_on(Mode::Honest, survives) {
            verdict.unwrap();
        }
    }
}

#[test]
fn a_server_that_does_not_sync_is_noticed() {
    is_noticed(Mode::Never);
}

#[test]
fn a_server_that_does_not_sync_its_log_is_noticed() {
    is_noticed(Mode::NoWal);
}

#[test]
fn a_server_that_answers_before_it_syncs_is_noticed() {
    is_noticed(Mode::Late);
}

/// On a disk that was new, names are lost that nobody synced.
#[test]
fn a_server_that_does_not_sync_its_directory_is_noticed() {
    let Some(recorder) = Recorder::build() else {
        return;
    };
    let random = Random::of_test("mutation");
    let mut outage = Outage::new(recorder.disk("disk", DataDir::Exists), random);
    let left = outage.crash(Mode::NoDir, 20);
    let wrong = outage.come_back(&left, Survives::Nothing);
    assert!(wrong.unwrap_err().contains("lost: "));
}

/// No loss of power: the process is killed, and what it wrote stays.
#[test]
fn a_server_that_answers_before_it_commits_is_noticed() {
    let Some(recorder) = Recorder::build() else {
        return;
    };
    for (mode, lost) in [(Mode::Early, true), (Mode::Honest, false)] {
        let random = Random::of_test("mutation");
        let disk = recorder.disk(if lost { "early" } else { "honest" }, DataDir::Exists);
        let journal = Journal::default();
        let server = disk.recorded(mode).start();
        let mut hand = Hand::new(&server, &journal, random);
        for _ in 0..20 {
            hand.create().expect("it is alive");
        }
        server.kill();
        let server = disk.launch().start();
        let verdict = Audit::default().settle(&server, &journal.since(0));
        match verdict {
            Err(wrong) if lost => assert!(wrong.contains("lost: "), "{wrong}"),
            Ok(()) if !lost => {}
            other => panic!("{mode:?}: {other:?}"),
        }
    }
}

/// What was never done is missed, whatever it is.
#[test]
fn a_journal_that_says_more_than_was_done_is_noticed() {
    let server = crate::harness::Server::start();
    let journal = Journal::default();
    let mut hand = Hand::new(&server, &journal, Random::of_test("mutation"));
    while journal.count() < 150 {
        hand.turn().expect("it is alive");
    }
    let acks = journal.since(0);
    Audit::default().settle(&server, &acks).unwrap();
    for (n, ack) in acks.iter().enumerate() {
        let changed = otherwise(ack);
        let mut acks = acks.clone();
        acks[n] = changed;
        let verdict = Audit::default().settle(&server, &acks);
        assert!(verdict.is_err(), "not noticed: {:?}", acks[n]);
        if n > 40 {
            break;
        }
    }
}

/// The acknowledgement of something else.
fn otherwise(ack: &Ack) -> Ack {
    let mut changed = ack.clone();
    match &mut changed {
        Ack::Created { wish, .. } => wish.payload["name"] = "other".into(),
        Ack::Claimed(held) | Ack::Started(held) | Ack::Released(held) => {
            held.worker.push('x');
        }
        Ack::Progressed { value, .. } => value["at"] = "other".into(),
        Ack::Completed { result, .. } => *result = Some("other".into()),
        Ack::Failed { requeued, .. } => *requeued = !*requeued,
        Ack::Canceled { id } => id.replace_range(0..1, "f"),
        Ack::Head { open, .. } => *open += 1,
    }
    changed
}
