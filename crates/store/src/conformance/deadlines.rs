//! Deadlines: every delay and every lease is found when its time comes, and never after it ended.

use std::sync::Arc;

use asyncgate_core::{
    Reach, TaskId, Timestamp,
    task::{Contract, Deadline, NewTask, Status},
};

use super::{Case, Driver, cases, echo, failure, proven, worker};

pub(super) fn cases() -> Vec<Case> {
    cases![
        what_is_due_comes_earliest_first_over_all_tenants,
        a_deadline_is_due_from_its_very_millisecond,
        due_lists_at_most_its_limit,
        tasks_with_one_deadline_are_all_due,
        the_next_deadline_follows_every_change,
        a_swept_task_is_no_longer_due,
        the_end_of_time_is_a_deadline_like_any_other,
        a_task_with_a_deadline_is_due_in_every_state,
        a_ready_task_with_a_deadline_can_be_claimed_and_ends_with_it,
    ]
}

fn delayed(delay_ms: i64) -> NewTask {
    NewTask { delay_ms, ..echo() }
}

async fn due(driver: &Driver, limit: usize) -> Vec<TaskId> {
    let due = driver.store().due(driver.now, limit).await.unwrap();
    due.into_iter().map(|(_, task)| task).collect()
}

async fn next_in(driver: &Driver) -> Option<i64> {
    let next = driver.store().next_due().await.unwrap();
    next.map(|at| at.millis_since(driver.now))
}

async fn what_is_due_comes_earliest_first_over_all_tenants(mut driver: Driver) {
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    let third = driver.create(delayed(3_000)).await;
    let first = driver.create(delayed(1_000)).await;
    driver.create(delayed(9_000)).await;
    let second = other.create(delayed(2_000)).await;
    let leased = other.create(echo()).await;
    let ttl = Some(2_500);
    other
        .claim_as(worker("bob"), asyncgate_core::Reach::default(), 1, ttl)
        .await;
    driver.wait_ms(3_000);
    let due = driver.store().due(driver.now, 10).await.unwrap();
    assert_eq!(
        due,
        [
            (driver.tenant, first),
            (other.tenant, second),
            (other.tenant, leased),
            (driver.tenant, third)
        ]
    );
}

async fn a_deadline_is_due_from_its_very_millisecond(mut driver: Driver) {
    let id = driver.create(delayed(1_000)).await;
    driver.wait_ms(999);
    assert_eq!(due(&driver, 10).await, []);
    driver.wait_ms(1);
    assert_eq!(due(&driver, 10).await, [id]);
}

async fn due_lists_at_most_its_limit(mut driver: Driver) {
    let mut created = Vec::new();
    for n in 1..=5 {
        created.push(driver.create(delayed(n)).await);
    }
    driver.wait_ms(5);
    for limit in [0, 1, 3, 5, 9] {
        let expected = &created[..limit.min(5)];
        assert_eq!(due(&driver, limit).await, expected, "{limit}");
    }
}

async fn tasks_with_one_deadline_are_all_due(mut driver: Driver) {
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push(driver.create(delayed(1_000)).await);
    }
    driver.wait_ms(1_000);
    let mut found = due(&driver, 10).await;
    found.sort_unstable();
    assert_eq!(found, created);
    driver.cancel(created[2]).await.unwrap();
    assert_eq!(due(&driver, 10).await.len(), 4);
}

async fn the_next_deadline_follows_every_change(mut driver: Driver) {
    let id = driver.create(echo()).await;
    assert_eq!(next_in(&driver).await, None, "a ready task has no deadline");
    let (_, hold) = driver.lease().await;
    assert_eq!(next_in(&driver).await, Some(300_000));
    driver.start(&hold, id).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(300_000));
    driver.renew(&hold, id, 600_000).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(600_000));
    let other = driver.create(delayed(5_000)).await;
    assert_eq!(next_in(&driver).await, Some(5_000));
    driver.cancel(other).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(600_000));
    driver.fail(&hold, id, failure(true)).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(30_000));
    driver.wait_ms(30_000);
    driver.sweep().await;
    assert_eq!(next_in(&driver).await, None);
    let (_, hold) = driver.lease().await;
    driver.release(&hold, id).await.unwrap();
    assert_eq!(next_in(&driver).await, None);
    let (_, hold) = driver.lease().await;
    driver.complete(&hold, id, proven()).await.unwrap();
    assert_eq!(next_in(&driver).await, None);
}

async fn a_swept_task_is_no_longer_due(mut driver: Driver) {
    driver.create(delayed(1_000)).await;
    driver.create(echo()).await;
    driver.lease().await;
    driver.wait_ms(300_000);
    assert_eq!(due(&driver, 10).await.len(), 2);
    let swept = driver.sweep().await;
    assert_eq!((swept.readied, swept.expired), (1, 1));
    assert_eq!(due(&driver, 10).await, []);
    assert_eq!(driver.claim(Default::default(), 9).await.len(), 2);
}

async fn the_end_of_time_is_a_deadline_like_any_other(mut driver: Driver) {
    let id = driver.create(delayed(i64::MAX)).await;
    let end = Timestamp::from_millis(i64::MAX);
    assert_eq!(driver.store().next_due().await.unwrap(), Some(end));
    assert_eq!(due(&driver, 10).await, []);
    driver.now = end;
    assert_eq!(due(&driver, 10).await, [id]);
}

fn within(seconds: i64) -> NewTask {
    let deadline = Some(Deadline::After { seconds });
    NewTask {
        contract: Contract {
            deadline,
            ..Contract::default()
        },
        ..echo()
    }
}

async fn a_task_with_a_deadline_is_due_in_every_state(mut driver: Driver) {
    let id = driver.create(within(1_000)).await;
    assert_eq!(next_in(&driver).await, Some(1_000_000), "ready");
    let (_, hold) = driver.lease().await;
    assert_eq!(next_in(&driver).await, Some(300_000), "leased");
    driver.renew(&hold, id, 1_500_000).await.unwrap();
    assert_eq!(
        next_in(&driver).await,
        Some(1_000_000),
        "the lease is longer"
    );
    driver.start(&hold, id).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(1_000_000), "running");
    driver.fail(&hold, id, failure(true)).await.unwrap();
    assert_eq!(next_in(&driver).await, Some(30_000), "delayed");
    driver.wait_ms(30_000);
    driver.sweep().await;
    assert_eq!(next_in(&driver).await, Some(970_000), "ready again");
    driver.wait_ms(970_000);
    assert_eq!(due(&driver, 10).await, [id]);
    assert_eq!(driver.sweep().await.ended, 1);
    assert_eq!(next_in(&driver).await, None);
    assert_eq!(driver.task(id).await.unwrap().status(), Status::Failed);
    assert_eq!(driver.claim(Reach::default(), 9).await, []);
}

async fn a_ready_task_with_a_deadline_can_be_claimed_and_ends_with_it(mut driver: Driver) {
    let (first, second) = (
        driver.create(within(60)).await,
        driver.create(within(60)).await,
    );
    let (id, hold) = driver.lease().await;
    assert_eq!(id, first);
    driver.complete(&hold, id, proven()).await.unwrap();
    driver.wait_ms(60_000);
    assert_eq!(
        due(&driver, 10).await,
        [second],
        "what has ended is not due"
    );
    // A claim that comes before the sweep ends it too.
    assert_eq!(driver.claim(Reach::default(), 9).await, []);
    assert_eq!(due(&driver, 10).await, []);
    assert_eq!(driver.task(second).await.unwrap().status(), Status::Failed);
    assert!(driver.open(&super::agent("alice")).await.is_empty());
}
