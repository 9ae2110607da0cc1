//! Keeps background work running: work that panics begins again, and that is logged and counted.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use tokio::time::sleep;

/// The pause before work begins again: work that panics at once must not keep a processor busy.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1_000 });

/// Runs work until it ends by itself. After a panic the work begins again. That is safe: it keeps no
/// state of its own between two steps, and its changes to the store are atomic.
pub async fn keep<F: Future<Output = ()>>(name: &str, restarts: Counter, work: impl Fn() -> F) {
    while AssertUnwindSafe(work()).catch_unwind().await.is_err() {
        restarts.inc();
        tracing::error!(
            event = "service.restart",
            name,
            "background work ended by a defect and begins again"
        );
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn work_that_panics_begins_again_and_is_counted() {
        let restarts = Counter::default();
        let begun = AtomicU32::new(0);
        keep("test", restarts.clone(), || async {
            let before = begun.fetch_add(1, Ordering::Relaxed);
            assert!(before >= 2, "a defect");
        })
        .await;
        assert_eq!((begun.into_inner(), restarts.get()), (3, 2));
    }
}
