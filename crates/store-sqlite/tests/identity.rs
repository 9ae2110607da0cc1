//! Records and audit logs in a file: older files get them, what is tampered with is named, and a commit that fails
//! leaves nothing.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::{
    TenantId,
    identity::{
        ApiKey, Changes, DEFAULT_TENANT, Find, Record,
        audit::{Draft, Event},
    },
};
use asyncgate_store::{
    conformance::{Driver, IdentityDriver, api_key, echo, family, macaroon, proven, tenant_record},
    identity::{AuditFilter, Reads},
};
use asyncgate_store_sqlite::{Options, SqliteFile, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> IdentityDriver {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    IdentityDriver::new(Driver::new(Arc::new(store)))
}

/// A file with records of two tenants and three audit logs.
async fn made() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = open(&dir.path().join("a.db"));
    let tenant = driver.tenant;
    let other = TenantId::from_bytes([2; 16]);
    let key = |tenant, n| Record::ApiKey(api_key(tenant, n));
    let mut records = vec![tenant_record(tenant, "one"), tenant_record(other, "two")];
    records.extend([key(tenant, 1), key(other, 2), macaroon(tenant, 3)]);
    records.extend(family(other, 4));
    driver.put(records).await;
    for log in [None, Some(tenant), Some(other)] {
        let events = [Event::KeyCreated, Event::AuthFailure, Event::AuthSuccess];
        driver.record(log, &events).await;
    }
    dir
}

fn check(path: &Path) -> Result<(u64, u64), String> {
    let mut file = SqliteFile::open(path).unwrap();
    let found = file.check_identity(|_| {});
    let found = found.map_err(|found| found.to_string())?;
    Ok((found.records, found.entries))
}

#[tokio::test]
async fn every_disagreement_is_named() {
    let dir = made().await;
    // The default tenant is there too.
    assert_eq!(check(&dir.path().join("a.db")), Ok((9, 9)));
    let sum = "checksum";
    for (sql, names) in [
        ("UPDATE record SET name = 'x' WHERE name = 'one'", sum),
        ("UPDATE record SET forget_at = 1 WHERE forget_at > 1", sum),
        ("UPDATE record SET platform_until = 1 WHERE kind = 1", sum),
        (
            "UPDATE record SET body = replace(body, 'paid', 'free')",
            sum,
        ),
        (
            "UPDATE record SET kind = 99 WHERE kind = 2",
            "no known kind",
        ),
        ("UPDATE record SET kind = 2 WHERE kind = 1", sum),
        ("UPDATE record SET principal = NULL WHERE kind = 1", sum),
        (
            "UPDATE audit SET reason = 'x' WHERE audit & 15 = 2",
            "entry 2: its link",
        ),
        (
            "UPDATE audit SET at = at - 1 WHERE audit & 15 = 2",
            "entry 2: it is older",
        ),
        (
            "UPDATE audit SET event = 99 WHERE audit & 15 = 2",
            "no known kind",
        ),
        (
            "DELETE FROM audit WHERE audit & 15 = 2",
            "entry 3: an entry before it is missing",
        ),
        (
            "DELETE FROM audit WHERE audit & 15 = 3",
            "does not end where its head says",
        ),
        (
            "UPDATE audit_log SET seq = seq - 1",
            "does not end where its head says",
        ),
        ("UPDATE audit_log SET oldest_at = NULL", "oldest entry"),
        (
            "DELETE FROM audit_log WHERE tenant = 0",
            "9 audit entries are stored, 6",
        ),
        (
            "UPDATE audit_log SET tenant = 77 WHERE tenant = 0",
            "is not there",
        ),
    ] {
        let copy = dir.path().join("copy.db");
        std::fs::copy(dir.path().join("a.db"), &copy).unwrap();
        let conn = Connection::open(&copy).unwrap();
        assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
        drop(conn);
        let found = check(&copy).expect_err(sql);
        assert!(found.contains(names), "{sql}: {found}");
    }
}

#[tokio::test]
async fn a_commit_that_gives_two_records_one_name_fails_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = open(&dir.path().join("a.db"));
    let tenant = driver.tenant;
    let first = Record::ApiKey(api_key(tenant, 1));
    driver.put([first.clone()]).await;
    let second = Record::ApiKey(ApiKey {
        id: api_key(tenant, 2).id,
        ..api_key(tenant, 1)
    });
    let changed = driver.try_change(Reads::default(), move |mut env, _| Changes {
        put: vec![macaroon(tenant, 7), second.clone()],
        audit: vec![Draft::new(
            &mut env.ids,
            env.now,
            Some(tenant),
            Event::KeyCreated,
        )],
        ..Changes::default()
    });
    assert!(changed.await.is_err());
    assert_eq!(driver.find(Find::key("lookup000001")).await, Some(first));
    let key = macaroon(tenant, 7).key();
    assert_eq!(driver.find(Find::id(key.kind, key.id)).await, None);
    let filter = AuditFilter {
        tenant: Some(tenant),
        ..AuditFilter::default()
    };
    assert!(driver.audited(filter).await.is_empty());
}

#[tokio::test]
async fn everything_is_there_after_a_restart() {
    let dir = made().await;
    let path = dir.path().join("a.db");
    let driver = open(&path);
    assert!(driver.find(Find::key("lookup000002")).await.is_some());
    assert!(driver.find(Find::refresh_token("refresh4")).await.is_some());
    let server = driver.audited(AuditFilter::default()).await;
    assert_eq!(server.len(), 3);
    drop(driver);
    assert_eq!(check(&path), Ok((9, 9)));
}

/// Takes a file back to version 5.
fn take_back(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(include_str!("undo/version_6.sql"))
        .unwrap();
    conn.pragma_update(None, "user_version", 5).unwrap();
}

#[tokio::test]
async fn a_file_of_version_5_is_read_as_it_stands_and_brought_up_to_date() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    driver.create(echo()).await;
    let (id, hold) = driver.lease().await;
    driver.complete(&hold, id, proven()).await.unwrap();
    driver.create(echo()).await;
    driver.wait_ms(1_000);
    driver.lease().await;
    driver.wait_ms(3_000);
    let usage = async |driver: &IdentityDriver| {
        let usage = driver.store().usage(driver.tenant, driver.now).await;
        usage.unwrap()
    };
    let expected = usage(&driver).await;
    let now = driver.now;
    drop(driver);
    take_back(&path);
    assert_eq!(check(&path), Ok((0, 0)));
    let mut file = SqliteFile::open(&path).unwrap();
    for tenant in file.tenants().unwrap() {
        file.check_tasks(tenant, |_| Ok(()), |_| {}).unwrap();
        file.check_usage(tenant, 77, 77).unwrap();
    }
    drop(file);
    let mut driver = open(&path);
    driver.now = now;
    // The lease that had ended took no time, so nothing is missing.
    assert_eq!(usage(&driver).await, expected);
    let tenant = driver.tenant;
    let default = driver.find(Find::tenant(DEFAULT_TENANT)).await;
    assert!(default.is_some());
    driver.record(None, &[Event::AuthSuccess]).await;
    drop(driver);
    assert_eq!(check(&path), Ok((1, 1)));
    let mut file = SqliteFile::open(&path).unwrap();
    let bytes = expected.receipt_storage_bytes;
    file.check_usage(tenant, 2, bytes).unwrap();
    for (tasks, bytes) in [(3, bytes), (2, bytes + 1)] {
        let found = file.check_usage(tenant, tasks, bytes).unwrap_err();
        assert!(found.to_string().contains("the counter of "), "{found}");
    }
}
