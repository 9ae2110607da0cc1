//! Keeps background work going: what a defect ends is begun again, logged and counted.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use tokio::time::sleep;

/// The pause before work begins again, so that a defect that is always met does not keep a processor
/// busy.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 1_000 });

/// Does some work until it ends by itself. After a panic it begins anew: the work holds nothing of its
/// own that a panic could leave half done, and what it does to the store is whole or not at all.
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
