//! The in-memory store is the reference, so it passes the conformance suite too.

use std::sync::Arc;

use asyncgate_store::{conformance, memory::MemoryStore};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_conforms() {
    conformance::exercise(|| Arc::new(MemoryStore::new())).await;
}
