//! Reported failures: retries with growing delays, and the attempts they use up.

use asyncgate_core::{
    ReceiptType,
    task::{NewTask, Outcome, State, Status},
};

use crate::world::{World, echo, failure, field};

/// Fails the task again and again until it ends, and returns the delays in seconds.
fn delays(world: &mut World, new: NewTask) -> Vec<i64> {
    let id = world.create(new);
    let mut delays = Vec::new();
    loop {
        let hold = world.lease(id);
        let answer = world.fail(&hold, id, failure(true)).unwrap();
        let Some(retry_at) = answer.retry_at else {
            return delays;
        };
        delays.push(retry_at.millis_since(world.now) / 1_000);
        assert_eq!(world.task(id).next_eligible_at, retry_at);
        assert_eq!(world.status(id), Status::Queued);
        world.now = retry_at;
        world.sweep();
    }
}

#[test]
fn retry_delays_double_from_30_seconds_up_to_900() {
    let mut world = World::new();
    let patient = NewTask {
        max_attempts: Some(9),
        ..echo()
    };
    assert_eq!(
        delays(&mut world, patient),
        [30, 60, 120, 240, 480, 900, 900, 900]
    );
}

#[test]
fn the_first_delay_is_the_tasks_own_and_capped_too() {
    for (backoff, expected) in [(1, [1, 2, 4]), (0, [0, 0, 0]), (901, [900, 900, 900])] {
        let new = NewTask {
            max_attempts: Some(4),
            retry_backoff_seconds: Some(backoff),
            ..echo()
        };
        assert_eq!(delays(&mut World::new(), new), expected, "{backoff}");
    }
}

#[test]
fn delays_stay_capped_after_any_number_of_failures() {
    let mut world = World::new();
    let stubborn = NewTask {
        max_attempts: Some(200),
        retry_backoff_seconds: Some(u32::MAX),
        ..echo()
    };
    let delays = delays(&mut world, stubborn);
    assert_eq!(delays.len(), 199);
    assert!(delays.iter().all(|delay| *delay == 900));
}

#[test]
fn a_retry_without_delay_is_ready_at_once() {
    let mut world = World::new();
    let id = world.create(NewTask {
        retry_backoff_seconds: Some(0),
        ..echo()
    });
    let hold = world.lease(id);
    world.fail(&hold, id, failure(true)).unwrap();
    assert_eq!(world.task(id).state, State::Ready);
    world.lease(id);
}

#[test]
fn a_task_is_retried_while_attempt_plus_one_is_below_max_attempts() {
    for (max_attempts, retries) in [(0, 0), (1, 0), (2, 1), (3, 2), (5, 4)] {
        let new = NewTask {
            max_attempts: Some(max_attempts),
            ..echo()
        };
        let mut world = World::new();
        assert_eq!(delays(&mut world, new).len(), retries, "{max_attempts}");
        let task = world.tasks.values().next().unwrap();
        assert_eq!(task.status(), Status::Failed);
    }
}

#[test]
fn each_reported_failure_counts_the_last_one_too() {
    let mut world = World::new();
    let id = world.create(echo());
    for attempt in 1..=3 {
        let hold = world.lease(id);
        world.fail(&hold, id, failure(true)).unwrap();
        assert_eq!(world.task(id).attempt, attempt);
        world.wait_ms(900_000);
        world.sweep();
    }
    assert_eq!(world.status(id), Status::Failed);
    let failed = world.receipts(id, ReceiptType::TaskFailed);
    assert_eq!(failed.len(), 1);
    assert_eq!(field(&failed[0].body, "attempt").unwrap(), 3);
}

#[test]
fn a_failure_that_retrying_cannot_help_ends_the_task_at_once() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let answer = world.fail(&hold, id, failure(false)).unwrap();
    assert_eq!((answer.duplicate, answer.retry_at), (false, None));
    let end = world.task(id).end().unwrap();
    assert_eq!(end.outcome, Outcome::Failed);
    assert_eq!(end.receipt, answer.receipt_id);
    assert_eq!(
        end.error.as_ref().unwrap().text(),
        r#"{"message":"no luck"}"#
    );
    assert_eq!(world.task(id).attempt, 1);
    assert!(!world.is_open(id), "a failure is an outcome");
}

#[test]
fn a_scheduled_retry_discharges_nothing_and_says_when() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    let answer = world.fail(&hold, id, failure(true)).unwrap();
    let scheduled = world.receipts(id, ReceiptType::TaskRetryScheduled);
    assert_eq!(scheduled.len(), 1);
    assert_eq!(scheduled[0].id, answer.receipt_id);
    assert!(scheduled[0].parents.is_empty());
    let body = &scheduled[0].body;
    assert_eq!(field(body, "attempt").unwrap(), 1);
    assert_eq!(
        field(body, "next_eligible_at").unwrap(),
        answer.retry_at.unwrap().to_string()
    );
    assert!(world.is_open(id));
    assert!(world.receipts(id, ReceiptType::TaskFailed).is_empty());
    assert!(world.receipts(id, ReceiptType::TaskResultReady).is_empty());
}

#[test]
fn a_task_in_backoff_is_not_claimable_until_its_delay_is_over() {
    let mut world = World::new();
    let id = world.create(echo());
    let hold = world.lease(id);
    world.fail(&hold, id, failure(true)).unwrap();
    world.wait_ms(29_999);
    assert_eq!(world.sweep().readied, 0);
    world.wait_ms(1);
    assert_eq!(world.sweep().readied, 1);
    world.lease(id);
}
