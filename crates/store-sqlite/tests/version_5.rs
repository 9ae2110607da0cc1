//! A file of schema version 5, whose tasks have no contracts: it can be read as it stands, it is brought up
//! to date, and its rows keep the checksums that they have.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod older;

use std::{path::Path, sync::Arc};

use asyncgate_core::{
    Principal, Task,
    task::{Contract, Deadline, NewTask, Status},
};
use asyncgate_store::conformance::{Driver, agent, bare, echo, failure, proven};
use asyncgate_store_sqlite::{Options, SqliteFile, SqliteStore};
use rusqlite::Connection;

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, &Options::default()).unwrap())
}

/// Checks the tasks and indexes as `asyncgate verify --data-dir` does, without bringing the file up to date.
fn verify(path: &Path) {
    let mut file = SqliteFile::open(path).unwrap();
    for tenant in file.tenants().unwrap() {
        file.check_tasks(tenant, |_| Ok(()), |_| {}).unwrap();
    }
    file.check_indexes().unwrap();
}

fn version(path: &Path) -> u32 {
    let conn = Connection::open(path).unwrap();
    conn.pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap()
}

#[tokio::test]
async fn an_older_file_is_read_as_it_stands_and_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    let mut laptop = agent("alice");
    laptop.instance_id = Some("laptop".into());
    driver.see(laptop.clone()).await;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(driver.create(echo()).await);
    }
    let (_, done) = driver.lease().await;
    driver.complete(&done, tasks[0], bare()).await.unwrap();
    let (_, lost) = driver.lease().await;
    driver.fail(&lost, tasks[1], failure(false)).await.unwrap();
    let (_, held) = driver.lease().await;
    driver.start(&held, tasks[2]).await.unwrap();
    driver.cancel(tasks[3]).await.unwrap();
    let before = all(&driver, &tasks).await;
    driver.detach();
    older::take_back(&Connection::open(&path).unwrap(), 5);

    verify(&path);
    assert_eq!(version(&path), 5, "a check writes nothing");
    driver.attach(open(&path));
    assert!(version(&path) > 5);
    assert_eq!(all(&driver, &tasks).await, before);
    let known = driver.see(laptop).await;
    assert_eq!(known.sessions_count, 1, "its instance is still known");
    let other = Principal {
        instance_id: None,
        ..agent("alice")
    };
    assert_eq!(driver.see(other).await.sessions_count, 2);

    // Old tasks go on, and new ones have what they say.
    driver.complete(&done, tasks[0], proven()).await.unwrap();
    driver.complete(&held, tasks[2], proven()).await.unwrap();
    let contract = Contract {
        instructions: Some("x".repeat(5_000)),
        deadline: Some(Deadline::After { seconds: 60 }),
        ..Contract::default()
    };
    let new = NewTask {
        contract: contract.clone(),
        ..echo()
    };
    let late = driver.create(new).await;
    let task = driver.task(late).await.unwrap();
    assert_eq!(task.spec.contract.as_deref(), Some(&contract));
    driver.wait_ms(60_000);
    assert_eq!(driver.sweep().await.ended, 1);
    assert_eq!(driver.task(late).await.unwrap().status(), Status::Failed);
    driver.detach();
    verify(&path);
}

async fn all(driver: &Driver, ids: &[asyncgate_core::TaskId]) -> Vec<Option<Task>> {
    let mut tasks = Vec::new();
    for id in ids {
        tasks.push(driver.task(*id).await);
    }
    tasks
}
