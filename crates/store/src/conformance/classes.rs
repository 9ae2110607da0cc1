//! Classes in use: they are counted while they have a task that has not ended, and are bounded by tenant.

use std::sync::Arc;

use asyncgate_core::{
    ClassLoad, Reach, Rejection,
    task::{NewTask, Requirements},
};

use super::{Case, Driver, cases, echo, failure, proven};

pub(super) fn cases() -> Vec<Case> {
    cases![
        a_class_counts_until_its_last_task_has_ended,
        a_task_of_one_class_too_many_is_refused,
        every_tenant_has_classes_of_its_own,
    ]
}

fn of_type(name: &str) -> NewTask {
    NewTask {
        task_type: name.to_owned(),
        ..echo()
    }
}

async fn a_class_counts_until_its_last_task_has_ended(mut driver: Driver) {
    let (a, b) = (of_type("a"), of_type("b"));
    let known = |classes| ClassLoad {
        classes,
        is_known: true,
    };
    let unknown = |classes| ClassLoad {
        classes,
        is_known: false,
    };
    assert_eq!(driver.class_load(&a).await, unknown(0));
    let delayed = NewTask {
        delay_ms: 60_000,
        ..a.clone()
    };
    let waiting = driver.create(delayed).await;
    assert_eq!(driver.class_load(&a).await, known(1), "delayed");
    assert_eq!(driver.class_load(&b).await, unknown(1));
    let first = driver.create(b.clone()).await;
    let second = driver.create(b.clone()).await;
    assert_eq!(driver.class_load(&b).await, known(2), "ready");
    let (_, one) = driver.lease().await;
    let (_, other) = driver.lease().await;
    assert_eq!(driver.class_load(&b).await, known(2), "leased");
    driver.start(&one, first).await.unwrap();
    driver.complete(&one, first, proven()).await.unwrap();
    assert_eq!(driver.class_load(&b).await, known(2), "one has ended");
    driver.fail(&other, second, failure(true)).await.unwrap();
    assert_eq!(driver.class_load(&b).await, known(2), "to be tried again");
    driver.cancel(second).await.unwrap();
    assert_eq!(driver.class_load(&b).await, unknown(1), "both have ended");
    driver.cancel(waiting).await.unwrap();
    assert_eq!(driver.class_load(&a).await, unknown(0));
}

async fn a_task_of_one_class_too_many_is_refused(mut driver: Driver) {
    driver.policy.max_task_classes = 2;
    let keyed = NewTask {
        idempotency_key: Some("k".to_owned()),
        ..of_type("a")
    };
    let first = driver.create(keyed.clone()).await;
    let demanding = NewTask {
        requirements: Requirements::new(vec!["gpu".to_owned()], Vec::new()),
        ..of_type("a")
    };
    driver.create(demanding.clone()).await;
    let head = driver.head().await;
    let refused = driver.try_create(of_type("b")).await;
    assert_eq!(refused, Err(Rejection::TooManyClasses { limit: 2 }));
    assert_eq!(driver.head().await, head, "nothing was written");
    // Known classes take more tasks, and what was created before is answered again.
    driver.create(demanding).await;
    assert!(driver.try_create(keyed).await.unwrap().duplicate);
    let (leased, hold) = driver.lease().await;
    assert_eq!(leased, first);
    driver.complete(&hold, first, proven()).await.unwrap();
    driver.create(of_type("b")).await;
    assert!(driver.claim(Reach::default(), 9).await.len() == 1);
}

async fn every_tenant_has_classes_of_its_own(mut driver: Driver) {
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 2);
    driver.policy.max_task_classes = 1;
    other.policy.max_task_classes = 1;
    driver.create(of_type("a")).await;
    other.create(of_type("b")).await;
    assert!(driver.try_create(of_type("b")).await.is_err());
    assert!(other.try_create(of_type("a")).await.is_err());
}
