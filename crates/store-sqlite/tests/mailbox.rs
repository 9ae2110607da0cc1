//! Messages in the file: what a restart keeps, and what a failed commit takes back.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
};

use asyncgate_core::{
    TenantId, Timestamp,
    mailbox::{Changes, Decision, Kind, Outgoing, Rejection, send},
};
use asyncgate_store::{
    Answer, Error, Job, Messages, Store,
    conformance::{ALL, Driver, MailDriver, dead, mail, of_topic},
    mailbox::{DeadFilter, Load, Reads, Snapshot},
};
use asyncgate_store_sqlite::{Options, SqliteStore};
use futures_util::{FutureExt, future::join_all};
use tempfile::TempDir;

const T_REPLAY: i64 = 300_000;

fn open(path: &Path) -> Arc<dyn Store> {
    Arc::new(SqliteStore::open(path, &Options::default()).unwrap())
}

fn start() -> (TempDir, PathBuf, MailDriver) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let driver = MailDriver::new(Driver::new(open(&path)));
    (dir, path, driver)
}

/// Closes the file and opens it again, as a restart would.
fn reopen(driver: &mut MailDriver, path: &Path) {
    driver.detach();
    driver.attach(open(path));
}

#[tokio::test]
async fn repeated_sends_are_recognised_after_a_restart() {
    let (_dir, path, mut driver) = start();
    driver.policy.mailbox.max_attempts = 1;
    for key in ["ready", "acked", "dead", "purged"] {
        driver.send(mail(key)).await;
    }
    let taken = driver.receive(ALL).await;
    driver.ack(taken[1].id, None).await.unwrap();
    driver.give_back(taken[2].id, "no").await;
    driver.give_back(taken[3].id, "purge").await;
    let last = DeadFilter {
        reason: Some("purge".to_owned()),
        ..dead(None)
    };
    assert_eq!(driver.purge_dead(last).await, 1);
    let mut other = driver.other(2);
    other.send(mail("theirs")).await;
    drop(other);
    driver.wait_ms(T_REPLAY - 1);
    for _ in 0..2 {
        reopen(&mut driver, &path);
        let load = driver.mailbox().load(driver.now).await.unwrap();
        assert_eq!(load.remembered(), 5, "before anything is written");
        for (key, message) in ["ready", "acked", "dead", "purged"].iter().zip(&taken) {
            let again = driver.try_send(mail(key)).await.unwrap();
            assert!(again.duplicate && again.id == message.id, "{key}");
            let changed = Outgoing {
                payload: "other".into(),
                ..mail(key)
            };
            let msg_id = message.id;
            let refused = driver.try_send(changed).await;
            assert_eq!(refused, Err(Rejection::IdemConflict { msg_id }));
        }
        assert_eq!(
            driver
                .look(Reads::default())
                .await
                .send_context
                .remembered
                .total,
            5
        );
    }
    driver.wait_ms(1);
    reopen(&mut driver, &path);
    assert_eq!(
        driver
            .look(Reads::default())
            .await
            .send_context
            .remembered
            .total,
        0
    );
    for key in ["ready", "acked", "dead", "purged"] {
        driver.send(mail(key)).await;
    }
}

#[tokio::test]
async fn a_window_that_was_set_longer_is_read_back_in_full() {
    let (_dir, path, mut driver) = start();
    let id = driver.send(mail("a")).await;
    driver.policy.mailbox.t_replay_ms = 10 * T_REPLAY;
    driver.wait_ms(10 * T_REPLAY - 1);
    reopen(&mut driver, &path);
    driver.mailbox().set_replay_window(10 * T_REPLAY);
    assert_eq!(driver.try_send(mail("a")).await.unwrap().id, id);
}

