//! The classes in use are counted over restarts and rollbacks.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::{
    ClassLoad, Rejection, TenantLoad,
    task::{self, NewTask, Requirements},
};
use asyncgate_store::{
    Job, ReadSet, Store, Tasks,
    conformance::{Driver, echo, proven},
};
use asyncgate_store_sqlite::{Options, SqliteStore};

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, &Options::default()).unwrap())
}

fn of_type(name: &str) -> NewTask {
    NewTask {
        task_type: name.to_owned(),
        ..echo()
    }
}

#[tokio::test]
async fn a_restarted_store_counts_what_is_ready_delayed_or_leased() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    driver.policy.max_task_classes = 4;
    let leased = driver.create(of_type("leased")).await;
    let (_, hold) = driver.lease().await;
    let ended = driver.create(of_type("ended")).await;
    driver.cancel(ended).await.unwrap();
    driver.create(of_type("ready")).await;
    driver.create(of_type("ready")).await;
    let delayed = NewTask {
        delay_ms: 60_000,
        ..of_type("delayed")
    };
    driver.create(delayed).await;
    let demanding = NewTask {
        requirements: Requirements::new(vec!["gpu".to_owned()], vec!["tag".to_owned()]),
        ..of_type("ready")
    };
    let needs = driver.create(demanding.clone()).await;
    for again in 0..2 {
        driver.detach();
        driver.attach(open(&path));
        for new in ["leased", "ready", "delayed"].map(of_type) {
            let known = ClassLoad {
                classes: 4,
                is_known: true,
            };
            assert_eq!(
                driver.class_load(&new).await,
                known,
                "{} {again}",
                new.task_type
            );
        }
        assert!(driver.class_load(&demanding).await.is_known);
        let refused = driver.try_create(of_type("ended")).await;
        assert_eq!(refused, Err(Rejection::TooManyClasses { limit: 4 }));
    }
    driver.complete(&hold, leased, proven()).await.unwrap();
    driver.cancel(needs).await.unwrap();
    let gone = ClassLoad {
        classes: 2,
        is_known: false,
    };
    assert_eq!(driver.class_load(&of_type("leased")).await, gone);
    assert_eq!(driver.class_load(&demanding).await, gone);
}

#[tokio::test]
async fn a_task_that_is_rolled_back_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(open(&dir.path().join("a.db")));
    driver.create(echo()).await;
    let env = driver.env();
    // Its place in the ledger is taken.
    let twice = Job::<Tasks> {
        tenant: driver.tenant,
        reads: ReadSet::default(),
        now: driver.now,
        weight: 0,
        decide: Box::new(move |_, _| {
            let new = of_type("never");
            let created = task::create(env.clone(), 0, new, None, TenantLoad::default());
            created.ok().map(|created| created.changes)
        }),
    };
    assert!(driver.store().transact(twice.into()).await.is_err());
    let only = |is_known| ClassLoad {
        classes: 1,
        is_known,
    };
    assert_eq!(driver.class_load(&of_type("never")).await, only(false));
    assert_eq!(driver.class_load(&echo()).await, only(true));
}
