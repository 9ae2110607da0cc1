//! The reader threads: each read shows one committed state, however busy the writer is.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use asyncgate_core::{Reach, task::NewTask};
use asyncgate_store::{
    ReceiptFilter, SeqPage, Store, TaskFilter,
    conformance::{Driver, agent, echo},
};
use asyncgate_store_sqlite::{Options, SqliteStore};

fn open(dir: &tempfile::TempDir) -> Arc<dyn Store> {
    let path = dir.path().join("a.db");
    Arc::new(SqliteStore::open(&path, &Options::default()).unwrap())
}

/// Every commit moves all tasks at once, so a listing that shows two statuses shows a state that
/// never was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_shows_one_committed_state() {
    const TASKS: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(open(&dir));
    driver.policy.max_lease_expiries = 0;
    for _ in 0..TASKS {
        driver.create(echo()).await;
    }
    let (store, tenant) = (Arc::clone(driver.store()), driver.tenant);
    let done = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&done);
    let reader = tokio::spawn(async move {
        let mut torn = 0;
        while !stop.load(Ordering::Relaxed) {
            let filter = TaskFilter {
                limit: TASKS,
                ..TaskFilter::default()
            };
            let tasks = store.tasks(tenant, filter).await.unwrap().tasks;
            assert_eq!(tasks.len(), TASKS);
            let first = tasks[0].status();
            torn += usize::from(tasks.iter().any(|task| task.status() != first));
        }
        torn
    });
    for _ in 0..100 {
        assert_eq!(driver.claim(Reach::default(), TASKS).await.len(), TASKS);
        driver.wait_ms(300_000);
        assert_eq!(driver.sweep().await.expired, TASKS);
    }
    done.store(true, Ordering::Relaxed);
    assert_eq!(
        reader.await.unwrap(),
        0,
        "listings of a state that never was"
    );
}

/// A read that begins after an answer sees what was answered, on whichever thread it runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_is_as_new_as_every_commit_that_was_answered_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(open(&dir));
    for n in 1..=50 {
        let id = driver.create(echo()).await;
        for _ in 0..4 {
            assert!(driver.task(id).await.is_some());
            assert_eq!(driver.head().await.seq, n);
            assert_eq!(driver.open(&agent("alice")).await.len(), n as usize);
            let last = SeqPage {
                after: n - 1,
                limit: 5,
            };
            let found = driver.receipts(ReceiptFilter::All, last).await;
            assert_eq!(found.len(), 1);
        }
    }
}

/// Classes that stay empty are forgotten once there are many; their tasks must not be.
#[tokio::test]
async fn thousands_of_classes_may_come_and_go() {
    const CLASSES: usize = 4_200;
    let dir = tempfile::tempdir().unwrap();
    let mut driver = Driver::new(open(&dir));
    let mut creating = Vec::new();
    for n in 0..CLASSES {
        let mut own = Driver::new(Arc::clone(driver.store()));
        let task_type = format!("type-{n}");
        creating.push(tokio::spawn(async move {
            own.create(NewTask {
                task_type,
                ..echo()
            })
            .await
        }));
        if creating.len() == 500 {
            for created in creating.drain(..) {
                created.await.unwrap();
            }
        }
    }
    for created in creating {
        created.await.unwrap();
    }
    let all = driver.claim(Reach::default(), 10_000).await;
    assert_eq!(all.len(), CLASSES);
    assert!(driver.claim(Reach::default(), 10_000).await.is_empty());
    // One class more than are kept: the empty ones go.
    let task_type = "one-more".to_owned();
    driver
        .create(NewTask {
            task_type,
            ..echo()
        })
        .await;
    driver.wait_ms(300_000);
    assert_eq!(driver.sweep().await.expired, CLASSES);
    let again = driver.claim(Reach::default(), 10_000).await;
    assert_eq!(again.len(), CLASSES + 1);
    assert!(again.is_sorted_by_key(|task| task.id.seq()));
}
