//! Compares the scripts with the rule that they copy, over random histories.

use std::sync::Arc;

use asyncgate_host_redis::RedisHost;
use asyncgate_store::conformance::{Breadth, follow_history};
use futures_util::future::join_all;

use crate::servers::{Server, available};

const HISTORIES: u64 = 800;

#[tokio::test(flavor = "multi_thread")]
async fn the_script_equals_the_rule() {
    if !available() {
        return;
    }
    let server = Server::start(&[]).await;
    let host = Arc::new(RedisHost::simulated(server.address()).unwrap());
    for first in (0..HISTORIES).step_by(50) {
        let histories = (first..first + 50).map(|seed| {
            let host = Arc::clone(&host);
            tokio::spawn(follow_history(host, seed, Breadth::Many))
        });
        for outcome in join_all(histories).await {
            outcome.unwrap();
        }
    }
}