#[tokio::test]
async fn a_delivery_goes_on_after_a_restart() {
    let (_dir, path, mut driver) = start();
    for key in ["acked", "late", "timed out"] {
        driver.send(mail(key)).await;
    }
    let taken = driver.receive(ALL).await;
    let lease = |n: usize| taken[n].delivery.map(|delivery| delivery.lease);
    driver.wait_ms(1_000);
    reopen(&mut driver, &path);
    assert!(
        driver.receive(ALL).await.is_empty(),
        "they are with a receiver"
    );
    assert_eq!(driver.look(Reads::default()).await.inflight.own, 3);
    driver.ack(taken[0].id, lease(0)).await.unwrap();
    driver.extend(taken[1].id, lease(1), 10_000).await.unwrap();
    reopen(&mut driver, &path);
    assert!(driver.ack(taken[0].id, lease(0)).await.unwrap().repeated);
    driver.wait_ms(4_000);
    let next = driver.mailbox().next_message_due().await.unwrap();
    assert_eq!(next, Some(driver.now));
    assert_eq!(driver.sweep_mail().await.timed_out.len(), 1);
    let again = driver.receive(ALL).await;
    assert_eq!((again[0].id, again[0].attempt), (taken[2].id, 2));
    reopen(&mut driver, &path);
    let stale = driver.ack(taken[2].id, lease(2)).await;
    assert_eq!(stale, Err(Rejection::StaleLease));
    driver.ack(taken[1].id, lease(1)).await.unwrap();
}

#[tokio::test]
async fn chains_places_and_counts_go_on_after_a_restart() {
    let (_dir, path, mut driver) = start();
    driver.policy.mailbox.max_attempts = 1;
    for n in 0..30 {
        let key = n.to_string();
        driver
            .send(Outgoing {
                topic: format!("t{}", n % 5),
                delay_ms: n % 2 * 1_000,
                ..mail(&key)
            })
            .await;
        if n % 7 == 0 {
            let topic = format!("t{}", n % 5);
            for message in driver.receive_from(&topic, ALL).await.unwrap().messages {
                driver.give_back(message.id, "no").await;
            }
        }
        let everything = |driver: MailDriver| async move {
            let (mailbox, tenant) = (driver.mailbox(), driver.tenant);
            let load: Load = mailbox.load(driver.now).await.unwrap();
            let seen = (
                driver.messages().await,
                mailbox.chains(tenant).await.unwrap(),
                mailbox.topics(tenant, None, 99).await.unwrap(),
                driver.dead_letters(dead(None)).await,
                (load, driver.look(Reads::default()).await.send_context.head),
            );
            (driver, seen)
        };
        let (same, before) = everything(driver).await;
        driver = same;
        reopen(&mut driver, &path);
        let (same, after) = everything(driver).await;
        driver = same;
        assert_eq!(before, after);
    }
    let mut heads = std::collections::BTreeMap::new();
    for message in driver.messages().await {
        let head: &mut asyncgate_core::mailbox::ChainHead = heads.entry(message.shard).or_default();
        assert_eq!((head.seq + 1, head.link), (message.chain_seq, message.prev));
        *head = head.then(&message.hash_chain);
    }
    let chains = driver.mailbox().chains(driver.tenant).await.unwrap();
    assert_eq!(chains, heads);
}

/// The last place must not be given out again because its message is forgotten.
#[tokio::test]
async fn places_are_not_given_out_twice_over_a_restart() {
    let (_dir, path, mut driver) = start();
    for n in 1..4 {
        let id = driver.send(mail("a")).await;
        assert_eq!(id.seq(), n);
        driver.purge_waiting("inbox", 9).await;
        driver.wait_ms(T_REPLAY);
        driver.sweep_mail().await;
        assert!(driver.messages().await.is_empty());
        reopen(&mut driver, &path);
    }
}

/// Holds the writer inside a decision until it is let go, so that what is submitted meanwhile
/// shares one commit.
struct Held<'a> {
    let_go: mpsc::Sender<()>,
    answer: Answer<'a, ()>,
}

impl<'a> Held<'a> {
    fn hold(store: &'a dyn Store) -> Self {
        let (let_go, held) = mpsc::channel::<()>();
        let (reached, reaches) = mpsc::channel();
        let mut hold = Some((reached, held));
        let holding = job(move |_| {
            if let Some((reached, held)) = hold.take() {
                reached.send(()).unwrap();
                held.recv().unwrap();
            }
            None
        });
        let answer = store.transact(holding.into());
        reaches.recv().unwrap();
        Self { let_go, answer }
    }

