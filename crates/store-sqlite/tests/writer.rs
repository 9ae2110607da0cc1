//! The writer thread: a bounded queue, shared commits, and jobs that fail alone.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use asyncgate_core::{Changes, Receipt, TenantId, Timestamp, task::NewTask};
use asyncgate_store::{
    Answer, Error, Health, Job, ReadSet, Store, Tasks, Work,
    conformance::{Driver, agent, echo, json, receipt_at},
};
use asyncgate_store_sqlite::{Options, SqliteStore};
use tempfile::TempDir;

fn open(options: &Options) -> (TempDir, Arc<SqliteStore>) {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("a.db"), options).unwrap();
    (dir, Arc::new(store))
}

const TENANT: TenantId = TenantId::from_bytes([1; 16]);

fn job(
    weight: usize,
    mut decide: impl FnMut(asyncgate_store::Snapshot) -> Option<Changes> + Send + 'static,
) -> Work {
    let job = Job::<Tasks> {
        tenant: TENANT,
        reads: ReadSet::default(),
        now: Timestamp::from_millis(1),
        weight,
        decide: Box::new(move |_, snapshot| decide(snapshot)),
    };
    job.into()
}

/// A job that appends one receipt behind whatever is there.
fn append(weight: usize) -> Work {
    job(weight, |snapshot| Some(receipt_at(snapshot.head + 1)))
}

/// The commits of a job that holds the writer of an empty store: it begins the tenant's ledger.
const HELD_COMMITS: u64 = 1;

/// Holds the writer inside a decision until it is let go, so that what is submitted meanwhile
/// waits.
struct Held<'a> {
    let_go: mpsc::Sender<()>,
    answer: Answer<'a, ()>,
}

impl<'a> Held<'a> {
    fn hold(store: &'a SqliteStore) -> Self {
        let (let_go, held) = mpsc::channel::<()>();
        let (reached, reaches) = mpsc::channel();
        let mut hold = Some((reached, held));
        let answer = store.transact(job(0, move |_| {
            // A job may be decided again; the writer is held the first time only.
            if let Some((reached, held)) = hold.take() {
                reached.send(()).unwrap();
                held.recv().unwrap();
            }
            None
        }));
        reaches.recv().unwrap();
        Self { let_go, answer }
    }

    async fn release(self) {
        self.let_go.send(()).unwrap();
        self.answer.await.unwrap();
    }

    /// Gives up the answer, but not the hold.
    fn abandon(self) -> mpsc::Sender<()> {
        self.let_go
    }
}

async fn places(store: &Arc<SqliteStore>) -> Vec<u64> {
    let driver = Driver::new(Arc::clone(store) as Arc<dyn Store>);
    driver.ledger().await.iter().map(Receipt::seq).collect()
}

#[tokio::test]
async fn a_full_queue_turns_jobs_away_and_they_write_nothing() {
    let (_dir, store) = open(&Options {
        max_queued_jobs: 3,
        ..Options::default()
    });
    let held = Held::hold(&store);
    let waiting: Vec<_> = (0..3).map(|_| store.transact(append(0))).collect();
    for _ in 0..5 {
        assert_eq!(store.transact(append(0)).await, Err(Error::Busy));
    }
    assert_eq!(store.metrics().turned_away.get(), 5);
    held.release().await;
    for answer in waiting {
        answer.await.unwrap();
    }
    assert_eq!(places(&store).await, [1, 2, 3]);
    store.transact(append(0)).await.unwrap();
    assert_eq!(store.health(), Health::Ready, "being busy is no failure");
}

#[tokio::test]
async fn a_queue_of_too_many_bytes_turns_jobs_away_until_there_is_room() {
    let (_dir, store) = open(&Options {
        max_queued_bytes: 1_000,
        ..Options::default()
    });
    store.transact(append(1_000)).await.unwrap();
    let held = Held::hold(&store);
    let waiting = store.transact(append(600));
    assert_eq!(store.transact(append(401)).await, Err(Error::Busy));
    let fits = store.transact(append(400));
    assert_eq!(store.transact(append(1)).await, Err(Error::Busy));
    held.release().await;
    waiting.await.unwrap();
    fits.await.unwrap();
    store.transact(append(1_000)).await.unwrap();
    assert_eq!(places(&store).await, [1, 2, 3, 4]);
}

/// Otherwise a payload as large as the whole queue could never be written.
#[tokio::test]
async fn a_job_that_is_alone_is_taken_however_large_it_is() {
    let (_dir, store) = open(&Options {
        max_queued_bytes: 1_000,
        ..Options::default()
    });
    store.transact(append(1_000_000)).await.unwrap();
    let held = Held::hold(&store);
    let alone = store.transact(append(1_000_000));
    assert_eq!(store.transact(append(1)).await, Err(Error::Busy));
    held.release().await;
    alone.await.unwrap();
    store.transact(append(1)).await.unwrap();
    assert_eq!(places(&store).await, [1, 2, 3]);
}

#[tokio::test]
async fn jobs_that_wait_together_share_a_commit() {
    // A busy machine may take longer for them than a transaction may usually take.
    let (_dir, store) = open(&Options {
        max_batch_time: Duration::MAX,
        ..Options::default()
    });
    let held = Held::hold(&store);
    let waiting: Vec<_> = (0..200).map(|_| store.transact(append(0))).collect();
    held.release().await;
    for answer in waiting {
        answer.await.unwrap();
    }
    assert_eq!(places(&store).await, (1..=200).collect::<Vec<u64>>());
    assert_eq!(store.metrics().commits.get(), 1 + HELD_COMMITS);
}

