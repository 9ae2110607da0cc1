//! The same random history on the memory store and on SQLite, compared answer by answer and, at the
//! end, read by read. A failing run prints the shortest history it found, and keeps its seed.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

mod admission;
mod compare;
mod history;
mod identity;
mod little_room;
mod mailbox;
mod pair;

use std::sync::Arc;

use asyncgate_store::Store;
use asyncgate_store_sqlite::{Options, SqliteStore};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

const TENANTS: u8 = 2;

fn open(path: &std::path::Path) -> Arc<dyn Store> {
    let options = Options {
        readers: 1,
        // A few tasks at most: what is remembered and what is read again must be alike.
        max_hot_bytes: 8 << 10,
        ..Options::default()
    };
    Arc::new(SqliteStore::open(path, &options).unwrap())
}

fn config() -> ProptestConfig {
    ProptestConfig {
        // Each history makes some eighty commits; this many take a few seconds.
        cases: 48,
        max_shrink_iters: 400,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}
