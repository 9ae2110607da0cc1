//! Limits in memory: on a disk that is slow or fails, with little room, and with many callers.

use std::{
    path::Path,
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    task::{Context, Waker},
};

use asyncgate_core::admission::{Bucket, NonceResult, Rule};
use asyncgate_store::{
    Answer, Health, Stopwatch, Store,
    admission::{Admission, Host, Reply},
    conformance::{Breadth, bucket, follow_history, limit, nonce, window},
};
use tempfile::TempDir;

use super::*;
use crate::{
    Options, SqliteStore,
    durable::tests::{Disk, append, is_pending},
};

const TENANT: TenantId = TenantId::from_bytes([1; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_767_610_800_000);
/// The longest time that a test waits for what must happen.
const LONG: Duration = Duration::from_secs(60);

fn quick() -> HotLimits {
    HotLimits {
        write_after: Duration::from_millis(20),
        ..HotLimits::default()
    }
}

fn options(hot_limits: HotLimits) -> Options {
    Options {
        hot_limits,
        ..Options::default()
    }
}

fn open(dir: &TempDir, hot_limits: HotLimits) -> SqliteStore {
    SqliteStore::open(&dir.path().join("a.db"), &options(hot_limits)).unwrap()
}

/// A check of a bucket that holds five and does not refill while a test runs.
fn five(key: &str) -> LimitCheck {
    limit(&bucket(5, 1, false), key, 1)
}

async fn take(store: &SqliteStore, check: &LimitCheck) -> Limited {
    store.check_limit(TENANT, NOW, check).await.unwrap()
}

/// The same without taking anything.
fn look(key: &str) -> LimitCheck {
    LimitCheck {
        cost: 0,
        ..five(key)
    }
}

async fn left(store: &SqliteStore, key: &str) -> u64 {
    take(store, &look(key)).await.remaining
}

/// Returns the answer of a check that is known in memory.
fn at_once(store: &SqliteStore, check: &LimitCheck) -> Result<Limited, Error> {
    match store.check_limit(TENANT, NOW, check) {
        Reply::Now(Some(answer)) => answer,
        Reply::Now(None) | Reply::Later(_) => panic!("it is not known in memory"),
    }
}

fn with_nonce(text: &str, check: LimitCheck) -> Asks {
    Asks {
        limits: vec![check],
        nonces: vec![nonce(text, 600)],
        ..Asks::default()
    }
}

/// Waits until something is so.
fn until(mut is_so: impl FnMut() -> bool) {
    let watch = Stopwatch::start();
    while !is_so() {
        assert!(watch.elapsed() < LONG, "it did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the number of cells in the file, and what its clock says of them.
fn cells_in(path: &Path) -> (i64, i64) {
    let conn = rusqlite::Connection::open(path).unwrap();
    let sql = "SELECT (SELECT count(*) FROM cell), (SELECT cells FROM clock)";
    conn.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
}

/// Copies the file as a process that is killed at this moment leaves it.
fn killed(path: &Path) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for suffix in ["", "-wal"] {
        let from = format!("{}{suffix}", path.display());
        std::fs::copy(from, dir.path().join(format!("a.db{suffix}"))).unwrap();
    }
    dir
}

#[tokio::test]
async fn a_check_is_answered_while_a_sync_is_held_and_a_nonce_is_not() {
    let (store, disk) = Disk::open_with(&Options::default());
    let task = store.transact(append());
    disk.is_asked();
    // The first check of a key reads the file, the second finds it in memory.
    assert_eq!(take(&store, &five("k")).await.remaining, 4);
    assert_eq!(at_once(&store, &five("k")).unwrap().remaining, 3);
    let later = |reply| match reply {
        Reply::Later(answer) => answer,
        Reply::Now(_) => panic!("it must wait for the disk"),
    };
    let mut alone: Answer<'_, _> = later(store.admit(
        TENANT,
        NOW,
        Asks {
            nonces: vec![nonce("a", 600)],
            ..Asks::default()
        },
    ));
    let mut both = later(store.admit(TENANT, NOW, with_nonce("b", five("other"))));
    assert!(is_pending(&mut alone) && is_pending(&mut both));
    assert_eq!(at_once(&store, &five("k")).unwrap().remaining, 2);
    disk.answers(Ok(()));
    task.await.unwrap();
    disk.is_asked();
    assert!(is_pending(&mut alone) && is_pending(&mut both));
    drop(disk);
    assert_eq!(alone.await.unwrap().nonces, [NonceResult::Accepted]);
    assert_eq!(both.await.unwrap().limits[0].remaining, 4);
}

#[tokio::test]
async fn what_was_taken_is_written_soon_and_known_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let store = open(&dir, HotLimits::default());
    for key in ["one", "other", "one"] {
        take(&store, &five(key)).await;
    }
    let watch = Stopwatch::start();
    until(|| store.metrics().commits.get() > 0);
    // The promise is a second. A machine that has other things to do gets some more.
    assert!(watch.elapsed() < Duration::from_secs(5));
    assert_eq!(cells_in(&path), (2, 2), "all of them share a commit");
    // Only what came later is forgotten.
    take(&store, &five("one")).await;
    let copy = killed(&path);
    let again = open(&copy, HotLimits::default());
    assert_eq!(left(&again, "one").await, 3);
    assert_eq!(left(&again, "other").await, 4);
    assert_eq!(again.last_time(), NOW, "time does not run back");
    assert_eq!(left(&store, "one").await, 2);
}

