//! The conformance suite that every host passes. The callers' clocks count here, so that no case is left out.

use std::sync::Arc;

use asyncgate_host_redis::RedisHost;
use asyncgate_store::{admission::Host, conformance::exercise_host};

use crate::servers::{Server, address, available, cluster};

#[tokio::test(flavor = "multi_thread")]
async fn one_server_conforms() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    exercise_host(|| Arc::new(RedisHost::simulated(server.address()).unwrap()) as Arc<dyn Host>)
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_conforms() {
    if !available() {
        return;
    }
    let servers = cluster().await;
    let seed = format!("redis+cluster://127.0.0.1:{}", servers[0].port);
    exercise_host(|| Arc::new(RedisHost::simulated(address(&seed)).unwrap()) as Arc<dyn Host>)
        .await;
}