/// Whoever came before a large job is answered before it is written.
#[tokio::test]
async fn a_large_job_begins_a_commit_of_its_own() {
    let (_dir, store) = open(&Options {
        max_batch_time: Duration::MAX,
        ..Options::default()
    });
    let held = Held::hold(&store);
    let weights = [0, 0, 1 << 20, 0, 1 << 20];
    let waiting: Vec<_> = weights
        .map(|weight| store.transact(append(weight)))
        .into_iter()
        .collect();
    held.release().await;
    for answer in waiting {
        answer.await.unwrap();
    }
    assert_eq!(places(&store).await, [1, 2, 3, 4, 5]);
    assert_eq!(store.metrics().commits.get(), 3 + HELD_COMMITS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_at_once_need_fewer_commits_than_they_have_jobs() {
    let (_dir, store) = open(&Options::default());
    let mut callers = Vec::new();
    for _ in 0..32 {
        let store = Arc::clone(&store);
        callers.push(tokio::spawn(async move {
            for _ in 0..20 {
                store.transact(append(0)).await.unwrap();
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    let jobs = 32 * 20;
    assert_eq!(places(&store).await, (1..=jobs).collect::<Vec<u64>>());
    let commits = store.metrics().commits.get();
    assert!(commits < jobs, "{commits} commits for {jobs} jobs");
}

/// A place that is taken: the database refuses the row, and with it the whole shared transaction.
#[tokio::test]
async fn a_job_that_the_database_refuses_fails_alone() {
    let (_dir, store) = open(&Options::default());
    store.transact(append(0)).await.unwrap();
    let held = Held::hold(&store);
    let before = store.transact(append(0));
    let refused = store.transact(job(0, |_| Some(receipt_at(1))));
    let after = store.transact(append(0));
    held.release().await;
    before.await.unwrap();
    after.await.unwrap();
    assert!(matches!(refused.await, Err(Error::Corrupt(_))));
    assert_eq!(places(&store).await, [1, 2, 3]);
    assert_eq!(store.health(), Health::Ready);
}

#[tokio::test]
async fn a_decision_that_panics_fails_alone() {
    let (_dir, store) = open(&Options::default());
    let held = Held::hold(&store);
    let before = store.transact(append(0));
    let panics = store.transact(job(0, |_| panic!("on purpose")));
    let after = store.transact(append(0));
    held.release().await;
    before.await.unwrap();
    assert!(panics.await.is_err());
    after.await.unwrap();
    store.transact(append(0)).await.unwrap();
    assert_eq!(places(&store).await, [1, 2, 3]);
}

#[tokio::test]
async fn a_job_whose_caller_has_gone_is_written_all_the_same() {
    let (_dir, store) = open(&Options::default());
    let held = Held::hold(&store);
    drop(store.transact(append(0)));
    held.release().await;
    store.transact(append(0)).await.unwrap();
    assert_eq!(places(&store).await, [1, 2]);
    assert_eq!(store.metrics().waiting.get(), 0);
}

#[tokio::test]
async fn reads_do_not_wait_for_the_writer() {
    let (_dir, store) = open(&Options::default());
    let mut driver = Driver::new(Arc::clone(&store) as Arc<dyn Store>);
    let id = driver.create(echo()).await;
    let held = Held::hold(&store);
    assert!(driver.task(id).await.is_some());
    assert_eq!(driver.ledger().await.len(), 1);
    assert_eq!(driver.open(&agent("alice")).await, [1]);
    held.release().await;
}

#[tokio::test]
async fn closing_a_store_finishes_what_was_waiting() {
    let (dir, store) = open(&Options::default());
    let let_go = Held::hold(&store).abandon();
    for _ in 0..20 {
        drop(store.transact(append(0)));
    }
    let_go.send(()).unwrap();
    drop(Arc::into_inner(store).unwrap());
    let again = SqliteStore::open(&dir.path().join("a.db"), &Options::default()).unwrap();
    assert_eq!(places(&Arc::new(again)).await.len(), 20);
}

/// Another program that holds the file stands for a disk that does not accept writes.
#[tokio::test]
async fn a_store_that_cannot_write_says_so_loses_nothing_and_recovers() {
    let (dir, store) = open(&Options::default());
    let mut driver = Driver::new(Arc::clone(&store) as Arc<dyn Store>);
    driver.create(echo()).await;
    let other = rusqlite::Connection::open(dir.path().join("a.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.transact(append(0)).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    assert!(matches!(store.health(), Health::Failing(_)));
    assert_eq!(store.metrics().commit_failures.get(), 1);
    assert_eq!(driver.ledger().await.len(), 1, "reads go on");
    other.execute_batch("ROLLBACK").unwrap();
    driver.create(echo()).await;
    assert_eq!(store.health(), Health::Ready);
    assert_eq!(
        places(&store).await,
        [1, 2],
        "the refused job is not written later"
    );
}

/// Returns how often the log has begun again from its front.
fn restarts(dir: &TempDir) -> u32 {
    let log = std::fs::read(dir.path().join("a.db-wal")).unwrap();
    let count = log.get(12..16).unwrap_or(&[0; 4]);
    u32::from_be_bytes(count.try_into().unwrap())
}

/// A thread moves the log into the main file while others write, and the writer moves the rest: otherwise the log would
/// grow for as long as somebody writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_begins_again_while_somebody_writes() {
    let (dir, store) = open(&Options::default());
    let first = restarts(&dir);
    let payload = format!("\"{}\"", "x".repeat(100_000));
    let mut driver = Driver::new(Arc::clone(&store) as Arc<dyn Store>);
    let mut created = 0;
    while restarts(&dir) < first + 3 {
        assert!(created < 20_000, "the log never begins again");
        driver
            .create(NewTask::new(agent("alice"), "echo", json(&payload)))
            .await;
        created += 1;
    }
    assert_eq!(driver.head().await.seq, created);
}
