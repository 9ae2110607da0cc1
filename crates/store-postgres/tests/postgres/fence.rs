//! Ownership: of two instances one writes, and one that was taken over writes nothing any more.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use asyncgate_core::{Changes, TenantId, Timestamp};
use asyncgate_store::{
    Answer, Error, Health, Job, ReadSet, Snapshot, Store, Tasks, Work,
    conformance::{Driver, echo, eventually, receipt_at},
};
use asyncgate_store_postgres::{OpenError, Options, PostgresStore};

use crate::server::Server;

const TENANT: TenantId = TenantId::from_bytes([1; 16]);

fn options(name: &str) -> Options {
    Options {
        instance: name.to_owned(),
        lease: Duration::from_millis(400),
        ..Options::default()
    }
}

fn job(mut decide: impl FnMut(Snapshot) -> Option<Changes> + Send + 'static) -> Work {
    let job = Job::<Tasks> {
        tenant: TENANT,
        reads: ReadSet::default(),
        now: Timestamp::from_millis(1),
        weight: 0,
        decide: Box::new(move |_, snapshot| decide(snapshot)),
    };
    job.into()
}

/// An owner that stands still inside a decision, as if its process were stopped, until it is let go. Then the decision
/// appends a receipt.
struct Paused<'a> {
    let_go: mpsc::Sender<()>,
    answer: Answer<'a, ()>,
}

impl<'a> Paused<'a> {
    fn pause(store: &'a PostgresStore) -> Self {
        let (let_go, held) = mpsc::channel::<()>();
        let (reached, reaches) = mpsc::channel();
        let answer = store.transact(job(move |snapshot| {
            reached.send(()).unwrap();
            held.recv().unwrap();
            Some(receipt_at(snapshot.head + 1))
        }));
        reaches.recv().unwrap();
        Self { let_go, answer }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_instance_waits_while_the_first_lives() {
    let Some(server) = Server::shared() else {
        return;
    };
    let address = server.database();
    let first = Arc::new(PostgresStore::open(&address, &options("first")).unwrap());
    let impatient = Options {
        open_timeout: Duration::from_secs(2),
        ..options("second")
    };
    let refused = PostgresStore::open(&address, &impatient).unwrap_err();
    assert!(matches!(refused, OpenError::Unavailable(why) if why.contains("another instance")));
    let mut driver = Driver::new(Arc::clone(&first) as Arc<dyn Store>);
    driver.create(echo()).await;
    assert_eq!(first.health(), Health::Ready);
    drop(driver);
    drop(first);
    // The first gave its shards back, so nobody waits for the end of its lease.
    let patient = Options {
        lease: Duration::from_secs(3_600),
        ..options("second")
    };
    let second: Arc<dyn Store> = Arc::new(PostgresStore::open(&address, &patient).unwrap());
    let mut driver = Driver::new(second);
    driver.create(echo()).await;
    assert_eq!(driver.ledger().await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_that_was_taken_over_writes_nothing() {
    let Some(server) = Server::shared() else {
        return;
    };
    let address = server.database();
    let first = PostgresStore::open(&address, &options("first")).unwrap();
    first
        .transact(job(|snapshot| Some(receipt_at(snapshot.head + 1))))
        .await
        .unwrap();
    let paused = Paused::pause(&first);
    let behind: Vec<_> = (0..20)
        .map(|_| first.transact(job(|snapshot| Some(receipt_at(snapshot.head + 1)))))
        .collect();
    // It takes over once the first has been silent for as long as a lease.
    let second = PostgresStore::open(&address, &options("second")).unwrap();
    for _ in 0..3 {
        let append = job(|snapshot| Some(receipt_at(snapshot.head + 1)));
        second.transact(append).await.unwrap();
    }
    paused.let_go.send(()).unwrap();
    assert!(matches!(paused.answer.await, Err(Error::Unavailable(_))));
    for answer in behind {
        assert!(matches!(answer.await, Err(Error::Unavailable(_))));
    }
    assert_eq!(second.head(TENANT).await.unwrap().seq, 4);
    // Even what only looks at memory is not answered by an owner that is none.
    assert!(first.mailbox().chains(TENANT).await.is_err());
    assert_ne!(first.health(), Health::Ready);
    drop(second);
    eventually("the first takes over again", async || {
        first.health() == Health::Ready
    })
    .await;
    let append = job(|snapshot| Some(receipt_at(snapshot.head + 1)));
    first.transact(append).await.unwrap();
    assert_eq!(first.head(TENANT).await.unwrap().seq, 5);
}
