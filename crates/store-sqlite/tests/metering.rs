//! Usage events in a file: they are there after a restart, damage to them is found, and an older file gets them.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod older;

use std::{path::Path, sync::Arc};

use asyncgate_core::metering::UsageEvent;
use asyncgate_store::conformance::{Driver, echo, meter};
use asyncgate_store_sqlite::{Options, SqliteFile, SqliteStore};
use rusqlite::Connection;

fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path, &Options::default()).unwrap())
}

async fn events(driver: &Driver) -> Vec<UsageEvent> {
    let found = driver.store().usage_events(driver.tenant, None, 100);
    found.await.unwrap()
}

/// Makes a file with three events.
async fn made(path: &Path) -> Driver {
    let mut driver = Driver::new(open(path));
    let begin = driver.now;
    for calls in [5, 1, 2] {
        driver.create(echo()).await;
        driver.wait_ms(60_000);
        meter(&mut driver, calls, begin, None).await.unwrap();
    }
    driver
}

/// Checks the file as `asyncgate verify --data-dir` does. The defect is told.
async fn checked(path: &Path, driver: &Driver) -> Result<(), String> {
    let bytes = driver.ledger().await;
    let bytes = bytes.iter().map(|receipt| receipt.stored_bytes()).sum();
    let mut file = SqliteFile::open(path).unwrap();
    let found = file.check_usage(driver.tenant, 3, bytes);
    found.map_err(|found| found.to_string())
}

#[tokio::test]
async fn metering_goes_on_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = made(&path).await;
    let before = events(&driver).await;
    driver.detach();
    driver.attach(open(&path));
    assert_eq!(events(&driver).await, before);
    let begin = driver.now;
    assert_eq!(meter(&mut driver, 0, begin, None).await, None);
    let next = meter(&mut driver, 4, begin, None).await.unwrap();
    assert_eq!((next.seq, next.total.api_calls), (4, 12));
    assert_eq!(next.total.tasks_created, 3);
    checked(&path, &driver).await.unwrap();
}

#[tokio::test]
async fn damaged_events_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = made(&path).await;
    let good = driver.store().clone();
    driver.detach();
    drop(good);
    for (sql, named) in [
        (
            "UPDATE usage_event SET api_calls = 9 WHERE event & 3 = 2",
            "checksum",
        ),
        (
            "UPDATE usage_event SET event = event + 1 WHERE event & 3 = 3",
            "checksum",
        ),
        (
            "DELETE FROM usage_event WHERE event & 3 = 2",
            "usage event 3 does not follow",
        ),
    ] {
        let copy = dir.path().join("copy.db");
        std::fs::copy(&path, &copy).unwrap();
        let conn = Connection::open(&copy).unwrap();
        assert_eq!(conn.execute(sql, []).unwrap(), 1, "{sql}");
        drop(conn);
        driver.attach(open(&copy));
        let found = checked(&copy, &driver).await.unwrap_err();
        assert!(found.contains(named), "{sql}: {found}");
        driver.detach();
    }
}

#[tokio::test]
async fn an_older_file_is_checked_as_it_stands_and_then_metered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = made(&path).await;
    let ledger = driver.ledger().await;
    driver.detach();
    let conn = Connection::open(&path).unwrap();
    older::take_back(&conn, 8);
    drop(conn);
    let bytes = ledger.iter().map(|receipt| receipt.stored_bytes()).sum();
    let mut file = SqliteFile::open(&path).unwrap();
    file.check_usage(driver.tenant, 3, bytes).unwrap();
    drop(file);
    driver.attach(open(&path));
    assert_eq!(events(&driver).await, []);
    let begin = driver.now;
    let first = meter(&mut driver, 0, begin, None).await.unwrap();
    assert_eq!((first.seq, first.used.tasks_created), (1, 3));
}
