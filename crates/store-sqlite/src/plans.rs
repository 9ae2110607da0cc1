//! The conformance suite, and the plans of SQLite in it: no statement looks through a table or sorts rows, except those
//! that are named here.
//!
//! The connections of the suite note their statements. It exercises all that a store does, so a new statement is checked
//! here as soon as it has a case there.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use asyncgate_store::conformance;
use rusqlite::{
    Connection, Result,
    trace::{TraceEvent, TraceEventCodes},
};

use crate::{
    Options, SqliteStore,
    db::{Db, Use},
    schema,
};

/// The name of the suite's directory begins so. Other tests run in the same process, with statements of their own.
const DIRECTORY: &str = "asyncgate-plans-";

static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// Returns the connection. If it is one of the suite's, its statements are noted from here on.
pub(crate) fn recorded(mut conn: Connection) -> Result<Connection> {
    if !conn.path().is_some_and(|path| path.contains(DIRECTORY)) {
        return Ok(conn);
    }
    let note = |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(statement, _) = event {
            let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
            seen.insert(statement.sql().to_string());
        }
    };
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(note))?;
    Ok(conn)
}

/// Returns the steps that SQLite would take for a statement.
pub(crate) fn plan(db: &Db, sql: &str) -> Vec<String> {
    let mut explain = db
        .conn
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .unwrap();
    let unbound = vec![rusqlite::types::Null; explain.parameter_count()];
    let rows = explain.query_map(rusqlite::params_from_iter(unbound), |row| row.get(3));
    rows.unwrap().map(|step| step.unwrap()).collect()
}

/// The beginnings of the statements that may look at a whole table, and why.
const WHOLE_TABLES: [(&str, &str); 12] = [
    ("SELECT EXISTS (SELECT 1 FROM content)", "one row is enough"),
    ("SELECT cells FROM clock", "it has one row"),
    ("SELECT last_time FROM clock", "it has one row"),
    ("UPDATE clock SET last_time", "it has one row"),
    ("SELECT class, tenant, type", "once, at the first claim"),
    ("SELECT c.tenant, c.type", "once, at the first create"),
    ("SELECT d.task, t.type", "once, at the first create"),
    ("SELECT ready, delayed, leased", "once, at the first send"),
    ("SELECT s.ready, s.delayed", "few rows for each tenant"),
    (
        "SELECT count(*), count(died_at) FROM outbox",
        "what is delivered leaves it",
    ),
    ("SELECT sum(queued)", "one row for each tenant"),
    ("SELECT tenant FROM tenant", "one row for each tenant"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms_and_no_statement_looks_through_a_table() {
    let dir = tempfile::Builder::new()
        .prefix(DIRECTORY)
        .tempdir()
        .unwrap();
    let files = AtomicU32::new(0);
    conformance::exercise(|| {
        let file = files.fetch_add(1, Ordering::Relaxed);
        let path = dir.path().join(format!("{file}.db"));
        Arc::new(SqliteStore::open(&path, &Options::default()).unwrap())
    })
    .await;
    let seen = std::mem::take(&mut *SEEN.lock().unwrap());
    assert!(seen.len() > 80, "{} statements", seen.len());
    let mut db = Db::open(&dir.path().join("plans.db"), Use::Write).unwrap();
    schema::migrate(&mut db.conn).unwrap();
    let is_migration = |sql: &str| schema::MIGRATIONS.iter().any(|step| step.contains(sql));
    let (mut wrong, mut named) = (Vec::new(), BTreeSet::new());
    for sql in seen.iter().filter(|sql| !is_migration(sql)) {
        let steps = plan(&db, sql);
        let is_whole = |step: &&String| step.starts_with("SCAN") || step.contains("TEMP B-TREE");
        let Some(step) = steps.iter().find(is_whole) else {
            continue;
        };
        let (sql, mut names) = (one_line(sql), WHOLE_TABLES.iter());
        match names.find(|(begins, _)| sql.starts_with(begins)) {
            Some((begins, _)) => drop(named.insert(*begins)),
            None => wrong.push(format!("{step}: {sql}")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(named.len(), WHOLE_TABLES.len(), "only {named:?} are needed");
}

fn one_line(sql: &str) -> String {
    sql.split_whitespace().collect::<Vec<_>>().join(" ")
}
