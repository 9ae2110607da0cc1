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
mod mailbox;

use std::{path::PathBuf, sync::Arc};

use asyncgate_store::{Store, conformance::Driver, memory::MemoryStore};
use asyncgate_store_sqlite::{Options, SqliteStore};
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;

use crate::history::{Known, Step, step};

const TENANTS: u8 = 2;

/// The two stores, driven alike.
struct Pair {
    memory: Vec<Driver>,
    sqlite: Vec<Driver>,
    path: PathBuf,
    known: Known,
}

impl Pair {
    fn new(path: PathBuf) -> Self {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let sqlite = open(&path);
        let drivers = |store: &Arc<dyn Store>| -> Vec<Driver> {
            let of_tenant = |n| Driver::of_tenant(Arc::clone(store), n);
            (1..=TENANTS).map(of_tenant).collect()
        };
        Self {
            memory: drivers(&memory),
            sqlite: drivers(&sqlite),
            path,
            known: Known::default(),
        }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => {
                for driver in self.memory.iter_mut().chain(&mut self.sqlite) {
                    driver.wait_ms(*ms);
                }
            }
            Step::Reopen => {
                self.sqlite.iter_mut().for_each(Driver::detach);
                let store = open(&self.path);
                for driver in &mut self.sqlite {
                    driver.attach(Arc::clone(&store));
                }
            }
            Step::Do { tenant, act } => {
                let tenant = tenant % usize::from(TENANTS);
                let (left, right) = (&mut self.memory[tenant], &mut self.sqlite[tenant]);
                let expected = act.run(left, &self.known.of(tenant)).await;
                let found = act.run(right, &self.known.of(tenant)).await;
                assert_eq!(found, expected, "{act:?}");
                compare::changes(&right.decided(), &left.decided());
                self.known.learn(tenant, &left.decided());
            }
        }
    }
}

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

proptest! {
    #![proptest_config(config())]

    #[test]
    fn sqlite_does_what_memory_does(steps in proptest::collection::vec(step(), 1..150)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new(dir.path().join("a.db"));
            for step in &steps {
                pair.step(step).await;
            }
            for (memory, sqlite) in pair.memory.iter().zip(&pair.sqlite) {
                compare::everything(sqlite, memory, &pair.known).await;
            }
        });
    }
}