#[tokio::test]
async fn closing_a_store_writes_what_was_taken() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, HotLimits::default());
    // More than one commit holds.
    for key in 0..1_500 {
        take(&store, &five(&key.to_string())).await;
    }
    drop(store);
    let store = open(&dir, HotLimits::default());
    for key in 0..1_500 {
        assert_eq!(left(&store, &key.to_string()).await, 4);
    }
    assert_eq!(store.rows().await, Ok(1_500));
}

/// Another program that holds the file stands for a disk that does not accept writes.
#[tokio::test]
async fn what_could_not_be_written_stays_and_is_written_later() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let store = open(&dir, quick());
    take(&store, &five("k")).await;
    until(|| cells_in(&path) == (1, 1));
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    take(&store, &five("k")).await;
    until(|| store.metrics().commit_failures.get() > 0);
    assert!(matches!(store.health(), Health::Failing(_)));
    assert_eq!(left(&open(&killed(&path), quick()), "k").await, 4);
    other.execute_batch("ROLLBACK").unwrap();
    let watch = Stopwatch::start();
    while left(&open(&killed(&path), quick()), "k").await != 3 {
        assert!(watch.elapsed() < LONG, "it was never written");
    }
    until(|| store.health() == Health::Ready);
    assert_eq!(at_once(&store, &five("k")).unwrap().remaining, 2);
}

#[tokio::test]
async fn nobody_passes_while_the_disk_is_late_and_refusals_stand() {
    let (store, disk) = Disk::open_with(&options(HotLimits {
        refuse_after: Duration::from_millis(300),
        ..quick()
    }));
    for _ in 0..5 {
        take(&store, &five("empty")).await;
    }
    take(&store, &five("k")).await;
    disk.is_asked();
    assert_eq!(store.health(), Health::Ready);
    until(|| at_once(&store, &look("k")).is_err());
    let late = Error::Unavailable(LATE.to_owned());
    assert_eq!(at_once(&store, &five("k")), Err(late.clone()));
    let both = Asks {
        limits: vec![five("k"), limit(&window(9), "k", 1)],
        ..Asks::default()
    };
    assert!(store.admit(TENANT, NOW, both).await.is_err());
    assert_eq!(store.health(), Health::Failing(LATE.to_owned()));
    assert_eq!(store.ping().await, Err(late));
    // Who has nothing left is refused, whatever the disk does; and what is asked for meanwhile is charged, since a
    // failure mode may let it pass.
    assert!(!at_once(&store, &five("empty")).unwrap().allowed);
    until(|| at_once(&store, &five("k")).is_ok_and(|limited| !limited.allowed));
    drop(disk);
    until(|| store.health() == Health::Ready);
    assert_eq!(left(&store, "k").await, 0);
    assert!(take(&store, &five("new")).await.allowed);
}

#[tokio::test]
async fn after_a_sync_that_failed_nobody_passes_either() {
    let (store, disk) = Disk::open_with(&options(HotLimits {
        refuse_after: Duration::from_millis(100),
        ..quick()
    }));
    take(&store, &five("k")).await;
    disk.is_asked();
    disk.answers(Err(std::io::Error::other("on purpose")));
    until(|| at_once(&store, &look("k")).is_err());
    assert!(matches!(store.health(), Health::Failing(_)));
}

