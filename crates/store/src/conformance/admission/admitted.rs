//! Tasks and what admission is asked about them, in one commit.

use asyncgate_core::{
    Env, Rejection,
    admission::{Asks, NonceResult, Verdicts},
    task::Created,
};

use super::{Case, Driver, bucket, limit, nonce};
use crate::{
    Decided, Snapshot, TaskFilter, Tasks,
    conformance::{cases, echo},
    transact_admitted,
};

pub(super) fn cases() -> Vec<Case> {
    cases![
        what_passes_is_written_with_its_nonce,
        a_replay_writes_nothing_and_costs_nothing,
        what_is_refused_for_rate_has_not_used_its_nonce,
        a_task_that_is_rejected_uses_nothing,
        one_of_many_with_the_same_nonce_is_written,
    ]
}

/// Returns a question about a nonce, and about a bucket of `capacity` in which a refusal costs too.
fn asks(name: &str, capacity: u64) -> Asks {
    Asks {
        nonces: vec![nonce(name, 600)],
        limits: vec![limit(&bucket(capacity, 1, true), "key", 1)],
        ..Asks::default()
    }
}

async fn create(driver: &mut Driver, asks: Asks) -> (Verdicts, Option<Result<Created, Rejection>>) {
    let (env, tenant) = (driver.env(), driver.tenant);
    let store = driver.store().as_ref();
    let (verdicts, created) = transact_admitted(store, tenant, env, 0, asks, decide)
        .await
        .unwrap();
    let created = created.map(|created| created.map(|created| created.output));
    (verdicts, created)
}

fn decide(env: Env, snapshot: Snapshot) -> Decided<Tasks, Created> {
    snapshot.create(env, echo())
}

async fn tasks(driver: &Driver) -> usize {
    let filter = TaskFilter {
        limit: 100,
        ..TaskFilter::default()
    };
    let page = driver.store().tasks(driver.tenant, filter).await.unwrap();
    page.tasks.len()
}

/// Returns how many tokens the bucket of [`asks`] has left.
async fn tokens(driver: &Driver, capacity: u64) -> i64 {
    let looking = Asks {
        limits: vec![limit(&bucket(capacity, 1, true), "key", 0)],
        ..Asks::default()
    };
    let host = driver.store().admission();
    let verdicts = host.admit(driver.tenant, driver.now, looking).await;
    let asyncgate_core::admission::Standing::Bucket { level, unit } =
        verdicts.unwrap().limits[0].standing
    else {
        panic!("no bucket");
    };
    level / i64::try_from(unit).unwrap()
}

async fn what_passes_is_written_with_its_nonce(mut driver: Driver) {
    let (verdicts, created) = create(&mut driver, asks("a", 5)).await;
    assert!(verdicts.passed());
    let task = created.unwrap().unwrap().task;
    let stored = driver.store().task(driver.tenant, task.id).await.unwrap();
    assert_eq!(stored, Some(task));
    let host = driver.store().admission();
    let used = Asks {
        nonces: vec![nonce("a", 600)],
        ..Asks::default()
    };
    let again = host.admit(driver.tenant, driver.now, used).await.unwrap();
    assert_ne!(again.nonces, [NonceResult::Accepted]);
    assert_eq!(host.rows().await.unwrap(), 2);
}

async fn a_replay_writes_nothing_and_costs_nothing(mut driver: Driver) {
    create(&mut driver, asks("a", 5)).await;
    let left = tokens(&driver, 5).await;
    for _ in 0..3 {
        let (verdicts, created) = create(&mut driver, asks("a", 5)).await;
        assert!(!verdicts.passed());
        assert_ne!(verdicts.nonces, [NonceResult::Accepted]);
        assert!(created.is_none(), "nothing is decided about a replay");
    }
    assert_eq!((tasks(&driver).await, tokens(&driver, 5).await), (1, left));
}

async fn what_is_refused_for_rate_has_not_used_its_nonce(mut driver: Driver) {
    create(&mut driver, asks("a", 1)).await;
    let (verdicts, created) = create(&mut driver, asks("b", 1)).await;
    assert!(!verdicts.limits[0].allowed && created.is_none());
    assert_eq!(tasks(&driver).await, 1);
    // The refusal has cost a token too, so two must come before the next is allowed.
    driver.wait_ms(120_000);
    let (verdicts, created) = create(&mut driver, asks("b", 1)).await;
    assert!(verdicts.passed(), "{verdicts:?}");
    assert!(created.unwrap().is_ok());
    assert_eq!(tasks(&driver).await, 2);
}

async fn a_task_that_is_rejected_uses_nothing(mut driver: Driver) {
    driver.policy.max_payload_bytes = 3;
    let (_, created) = create(&mut driver, asks("a", 5)).await;
    assert!(created.unwrap().is_err());
    assert_eq!(driver.store().admission().rows().await.unwrap(), 0);
    driver.policy.max_payload_bytes = 1_000;
    let (verdicts, _) = create(&mut driver, asks("a", 5)).await;
    assert!(verdicts.passed());
    assert_eq!(tasks(&driver).await, 1);
}

async fn one_of_many_with_the_same_nonce_is_written(mut driver: Driver) {
    let store = std::sync::Arc::clone(driver.store());
    let tenant = driver.tenant;
    let calls = (0..32).map(|_| {
        let (env, store) = (driver.env(), store.as_ref());
        transact_admitted(store, tenant, env, 0, asks("a", 100), decide)
    });
    let calls: Vec<_> = calls.collect();
    let all = futures_util::future::join_all(calls).await;
    let created = all
        .iter()
        .filter(|call| matches!(call, Ok((_, Some(Ok(_))))));
    assert_eq!(created.count(), 1);
    assert_eq!((tasks(&driver).await, tokens(&driver, 100).await), (1, 99));
}
