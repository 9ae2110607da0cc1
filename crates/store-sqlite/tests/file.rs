//! The file: what it keeps when the store is closed, reopened, copied or damaged.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::{Reach, ReceiptType, Rejection, Task, admission::Asks, task::NewTask};
use asyncgate_store::{
    DeliveredReceipt, Depths, ReadSet, ReceiptFilter, SeqPage, Store, TaskFilter,
    conformance::{Driver, agent, bare, echo, failure, json, nonce, proven},
};
use asyncgate_store_sqlite::{OpenError, Options, SqliteStore};

const EVERYTHING: SeqPage = SeqPage {
    after: 0,
    limit: 10_000,
};

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, &Options::default()).unwrap())
}

/// Closes the file and opens it again, as a restart would.
fn reopen(driver: &mut Driver, path: &Path) {
    driver.detach();
    driver.attach(open(path));
}

#[derive(Debug, PartialEq)]
struct Everything {
    tasks: Vec<Task>,
    receipts: Vec<DeliveredReceipt>,
    open: Vec<u64>,
    relationship: Option<asyncgate_core::Relationship>,
    due: usize,
    next_due: Option<asyncgate_core::Timestamp>,
    depths: Depths,
    last_time: asyncgate_core::Timestamp,
    head: asyncgate_core::Head,
}

async fn everything(driver: &Driver) -> Everything {
    let store = driver.store();
    let filter = TaskFilter {
        limit: 10_000,
        ..TaskFilter::default()
    };
    let far = driver.now.plus_millis(1 << 40);
    Everything {
        tasks: store.tasks(driver.tenant, filter).await.unwrap().tasks,
        receipts: driver.receipts(ReceiptFilter::All, EVERYTHING).await,
        open: driver.open(&agent("alice")).await,
        relationship: store
            .relationship(driver.tenant, agent("alice").key())
            .await
            .unwrap(),
        due: store.due(far, 10_000).await.unwrap().len(),
        next_due: store.next_due().await.unwrap(),
        depths: store.depths().await.unwrap(),
        last_time: store.last_time(),
        head: driver.load(ReadSet::default()).await.ledger,
    }
}

fn keyed() -> NewTask {
    NewTask {
        idempotency_key: Some("k".to_owned()),
        payload: json(&format!("[1.0, \"{}\"]", "x".repeat(100_000))),
        priority: Some(9),
        ..echo()
    }
}

#[tokio::test]
async fn everything_is_there_again_after_each_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    let id = driver.create(keyed()).await;
    reopen(&mut driver, &path);
    assert!(driver.try_create(keyed()).await.unwrap().duplicate);
    let (leased, hold) = driver.lease().await;
    assert_eq!(leased, id);
    driver
        .progress(&hold, id, json("{\"p\": 1}"))
        .await
        .unwrap();

    let before = everything(&driver).await;
    reopen(&mut driver, &path);
    assert_eq!(everything(&driver).await, before);
    driver.renew(&hold, id, 600_000).await.unwrap();
    reopen(&mut driver, &path);
    driver.complete(&hold, id, bare()).await.unwrap();
    reopen(&mut driver, &path);
    assert_eq!(driver.open(&agent("alice")).await, [1]);
    driver.complete(&hold, id, proven()).await.unwrap();
    reopen(&mut driver, &path);
    assert!(driver.open(&agent("alice")).await.is_empty());
    assert!(
        driver
            .complete(&hold, id, proven())
            .await
            .unwrap()
            .duplicate
    );
    let refused = driver.fail(&hold, id, failure(false)).await;
    assert_eq!(refused.unwrap_err(), Rejection::LeaseInvalid);

    let delay_ms = 1_000;
    driver.create(NewTask { delay_ms, ..echo() }).await;
    driver.create(echo()).await;
    driver.see(agent("alice")).await;
    driver.deliver(vec![1, 2]).await;
    let before = everything(&driver).await;
    reopen(&mut driver, &path);
    assert_eq!(everything(&driver).await, before);
    driver.wait_ms(1_000);
    assert_eq!(driver.sweep().await.readied, 1);
    reopen(&mut driver, &path);
    assert_eq!(driver.claim(Reach::default(), 9).await.len(), 2);
    let places: Vec<u64> = driver.ledger().await.iter().map(|r| r.seq()).collect();
    assert_eq!(places, (1..=places.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn the_clock_does_not_start_before_the_last_commit() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    driver.wait_ms(123_456);
    driver.create(echo()).await;
    let last = driver.now;
    driver.wait_ms(-100_000);
    driver.create(echo()).await;
    drop(driver);
    assert_eq!(open(&path).last_time(), last);
}

/// What `kill -9` leaves: the files as they are at the moment of the answer.
#[tokio::test]
async fn what_was_answered_is_in_the_files_at_that_moment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    for n in 1..=15 {
        let id = driver.create(echo()).await;
        let (_, hold) = driver.lease().await;
        driver.complete(&hold, id, proven()).await.unwrap();
        let copy = dir.path().join(format!("copy-{n}.db"));
        for file in ["", "-wal"] {
            let from = format!("{}{file}", path.display());
            std::fs::copy(from, format!("{}{file}", copy.display())).unwrap();
        }
        let copied = Driver::new(open(&copy));
        assert_eq!(copied.ledger().await, driver.ledger().await);
        assert_eq!(copied.task(id).await, driver.task(id).await);
    }
}

