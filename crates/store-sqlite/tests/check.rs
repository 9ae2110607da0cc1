//! A file whose tables do not agree: the first disagreement is named.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::{
    mailbox::{Kind, Message, Outgoing, Wish},
    task::NewTask,
};
use asyncgate_store::conformance::{ALL, Driver, MailDriver, bare, echo, failure, mail, proven};
use asyncgate_store_sqlite::{Finding, OpenError, Options, SqliteFile, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> Driver {
    Driver::new(Arc::new(
        SqliteStore::open(path, &Options::default()).unwrap(),
    ))
}

/// A file with tasks in every state, and two tenants.
async fn made() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut driver = open(&dir.path().join("a.db"));
    let keyed = |key: &str| NewTask {
        idempotency_key: Some(key.to_owned()),
        ..echo()
    };
    for n in 0..4 {
        let id = driver.create(keyed(&format!("key-{n}"))).await;
        let (_, hold) = driver.lease().await;
        match n {
            0 => drop(driver.complete(&hold, id, proven()).await.unwrap()),
            1 => drop(driver.complete(&hold, id, bare()).await.unwrap()),
            2 => drop(driver.fail(&hold, id, failure(false)).await.unwrap()),
            _ => driver.start(&hold, id).await.unwrap(),
        }
    }
    driver.create(keyed("ready")).await;
    driver.create(echo()).await;
    let delay_ms = 60_000;
    driver.create(NewTask { delay_ms, ..echo() }).await;
    let mut other = Driver::of_tenant(Arc::clone(driver.store()), 9);
    let id = other.create(keyed("ready")).await;
    other.lease().await;
    other.cancel(id).await.unwrap();
    other.create(echo()).await;
    dir
}

fn check(path: &Path) -> Result<(), String> {
    let text = |found: Finding| found.to_string();
    let mut file = SqliteFile::open(path).map_err(|error| error.to_string())?;
    file.check_pages(|| {}).map_err(text)?;
    for tenant in file.tenants().unwrap() {
        let mut last = 0;
        file.check_tasks(tenant, |_| Ok(()), |tasks| last = tasks)
            .map_err(text)?;
        assert!(last > 0);
    }
    file.check_indexes().map_err(text)
}

/// What is found in a copy that was tampered with so.
fn tampered(dir: &TempDir, sql: &str) -> Result<(), String> {
    let copy = dir.path().join("copy.db");
    std::fs::copy(dir.path().join("a.db"), &copy).unwrap();
    let conn = Connection::open(&copy).unwrap();
    assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
    drop(conn);
    check(&copy)
}

#[tokio::test]
async fn a_good_file_is_good() {
    let dir = made().await;
    check(&dir.path().join("a.db")).unwrap();
}

#[tokio::test]
async fn every_disagreement_is_named() {
    let dir = made().await;
    for (sql, names) in [
        // What is missing, or not as it should be.
        (
            "DELETE FROM ready WHERE task = (SELECT min(task) FROM ready)",
            "`ready`",
        ),
        ("UPDATE ready SET rank = rank - 1", "`ready`"),
        ("UPDATE ready SET class = class + 1", "`ready`"),
        ("UPDATE class SET type = 'other'", "`ready`"),
        (
            "DELETE FROM due WHERE at = (SELECT min(at) FROM due)",
            "`due`",
        ),
        ("UPDATE due SET at = at + 1", "`due`"),
        (
            "DELETE FROM idempotency WHERE key = 'key-1'",
            "`idempotency`",
        ),
        (
            "UPDATE idempotency SET key = 'other' WHERE key = 'key-1'",
            "`idempotency`",
        ),
        (
            "UPDATE idempotency SET task = task + 1 WHERE key = 'key-1'",
            "`idempotency`",
        ),
        (
            "DELETE FROM obligation WHERE receipt = (SELECT min(receipt) FROM obligation)",
            "`obligation`",
        ),
        ("UPDATE obligation SET owner = owner || 'x'", "`obligation`"),
        // What should not be there.
        (
            "INSERT INTO ready SELECT class, rank, task + 900 FROM ready LIMIT 1",
            "no such task",
        ),
        (
            "INSERT INTO ready SELECT class, rank - 1, task FROM ready LIMIT 1",
            "`ready`, row for",
        ),
        (
            "INSERT INTO due SELECT 77, min(task) FROM task",
            "`due`, row for place 1: the task",
        ),
        (
            "INSERT INTO idempotency SELECT tenant, owner, 'new', task FROM idempotency LIMIT 1",
            "`idempotency`, row for",
        ),
        (
            "INSERT INTO obligation SELECT owner, min(task) FROM task",
            "`obligation`, row for place 1: the task",
        ),
        // Counters.
        (
            "UPDATE tenant SET queued = queued + 1",
            "the counter of queued tasks is",
        ),
        (
            "UPDATE tenant SET leased = leased + 1",
            "the counter of leased tasks is",
        ),
        (
            "UPDATE tenant SET running = 0",
            "the counter of running tasks is 0, but there are 1",
        ),
        (
            "UPDATE tenant SET succeeded = -1",
            "the counter of succeeded tasks is",
        ),
        (
            "UPDATE tenant SET failed = failed + 1",
            "the counter of failed tasks is",
        ),
        (
            "UPDATE tenant SET canceled = canceled + 1",
            "the counter of canceled tasks is",
        ),
        // Rows.
        (
            "UPDATE task SET priority = priority + 1",
            "receipt 1 assigned: ",
        ),
        (
            "DELETE FROM task WHERE task = (SELECT min(task) FROM ready)",
            "the counter of queued",
        ),
    ] {
        let found = tampered(&dir, sql).expect_err(sql);
        assert!(found.contains(names), "{sql}: {found}");
    }
}

