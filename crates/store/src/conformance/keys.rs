//! Idempotency keys: each stands for one task of one owner in one tenant, for ever.

use std::sync::Arc;

use asyncgate_core::{
    Principal, PrincipalKind, Rejection, TaskId,
    task::{NewTask, Status},
};

use super::{Case, Driver, agent, cases, echo, json, proven};
use crate::{IdempotencyKey, ReadSet};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_key_stands_for_the_first_task_that_was_created_with_it,
        a_key_belongs_to_its_owner,
        a_key_belongs_to_its_tenant,
        an_owner_is_the_same_from_every_instance,
        a_key_outlives_the_end_of_its_task,
        a_refused_creation_takes_no_key,
        odd_keys_stay_apart,
    ]
}

fn keyed(owner: Principal, key: &str) -> NewTask {
    NewTask {
        owner,
        idempotency_key: Some(key.to_owned()),
        ..echo()
    }
}

async fn found(driver: &Driver, owner: &Principal, key: &str) -> Option<TaskId> {
    let reads = ReadSet {
        keyed: vec![IdempotencyKey {
            owner: owner.key(),
            key: key.to_owned(),
        }],
        ..ReadSet::default()
    };
    driver.load(reads).await.keyed.pop().map(|task| task.id)
}

async fn a_key_stands_for_the_first_task_that_was_created_with_it(mut driver: Driver) {
    let alice = agent("alice");
    assert_eq!(found(&driver, &alice, "k").await, None);
    let first = driver.create(keyed(alice.clone(), "k")).await;
    assert_eq!(found(&driver, &alice, "k").await, Some(first));
    let again = driver.try_create(keyed(alice.clone(), "k")).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(again.task.id, first);
    assert_eq!(driver.ledger().await.len(), 1);
    let without = driver.create(echo()).await;
    assert_ne!(without, first);
}

async fn a_key_belongs_to_its_owner(mut driver: Driver) {
    let owners = [
        agent("alice"),
        agent("alicia"),
        agent("al"),
        Principal::new(PrincipalKind::Service, "alice"),
        Principal::new(PrincipalKind::Human, "alice"),
    ];
    let mut created = Vec::new();
    for owner in &owners {
        let answer = driver.try_create(keyed(owner.clone(), "k")).await.unwrap();
        assert!(!answer.duplicate, "{owner:?}");
        created.push(answer.task.id);
    }
    for (owner, id) in owners.iter().zip(created) {
        assert_eq!(found(&driver, owner, "k").await, Some(id), "{owner:?}");
    }
}

async fn a_key_belongs_to_its_tenant(mut driver: Driver) {
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    let alice = agent("alice");
    driver.create(echo()).await;
    let ours = driver.create(keyed(alice.clone(), "k")).await;
    assert_eq!(found(&other, &alice, "k").await, None);
    let theirs = other.create(keyed(alice.clone(), "k")).await;
    assert_ne!(ours, theirs);
    assert_eq!(found(&driver, &alice, "k").await, Some(ours));
    assert_eq!(found(&other, &alice, "k").await, Some(theirs));
}

async fn an_owner_is_the_same_from_every_instance(mut driver: Driver) {
    let from = |instance: Option<&str>| Principal {
        instance_id: instance.map(Into::into),
        ..agent("alice")
    };
    let first = driver.create(keyed(from(Some("laptop")), "k")).await;
    for instance in [None, Some("phone")] {
        assert_eq!(driver.create(keyed(from(instance), "k")).await, first);
    }
}

async fn a_key_outlives_the_end_of_its_task(mut driver: Driver) {
    let id = driver.create(keyed(agent("alice"), "k")).await;
    let (_, hold) = driver.lease().await;
    driver.complete(&hold, id, proven()).await.unwrap();
    let again = driver.try_create(keyed(agent("alice"), "k")).await.unwrap();
    assert!(again.duplicate);
    assert_eq!(again.task.status(), Status::Succeeded);
}

async fn a_refused_creation_takes_no_key(mut driver: Driver) {
    let id = driver.create(keyed(agent("alice"), "k")).await;
    let other = NewTask {
        payload: json("1"),
        ..keyed(agent("alice"), "k")
    };
    let refused = driver.try_create(other).await.unwrap_err();
    assert_eq!(refused, Rejection::IdempotencyConflict { task_id: id });
    let large = NewTask {
        payload: json(&format!("\"{}\"", "x".repeat(1 << 20))),
        ..keyed(agent("alice"), "free")
    };
    assert!(driver.try_create(large).await.is_err());
    assert_eq!(found(&driver, &agent("alice"), "free").await, None);
}

async fn odd_keys_stay_apart(mut driver: Driver) {
    let long = "k".repeat(10_000);
    let keys = [
        "",
        " ",
        "k",
        "K",
        "k ",
        "k\u{0}",
        "k\u{0}1",
        "\u{1f600}",
        "ä",
        "a\u{308}",
        "%",
        "1",
        "1.0",
        &long,
    ];
    let mut created = Vec::new();
    for key in keys {
        let answer = driver.try_create(keyed(agent("alice"), key)).await.unwrap();
        assert!(!answer.duplicate, "{key:?}");
        created.push(answer.task.id);
    }
    for (key, id) in keys.into_iter().zip(&created) {
        assert_eq!(
            found(&driver, &agent("alice"), key).await,
            Some(*id),
            "{key:?}"
        );
    }
}