    async fn release(self) {
        self.let_go.send(()).unwrap();
        self.answer.await.unwrap();
    }
}

fn job(mut decide: impl FnMut(Snapshot) -> Option<Changes> + Send + 'static) -> Job<Messages> {
    Job {
        tenant: TenantId::from_bytes([1; 16]),
        reads: Reads::default(),
        now: Timestamp::from_millis(1_767_610_800_000),
        weight: 0,
        decide: Box::new(move |_, snapshot| decide(snapshot)),
    }
}

/// Sends messages and then fails, as if the file had refused one of them.
async fn send_and_fail(driver: &mut MailDriver, outgoing: Vec<Outgoing>) -> Result<(), Error> {
    let reads = Reads {
        sends: driver.keys(&outgoing),
        ..Reads::default()
    };
    let decide = move |env, snapshot: Snapshot| {
        let mut decision = send(env, snapshot.send_context, outgoing.clone());
        // The same place twice: the file refuses, after the first was written.
        let again = decision.changes.messages[0].clone();
        decision.changes.messages.push(again);
        Ok(Decision {
            changes: decision.changes,
            output: (),
        })
    };
    driver.try_decide_mail(reads, decide).await.map(drop)
}

#[tokio::test]
async fn a_commit_that_fails_takes_back_what_was_remembered_of_it() {
    let (_dir, path, mut driver) = start();
    driver.send(mail("before")).await;
    let elsewhere = |key: &str| Outgoing {
        topic: "never".to_owned(),
        ..mail(key)
    };
    let failed = send_and_fail(&mut driver, vec![mail("a"), elsewhere("b")]).await;
    assert!(failed.is_err());
    let check = async |driver: &mut MailDriver| {
        let context = driver.look(Reads::default()).await.send_context;
        assert_eq!((context.head, context.remembered.own), (1, 1));
        assert_eq!(driver.messages().await.len(), 1);
        let (mailbox, tenant) = (driver.mailbox(), driver.tenant);
        let topics = mailbox.topics(tenant, None, 9).await.unwrap();
        assert_eq!((topics.len(), topics[0].counts.of(Kind::Ready)), (1, 1));
        let load = mailbox.load(driver.now).await.unwrap();
        assert_eq!(load.shards.len(), 1);
        assert!(driver.try_send(mail("before")).await.unwrap().duplicate);
    };
    check(&mut driver).await;
    // Names of topics that were never written must not stick to those that come after.
    let id = driver
        .send(Outgoing {
            topic: "other".to_owned(),
            ..mail("a")
        })
        .await;
    assert_eq!(&*driver.message(id).await.unwrap().topic, "other");
    assert_eq!(driver.peek(of_topic("other")).await.len(), 1);
    assert!(driver.peek(of_topic("never")).await.is_empty());
    driver.send(mail("a")).await;
    reopen(&mut driver, &path);
    assert_eq!(driver.messages().await.len(), 3);
    assert_eq!(driver.receive(ALL).await.len(), 2);
}

#[tokio::test]
async fn a_job_that_fails_does_not_fail_those_that_share_its_commit() {
    let (_dir, _path, mut driver) = start();
    let store = Arc::clone(driver.store());
    let held = Held::hold(&*store);
    let run = async |n: usize, mut own: MailDriver| {
        if n % 7 == 3 {
            let batch = vec![mail(&format!("bad {n}")), mail(&n.to_string())];
            assert!(send_and_fail(&mut own, batch).await.is_err());
        } else {
            own.send(mail(&n.to_string())).await;
        }
    };
    let running = (0..20).map(|n| run(n, driver.other(1)));
    let mut running = Box::pin(join_all(running));
    assert!((&mut running).now_or_never().is_none(), "all are submitted");
    held.release().await;
    running.await;
    let messages = driver.messages().await;
    let places: Vec<u64> = messages.iter().map(|message| message.id.seq()).collect();
    assert_eq!(places, (1..=17).collect::<Vec<_>>(), "no holes");
    assert_eq!(
        driver
            .look(Reads::default())
            .await
            .send_context
            .remembered
            .total,
        17
    );
    for n in 0..20 {
        let again = driver.try_send(mail(&n.to_string())).await.unwrap();
        assert_eq!(again.duplicate, n % 7 != 3, "{n}");
    }
}