/// An index of SQLite that does not fit its table would hide tasks from lists.
#[tokio::test]
async fn every_index_of_a_list_is_compared_with_its_rows() {
    let (dir, messages) = (made().await, with_messages().await);
    for (dir, index, other) in [
        (&dir, "task_type", "task (owner)"),
        (&dir, "task_unsuccessful", "task (state) WHERE state > 3"),
        (&dir, "receipt_addressee", "receipt (addressee, type = 1)"),
        (&dir, "receipt_type", "receipt (type) WHERE type >= 0"),
        (
            &messages,
            "topic_shown",
            "topic (tenant, gone) WHERE dead >= 0",
        ),
    ] {
        let copy = dir.path().join("copy.db");
        std::fs::copy(dir.path().join("a.db"), &copy).unwrap();
        let conn = Connection::open(&copy).unwrap();
        let sql = format!("CREATE INDEX {index} ON {other}");
        conn.pragma_update(None, "writable_schema", true).unwrap();
        let change = "UPDATE sqlite_schema SET sql = ?1 WHERE name = ?2";
        assert_eq!(conn.execute(change, [&sql, index]).unwrap(), 1);
        drop(conn);
        let mut file = SqliteFile::open(&copy).unwrap();
        let found = file.check_pages(|| {}).expect_err(index).to_string();
        assert!(found.contains(index), "{index}: {found}");
    }
    let owner = "UPDATE receipt SET addressee = 'aother' WHERE type = 0 AND receipt = (SELECT min(task) FROM task)";
    let found = tampered(&dir, owner).unwrap_err();
    assert!(found.contains("`assignments`"), "{found}");
}

#[tokio::test]
async fn a_file_of_another_version_is_not_looked_at() {
    let dir = made().await;
    let path = dir.path().join("a.db");
    for version in [0, 33] {
        let conn = Connection::open(&path).unwrap();
        conn.pragma_update(None, "user_version", version).unwrap();
        drop(conn);
        let error = SqliteFile::open(&path).unwrap_err();
        assert!(matches!(error, OpenError::Schema(_)), "{error:?}");
    }
}

#[tokio::test]
async fn what_somebody_else_says_of_a_task_is_named_with_it() {
    let dir = made().await;
    let mut file = SqliteFile::open(&dir.path().join("a.db")).unwrap();
    let tenant = file.tenants().unwrap()[0];
    let mut of = None;
    let found = file.check_tasks(
        tenant,
        |task| {
            of = Some(task.id);
            Err("it looks wrong".to_owned())
        },
        |_| {},
    );
    let found = found.unwrap_err().to_string();
    assert!(found.contains(&of.unwrap().to_string()), "{found}");
    assert!(found.ends_with(": it looks wrong"), "{found}");
}

/// Beside a server that writes: one state is seen, and its log is never taken for damaged.
#[tokio::test]
async fn a_file_in_use_is_good_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    driver.create(echo()).await;
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let checks = std::thread::spawn({
        let (path, done) = (path.clone(), Arc::clone(&done));
        move || {
            let mut checks = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                check(&path).unwrap();
                checks += 1;
            }
            checks
        }
    });
    for n in 0..400 {
        driver.create(echo()).await;
        let (id, hold) = driver.lease().await;
        if n % 3 == 0 {
            driver.complete(&hold, id, proven()).await.unwrap();
        }
    }
    done.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(checks.join().unwrap() > 0);
}

