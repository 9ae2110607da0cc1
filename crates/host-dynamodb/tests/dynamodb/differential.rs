//! Compares the host with the rule, over random histories.

use std::sync::Arc;

use asyncgate_store::conformance::{Breadth, follow_history};
use futures_util::future::join_all;

use crate::emulators::{Emulator, Kind};

/// The histories that share a table and run at once. Few, because moto copies a table for every transaction.
const AT_ONCE: u64 = 8;

async fn compare(kind: Kind, histories: u64, breadth: Breadth) {
    let Some(emulator) = Emulator::start(kind).await else {
        return;
    };
    for first in (0..histories).step_by(AT_ONCE as usize) {
        let host = Arc::new(emulator.host().await);
        let histories = (first..first + AT_ONCE).map(|seed| {
            let host = Arc::clone(&host);
            tokio::spawn(follow_history(host, seed, breadth))
        });
        for outcome in join_all(histories).await {
            outcome.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_row_is_decided_as_by_the_rule() {
    compare(Kind::Dynalite, 160, Breadth::One).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_rows_are_decided_as_by_the_rule() {
    compare(Kind::Moto, 40, Breadth::Many).await;
}
