//! A file of schema version 3, whose checksums are of the older kind: it is read as it stands, its
//! damage is found, and rows take the newer kind as they are written.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::{Reach, Task, TenantId};
use asyncgate_store::{
    Error, Store, TaskFilter,
    conformance::{Driver, echo, proven},
};
use asyncgate_store_sqlite::{Finding, Options, SqliteFile, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

/// Written by the last program that knew no other kind.
const FILE: &str = include_str!("fixtures/version-3.sql");
/// How many tasks of the first tenant are in it.
const TASKS: usize = 9;

fn old_file() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let conn = Connection::open(dir.path().join("a.db")).unwrap();
    conn.execute_batch(FILE).unwrap();
    dir
}

fn open(path: &Path) -> Driver {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    Driver::new(Arc::new(store))
}

fn query<T: rusqlite::types::FromSql>(path: &Path, sql: &str) -> T {
    let conn = Connection::open(path).unwrap();
    conn.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// How many checksums of each kind there are: integers, then blobs.
fn kinds(path: &Path) -> (i64, i64) {
    let count = |kind: &str| {
        let sql = format!(
            "SELECT sum((typeof(state_sum) = '{kind}') + (typeof(spec_sum) = '{kind}')) FROM task"
        );
        query(path, &sql)
    };
    (count("integer"), count("blob"))
}

/// What `asyncgate verify --data-dir` says of the tasks.
fn verify(path: &Path) -> Result<(), String> {
    let text = |found: Finding| found.to_string();
    let mut file = SqliteFile::open(path).map_err(|error| error.to_string())?;
    file.check_pages(|| {}).map_err(text)?;
    for tenant in file.tenants().unwrap() {
        file.check_tasks(tenant, |_| Ok(()), |_| {}).map_err(text)?;
    }
    file.check_indexes().map_err(text)
}

async fn tasks(store: &Arc<dyn Store>, tenant: TenantId) -> Result<Vec<Task>, Error> {
    let all = TaskFilter {
        limit: 100,
        ..TaskFilter::default()
    };
    Ok(store.tasks(tenant, all).await?.tasks)
}

#[tokio::test]
async fn it_is_read_and_its_rows_are_not_rewritten() {
    let dir = old_file();
    let path = dir.path().join("a.db");
    verify(&path).unwrap();
    assert_eq!(query::<i64>(&path, "PRAGMA user_version"), 3);

    let driver = open(&path);
    let found = tasks(driver.store(), driver.tenant).await.unwrap();
    assert_eq!(found.len(), TASKS);
    drop(driver);
    assert_eq!(query::<i64>(&path, "PRAGMA user_version"), 9);
    assert_eq!(kinds(&path), (22, 0));
    verify(&path).unwrap();
}

#[tokio::test]
async fn rows_that_are_written_take_the_new_kind() {
    let dir = old_file();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    let before = tasks(driver.store(), driver.tenant).await.unwrap();
    let (id, hold) = driver.lease().await;
    driver.complete(&hold, id, proven()).await.unwrap();
    let new = driver.create(echo()).await;
    driver.detach();
    // A change rewrites the checksum of what changed; that of the rest stays.
    assert_eq!(kinds(&path), (21, 3));
    verify(&path).unwrap();

    driver.attach(open(&path).store().clone());
    let after = tasks(driver.store(), driver.tenant).await.unwrap();
    assert_eq!(after.len(), TASKS + 1);
    for task in &after {
        let known = before.iter().find(|known| known.id == task.id);
        assert_eq!(known.is_none(), task.id == new);
        if let Some(known) = known.filter(|known| known.id != id) {
            assert_eq!(known, task);
        }
    }
    // Everything that is ready can be given out.
    assert_eq!(driver.claim(Reach::default(), 9).await.len(), 2);
}

/// Another value of the same type.
const OTHER: &str = "CASE typeof({}) WHEN 'integer' THEN {} + 1 WHEN 'blob' THEN x'00' || {}
                     WHEN 'text' THEN iif({} LIKE '%x%', replace({}, 'x', 'y'), '1' || {}) ELSE 1 END";

#[tokio::test]
async fn every_changed_column_is_found() {
    let dir = old_file();
    let path = dir.path().join("a.db");
    let conn = Connection::open(&path).unwrap();
    let columns: Vec<String> = conn
        .prepare("SELECT name FROM pragma_table_info('task')")
        .and_then(|mut names| names.query_map([], |row| row.get(0))?.collect())
        .unwrap();
    let keys: Vec<i64> = conn
        .prepare("SELECT task FROM task")
        .and_then(|mut keys| keys.query_map([], |row| row.get(0))?.collect())
        .unwrap();
    drop(conn);
    for (n, column) in columns[1..].iter().enumerate() {
        // Each column in another row, before and after the file is brought up to date.
        let key = keys[n % keys.len()];
        for is_new in [false, true] {
            let copy = dir.path().join("copy.db");
            std::fs::copy(&path, &copy).unwrap();
            if is_new {
                drop(open(&copy));
            }
            let conn = Connection::open(&copy).unwrap();
            let other = OTHER.replace("{}", column);
            let sql = format!("UPDATE task SET {column} = {other} WHERE task = {key}");
            assert_eq!(conn.execute(&sql, []), Ok(1));
            drop(conn);
            let found = verify(&copy).unwrap_err();
            assert!(found.contains("the task that receipt"), "{column}: {found}");
            let driver = open(&copy);
            let tenant = TenantId::from_bytes([if key >> 44 == 1 { 1 } else { 9 }; 16]);
            let listed = tasks(driver.store(), tenant).await;
            assert!(matches!(listed, Err(Error::Corrupt(_))), "{column}");
        }
    }
}
