//! A store's measurements of itself, the same for every backend.

use std::time::Duration;

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};

/// A store's counters. Cloning shares them.
#[derive(Debug, Clone)]
pub struct StoreMetrics {
    /// Commits that became durable.
    pub commits: Counter,
    /// Commits that failed.
    pub commit_failures: Counter,
    /// The number of transactions in each commit.
    pub jobs_per_commit: Histogram,
    /// The time that commits took, fsync included.
    pub commit_seconds: Histogram,
    /// Transactions that are waiting to be written.
    pub waiting: Gauge,
    /// Transactions that were turned away because too many were waiting.
    pub turned_away: Counter,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        Self {
            commits: Counter::default(),
            commit_failures: Counter::default(),
            jobs_per_commit: Histogram::new([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0]),
            commit_seconds: Histogram::new([
                0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0,
            ]),
            waiting: Gauge::default(),
            turned_away: Counter::default(),
        }
    }
}

impl StoreMetrics {
    /// Adds the metrics to those that `registry` reports.
    pub fn register(&self, registry: &mut Registry) {
        let store = registry.sub_registry_with_prefix("store");
        store.register("commits", "Durable commits", self.commits.clone());
        store.register(
            "commit_failures",
            "Failed commits",
            self.commit_failures.clone(),
        );
        store.register(
            "jobs_per_commit",
            "Transactions that shared a commit",
            self.jobs_per_commit.clone(),
        );
        store.register(
            "commit_seconds",
            "Time to commit, fsync included",
            self.commit_seconds.clone(),
        );
        store.register(
            "waiting_jobs",
            "Transactions waiting to be written",
            self.waiting.clone(),
        );
        store.register(
            "turned_away",
            "Transactions refused because the queue was full",
            self.turned_away.clone(),
        );
    }
}

/// A measurement of how long something takes. It is the only use of the machine's clock outside the server: the time
/// goes to metrics and says how long something has waited, and never goes into a decision of a rule.
#[derive(Debug, Clone, Copy)]
pub struct Stopwatch(std::time::Instant);

impl Stopwatch {
    /// Starts measuring.
    #[expect(
        clippy::disallowed_methods,
        reason = "durations for metrics decide nothing"
    )]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
