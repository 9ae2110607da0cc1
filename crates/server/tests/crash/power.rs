//! The power goes: what was not synced is lost or torn, and still nothing acknowledged is lost.

use crate::ask::Ask;
use crate::audit::Audit;
use crate::disk::{DataDir, Mode, Mounted, Recorder};
use crate::harness::eventually;
use crate::http::Request;
use crate::image::{Disk, Survives};
use crate::journal::Journal;
use crate::kill::kill_under_load;
use crate::load::{Hand, load};
use crate::offline::verify;
use crate::random::Random;

const LOSSES: usize = 12;

/// Several losses of power under load, one after the other on the same disk.
pub struct Outage {
    pub disk: Mounted,
    pub journal: Journal,
    pub audit: Audit,
    pub random: Random,
    checked: usize,
    /// How many unsynced changes there were to lose.
    pub at_risk: usize,
}

impl Outage {
    pub fn new(disk: Mounted, random: Random) -> Self {
        Self {
            disk,
            journal: Journal::default(),
            audit: Audit::default(),
            random,
            checked: 0,
            at_risk: 0,
        }
    }

    /// Counts what was acknowledged so far as checked.
    pub fn goes_on(&mut self) {
        self.checked = self.journal.count();
    }

    /// Runs the server under load, ends it at a random moment, and gives back what is known of the
    /// disk then.
    pub fn crash(&mut self, mode: Mode, most: usize) -> Disk {
        let before = self.disk.at_rest();
        let server = self.disk.recorded(mode).start();
        kill_under_load(&server, &self.journal, &mut self.random, most);
        server.wait();
        let disk = self.disk.replay(before);
        self.at_risk += disk.at_risk();
        disk
    }

    /// Starts a server on what may be left of the disk, and checks what was acknowledged.
    pub fn come_back(&mut self, left: &Disk, survives: Survives) -> Result<(), String> {
        let files = left.after_power_loss(survives, &mut self.random);
        self.disk.write(&files);
        let mut audit = self.audit.clone();
        let server = self.disk.launch().start();
        let settled = audit.settle(&server, &self.journal.since(self.checked));
        server.kill();
        let settled = settled.and_then(|()| verify(&self.disk.data()));
        let settled = settled.map_err(|wrong| format!("{survives:?} survives: {wrong}"));
        // The check wrote too, and the next power loss is another story.
        self.disk.write(&files);
        settled?;
        self.audit = audit;
        Ok(())
    }
}

#[test]
fn nothing_acknowledged_is_lost_with_the_writes_that_were_not_synced() {
    let Some(recorder) = Recorder::build() else {
        return;
    };
    let random = Random::of_test("power");
    let disk = recorder.disk("disk", DataDir::Exists);
    let mut outage = Outage::new(disk, random);
    for n in 0..LOSSES {
        let left = outage.crash(Mode::Honest, 300);
        let before = outage.audit.clone();
        // The last of them is what the next round goes on from.
        let last = Survives::ALL[n % Survives::ALL.len()];
        let others = Survives::ALL.into_iter().filter(|other| *other != last);
        for survives in others.chain([last]) {
            outage.audit = before.clone();
            let back = outage.come_back(&left, survives);
            back.unwrap_or_else(|wrong| panic!("power loss {n}: {wrong}"));
        }
        outage.goes_on();
    }
    let server = outage.disk.launch().start();
    let all = outage.audit.check_all(&server, &outage.journal);
    all.unwrap();
    let receipts = outage.audit.receipts.len();
    let audit = outage.audit.clone();
    audit.check_by_acting(&server, &outage.journal).unwrap();
    server.stop();
    eprintln!(
        "{LOSSES} losses of power with {} images, {} acknowledgements, {receipts} receipts, {} \
         changes at risk",
        LOSSES * Survives::ALL.len(),
        outage.journal.count(),
        outage.at_risk,
    );
    assert!(outage.at_risk > 0, "there was nothing to lose");
}

