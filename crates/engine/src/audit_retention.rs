//! Retention: what identity keeps for a while and then forgets. Entries of audit logs go when they are old enough,
//! records when their time is over.
//!
//! Invariant: each step is bounded and takes its turn like any other job, so that a long log delays nobody.

use std::time::Duration;

use asyncgate_core::{
    Decision, TenantId, Timestamp,
    admission::SERVER_TENANT,
    identity::{Changes, audit::cut, forget},
};
use asyncgate_store::identity::{Oldest, Reads};

use crate::{Engine, Fault};

/// The time between two rounds.
const ROUND: Duration = Duration::from_secs(600);
/// The wait after a failure of the store.
const RETRY: Duration = Duration::from_secs(30);
/// The most logs of one look.
const LOGS: usize = 64;
/// The most entries or records of one step.
const STEP: usize = 256;
const DAY_MS: i64 = 86_400_000;

impl Engine {
    /// Forgets what was kept long enough, until the engine drains.
    pub async fn forget_old_identity(&self) {
        while !self.is_draining() {
            let wait = match self.forget_now().await {
                Ok(()) => ROUND,
                Err(fault) => {
                    let cause = fault.cause.as_deref();
                    tracing::error!(cause, "what identity keeps too long could not be forgotten");
                    RETRY
                }
            };
            tokio::select! {
                () = self.drained() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Forgets what was kept long enough by now.
    pub async fn forget_now(&self) -> Result<(), Fault> {
        while self.forget_records().await? == STEP {
            if self.is_draining() {
                return Ok(());
            }
        }
        let days = i64::from(self.settings().audit_retention_days);
        let before = self.now().plus_millis(-days.saturating_mul(DAY_MS));
        loop {
            let logs = self.store.identity().audit_logs_from_before(before, LOGS);
            let logs = logs.await?;
            if logs.is_empty() || self.is_draining() {
                return Ok(());
            }
            // A tenant that cannot be served holds nobody else up; what it has is tried again in the next round.
            let mut failure = None;
            for log in logs {
                let cut = self.cut_log(log, before).await;
                failure = failure.or(cut.err());
            }
            if let Some(fault) = failure {
                return Err(fault);
            }
        }
    }

    /// Removes some records whose time is over. Returns how many.
    async fn forget_records(&self) -> Result<usize, Fault> {
        let reads = Reads {
            over: STEP,
            ..Reads::default()
        };
        self.transact(SERVER_TENANT, 0, reads, |_, snapshot| {
            Ok(Decision {
                output: snapshot.over.len(),
                changes: forget(&snapshot.over),
            })
        })
        .await
    }

    /// Cuts some of the oldest entries of a log off.
    async fn cut_log(&self, log: Option<TenantId>, before: Timestamp) -> Result<(), Fault> {
        let reads = Reads {
            oldest: Some(Oldest {
                tenant: log,
                limit: STEP,
            }),
            ..Reads::default()
        };
        let turn = log.unwrap_or(SERVER_TENANT);
        self.transact(turn, 0, reads, move |_, snapshot| {
            let changes = Changes {
                cut: cut(log, &snapshot.oldest, before),
                ..Changes::default()
            };
            Ok(Decision {
                output: (),
                changes,
            })
        })
        .await
    }
}
