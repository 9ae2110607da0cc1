//! Histories of tasks and receipts.

use std::{path::PathBuf, sync::Arc};

use asyncgate_store::{Store, conformance::Driver, memory::MemoryStore};
use proptest::prelude::*;

use crate::{
    TENANTS, compare, config,
    history::{Known, Step, step},
    open,
};

/// The two stores, driven alike.
struct Pair {
    memory: Vec<Driver>,
    durable: Vec<Driver>,
    path: PathBuf,
    known: Known,
}

impl Pair {
    fn new(path: PathBuf) -> Self {
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let durable = open(&path);
        let drivers = |store: &Arc<dyn Store>| -> Vec<Driver> {
            let of_tenant = |n| Driver::of_tenant(Arc::clone(store), n);
            (1..=TENANTS).map(of_tenant).collect()
        };
        Self {
            memory: drivers(&memory),
            durable: drivers(&durable),
            path,
            known: Known::default(),
        }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Wait(ms) => {
                for driver in self.memory.iter_mut().chain(&mut self.durable) {
                    driver.wait_ms(*ms);
                }
            }
            Step::Reopen => {
                self.durable.iter_mut().for_each(Driver::detach);
                let store = open(&self.path);
                for driver in &mut self.durable {
                    driver.attach(Arc::clone(&store));
                }
            }
            Step::Do { tenant, act } => {
                let tenant = tenant % usize::from(TENANTS);
                let (left, right) = (&mut self.memory[tenant], &mut self.durable[tenant]);
                let expected = act.run(left, &self.known.of(tenant)).await;
                let found = act.run(right, &self.known.of(tenant)).await;
                assert_eq!(found, expected, "{act:?}");
                compare::changes(&right.decided(), &left.decided());
                self.known.learn(tenant, &left.decided());
            }
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_store_does_what_memory_does(steps in proptest::collection::vec(step(), 1..150)) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut pair = Pair::new(dir.path().join("a.db"));
            for step in &steps {
                pair.step(step).await;
            }
            for (memory, durable) in pair.memory.iter().zip(&pair.durable) {
                compare::everything(durable, memory, &pair.known).await;
            }
        });
    }
}
