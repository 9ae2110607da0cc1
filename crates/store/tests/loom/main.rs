//! Tests of the queues in every order in which threads can run, as far as a few switches go.
//!
//! The sources of the queues are compiled here once more, with loom's primitives in the place of the
//! standard library's, so what is tested is the product's own code. Plain `cargo test` runs them.
//! `LOOM_MAX_PREEMPTIONS` sets how many switches are tried; `LOOM_LOG` shows a failing order.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

#[expect(dead_code, reason = "not all of it is needed here")]
#[path = "../../src/fair.rs"]
mod fair;
mod queue;
mod shutdown;
mod visibility;
#[expect(dead_code, reason = "not all of it is needed here")]
#[path = "../../src/waiters.rs"]
mod waiters;
mod wakeups;

/// Takes the place of `src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use std::sync::PoisonError;
}

/// Runs a scenario in every order of its threads. A thread is switched away from at most twice while it
/// could go on, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
fn explore(scenario: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(2);
    model.check(scenario);
}
