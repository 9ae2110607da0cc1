//! Rows that went bad: nobody is told something wrong, and nobody else has to wait.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::{
    Principal, Reach, TaskId,
    task::{Contract, NewTask},
};
use asyncgate_store::{
    Error, Store, TaskFilter,
    conformance::{Driver, agent, bare, echo, failure, json},
};
use asyncgate_store_sqlite::{Options, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, &Options::default()).unwrap())
}

/// A store whose file can be tampered with.
struct Bench {
    dir: TempDir,
    driver: Driver,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let driver = Driver::new(open(&dir.path().join("a.db")));
        Self { dir, driver }
    }

    fn tamper(&mut self, tamper: impl FnOnce(&Connection)) {
        self.driver.detach();
        let path = self.dir.path().join("a.db");
        tamper(&Connection::open(&path).unwrap());
        self.driver.attach(open(&path));
    }

    async fn task(&self, id: TaskId) -> Result<(), Error> {
        let found = self.driver.store().task(self.driver.tenant, id).await?;
        assert_eq!(found.map(|task| task.id), Some(id));
        Ok(())
    }

    #[track_caller]
    fn rows(&self, sql: &str) -> i64 {
        let conn = Connection::open(self.dir.path().join("a.db")).unwrap();
        conn.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

fn full(large: bool) -> NewTask {
    let size = if large { 10_000 } else { 10 };
    NewTask {
        payload: json(&format!("\"{}\"", "x".repeat(size))),
        payload_pointer: Some("s3://here".to_owned()),
        idempotency_key: Some(format!("key-{large}")),
        expected_outcome_kind: Some("report".to_owned()),
        expected_artifact_mime: Some("text/plain".to_owned()),
        contract: Contract {
            instructions: Some("x".repeat(size)),
            ..Contract::default()
        },
        ..echo()
    }
}

/// Another value of the same sort.
const OTHER: &str = "CASE typeof({}) WHEN 'integer' THEN {} + 1 WHEN 'blob' THEN x'00' || {}
                     WHEN 'text' THEN iif({} LIKE '%x%', replace({}, 'x', 'y'), '1' || {}) ELSE 1 END";

#[tokio::test]
async fn every_changed_column_is_found() {
    let mut bench = Bench::new();
    let driver = &mut bench.driver;
    let small = driver.create(full(false)).await;
    let large = driver.create(full(true)).await;
    let (held, hold) = driver.lease().await;
    driver.progress(&hold, held, json("[1]")).await.unwrap();
    let (other, hold) = driver.lease().await;
    driver.complete(&hold, other, bare()).await.unwrap();
    let failed = driver.create(echo()).await;
    let (_, hold) = driver.lease().await;
    driver.fail(&hold, failed, failure(false)).await.unwrap();
    let waiting = driver.create(echo()).await;

    let places = [small, large, failed, waiting].map(|id| 1_i64 << 44 | id.seq() as i64);
    let mut columns = Vec::new();
    bench.tamper(|conn| {
        let mut names = conn
            .prepare("SELECT name FROM pragma_table_info('task')")
            .unwrap();
        let names = names.query_map([], |row| row.get(0)).unwrap();
        columns = names.map(Result::unwrap).collect::<Vec<String>>();
    });
    assert_eq!(columns.len(), 39);
    let changes = columns[1..].iter().map(|column| ("task", column.as_str()));
    for (table, column) in
        changes.chain([("large_payload", "payload"), ("large_contract", "contract")])
    {
        bench.tamper(|conn| {
            let other = OTHER.replace("{}", column);
            conn.execute_batch(&format!(
                "CREATE TABLE kept AS SELECT task, {column} AS kept FROM {table};
                 UPDATE {table} SET {column} = {other};"
            ))
            .unwrap();
            assert!(places.iter().all(|place| {
                let sql = "SELECT count(*) FROM task WHERE task = ?1";
                conn.query_row(sql, [place], |row| row.get::<_, i64>(0)) == Ok(1)
            }));
        });
        for id in [small, large, failed, waiting] {
            let found = bench.task(id).await;
            let right = match found {
                Ok(()) => table != "task" && id != large,
                Err(Error::Corrupt(_)) => true,
                Err(_) => false,
            };
            assert!(right, "{table}.{column}: {found:?}");
        }
        let list = TaskFilter {
            limit: 10,
            ..TaskFilter::default()
        };
        let listed = bench.driver.store().tasks(bench.driver.tenant, list).await;
        assert!(
            matches!(listed, Err(Error::Corrupt(_))),
            "{column}: {listed:?}"
        );
        bench.tamper(|conn| {
            conn.execute_batch(&format!(
                "UPDATE {table} SET {column} =
                     (SELECT kept FROM kept WHERE kept.task = {table}.task);
                 DROP TABLE kept;"
            ))
            .unwrap();
        });
    }
    for id in [small, large, failed, waiting] {
        bench.task(id).await.unwrap();
    }
    bench.tamper(|conn| {
        let sql = "UPDATE instance SET name = 'other'";
        assert_eq!(conn.execute(sql, []), Ok(1));
    });
    assert!(matches!(bench.task(small).await, Err(Error::Corrupt(_))));
}

#[tokio::test]
async fn a_damaged_task_does_not_stand_in_the_way() {
    let mut bench = Bench::new();
    let urgent = |priority| NewTask {
        priority: Some(priority),
        ..echo()
    };
    let first = bench.driver.create(urgent(9)).await;
    let second = bench.driver.create(urgent(8)).await;
    let third = bench.driver.create(urgent(7)).await;
    let fourth = bench.driver.create(urgent(6)).await;
    bench.tamper(|conn| {
        for task in [first, third] {
            let sql = "UPDATE task SET priority = priority + 1 WHERE task_id = ?1";
            assert_eq!(conn.execute(sql, [task.as_bytes()]), Ok(1));
        }
    });
    let taken = bench.driver.claim(Reach::default(), 1).await;
    assert_eq!(
        taken.iter().map(|task| task.id).collect::<Vec<_>>(),
        [second]
    );
    let taken = bench.driver.claim(Reach::default(), 9).await;
    assert_eq!(
        taken.iter().map(|task| task.id).collect::<Vec<_>>(),
        [fourth]
    );
    assert!(bench.driver.claim(Reach::default(), 9).await.is_empty());
    assert_eq!(bench.rows("SELECT count(*) FROM ready"), 0);
    for (id, good) in [(first, false), (second, true), (third, false)] {
        assert_eq!(bench.task(id).await.is_ok(), good);
    }
}

/// The index names tasks that are not there, or not ready.
#[tokio::test]
async fn a_damaged_index_does_not_stand_in_the_way() {
    let mut bench = Bench::new();
    let leased = bench.driver.create(echo()).await;
    bench.driver.lease().await;
    let ready = bench.driver.create(echo()).await;
    bench.tamper(|conn| {
        let place = 1_i64 << 44;
        for task in [place, place | leased.seq() as i64] {
            let sql = "INSERT INTO ready SELECT class, rank - 1, ?1 FROM ready LIMIT 1";
            assert_eq!(conn.execute(sql, [task]), Ok(1));
        }
    });
    let taken = bench.driver.claim(Reach::default(), 1).await;
    assert_eq!(
        taken.iter().map(|task| task.id).collect::<Vec<_>>(),
        [ready]
    );
    assert_eq!(bench.rows("SELECT count(*) FROM ready"), 0);
}

#[tokio::test]
async fn an_idempotency_key_never_stands_for_another_task() {
    let mut bench = Bench::new();
    bench.driver.create(full(false)).await;
    let other = bench.driver.create(echo()).await;
    bench.tamper(|conn| {
        let sql = "UPDATE idempotency SET task = ?1";
        assert_eq!(conn.execute(sql, [1_i64 << 44 | other.seq() as i64]), Ok(1));
    });
    let key = asyncgate_store::IdempotencyKey {
        owner: Principal::key(&agent("alice")),
        key: "key-false".to_owned(),
    };
    let job = asyncgate_store::Job::<asyncgate_store::Tasks> {
        tenant: bench.driver.tenant,
        reads: asyncgate_store::ReadSet {
            keyed: vec![key],
            ..Default::default()
        },
        now: bench.driver.now,
        weight: 0,
        decide: Box::new(|_, _| None),
    };
    let answered = bench.driver.store().transact(job.into()).await;
    assert!(matches!(answered, Err(Error::Corrupt(_))), "{answered:?}");
}
