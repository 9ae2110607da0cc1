//! A store on a disk whose syncs are held, or fail.

use std::{
    path::PathBuf,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use asyncgate_core::{Changes, TenantId, Timestamp};
use asyncgate_store::{
    Answer, Health, Job, ReadSet, Snapshot, Store, Tasks, Work, conformance::receipt_at,
};
use tempfile::TempDir;

use super::*;
use crate::{Options, SqliteStore};

const TENANT: TenantId = TenantId::from_bytes([1; 16]);
/// The time for which something is watched that must not happen. It is not awaited, so a busy machine fails no test.
const WATCHED: Duration = Duration::from_millis(100);

/// A disk that asks before it syncs.
pub(crate) struct Disk {
    dir: TempDir,
    asked: mpsc::Receiver<()>,
    answer: mpsc::Sender<io::Result<()>>,
}

impl Disk {
    /// Opens a store on such a disk. Whoever keeps the disk behind the store drops it first: then no sync is held any more,
    /// and a test that fails ends.
    fn open() -> (SqliteStore, Self) {
        Self::open_with(&Options::default())
    }

    pub(crate) fn open_with(options: &Options) -> (SqliteStore, Self) {
        let dir = tempfile::tempdir().unwrap();
        let (ask, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let disk = Self { dir, asked, answer };
        let sync = move |_: &File| {
            let _ = ask.send(());
            answers.recv().unwrap_or(Ok(()))
        };
        let store = SqliteStore::open_with(&disk.path(), options, Box::new(sync)).unwrap();
        (store, disk)
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("a.db")
    }

    /// Waits until the disk is asked to sync.
    pub(crate) fn is_asked(&self) {
        self.asked.recv().unwrap();
    }

    pub(crate) fn answers(&self, outcome: io::Result<()>) {
        self.answer.send(outcome).unwrap();
    }

    /// Returns the number of receipts that anybody sees who opens the file.
    fn receipts(&self) -> i64 {
        self.rows("receipt")
    }

    /// Returns the number of tenants that anybody sees who opens the file.
    fn tenants(&self) -> i64 {
        self.rows("tenant")
    }

    fn rows(&self, table: &str) -> i64 {
        let conn = rusqlite::Connection::open(self.path()).unwrap();
        let count = format!("SELECT count(*) FROM {table}");
        conn.query_row(&count, [], |row| row.get(0)).unwrap()
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

/// A job that appends a receipt.
pub(crate) fn append() -> Work {
    job(|snapshot| Some(receipt_at(snapshot.head + 1)))
}

/// Returns true if there is no answer for a while.
pub(crate) fn is_pending<T>(answer: &mut Answer<'_, T>) -> bool {
    let watch = Stopwatch::start();
    while watch.elapsed() < WATCHED {
        let polled = answer
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if polled.is_ready() {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}

#[tokio::test]
async fn nobody_is_answered_before_the_commit_is_on_disk() {
    let (store, disk) = Disk::open();
    let mut answer = store.transact(append());
    disk.is_asked();
    assert_eq!(disk.receipts(), 1, "it is written");
    assert!(is_pending(&mut answer));
    assert_eq!(store.metrics().commits.get(), 0);
    disk.answers(Ok(()));
    answer.await.unwrap();
    assert_eq!(store.metrics().commits.get(), 1);
}

#[tokio::test]
async fn what_was_only_seen_is_answered_after_the_sync_too() {
    let (store, disk) = Disk::open();
    let first = store.transact(append());
    disk.is_asked();
    // One sees the commit without writing anything, as a repeated create does, the other reads it.
    let mut repeated = store.transact(job(|_| None));
    let (ran, has_run) = mpsc::channel();
    let mut read: Answer<'_, i64> = store.read(move |db| {
        let count = db
            .conn
            .query_row("SELECT count(*) FROM receipt", [], |row| row.get(0))?;
        ran.send(count).unwrap();
        Ok(count)
    });
    assert!(is_pending(&mut read));
    assert_eq!(has_run.recv(), Ok(1));
    assert!(is_pending(&mut read) && is_pending(&mut repeated));
    disk.answers(Ok(()));
    first.await.unwrap();
    repeated.await.unwrap();
    assert_eq!(read.await, Ok(1));
    // What is on disk is read at once.
    let again: i64 = store.read(|_| Ok(7)).await.unwrap();
    assert_eq!(again, 7);
}

#[tokio::test]
async fn the_next_commit_is_decided_during_a_sync_and_written_after_it() {
    let (store, disk) = Disk::open();
    let first = store.transact(append());
    disk.is_asked();
    let (decided, is_decided) = mpsc::channel();
    let mut second = store.transact(job(move |snapshot| {
        decided.send(()).unwrap();
        Some(receipt_at(snapshot.head + 1))
    }));
    is_decided.recv().unwrap();
    assert!(is_pending(&mut second));
    assert_eq!(
        disk.receipts(),
        1,
        "nothing is written behind a commit that is not on disk"
    );
    disk.answers(Ok(()));
    first.await.unwrap();
    disk.is_asked();
    assert_eq!(disk.receipts(), 2);
    disk.answers(Ok(()));
    second.await.unwrap();
}

#[tokio::test]
async fn after_a_sync_that_failed_nothing_is_written_or_answered() {
    let (store, disk) = Disk::open();
    let first = store.transact(append());
    disk.is_asked();
    let second = store.transact(append());
    disk.answers(Err(io::Error::other("on purpose")));
    let unknown = Error::Unknown(FAILED.to_owned());
    assert_eq!(first.await, Err(unknown));
    assert!(matches!(second.await, Err(Error::Unavailable(_))));
    assert!(matches!(
        store.transact(append()).await,
        Err(Error::Unavailable(_))
    ));
    let failed = Error::Unavailable(FAILED.to_owned());
    assert_eq!(store.read(|_| Ok(())).await, Err(failed));
    assert_eq!(store.health(), Health::Failing(FAILED.to_owned()));
    assert_eq!(store.metrics().commits.get(), 0);
    drop(store);
    // What became of the first is known when the file is opened again; the others were never written.
    let store = SqliteStore::open(&disk.path(), &Options::default()).unwrap();
    assert_eq!(store.health(), Health::Ready);
    assert_eq!(disk.receipts(), 1);
    store.transact(append()).await.unwrap();
    assert_eq!(disk.receipts(), 2);
}

/// Nobody may wait for ever for a commit that is not there.
#[tokio::test]
async fn a_commit_that_was_rolled_back_is_not_waited_for() {
    let durable = Durable::default();
    let commit = durable.begin();
    let mut waits = pin!(durable.wait(durable.written()));
    let polled = waits.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Pending);
    durable.reached(commit);
    waits.await.unwrap();
}

/// A job that decides nothing may still be the first of its tenant, whose ledger begins then. That row, too, must not
/// reach the log behind a commit that is not on disk.
#[tokio::test]
async fn a_new_tenant_that_only_looks_writes_nothing_during_a_sync() {
    let (store, disk) = Disk::open();
    let first = store.transact(append());
    disk.is_asked();
    assert_eq!(disk.tenants(), 1);
    let look = Job::<Tasks> {
        tenant: TenantId::from_bytes([2; 16]),
        reads: ReadSet::default(),
        now: Timestamp::from_millis(1),
        weight: 0,
        decide: Box::new(|_, _| None),
    };
    let mut looked = store.transact(look.into());
    assert!(is_pending(&mut looked));
    assert_eq!(
        disk.tenants(),
        1,
        "a row behind a commit that is not on disk"
    );
    disk.answers(Ok(()));
    first.await.unwrap();
    disk.is_asked();
    assert_eq!(disk.tenants(), 2);
    disk.answers(Ok(()));
    looked.await.unwrap();
}
