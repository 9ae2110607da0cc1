//! The same random histories that other stores are tested with, on the memory store and on PostgreSQL, compared answer
//! by answer and, at the end, read by read.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, in its helpers too, and says what it skips"
)]

#[path = "../../../store-sqlite/tests/differential/admission.rs"]
mod admission;
#[path = "../../../store-sqlite/tests/differential/compare.rs"]
mod compare;
#[path = "../../../store-sqlite/tests/differential/history.rs"]
mod history;
#[path = "../../../store-sqlite/tests/differential/identity.rs"]
mod identity;
#[path = "../../../store-sqlite/tests/differential/mailbox.rs"]
mod mailbox;
#[path = "../../../store-sqlite/tests/differential/pair.rs"]
mod pair;
#[path = "../postgres/server.rs"]
#[expect(dead_code, reason = "other tests need more of it")]
mod server;

use std::{
    cell::RefCell,
    collections::HashMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use asyncgate_store::{Store, memory::MemoryStore};
use asyncgate_store_postgres::{Options, PostgresStore};
use proptest::prelude::*;

use crate::server::Server;

const TENANTS: u8 = 2;

/// Where the histories of this thread are, by the path that a file would have.
#[derive(Default)]
struct Histories {
    /// Absent if there is no PostgreSQL here. The last thread that has it ends the server.
    server: Option<Arc<Server>>,
    databases: HashMap<PathBuf, String>,
    memory: HashMap<PathBuf, Arc<dyn Store>>,
}

thread_local! {
    static HISTORIES: RefCell<Histories> = RefCell::new(Histories {
        server: Server::shared(),
        ..Histories::default()
    });
}

/// Opens the database of a history. Without PostgreSQL, memory is compared with itself.
fn open(path: &Path) -> Arc<dyn Store> {
    HISTORIES.with_borrow_mut(|histories| {
        let path = path.to_owned();
        let Some(server) = &histories.server else {
            let store = histories.memory.entry(path);
            return Arc::clone(store.or_insert_with(|| Arc::new(MemoryStore::new())));
        };
        let address = histories.databases.entry(path);
        let address = address.or_insert_with(|| server.database());
        let options = Options {
            // A few tasks at most: what is remembered and what is asked for must be alike.
            max_hot_bytes: 8 << 10,
            readers: 1,
            shards: 8,
            ..Options::default()
        };
        Arc::new(PostgresStore::open(address, &options).unwrap())
    })
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 24,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
