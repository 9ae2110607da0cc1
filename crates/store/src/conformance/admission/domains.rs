//! The state of domains.

use std::sync::mpsc::channel;

use asyncgate_core::admission::{DomainState, Progress};

use super::{Case, Driver};
use crate::conformance::cases;

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_domain_stands_as_it_was_decided,
        a_decision_sees_what_was_decided_before,
        domains_are_apart,
        decisions_about_a_domain_come_one_after_the_other,
    ]
}

fn state(counter: u64, timer: i64, disabled: bool) -> DomainState {
    DomainState {
        progress: Progress { counter, timer },
        disabled,
    }
}

/// Decides the state of a domain. Returns what the decision was given.
async fn set(driver: &Driver, hash: [u8; 32], next: Option<DomainState>) -> Option<DomainState> {
    let (seen, shown) = channel();
    let decide = move |before| {
        seen.send(before).unwrap();
        next
    };
    let store = driver.store().admission();
    let decided = store.decide_domain(driver.now, hash, Box::new(decide));
    decided.await.unwrap();
    shown.iter().last().unwrap()
}

async fn of(driver: &Driver, hash: [u8; 32]) -> Option<DomainState> {
    driver.store().admission().domain(hash).await.unwrap()
}

async fn a_domain_stands_as_it_was_decided(driver: Driver) {
    let hash = [7; 32];
    assert_eq!(of(&driver, hash).await, None);
    let states = [
        state(1, 1_700_000_000, false),
        state(u64::MAX, i64::MAX, false),
        state(0, i64::MIN, true),
        state(i64::MAX.unsigned_abs() + 1, -1, true),
    ];
    for stands in states {
        set(&driver, hash, Some(stands)).await;
        assert_eq!(of(&driver, hash).await, Some(stands));
    }
}

async fn a_decision_sees_what_was_decided_before(driver: Driver) {
    let (hash, stands) = ([7; 32], state(3, 5, false));
    assert_eq!(set(&driver, hash, None).await, None);
    assert_eq!(of(&driver, hash).await, None, "nothing was decided");
    assert_eq!(set(&driver, hash, Some(stands)).await, None);
    assert_eq!(set(&driver, hash, None).await, Some(stands));
    assert_eq!(of(&driver, hash).await, Some(stands), "nor was it now");
}

async fn domains_are_apart(driver: Driver) {
    let hashes = [[0; 32], [1; 32], [255; 32]];
    for (counter, hash) in (1..).zip(hashes) {
        set(&driver, hash, Some(state(counter, 0, false))).await;
    }
    for (counter, hash) in (1..).zip(hashes) {
        assert_eq!(of(&driver, hash).await, Some(state(counter, 0, false)));
    }
}

async fn decisions_about_a_domain_come_one_after_the_other(driver: Driver) {
    let store = driver.store().admission();
    let count = || {
        let next = |before: Option<DomainState>| {
            let mut state = before.unwrap_or_default();
            state.progress.counter += 1;
            Some(state)
        };
        store.decide_domain(driver.now, [7; 32], Box::new(next))
    };
    let all = futures_util::future::join_all((0..64).map(|_| count())).await;
    assert!(all.into_iter().all(|decided| decided.is_ok()));
    assert_eq!(of(&driver, [7; 32]).await, Some(state(64, 0, false)));
}