#[tokio::test]
async fn a_file_of_a_newer_program_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    driver.create(echo()).await;
    drop(driver);
    let newer = |path: &Path, version: u32| {
        let conn = rusqlite::Connection::open(path).unwrap();
        conn.pragma_update(None, "user_version", version).unwrap();
    };
    let conn = rusqlite::Connection::open(&path).unwrap();
    let known = conn
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    drop(conn);
    newer(&path, 99);
    let error = SqliteStore::open(&path, &Options::default()).unwrap_err();
    assert!(matches!(error, OpenError::Schema(_)), "{error:?}");
    assert!(error.to_string().contains("99"), "{error}");
    newer(&path, known);
    assert_eq!(Driver::new(open(&path)).ledger().await.len(), 1);
}

/// A file from before admission is brought up to date and keeps what it has.
#[tokio::test]
async fn a_file_of_the_first_version_is_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    driver.create(echo()).await;
    let (tenant, now) = (driver.tenant, driver.now);
    drop(driver);
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute_batch(include_str!("undo/version_6.sql"))
        .unwrap();
    conn.execute_batch(
        "DROP TABLE cell; DROP TABLE revocation; DROP TABLE client_tier; DROP TABLE domain;
         ALTER TABLE clock DROP COLUMN cells;
         DROP INDEX message_partition; ALTER TABLE message DROP COLUMN blocked;
         ALTER TABLE message DROP COLUMN partition_key; PRAGMA user_version = 1;",
    )
    .unwrap();
    drop(conn);
    let driver = Driver::new(open(&path));
    assert_eq!(driver.ledger().await.len(), 1);
    let asks = Asks {
        nonces: vec![nonce("n", 60)],
        ..Asks::default()
    };
    let host = driver.store().admission();
    let used = host.admit(tenant, now, asks).await.unwrap();
    assert!(used.passed());
    assert_eq!(host.rows().await.unwrap(), 1);
}

#[test]
fn what_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    std::fs::write(
        &path,
        "this is a text file, and a long one at that\n".repeat(100),
    )
    .unwrap();
    assert!(SqliteStore::open(&path, &Options::default()).is_err());
    let nowhere = dir.path().join("missing/a.db");
    assert!(SqliteStore::open(&nowhere, &Options::default()).is_err());
    assert!(SqliteStore::open(dir.path(), &Options::default()).is_err());
}

/// What the index tables cost must not grow with history.
#[tokio::test]
async fn index_tables_hold_only_what_is_current() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = Driver::new(open(&path));
    for n in 0..30 {
        let delay_ms = if n % 2 == 0 { 1_000 } else { 0 };
        driver.create(NewTask { delay_ms, ..echo() }).await;
    }
    driver.wait_ms(1_000);
    driver.sweep().await;
    for n in 0..30 {
        let (id, hold) = driver.lease().await;
        driver.renew(&hold, id, 900_000).await.unwrap();
        match n % 4 {
            0 => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            1 => drop(driver.fail(&hold, id, failure(false)).await.unwrap()),
            2 => drop(driver.cancel(id).await.unwrap()),
            _ => {
                driver.complete(&hold, id, bare()).await.unwrap();
                driver.complete(&hold, id, proven()).await.unwrap();
            }
        }
    }
    let completed = ReceiptFilter::Type(ReceiptType::TaskResultReady);
    assert_eq!(driver.receipts(completed, EVERYTHING).await.len(), 30);
    drop(driver);
    let conn = rusqlite::Connection::open(&path).unwrap();
    for table in ["ready", "due", "obligation"] {
        let sql = format!("SELECT count(*) FROM {table}");
        let rows: i64 = conn.query_row(&sql, [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0, "{table}");
    }
    let sound: String = conn
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(sound, "ok");
}