/// One run, and the power may have gone at any moment of it: also while pages are moved from the log
/// into the main file, where a torn write meets what was safe before.
#[test]
fn the_power_may_go_at_any_moment_also_in_a_checkpoint() {
    const MOMENTS: usize = 24;
    let Some(recorder) = Recorder::build() else {
        return;
    };
    let mut random = Random::of_test("moments");
    let disk = recorder.disk("disk", DataDir::Exists);
    let before = disk.at_rest();
    let journal = Journal::beside(disk.log().to_owned());
    let server = disk.recorded(Mode::Honest).start();
    load(&server, &journal, &random, 6, || {
        eventually("there was a checkpoint", || {
            let main = disk.data().join("asyncgate.db");
            (main.metadata().unwrap().len() > 500_000).then_some(())
        });
        server.signal("KILL");
    });
    server.wait();
    let log = disk.take_log();
    let in_checkpoints = Disk::moments(disk.root(), &log, "data/asyncgate.db");
    assert!(in_checkpoints.len() > 100, "{}", in_checkpoints.len());
    let mut checked = 0;
    for n in 0..MOMENTS {
        let moment = match n % 2 {
            0 => in_checkpoints[random.below(in_checkpoints.len())],
            _ => random.below(log.len() + 1),
        };
        let left = before.clone().replay(disk.root(), &log[..moment]);
        let survives = Survives::ALL[n / 2 % Survives::ALL.len()];
        disk.write(&left.after_power_loss(survives, &mut random));
        let acks = journal.when_log_was(moment as u64);
        checked += acks.len();
        let server = disk.launch().start();
        let settled = Audit::default().settle(&server, &acks);
        settled.unwrap_or_else(|wrong| panic!("at {moment}, {survives:?} survives: {wrong}"));
        server.kill();
        let sound = verify(&disk.data());
        sound.unwrap_or_else(|wrong| panic!("at {moment}, {survives:?} survives: {wrong}"));
    }
    eprintln!(
        "{MOMENTS} moments, {checked} acknowledgements checked, {} writes of checkpoints",
        in_checkpoints.len()
    );
}

/// After a sync that failed the page cache may call pages clean that never reached the disk: a server that tried again and
/// went on would acknowledge what is lost.
#[test]
fn a_sync_that_fails_once_ends_all_writing_until_a_restart() {
    let Some(recorder) = Recorder::build() else {
        return;
    };
    let random = Random::of_test("failing sync");
    let mut outage = Outage::new(recorder.disk("disk", DataDir::Exists), random);
    let before = outage.disk.at_rest();
    let server = outage.disk.recorded(Mode::Fails).start();
    let mut hand = Hand::new(&server, &outage.journal, outage.random.fork(0));
    while hand.create().is_some() {}
    let acknowledged = outage.journal.count();
    assert!(acknowledged > 0);
    for target in ["/v1/ledger/head", "/readyz"] {
        let answer = Ask::new(&server).send(Request::get(target)).unwrap();
        assert_eq!(answer.status, 503, "{target}: {answer:?}");
    }
    let readiness = Ask::new(&server).send(Request::get("/readyz")).unwrap();
    assert!(readiness.text().contains("restart"), "{readiness:?}");
    for _ in 0..5 {
        let mut hand = Hand::new(&server, &outage.journal, outage.random.fork(1));
        assert_eq!(hand.create(), None);
    }
    assert_eq!(outage.journal.count(), acknowledged);
    server.kill();
    let left = outage.disk.replay(before);
    for survives in Survives::ALL {
        let audit = outage.audit.clone();
        outage.come_back(&left, survives).unwrap();
        outage.audit = audit;
    }
}

/// As an operator would have it who names a place that is not there yet.
#[test]
fn a_data_directory_that_the_server_made_survives() {
    let Some(recorder) = Recorder::build() else {
        return;
    };
    let random = Random::of_test("new directory");
    let disk = recorder.disk("disk", DataDir::Missing);
    let mut outage = Outage::new(disk, random);
    let left = outage.crash(Mode::Honest, 20);
    outage.come_back(&left, Survives::Nothing).unwrap();
}