/// A topic's number that was given out in a commit that failed is given out again, to another.
#[tokio::test]
async fn a_commit_that_fails_takes_back_the_names_of_topics() {
    let (_dir, _path, mut driver) = start();
    let store = Arc::clone(driver.store());
    let held = Held::hold(&*store);
    let to = |topic: &str| Outgoing {
        topic: topic.to_owned(),
        ..mail("a")
    };
    let (mut first, outgoing) = (Some(driver.env()), vec![to("never")]);
    let reads = Reads {
        sends: driver.keys(&outgoing),
        ..Reads::default()
    };
    // It changes its mind when it is asked again.
    let fickle = Job {
        reads,
        ..job(move |snapshot| {
            let env = first.take()?;
            Some(send(env, snapshot.send_context, outgoing.clone()).changes)
        })
    };
    let reading = Job {
        reads: Reads {
            ready: Some(of_topic("never")),
            ..Reads::default()
        },
        ..job(|_| None)
    };
    let answers = [fickle, reading].map(|job| store.transact(job.into()));
    let failing = store.transact(job(|_| panic!("on purpose")).into());
    held.release().await;
    for answer in answers {
        answer.await.unwrap();
    }
    assert!(failing.await.is_err());
    driver.send(to("other")).await;
    let taken = driver.receive_from("other", ALL).await.unwrap().messages;
    assert_eq!(&*taken[0].topic, "other");
}

/// Whatever became of the bytes of a message, its hashes tell, and it stands in nobody's way.
#[tokio::test]
async fn a_message_whose_bytes_changed_is_handed_to_nobody() {
    for damage in [
        "payload = x'62'",
        "payload = x''",
        "payload = 'a '",
        "payload_hash = zeroblob(32)",
        "payload_hash = x'00'",
        "hash_chain = zeroblob(32)",
        "idem_key = 'z'",
        "idem_key = x'ff'",
        "idem_key = 7",
        "attrs = '{\"k\":\"w\"}'",
        "attrs = '{'",
        "attrs = NULL",
        "attrs = x'ff'",
        "sent_at = sent_at + 1",
        "sent_at = 'soon'",
        "msg_id = zeroblob(16), payload = x'62'",
        "msg_id = x'', payload = x'62'",
        "chain_seq = x'00', payload = x'62'",
        "shard = 'x', payload = x'62'",
        "corr_id = 1, prev = 2, partition_key = 3, payload = x'62'",
    ] {
        let (_dir, path, mut driver) = start();
        driver.policy.mailbox.max_attempts = 2;
        driver
            .send(Outgoing {
                attrs: [("k".to_owned(), "v".to_owned())].into(),
                ..mail("a")
            })
            .await;
        driver.send(mail("b")).await;
        driver.detach();
        let file = rusqlite::Connection::open(&path).unwrap();
        let first = "(SELECT min(message) FROM content)";
        let sql = format!("UPDATE content SET {damage} WHERE message = {first}");
        let changed = file.execute(&sql, []);
        assert_eq!(changed.unwrap(), 1);
        drop(file);
        driver.attach(open(&path));
        let received = driver.receive_from("inbox", ALL).await.unwrap();
        assert_eq!(received.damaged.len(), 1, "{damage}");
        assert_eq!(
            received.messages.len(),
            1,
            "{damage}: what is behind it comes"
        );
        assert_eq!(&*received.messages[0].idem_key, "b");
        driver.wait_ms(2_000);
        driver.sweep_mail().await;
        let received = driver.receive_from("inbox", ALL).await.unwrap();
        assert_eq!(received.died.len(), 1, "{damage}");
        let letters = driver.dead_letters(dead(None)).await;
        assert_eq!(letters[0].reason.as_deref(), Some("integrity"), "{damage}");
        assert_eq!(driver.purge_dead(dead(None)).await, 1);
        driver.wait_ms(T_REPLAY);
        driver.sweep_mail().await;
        let left = driver.messages().await;
        assert_eq!(left.len(), 1, "{damage}: it can be got rid of");
    }
}
