//! The sync thread: it brings the log to disk while the writer decides the next commit, and answers afterwards.
//!
//! Invariants: nobody is answered before the commit that the answer speaks of is on disk, and no read shows more than
//! that. Nothing is written behind a commit that is not on disk yet: so `wal.rs` can tell a crash from damage. After a
//! sync that failed nobody knows what the disk holds, so nothing is written or answered any more until the file is
//! opened anew.

use std::{
    fs::File,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use asyncgate_store::{Error, Stopwatch};
use tokio::sync::watch;

/// What callers and operators are told after a sync that failed.
pub(crate) const FAILED: &str = "the disk failed to sync the log, and nothing is written any more: check the disk, \
                                 then restart the server";

/// The commits that were written, and those of them that are on disk. They are counted from 1.
#[derive(Debug)]
pub(crate) struct Durable {
    written: AtomicU64,
    /// The newest commit on disk; absent after a sync that failed.
    synced: watch::Sender<Option<u64>>,
}

impl Default for Durable {
    fn default() -> Self {
        Self {
            written: AtomicU64::new(0),
            synced: watch::Sender::new(Some(0)),
        }
    }
}

impl Durable {
    /// Counts a commit that is about to be written. Whoever sees it finds it counted.
    pub(crate) fn begin(&self) -> u64 {
        self.written.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Returns the newest commit that a query may have seen which ended before this call.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::SeqCst)
    }

    /// Says that a commit and all before it are on disk, or that it was rolled back and nobody has to wait for it.
    pub(crate) fn reached(&self, commit: u64) {
        self.synced.send_replace(Some(commit));
    }

    fn fail(&self) {
        self.synced.send_replace(None);
    }

    /// Waits until a commit is on disk.
    pub(crate) async fn wait(&self, commit: u64) -> Result<(), Error> {
        let is_over = |synced: &Option<u64>| synced.is_none_or(|synced| synced >= commit);
        let mut synced = *self.synced.borrow();
        if !is_over(&synced) {
            let mut changes = self.synced.subscribe();
            synced = changes
                .wait_for(is_over)
                .await
                .map_or(None, |synced| *synced);
        }
        match synced {
            Some(_) => Ok(()),
            None => Err(Error::Unavailable(FAILED.to_owned())),
        }
    }
}

/// A commit that was written and is not on disk yet.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) number: u64,
    pub(crate) begun: Stopwatch,
}

/// Brings the log to disk.
pub(crate) type SyncLog = Box<dyn FnMut(&File) -> io::Result<()> + Send>;

/// The writer's end of the sync thread. `T` is what is released when it is on disk. Dropping it waits until everything
/// that was handed over is released.
#[derive(Debug)]
pub(crate) struct Releases<T> {
    handed: Option<mpsc::Sender<(Option<Commit>, T)>>,
    finished: mpsc::Receiver<()>,
    is_syncing: bool,
    thread: Option<thread::JoinHandle<()>>,
}

impl<T: Send + 'static> Releases<T> {
    /// Starts the thread. It syncs `log` for each commit, and then calls `release` with what was handed over and with the
    /// commit, or with the error of the first sync that failed.
    pub(crate) fn start(
        log: File,
        mut sync: SyncLog,
        durable: Arc<Durable>,
        mut release: impl FnMut(T, Result<Option<Commit>, &io::Error>) + Send + 'static,
    ) -> io::Result<Self> {
        let (handed, to_release) = mpsc::channel::<(Option<Commit>, T)>();
        let (finish, finished) = mpsc::channel();
        let work = move || {
            let _alarm = Alarm(Arc::clone(&durable));
            let mut to_release = to_release.iter();
            let failure = loop {
                let Some((commit, held)) = to_release.next() else {
                    return;
                };
                let Some(commit) = commit else {
                    release(held, Ok(None));
                    continue;
                };
                if let Err(error) = sync(&log) {
                    durable.fail();
                    drop(finish);
                    release(held, Err(&error));
                    break error;
                }
                durable.reached(commit.number);
                release(held, Ok(Some(commit)));
                // The writer may have gone.
                let _ = finish.send(());
            };
            for (_, held) in to_release {
                release(held, Err(&failure));
            }
        };
        Ok(Self {
            handed: Some(handed),
            finished,
            is_syncing: false,
            thread: Some(
                thread::Builder::new()
                    .name("sqlite-sync".to_owned())
                    .spawn(work)?,
            ),
        })
    }

    /// Waits until all commits that were handed over are on disk and released. Returns false if a sync has failed.
    pub(crate) fn wait(&mut self) -> bool {
        if self.is_syncing && self.finished.recv().is_err() {
            return false;
        }
        self.is_syncing = false;
        true
    }

    /// Hands over what is released as soon as the commit is on disk, and every commit before it. [`Releases::wait`] must
    /// have been called before the commit was written.
    pub(crate) fn hand(&mut self, commit: Option<Commit>, held: T) {
        self.is_syncing |= commit.is_some();
        if let Some(handed) = &self.handed {
            // Without the thread, what is held is dropped, and so its callers are told.
            let _ = handed.send((commit, held));
        }
    }
}

/// Refuses those who wait for a commit, should the thread panic.
struct Alarm(Arc<Durable>);

impl Drop for Alarm {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail();
        }
    }
}

impl<T> Drop for Releases<T> {
    fn drop(&mut self) {
        self.handed = None;
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, the panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
