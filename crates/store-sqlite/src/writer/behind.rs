//! The writer writes behind what was decided about limits in memory, in commits of their own.

use std::time::Duration;

use asyncgate_store::Stopwatch;

use super::{PROBE_INTERVAL, Ran, Worker};

/// The most limits that are written in one commit, so that nobody waits long behind them.
const MAX_CELLS: usize = 1_000;

/// When the writer looks after the limits in memory.
#[derive(Debug)]
pub(super) struct Behind {
    write_after: Duration,
    /// The last try that failed. A disk that fails is not tried again at once.
    failed: Option<Stopwatch>,
}

impl Behind {
    pub(super) const fn new(write_after: Duration) -> Self {
        Self {
            write_after,
            failed: None,
        }
    }

    /// Returns the time until a disk that failed is tried again.
    fn pause(&self) -> Duration {
        let failed = self.failed.as_ref();
        failed.map_or(Duration::ZERO, |failed| {
            self.write_after.saturating_sub(failed.elapsed())
        })
    }
}

impl Worker {
    /// Returns the longest time to wait for jobs. Checks in memory wake nobody, so the writer looks by itself whether any
    /// limit has changed.
    pub(super) fn patience(&self) -> Duration {
        let due_in = self.shared.hot.due_in();
        let due_in = due_in.unwrap_or(self.behind.write_after);
        due_in.max(self.behind.pause()).min(PROBE_INTERVAL)
    }

    /// Writes the limits that have changed, if it is time to.
    pub(super) fn write_behind(&mut self) {
        let is_due = self.shared.hot.due_in() == Some(Duration::ZERO);
        if is_due && self.behind.pause() == Duration::ZERO && !self.has_failed {
            self.write_some_behind();
        }
    }

    /// Writes all limits that have changed, unless the disk fails.
    pub(super) fn write_everything_behind(&mut self) {
        self.behind.failed = None;
        while self.behind.failed.is_none() && !self.has_failed && self.shared.hot.due_in().is_some()
        {
            self.write_some_behind();
        }
    }

    fn write_some_behind(&mut self) {
        let taken = self.shared.hot.take(MAX_CELLS);
        if taken.cells.is_empty() {
            return;
        }
        let begun = self.writable.db.conn.execute_batch("BEGIN IMMEDIATE");
        let wrote = begun.and_then(|()| self.writable.write_behind(&taken));
        match wrote.and_then(|()| self.commit(true)) {
            Ok(commit) => {
                if let Some(commit) = &commit {
                    self.shared.hot.written(&taken, commit.number);
                }
                self.behind.failed = None;
                self.hand(commit, Ran::new());
            }
            Err(error) => {
                self.shared.hot.put_back(&taken);
                self.behind.failed = Some(Stopwatch::start());
                self.roll_back();
                self.fail(Ran::new(), &error);
            }
        }
    }
}