#[tokio::test]
async fn time_does_not_run_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, HotLimits::default());
    let refills = limit(&bucket(1, 60, false), "k", 1);
    let at = |millis| NOW.plus_millis(millis);
    let ask = |now, check: &LimitCheck| Asks {
        peek: now == at(0),
        limits: vec![check.clone()],
        ..Asks::default()
    };
    let first = store.admit(TENANT, at(5_000), ask(at(5_000), &refills));
    assert!(first.await.unwrap().passed());
    // Its caller read the clock before, and it is decided after: by the file and by memory.
    let peeked = store.admit(TENANT, at(0), ask(at(0), &refills)).await;
    assert_eq!(peeked.unwrap().now, at(5_000));
    let mixed = store.admit(TENANT, at(1), with_nonce("n", five("k")));
    assert_eq!(mixed.await.unwrap().now, at(5_000));
    let refused = store.check_limit(TENANT, at(4_000), &refills);
    assert!(!refused.await.unwrap().allowed);
    let refilled = store.check_limit(TENANT, at(6_000), &refills);
    assert!(refilled.await.unwrap().allowed);
}

/// With room for a few limits most of them are read, written and read again.
#[tokio::test]
async fn with_little_room_decisions_are_those_of_the_rule() {
    for max_cells in [0, 1, 2, 5] {
        for seed in 0..16 {
            let dir = tempfile::tempdir().unwrap();
            let store = open(
                &dir,
                HotLimits {
                    max_cells,
                    write_after: Duration::from_millis(1),
                    ..HotLimits::default()
                },
            );
            let store: Arc<dyn Store> = Arc::new(store);
            follow_history(store.host(), seed, Breadth::Many).await;
        }
    }
}

