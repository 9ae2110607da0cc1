//! The SQLite store passes the suite that every backend passes.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use asyncgate_store::conformance;
use asyncgate_store_sqlite::{Options, SqliteStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_store_conforms() {
    let dir = tempfile::tempdir().unwrap();
    let files = AtomicU32::new(0);
    conformance::exercise(|| {
        let file = files.fetch_add(1, Ordering::Relaxed);
        let path = dir.path().join(format!("{file}.db"));
        Arc::new(SqliteStore::open(&path, &Options::default()).unwrap())
    })
    .await;
}
