//! A file of schema version 4, which has partition keys but delivers the messages of one key in any
//! order: it is brought up to date, and from then on they come one at a time.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{path::Path, sync::Arc};

use asyncgate_core::mailbox::{Kind, Message, Nack, Outgoing, State};
use asyncgate_store::conformance::{ALL, Driver, MailDriver, mail};
use asyncgate_store_sqlite::{Options, SqliteFile, SqliteStore};
use rusqlite::Connection;
use tempfile::TempDir;

fn open(path: &Path) -> MailDriver {
    let store = SqliteStore::open(path, &Options::default()).unwrap();
    MailDriver::new(Driver::new(Arc::new(store)))
}

/// Takes a file back to version 4, with its messages as that version would have them.
fn take_back(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(include_str!("undo/version_6.sql"))
        .unwrap();
    conn.execute_batch(
        "DROP INDEX message_partition;
         UPDATE content SET partition_key =
             (SELECT m.partition_key FROM message m WHERE m.message = content.message);
         UPDATE message SET state = 0 WHERE state = 1 AND blocked = 1 AND until <= since;
         UPDATE message SET until = NULL WHERE state = 0;
         ALTER TABLE message DROP COLUMN blocked;
         ALTER TABLE message DROP COLUMN partition_key;
         UPDATE topic SET ready = (SELECT count(*) FROM message m WHERE m.topic = topic.topic AND state = 0),
                          delayed = (SELECT count(*) FROM message m WHERE m.topic = topic.topic AND state = 1);
         UPDATE shard SET
             ready = (SELECT count(*) FROM message m JOIN content c USING (message)
                      WHERE m.message >> 44 = shard.tenant AND c.shard = shard.shard AND state = 0),
             delayed = (SELECT count(*) FROM message m JOIN content c USING (message)
                        WHERE m.message >> 44 = shard.tenant AND c.shard = shard.shard AND state = 1);
         PRAGMA user_version = 4;",
    )
    .unwrap();
}

/// Checks the messages as `asyncgate verify --data-dir` does.
fn verify(path: &Path) {
    let mut file = SqliteFile::open(path).unwrap();
    for tenant in file.tenants().unwrap() {
        file.check_messages(tenant, |_| Ok(()), |_| {}).unwrap();
    }
}

fn keyed(key: &str, partition: &str) -> Outgoing {
    Outgoing {
        partition_key: Some(partition.to_owned()),
        ..mail(key)
    }
}

fn keys(messages: &[Message]) -> Vec<&str> {
    let keys = messages.iter().map(|message| &*message.idem_key);
    keys.collect()
}

/// A file in which messages of the keys `k` and `held` wait, one of `held` with a receiver.
async fn old_file() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut driver = open(&path);
    for n in 1..4 {
        driver.send(keyed(&format!("k {n}"), "k")).await;
    }
    let delayed = Outgoing {
        delay_ms: 60_000,
        ..keyed("k later", "k")
    };
    driver.send(delayed).await;
    driver.send(mail("none 1")).await;
    driver.send(mail("none 2")).await;
    let taken = driver.receive(ALL).await;
    let first = taken.iter().find(|message| &*message.idem_key == "k 1");
    let back = Nack {
        delay_ms: Some(0),
        ..Nack::default()
    };
    driver.nack(first.unwrap().id, None, back).await.unwrap();
    for message in taken
        .iter()
        .filter(|message| message.partition_key.is_none())
    {
        driver
            .nack(
                message.id,
                None,
                Nack {
                    delay_ms: Some(0),
                    ..Nack::default()
                },
            )
            .await
            .unwrap();
    }
    driver
        .send(Outgoing {
            topic: "outbox".to_owned(),
            ..keyed("held 1", "held")
        })
        .await;
    driver.receive_from("outbox", ALL).await.unwrap();
    driver
        .send(Outgoing {
            topic: "outbox".to_owned(),
            ..keyed("held 2", "held")
        })
        .await;
    drop(driver);
    take_back(&path);
    dir
}

#[tokio::test]
async fn messages_of_one_key_come_in_order_once_the_file_is_up_to_date() {
    let dir = old_file().await;
    let path = dir.path().join("a.db");
    verify(&path);
    let mut driver = open(&path);
    let (mailbox, tenant) = (driver.mailbox(), driver.tenant);
    let topics = mailbox.topics(tenant, None, 9).await.unwrap();
    let counts = |n: usize, kind| topics[n].counts.of(kind);
    assert_eq!((counts(0, Kind::Ready), counts(0, Kind::Delayed)), (3, 3));
    assert_eq!((counts(1, Kind::Leased), counts(1, Kind::Delayed)), (1, 1));
    let load = mailbox.load(driver.now).await.unwrap();
    let shards = load.shards.values();
    assert_eq!(shards.map(|shard| shard.of(Kind::Ready)).sum::<u64>(), 3);
    let taken = driver.receive(ALL).await;
    assert_eq!(keys(&taken), ["k 1", "none 1", "none 2"]);
    assert!(
        driver
            .receive_from("outbox", ALL)
            .await
            .unwrap()
            .messages
            .is_empty()
    );
    let mut next = taken[0].id;
    for key in ["k 2", "k 3"] {
        driver.ack(next, None).await.unwrap();
        let taken = driver.receive(ALL).await;
        assert_eq!(keys(&taken), [key]);
        next = taken[0].id;
    }
    driver.ack(next, None).await.unwrap();
    let last = driver.messages().await;
    let last = last.iter().find(|message| &*message.idem_key == "k later");
    assert!(matches!(last.unwrap().state, State::Delayed { .. }));
    driver.detach();
    verify(&path);
}
