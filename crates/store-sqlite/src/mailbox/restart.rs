//! A start with sends to remember: the store is not ready before it knows them.

use std::sync::Arc;

use asyncgate_core::mailbox::{Outgoing, Policy};
use asyncgate_store::{
    Health, Store as _,
    conformance::{Driver, MailDriver, mail},
    mailbox::Mailbox as _,
};

use crate::{Options, SqliteStore};

#[tokio::test]
async fn a_store_is_not_ready_before_it_knows_the_sends_of_the_window() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let open = || Arc::new(SqliteStore::open(&path, &Options::default()).unwrap());
    let first = open();
    assert_eq!(first.health(), Health::Ready, "there is nothing to read");
    let mut driver = MailDriver::new(Driver::new(first.clone()));
    let outgoing = |n: usize| Outgoing {
        topic: n.to_string(),
        ..mail(&n.to_string())
    };
    let sent = driver.send_all((0..1_000).map(outgoing).collect()).await;
    assert!(sent.iter().all(Result::is_ok));
    driver.detach();
    drop(first);

    let window_ms = Policy::default().t_replay_ms;
    for window_ms in [window_ms, 2 * window_ms] {
        let store = open();
        store.set_replay_window(window_ms);
        while let Health::Failing(reason) = store.health() {
            assert!(reason.contains("read back"), "{reason}");
            tokio::task::yield_now().await;
        }
        let known = store.writer.shared.remembered().clone();
        let known = known.map(|known| known.values().sum::<u64>());
        assert_eq!(known, Some(1_000), "it is ready, so it must know them");
        driver.attach(store.clone());
        let again = driver.try_send(outgoing(7)).await.unwrap();
        assert!(again.duplicate);
        driver.detach();
        drop(store);
    }
}
