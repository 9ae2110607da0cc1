//! Everything that a store must do.

use std::sync::Arc;

use asyncgate_store::conformance;
use asyncgate_store_postgres::{Options, PostgresStore};

use crate::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_conforms() {
    let Some(server) = Server::shared() else {
        return;
    };
    conformance::exercise(|| {
        let address = server.database();
        Arc::new(PostgresStore::open(&address, &Options::default()).unwrap())
    })
    .await;
}
