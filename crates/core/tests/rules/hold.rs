//! The moves of a lease's holder before the end: renew, release, start, report progress.

use asyncgate_core::{ReceiptType, task::State, task::Status};

use crate::world::{World, echo, failure, json};

#[test]
fn renewing_extends_from_now_by_the_wish_or_the_default_at_most_the_maximum() {
    for (wished_ms, lasts_ms) in [
        (None, 300_000),
        (Some(600_000), 600_000),
        (Some(9_000_000), 1_800_000),
    ] {
        let mut world = World::new();
        let id = world.create(echo());
        let hold = world.lease(id);
        world.wait_ms(100_000);
        let lease = world.renew(&hold, id, wished_ms).unwrap();
        assert_eq!(lease.expires_at.millis_since(world.now), lasts_ms);
        assert_eq!(world.task(id).lease(), Some(&lease));
        assert_eq!(lease.id, hold.lease_id, "the token stays the same");
    }
}

#[test]
fn renewing_never_shortens_a_lease() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let until = world.task(id).lease().unwrap().expires_at;
    for extend_by_ms in [1_000, 1, 0, -5_000] {
        let lease = world.renew(&hold, id, Some(extend_by_ms)).unwrap();
        assert_eq!(lease.expires_at, until, "{extend_by_ms}");
    }
    assert_eq!(world.task(id).lease().unwrap().renewals, 4);
}

#[test]
fn renewing_keeps_a_leased_task_leased_and_a_running_one_running() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.renew(&hold, id, None).unwrap();
    assert_eq!(world.status(id), Status::Leased);
    world.start(&hold, id).unwrap();
    world.renew(&hold, id, None).unwrap();
    assert_eq!(world.status(id), Status::Running);
}

#[test]
fn renewing_leaves_no_receipt_until_the_eleventh_which_leaves_exactly_one_anomaly() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let receipts = world.ledger.len();
    for n in 1..=25 {
        world.renew(&hold, id, None).unwrap();
        let anomalies = usize::from(n > 10);
        assert_eq!(world.ledger.len(), receipts + anomalies, "renewal {n}");
    }
    assert_eq!(world.anomalies(id), ["excessive_lease_renewals"]);
    assert_eq!(world.status(id), Status::Leased, "an anomaly informs only");
}

#[test]
fn renewals_are_counted_per_lease() {
    let mut world = World::new();
    let id = world.create(echo());
    for _ in 0..3 {
        let hold = world.lease(id);
        for _ in 0..10 {
            world.renew(&hold, id, None).unwrap();
        }
        world.release(&hold, id).unwrap();
    }
    assert!(world.anomalies(id).is_empty());
}

#[test]
fn a_released_task_can_be_claimed_at_once_and_counts_neither_attempt_nor_expiry() {
    for begun in [false, true] {
        let mut world = World::new();
        let id = world.create(echo());
        let hold = world.lease(id);
        if begun {
            world.start(&hold, id).unwrap();
        }
        world.wait_ms(1_000);
        world.release(&hold, id).unwrap();
        let task = world.task(id);
        assert_eq!(task.state, State::Ready);
        assert_eq!((task.attempt, task.expiries), (0, 0));
        assert_eq!(task.next_eligible_at, world.now);
        assert_eq!(world.receipts(id, ReceiptType::LeaseReleased).len(), 1);
        assert!(world.is_open(id), "its owner is still owed an outcome");
        world.lease(id);
    }
}

#[test]
fn starting_again_changes_nothing() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.start(&hold, id).unwrap();
    let (task, receipts) = (world.task(id).clone(), world.ledger.len());
    world.wait_ms(1_000);
    world.start(&hold, id).unwrap();
    assert_eq!(*world.task(id), task);
    assert_eq!(world.ledger.len(), receipts);
    assert_eq!(world.receipts(id, ReceiptType::TaskStarted).len(), 1);
}

#[test]
fn starting_keeps_the_lease_as_it_is() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let lease = world.task(id).lease().cloned();
    world.wait_ms(1_000);
    world.start(&hold, id).unwrap();
    assert_eq!(world.task(id).lease().cloned(), lease);
}

#[test]
fn progress_is_kept_with_its_time_and_the_last_report_wins() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let until = world.task(id).lease().unwrap().expires_at;
    for percent in ["10", "{\"percent\": 20.0}"] {
        world.wait_ms(1_000);
        world.progress(&hold, id, json(percent)).unwrap();
        let progress = world.task(id).progress.clone().unwrap();
        assert_eq!(progress.value.text(), percent);
        assert_eq!(progress.at, world.now);
    }
    assert_eq!(world.receipts(id, ReceiptType::TaskProgress).len(), 2);
    assert_eq!(world.status(id), Status::Leased, "a report is no start");
    assert_eq!(world.task(id).lease().unwrap().expires_at, until);
}

#[test]
fn progress_outlives_its_lease() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.progress(&hold, id, json("50")).unwrap();
    world.fail(&hold, id, failure(true)).unwrap();
    assert!(world.task(id).progress.is_some());
}