#[tokio::test]
async fn a_damaged_log_is_refused_by_both_who_write_and_who_look() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    for _ in 0..10 {
        driver.create(echo()).await;
    }
    let copy = dir.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    let mut log = std::fs::read(dir.path().join("a.db-wal")).unwrap();
    let middle = log.len() / 2;
    log[middle] ^= 1;
    std::fs::write(dir.path().join("copy.db-wal"), &log).unwrap();
    let writer = SqliteStore::open(&copy, &Options::default()).unwrap_err();
    let reader = SqliteFile::open(&copy).unwrap_err();
    for error in [writer, reader] {
        assert!(matches!(error, OpenError::Log(_)), "{error:?}");
        let text = error.to_string();
        for part in ["copy.db-wal", "at frame", "commits", "copy", "truncate -s"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
    // The log was left alone, and a repaired one is taken.
    assert_eq!(std::fs::read(dir.path().join("copy.db-wal")).unwrap(), log);
    log[middle] ^= 1;
    std::fs::write(dir.path().join("copy.db-wal"), &log).unwrap();
    assert_eq!(open(&copy).ledger().await.len(), 10);
}

/// A file with messages of every kind in two topics.
async fn with_messages() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let driver = open(&dir.path().join("a.db"));
    let mut driver = MailDriver::new(driver);
    driver.policy.mailbox.max_attempts = 1;
    for key in ["acked", "dead", "held", "ready"] {
        driver.send(mail(key)).await;
    }
    let taken = driver
        .receive(Wish {
            max_messages: 3,
            ..ALL
        })
        .await;
    driver.ack(taken[0].id, None).await.unwrap();
    driver.give_back(taken[1].id, "no").await;
    let topic = "elsewhere".to_owned();
    driver
        .send(Outgoing {
            topic,
            ..mail("other")
        })
        .await;
    dir
}

/// Of a message that is gone, only the hashes are left.
fn agrees(message: &Message) -> Result<(), String> {
    let gone = message.standing().kind == Kind::Gone;
    match message.flaw() {
        Some(flaw) if !gone => Err(flaw.as_str().to_owned()),
        Some(_) | None => Ok(()),
    }
}

#[tokio::test]
async fn messages_are_given_in_order_and_their_counters_checked() {
    let dir = with_messages().await;
    let mut file = SqliteFile::open(&dir.path().join("a.db")).unwrap();
    let tenant = file.tenants().unwrap()[0];
    let (mut last, mut seen) = (None, 0);
    let told = |message: &Message| {
        assert!(last < Some(message.id.seq()));
        last = Some(message.id.seq());
        agrees(message)
    };
    file.check_messages(tenant, told, |messages| seen = messages)
        .unwrap();
    assert_eq!(seen, 5);
    let heads = file.chains(tenant).unwrap();
    assert_eq!(heads.values().map(|head| head.seq).sum::<u64>(), 5);
}

#[tokio::test]
async fn every_disagreement_about_messages_is_named() {
    let dir = with_messages().await;
    let cases = [
        (
            "UPDATE content SET payload = x'00' WHERE idem_key = 'ready'",
            "payload_hash",
        ),
        (
            "UPDATE topic SET ready = ready + 1",
            "the counters of topic",
        ),
        ("DELETE FROM topic", "topic of a message is not there"),
        ("UPDATE shard SET dead = dead + 1", "the counters of shard"),
        (
            "DELETE FROM content WHERE idem_key = 'held'",
            "`message` has 5",
        ),
        (
            "DELETE FROM message WHERE message IN (SELECT message FROM content WHERE idem_key = 'held')",
            "`content` has 5",
        ),
    ];
    for (sql, named) in cases {
        let copy = dir.path().join("copy.db");
        std::fs::copy(dir.path().join("a.db"), &copy).unwrap();
        let conn = Connection::open(&copy).unwrap();
        assert!(conn.execute(sql, []).unwrap() > 0, "{sql}");
        drop(conn);
        let mut file = SqliteFile::open(&copy).unwrap();
        let tenant = file.tenants().unwrap()[0];
        let found = file.check_messages(tenant, agrees, |_| ()).unwrap_err();
        assert!(found.to_string().contains(named), "{sql}: {found}");
    }
}
