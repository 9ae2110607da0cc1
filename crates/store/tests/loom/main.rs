//! The queues under every order in which threads can run, as far as a few switches go.
//!
//! The sources of the queues are compiled here once more, with loom's primitives in the place of the
//! standard library's. `LOOM_MAX_PREEMPTIONS` says how far to go; `LOOM_LOG` shows a failing order.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

#[expect(dead_code, reason = "not all of it is needed here")]
#[path = "../../src/fair.rs"]
mod fair;
#[path = "../../src/lines.rs"]
mod lines;
mod queue;
mod shutdown;
mod visibility;
mod wakeups;

/// What `src/sync.rs` is to the product.
mod sync {
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub(crate) use std::sync::PoisonError;
}

/// Runs a scenario in every order, with two switches that no thread asked for unless told otherwise.
fn explore(scenario: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(2);
    model.check(scenario);
}