/// A limit that never refills, in a store with too little room, asked by many at once, alone and with nonces.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_see_one_order() {
    const CALLERS: usize = 64;
    const KEYS: usize = 12;
    const CAPACITY: u64 = 100;
    let dir = tempfile::tempdir().unwrap();
    let little = HotLimits {
        max_cells: 8,
        write_after: Duration::from_millis(1),
        ..HotLimits::default()
    };
    let store = Arc::new(open(&dir, little));
    let rule = Rule::Bucket(Bucket::per_minute(CAPACITY, 1_000_000).unwrap());
    let seen: Arc<Vec<Mutex<Vec<u64>>>> = Arc::new((0..KEYS).map(|_| Mutex::default()).collect());
    let nonces = Arc::new(AtomicU32::new(0));
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let (store, rule) = (Arc::clone(&store), rule.clone());
            let (seen, nonces) = (Arc::clone(&seen), Arc::clone(&nonces));
            tokio::spawn(async move {
                let mut last = [u64::MAX; KEYS];
                for step in 0..40 {
                    let key = (caller * 7 + step * 5) % KEYS;
                    let check = limit(&rule, &key.to_string(), 1);
                    let limited = if step % 8 == caller % 8 {
                        let nonce = nonces.fetch_add(1, Ordering::Relaxed).to_string();
                        let asks = with_nonce(&nonce, check);
                        store.admit(TENANT, NOW, asks).await.unwrap().limits[0]
                    } else {
                        store.check_limit(TENANT, NOW, &check).await.unwrap()
                    };
                    if limited.allowed {
                        // What one caller sees of a limit only falls.
                        assert!(limited.remaining < last[key]);
                        seen[key].lock().unwrap().push(limited.remaining);
                    } else {
                        assert_eq!(limited.remaining, 0);
                    }
                    last[key] = limited.remaining;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    for seen in seen.iter() {
        let mut seen = std::mem::take(&mut *seen.lock().unwrap());
        seen.sort_unstable();
        assert_eq!(seen, (0..CAPACITY).collect::<Vec<u64>>());
    }
    drop(Arc::into_inner(store).unwrap());
    let store = open(&dir, little);
    for key in 0..KEYS {
        let look = limit(&rule, &key.to_string(), 0);
        assert_eq!(take(&store, &look).await.remaining, 0);
    }
    let (cells, counted) = cells_in(&dir.path().join("a.db"));
    assert_eq!(cells, counted);
}

/// A caller whose read is late must not bring back what was there before.
#[test]
fn a_late_read_does_not_replace_what_was_decided_since() {
    let little = HotLimits {
        max_cells: 1,
        ..HotLimits::default()
    };
    let cells = Arc::new(HotCells::new(little));
    let asks = |key: &str| Asks {
        limits: vec![five(key)],
        ..Asks::default()
    };
    let late = cells.pin(TENANT, NOW, &asks("k"));
    let prompt = cells.pin(TENANT, NOW, &asks("k"));
    prompt.keep(vec![None]);
    assert!(cells.admit(TENANT, NOW, &asks("k")).is_some());
    drop(prompt);
    let taken = cells.take(10);
    assert_eq!(taken.cells.len(), 1);
    cells.written(&taken, 1);
    // Others want the room, and the cell is as its row.
    for _ in 0..3 {
        cells.pin(TENANT, NOW, &asks("other")).keep(vec![None]);
    }
    late.keep(vec![None]);
    let again = cells.admit(TENANT, NOW, &asks("k")).unwrap().unwrap();
    assert_eq!(again.limits[0].remaining, 3);
    drop(late);
    // Now it is not written again, so it stays.
    for _ in 0..3 {
        cells.pin(TENANT, NOW, &asks("other")).keep(vec![None]);
    }
    assert!(cells.admit(TENANT, NOW, &asks("other")).is_none());
    let taken = cells.take(10);
    cells.written(&taken, 2);
    for _ in 0..3 {
        cells.pin(TENANT, NOW, &asks("other")).keep(vec![None]);
    }
    assert!(cells.admit(TENANT, NOW, &asks("other")).is_some());
    assert!(
        cells.admit(TENANT, NOW, &asks("k")).is_none(),
        "it has left"
    );
}

#[test]
fn a_cell_that_the_writer_holds_is_its_own_until_the_end() {
    for (end, remaining) in [(End::Committed, 1), (End::RolledBack, 3)] {
        let cells = Arc::new(HotCells::new(HotLimits::default()));
        let check = five("k");
        let asks = Asks {
            limits: vec![check.clone()],
            ..Asks::default()
        };
        let pinned = cells.pin(TENANT, NOW, &asks);
        pinned.keep(vec![None]);
        assert!(cells.admit(TENANT, NOW, &asks).is_some());
        let name = check.name(TENANT, NOW);
        let before = cells.hold(TENANT, name, None);
        let (_, row) = limit_of(&check, 2, before);
        cells.change_held(name, row.unwrap());
        assert!(cells.admit(TENANT, NOW, &asks).is_none());
        assert!(cells.check_limit(TENANT, NOW, &check).is_none());
        cells.release(end);
        let limited = cells.check_limit(TENANT, NOW, &check).unwrap().unwrap();
        assert_eq!(limited.remaining, remaining, "{end:?}");
    }
}

/// A caller who began to read before the commit must not bring back what was there before it.
#[test]
fn a_commit_is_seen_by_those_who_read_before_it() {
    let cells = Arc::new(HotCells::new(HotLimits::default()));
    let check = five("k");
    let asks = Asks {
        limits: vec![check.clone()],
        ..Asks::default()
    };
    let late = cells.pin(TENANT, NOW, &asks);
    let name = check.name(TENANT, NOW);
    let before = cells.hold(TENANT, name, None);
    cells.change_held(name, limit_of(&check, 2, before).1.unwrap());
    cells.release(End::Committed);
    late.keep(vec![None]);
    let limited = cells.check_limit(TENANT, NOW, &check).unwrap().unwrap();
    assert_eq!(limited.remaining, 2);
}

fn limit_of(check: &LimitCheck, cost: i64, stored: Option<Row>) -> (Limited, Option<Row>) {
    let check = LimitCheck {
        cost,
        ..check.clone()
    };
    super::limit(&check, NOW, stored)
}

/// A caller who goes away while its limit is read leaves nothing behind.
#[tokio::test]
async fn a_caller_who_goes_away_leaves_no_pin() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&dir, HotLimits::default());
    let check = five("k");
    let mut reply = Box::pin(store.check_limit(TENANT, NOW, &check));
    let polled = reply.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    // The reader may have been quicker than the caller; then one was taken.
    let left = 5 - u64::from(polled.is_ready());
    drop(reply);
    assert!(store.writer.shared.hot.cells().pins.is_empty());
    assert_eq!(take(&store, &check).await.remaining, left - 1);
}
