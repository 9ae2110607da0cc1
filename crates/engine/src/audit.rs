//! Entries of the audit log.
//!
//! An entry about a change is committed with the change: [`Engine::draft`] begins it, and the decision carries it. An
//! entry that no decision commits, such as that of a refusal, waits in a queue ([`Engine::audit`]).
//!
//! Invariants: an entry never makes the call wait that it tells of; the queue is bounded, and what finds no room in it
//! is counted.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use asyncgate_core::{
    Decision, TenantId,
    admission::SERVER_TENANT,
    identity::{
        Changes,
        audit::{Draft, Event},
    },
};
use asyncgate_store::identity::Reads;
use prometheus_client::metrics::counter::Counter;
use tokio::{sync::Notify, time::sleep};

use crate::{Caller, CorrId, Engine, Fault, Remote, UserAgent};

/// The most entries that wait.
const MAX_WAITING: usize = 16_384;
/// The most entries of one commit.
const MAX_BATCH: usize = 256;
/// The time for which entries gather before they are written. Refusals come in floods, and each commit costs a sync.
const GATHER: Duration = Duration::from_millis(250);
/// The wait after a failure of the store.
const RETRY: Duration = Duration::from_secs(1);

/// The entries that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct AuditQueue {
    waiting: Mutex<VecDeque<Draft>>,
    arrived: Notify,
    /// Counts the entries that found no room.
    pub(crate) dropped: Counter,
}

impl AuditQueue {
    fn push(&self, draft: Draft) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.len() >= MAX_WAITING {
            self.dropped.inc();
            return;
        }
        waiting.push_back(draft);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Returns the oldest entries. They stay until [`AuditQueue::written`] takes them out.
    fn oldest(&self) -> Vec<Draft> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.iter().take(MAX_BATCH).cloned().collect()
    }

    fn written(&self, count: usize) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.drain(..count);
    }
}

impl Engine {
    /// Begins an entry about the call that the current task answers.
    pub fn draft(&self, caller: &Caller, event: Event) -> Draft {
        let tenant = (caller.tenant != SERVER_TENANT).then_some(caller.tenant);
        self.draft_of(tenant, event).by(&caller.principal.key())
    }

    /// Begins an entry of a tenant's log, or of the server's own, about the request that the current task answers.
    pub fn draft_of(&self, tenant: Option<TenantId>, event: Event) -> Draft {
        let now = self.now();
        let ip = Remote::current().and_then(Remote::ip);
        let (user_agent, corr_id) = (UserAgent::current(), CorrId::current());
        Draft::new(&mut self.ids(now), now, tenant, event).from_request(
            ip,
            user_agent.as_deref(),
            corr_id.as_ref().map(|id| &*id.text),
        )
    }

    /// Records an entry that no decision commits. It is written within moments, by [`Engine::write_audit`].
    pub fn audit(&self, draft: Draft) {
        self.audit_queue.push(draft);
    }

    /// Writes the entries that wait, until the engine drains.
    pub async fn write_audit(&self) {
        while !self.is_draining() {
            tokio::select! {
                () = self.drained() => {}
                () = self.audit_queue.arrived.notified() => {
                    tokio::select! {
                        () = self.drained() => {}
                        () = sleep(GATHER) => {}
                    }
                }
            }
            while let Err(fault) = self.flush_audit().await {
                tracing::error!(cause = fault.cause, "audit entries could not be written");
                if self.is_draining() {
                    return;
                }
                sleep(RETRY).await;
            }
        }
    }

    /// Writes the entries that wait now.
    pub async fn flush_audit(&self) -> Result<(), Fault> {
        loop {
            let drafts = self.audit_queue.oldest();
            let count = drafts.len();
            if count == 0 {
                return Ok(());
            }
            let decide = move |_, _| {
                let changes = Changes {
                    audit: drafts.clone(),
                    ..Changes::default()
                };
                Ok(Decision {
                    output: (),
                    changes,
                })
            };
            self.transact(SERVER_TENANT, 0, Reads::default(), decide)
                .await?;
            self.audit_queue.written(count);
        }
    }
}
