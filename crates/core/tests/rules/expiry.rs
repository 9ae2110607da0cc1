//! Leases that run out: the task is queued again and loses nothing by it.

use asyncgate_core::{
    Policy, ReceiptType,
    task::{NewTask, State, Status},
};

use crate::world::{World, echo, failure, field};

#[test]
fn expiry_never_burns_an_attempt() {
    let mut world = World::with(Policy {
        max_lease_expiries: 0,
        ..Policy::default()
    });
    let id = world.create(echo());
    for expiries in 1..=40 {
        world.lease(id);
        world.expire(id);
        let task = world.task(id);
        assert_eq!((task.attempt, task.expiries), (0, expiries));
        assert_eq!(task.status(), Status::Queued);
    }
    assert!(world.is_open(id));
}

#[test]
fn expiry_keeps_the_attempts_that_failures_counted() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.fail(&hold, id, failure(true)).unwrap();
    world.wait_ms(30_000);
    world.sweep();
    let hold = world.lease(id);
    world.start(&hold, id).unwrap();
    world.expire(id);
    assert_eq!(world.task(id).attempt, 1);
}

#[test]
fn a_task_that_was_running_expires_like_one_that_was_not() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.start(&hold, id).unwrap();
    world.expire(id);
    assert_eq!(world.task(id).state, State::Ready);
}

#[test]
fn the_wait_after_an_expiry_is_jitter_within_its_bound() {
    let bound = 5_000;
    let mut world = World::with(Policy {
        expiry_jitter_ms: bound,
        ..Policy::default()
    });
    let mut waits = Vec::new();
    for _ in 0..200 {
        let id = world.create(echo());
        world.lease(id);
        world.wait_ms(300_000);
        world.sweep();
        let task = world.task(id);
        let wait = task.next_eligible_at.millis_since(world.now);
        assert!((0..=bound).contains(&wait), "{wait}");
        assert_eq!(task.state == State::Ready, wait == 0);
        waits.push(wait);
    }
    waits.sort_unstable();
    waits.dedup();
    assert!(waits.len() > 100, "the jitter must spread tasks out");
    assert!(waits[0] < bound / 4 && waits[waits.len() - 1] > bound * 3 / 4);
}

#[test]
fn without_jitter_an_expired_task_is_ready_at_once() {
    let mut world = World::with(Policy {
        expiry_jitter_ms: 0,
        ..Policy::default()
    });
    for _ in 0..50 {
        let id = world.create(echo());
        world.lease(id);
        world.wait_ms(300_000);
        assert_eq!(world.sweep().expired, 1);
        assert_eq!(world.task(id).state, State::Ready);
        assert_eq!(world.task(id).next_eligible_at, world.now);
        world.cancel(id, None).unwrap();
    }
}

#[test]
fn an_expiry_tells_the_owner_who_was_lost() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.expire(id);
    let expired = world.receipts(id, ReceiptType::LeaseExpired);
    assert_eq!(expired.len(), 1);
    assert_eq!(expired[0].lease_id, Some(hold.lease_id));
    let body = &expired[0].body;
    assert_eq!(field(body, "task_id").unwrap(), id.to_string());
    assert_eq!(field(body, "previous_worker_id").unwrap(), "bob");
    assert_eq!(field(body, "attempt").unwrap(), 0);
    assert_eq!(field(body, "requeued").unwrap(), true);
}

#[test]
fn the_fourth_expiry_leaves_exactly_one_anomaly() {
    let mut world = World::new();
    let id = world.create(echo());
    for expiries in 1..=12 {
        world.lease(id);
        world.expire(id);
        let anomalies = usize::from(expiries > 3);
        assert_eq!(world.anomalies(id).len(), anomalies, "expiry {expiries}");
    }
    assert_eq!(world.anomalies(id), ["repeated_lease_expiry"]);
    assert_eq!(world.status(id), Status::Queued, "an anomaly informs only");
}

#[test]
fn expiries_are_counted_per_task() {
    let mut world = World::new();
    for _ in 0..5 {
        let id = world.create(echo());
        for _ in 0..3 {
            world.lease(id);
            world.expire(id);
        }
        assert!(world.anomalies(id).is_empty());
        world.cancel(id, None).unwrap();
    }
}

/// H.7 (1): a task is queued although no attempt is left. Only a limit of zero leads there, because
/// a failure that uses up the last attempt ends the task.
#[test]
fn a_task_that_is_queued_with_its_attempts_exhausted_is_an_anomaly() {
    let mut world = World::new();
    let id = world.create(NewTask {
        max_attempts: Some(0),
        ..echo()
    });
    world.lease(id);
    world.expire(id);
    assert_eq!(world.anomalies(id), ["attempts_exhausted"]);
    let anomaly = world.receipts(id, ReceiptType::SystemAnomaly)[0];
    let details = field(&anomaly.body, "details").unwrap();
    assert_eq!(details["max_attempts"], 0);
    assert!(field(&anomaly.body, "recommended_action").is_some());
}

#[test]
fn one_sweep_moves_everything_that_is_due_and_nothing_else() {
    let mut world = World::new();
    let [lost, kept, untouched] = [(); 3].map(|()| world.create(echo()));
    let delayed = world.create(NewTask {
        delay_ms: 300_000,
        ..echo()
    });
    let later = world.create(NewTask {
        delay_ms: 300_001,
        ..echo()
    });
    world.lease(lost);
    let hold = world.lease(kept);
    world.renew(&hold, kept, Some(300_001)).unwrap();
    world.wait_ms(300_000);
    let swept = world.sweep();
    assert_eq!((swept.readied, swept.expired), (1, 1));
    assert_eq!(world.task(lost).state, State::Ready);
    assert_eq!(world.task(delayed).state, State::Ready);
    assert_eq!(world.status(kept), Status::Leased);
    assert_eq!(world.task(later).state, State::Delayed);
    assert_eq!(world.task(untouched).state, State::Ready);
}

#[test]
fn the_end_of_a_delay_leaves_no_receipt() {
    let mut world = World::new();
    world.create(NewTask {
        delay_ms: 1,
        ..echo()
    });
    world.wait_ms(1);
    let receipts = world.ledger.len();
    assert_eq!(world.sweep().readied, 1);
    assert_eq!(world.ledger.len(), receipts);
}
