//! `kill -9` at any moment under load, again and again: nothing acknowledged is lost.

use std::thread;
use std::time::{Duration, Instant};

use crate::audit::Audit;
use crate::harness::{Launch, Server, eventually};
use crate::journal::Journal;
use crate::load::load;
use crate::offline::verify;
use crate::random::Random;

const KILLS: usize = 110;
const CONNECTIONS: usize = 6;

/// Waits until there are so many acknowledgements more, then a random moment, then kills.
pub fn kill_under_load(server: &Server, journal: &Journal, random: &mut Random, most: usize) {
    let enough = journal.count() + 1 + random.below(most);
    let moment = Duration::from_micros(random.below(3_000) as u64);
    load(server, journal, random, CONNECTIONS, || {
        eventually("enough was acknowledged", || {
            (journal.count() >= enough).then_some(())
        });
        let start = Instant::now();
        while start.elapsed() < moment {
            thread::yield_now();
        }
        server.signal("KILL");
    });
    random.next();
}

#[test]
fn nothing_acknowledged_is_lost_to_a_hundred_kills_under_load() {
    let start = Instant::now();
    let mut random = Random::of_test("kills");
    let journal = Journal::default();
    let launch = Launch::new();
    let mut audit = Audit::default();
    let mut checked = 0;
    for round in 0..KILLS {
        let server = launch.start();
        let verdict = audit.settle(&server, &journal.since(checked));
        verdict.unwrap_or_else(|wrong| panic!("after {round} kills: {wrong}"));
        checked = journal.count();
        kill_under_load(&server, &journal, &mut random, 120);
        server.wait();
    }
    let server = launch.start();
    let acks = journal.since(checked);
    audit.settle(&server, &acks).unwrap();
    audit.check_all(&server, &journal).unwrap();
    let (receipts, tasks) = (audit.receipts.len(), audit.stories.len());
    let taken = audit.check_by_acting(&server, &journal).unwrap();
    verify(launch.data()).unwrap();
    server.stop();
    verify(launch.data()).unwrap();
    eprintln!(
        "{KILLS} kills, {} acknowledgements, {} creates without an answer, {receipts} receipts, \
         {tasks} tasks of which {taken} were left to take, in {:.1?}",
        journal.count(),
        journal.unanswered().len(),
        start.elapsed(),
    );
    assert!(journal.count() > KILLS * 20, "too little load");
}
