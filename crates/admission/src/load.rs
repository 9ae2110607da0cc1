//! Callers who never stop asking, for tests of backends that come and go.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

use std::{sync::Arc, time::Duration};

use asyncgate_core::{TenantId, Timestamp, admission::Asks};
use asyncgate_store::{
    admission::Host,
    conformance::{PATIENCE, bucket, eventually, limit, nonce},
};
use tokio::{
    task::JoinHandle,
    time::{Instant, timeout},
};

use crate::{FailureMode, Guard, Settings, Source};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);
const NOW: Timestamp = Timestamp::from_millis(1_731_690_000_000);

/// Callers of a backend behind its guard. Each call ends in time, as its failure mode says.
#[derive(Debug)]
pub struct Load {
    asker: Arc<Asker>,
    callers: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Asker {
    guard: Guard,
    start: Instant,
}

impl Load {
    /// Begins to ask, within a runtime of tokio.
    pub fn start(host: Arc<dyn Host>, callers: usize) -> Self {
        // The callers are many, and a busy machine may take long for all of them.
        let settings = Settings {
            timeout: Duration::from_secs(2),
            ..Settings::default()
        };
        let asker = Arc::new(Asker {
            guard: Guard::new(host, settings),
            start: Instant::now(),
        });
        let call = |caller: usize| {
            let asker = Arc::clone(&asker);
            tokio::spawn(async move {
                for turn in 0.. {
                    let both = async {
                        asker.nonce(&format!("{caller} {turn}")).await;
                        asker.limit(&caller.to_string()).await;
                    };
                    assert!(timeout(PATIENCE, both).await.is_ok(), "a call hangs");
                    tokio::task::yield_now().await;
                }
            })
        };
        Self {
            callers: (0..callers).map(call).collect(),
            asker,
        }
    }

    /// Waits until nonces and limits are answered by the backend, or until both are not.
    pub async fn until(&self, answered: bool) {
        let asker = &self.asker;
        eventually(&format!("answered: {answered}"), async || {
            let text = format!("{answered} {:?}", asker.start.elapsed());
            asker.nonce(&text).await == answered && asker.limit("k").await == answered
        })
        .await;
    }

    /// Every caller is still at it: none has panicked.
    pub fn end(self) {
        for caller in self.callers {
            assert!(!caller.is_finished(), "a caller has panicked");
            caller.abort();
        }
    }
}

impl Asker {
    fn now(&self) -> Timestamp {
        NOW.plus_millis(i64::try_from(self.start.elapsed().as_millis()).unwrap())
    }

    /// Whether the backend answered. A nonce is new, or nobody knows: then it must not pass.
    async fn nonce(&self, text: &str) -> bool {
        let asks = Asks {
            nonces: vec![nonce(text, 600)],
            ..Asks::default()
        };
        match self.guard.admit(TENANT, self.now(), asks).await {
            Ok(answered) => {
                assert_eq!(answered.provenance.source, Source::Store);
                assert!(answered.answer.passed(), "{text} was never used");
                true
            }
            Err(unavailable) => {
                assert!(unavailable.retry_after_secs > 0);
                false
            }
        }
    }

    /// Whether the backend answered. Without it the call is allowed, and says why.
    async fn limit(&self, key: &str) -> bool {
        let check = limit(&bucket(1 << 30, 1 << 30, false), key, 1);
        let answered = self.guard.check_limit(TENANT, self.now(), &check).await;
        let answered = answered.unwrap();
        assert!(answered.answer.allowed);
        let by_host = answered.provenance.source == Source::Store;
        let mode = (!by_host).then_some(FailureMode::Open);
        assert_eq!(answered.provenance.failure_mode, mode);
        by_host
    }
}
