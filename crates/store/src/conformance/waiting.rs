//! Waiting: a commit wakes the callers that wait for what it changed, and nobody else.
//!
//! A store may wake waiters a moment after it has answered, so a case that says "nobody was woken"
//! first makes another commit: the wake-ups of the one before have been sent by then.

use std::sync::Arc;

use asyncgate_core::{
    Reach, Timestamp,
    task::{Hold, NewTask},
};
use futures_util::FutureExt;

use super::{Case, Driver, agent, bare, cases, echo, failure, proven, worker};
use crate::TaskWaiter;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_task_that_becomes_ready_wakes_a_waiting_worker,
        a_ready_task_wakes_one_worker_only,
        a_ready_task_wakes_the_first_worker_that_can_serve_it,
        a_worker_of_another_tenant_is_not_woken,
        an_unused_wake_up_passes_to_the_next_worker,
        a_used_wake_up_passes_to_nobody,
        a_worker_that_has_gone_is_passed_over,
        what_is_not_ready_wakes_nobody,
        a_refused_decision_wakes_nobody,
        the_end_of_a_task_wakes_all_who_wait_for_it,
        what_is_not_the_end_wakes_nobody_who_waits_for_it,
        an_earlier_deadline_wakes_the_one_who_watches,
    ]
}

/// Makes commits that wake nobody. After them the wake-ups of all earlier commits have been sent.
async fn settle(driver: &mut Driver) {
    driver.see(agent("nobody")).await;
    driver.see(agent("nobody")).await;
}

fn is_woken(wait: &mut TaskWaiter<'_>) -> bool {
    wait.woken().now_or_never().is_some()
}

fn reach(capabilities: &[&str]) -> Reach {
    let names = capabilities.iter().map(|name| (*name).to_owned());
    Reach::new(names.collect(), None)
}

async fn a_task_that_becomes_ready_wakes_a_waiting_worker(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    for how in ["created", "delayed", "released", "retried", "expired"] {
        let prepared = match how {
            "created" => None,
            "delayed" => {
                let delay_ms = 1_000;
                driver.create(NewTask { delay_ms, ..echo() }).await;
                None
            }
            _ => {
                let retry_backoff_seconds = Some(0);
                let new = NewTask {
                    retry_backoff_seconds,
                    ..echo()
                };
                driver.create(new).await;
                Some(driver.lease().await)
            }
        };
        settle(&mut driver).await;
        let mut wait = store.signals().task_waiter(driver.tenant, Reach::default());
        assert!(!is_woken(&mut wait), "{how}");
        match (how, prepared) {
            ("created", _) => drop(driver.create(echo()).await),
            ("released", Some((id, hold))) => driver.release(&hold, id).await.unwrap(),
            ("retried", Some((id, hold))) => {
                driver.fail(&hold, id, failure(true)).await.unwrap();
            }
            _ => {
                driver.wait_ms(300_000);
                driver.sweep().await;
            }
        }
        wait.woken().await;
        wait.consume();
        let claimed = driver.claim(Reach::default(), 9).await;
        assert_eq!(claimed.len(), 1, "{how}");
        driver.cancel(claimed[0].id).await.unwrap();
    }
}

async fn a_ready_task_wakes_one_worker_only(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let wait = || store.signals().task_waiter(driver.tenant, Reach::default());
    let (mut first, mut second, mut third) = (wait(), wait(), wait());
    driver.create(echo()).await;
    settle(&mut driver).await;
    assert!(is_woken(&mut first));
    assert!(!is_woken(&mut second) && !is_woken(&mut third));
    driver.create(echo()).await;
    settle(&mut driver).await;
    assert!(is_woken(&mut second) && !is_woken(&mut third));
}

async fn a_ready_task_wakes_the_first_worker_that_can_serve_it(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let wait = |reach| store.signals().task_waiter(driver.tenant, reach);
    let mut plain = wait(reach(&[]));
    let mut picky = wait(Reach::new(vec!["gpu".to_owned()], Some(Vec::new())));
    let mut able = wait(reach(&["gpu", "net"]));
    let mut late = wait(reach(&["gpu"]));
    let mut new = echo();
    new.requirements.capabilities = vec!["gpu".to_owned()];
    driver.create(new).await;
    settle(&mut driver).await;
    assert!(is_woken(&mut able));
    assert!(!is_woken(&mut plain) && !is_woken(&mut picky) && !is_woken(&mut late));
}

async fn a_worker_of_another_tenant_is_not_woken(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let other = Driver::of_tenant(Arc::clone(&store), 2);
    let mut theirs = store.signals().task_waiter(other.tenant, Reach::default());
    driver.create(echo()).await;
    settle(&mut driver).await;
    assert!(!is_woken(&mut theirs));
}

/// A worker may go away after it was woken and before it looked.
async fn an_unused_wake_up_passes_to_the_next_worker(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    for heard in [false, true] {
        let wait = |reach| store.signals().task_waiter(driver.tenant, reach);
        let mut first = wait(reach(&["gpu"]));
        let mut unable = wait(reach(&[]));
        let mut next = wait(reach(&["gpu"]));
        let mut new = echo();
        new.requirements.capabilities = vec!["gpu".to_owned()];
        driver.create(new).await;
        settle(&mut driver).await;
        if heard {
            assert!(is_woken(&mut first));
        }
        assert!(!is_woken(&mut next));
        drop(first);
        assert!(is_woken(&mut next), "heard: {heard}");
        assert!(!is_woken(&mut unable));
        next.consume();
    }
}

async fn a_used_wake_up_passes_to_nobody(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let wait = || store.signals().task_waiter(driver.tenant, Reach::default());
    let (mut first, mut second) = (wait(), wait());
    driver.create(echo()).await;
    settle(&mut driver).await;
    assert!(is_woken(&mut first));
    first.consume();
    assert!(!is_woken(&mut second));
}

async fn a_worker_that_has_gone_is_passed_over(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let wait = || store.signals().task_waiter(driver.tenant, Reach::default());
    let (first, mut second) = (wait(), wait());
    drop(first);
    driver.create(echo()).await;
    second.woken().await;
}

async fn what_is_not_ready_wakes_nobody(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    driver.create(echo()).await;
    settle(&mut driver).await;
    let mut wait = store.signals().task_waiter(driver.tenant, Reach::default());
    let (id, hold) = driver.lease().await;
    driver.start(&hold, id).await.unwrap();
    driver.fail(&hold, id, failure(true)).await.unwrap();
    let delay_ms = 60_000;
    driver.create(NewTask { delay_ms, ..echo() }).await;
    driver.cancel(id).await.unwrap();
    settle(&mut driver).await;
    assert!(!is_woken(&mut wait));
}

async fn a_refused_decision_wakes_nobody(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let id = driver.create(echo()).await;
    let (_, hold) = driver.lease().await;
    settle(&mut driver).await;
    let mut wait = store.signals().task_waiter(driver.tenant, Reach::default());
    let watch = store.signals().end_waiter(driver.tenant, id);
    let mut ended = Box::pin(watch.ended());
    let stranger = Hold {
        worker: worker("eve"),
        ..hold
    };
    assert!(driver.release(&stranger, id).await.is_err());
    assert!(driver.complete(&stranger, id, proven()).await.is_err());
    settle(&mut driver).await;
    assert!(!is_woken(&mut wait));
    assert!((&mut ended).now_or_never().is_none());
}

async fn the_end_of_a_task_wakes_all_who_wait_for_it(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    for outcome in ["proven", "bare", "failed", "canceled"] {
        let id = driver.create(echo()).await;
        let (_, hold) = driver.lease().await;
        let watches = [(); 2].map(|()| store.signals().end_waiter(driver.tenant, id));
        let [first, second] = &watches;
        let (first, second) = (first.ended(), second.ended());
        // The end may come before anyone polls: it is not missed.
        match outcome {
            "proven" => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            "bare" => drop(driver.complete(&hold, id, bare()).await.unwrap()),
            "failed" => drop(driver.fail(&hold, id, failure(false)).await.unwrap()),
            _ => drop(driver.cancel(id).await.unwrap()),
        }
        first.await;
        second.await;
    }
}

async fn what_is_not_the_end_wakes_nobody_who_waits_for_it(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let (id, other) = (driver.create(echo()).await, driver.create(echo()).await);
    let (_, hold) = driver.lease().await;
    let watch = store.signals().end_waiter(driver.tenant, id);
    let mut ended = Box::pin(watch.ended());
    driver.start(&hold, id).await.unwrap();
    driver.renew(&hold, id, 600_000).await.unwrap();
    driver.fail(&hold, id, failure(true)).await.unwrap();
    driver.cancel(other).await.unwrap();
    settle(&mut driver).await;
    assert!((&mut ended).now_or_never().is_none());
    driver.cancel(id).await.unwrap();
    ended.await;
}

async fn an_earlier_deadline_wakes_the_one_who_watches(mut driver: Driver) {
    let store = Arc::clone(driver.store());
    let signals = store.signals();
    let delayed = |delay_ms| NewTask { delay_ms, ..echo() };
    // As long as the sweep has not looked, every deadline wakes it.
    driver.create(delayed(60_000)).await;
    signals.earlier_deadline().await;
    signals.watch_deadlines(Some(driver.now.plus_millis(60_000)));
    driver.create(delayed(60_000)).await;
    driver.create(delayed(70_000)).await;
    driver.create(echo()).await;
    settle(&mut driver).await;
    assert!(signals.earlier_deadline().now_or_never().is_none());
    driver.create(delayed(59_999)).await;
    signals.earlier_deadline().await;
    let (_, _) = driver.lease().await;
    settle(&mut driver).await;
    assert!(
        signals.earlier_deadline().now_or_never().is_none(),
        "a lease of 300 seconds ends later"
    );
    signals.watch_deadlines(None);
    driver.now = Timestamp::from_millis(i64::MAX - 1_000);
    driver.create(delayed(1)).await;
    signals.earlier_deadline().await;
}
