//! Watching the deadlines of messages: deliveries that time out, delays and lives that end, and what
//! is only remembered being forgotten.

use std::{collections::BTreeMap, time::Duration};

use asyncgate_api::Code;
use asyncgate_core::{
    MessageId, TenantId,
    mailbox::{Death, sweep},
};
use asyncgate_store::mailbox::Reads;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{Engine, Fault, metrics::span};

/// How many messages one transaction moves, so that requests are not held up behind it.
const BATCH: usize = 256;
/// How soon to look again at what is due but did not move.
const LOOK_AGAIN_MS: i64 = 50;
/// How often to look for messages that nobody came for. They have no deadline of their own.
const FORGOTTEN_EVERY: Duration = Duration::from_secs(3_600);

impl Engine {
    /// Acts on the deadlines of messages until the engine drains.
    pub async fn watch_messages(&self) {
        let mut next_search = Instant::now();
        loop {
            self.note_scan();
            if Instant::now() >= next_search {
                next_search = Instant::now() + FORGOTTEN_EVERY;
                if let Err(fault) = self.bury_old_messages().await {
                    tracing::error!(cause = fault.cause, "could not look for old messages");
                }
            }
            let round = self.act_on_messages().instrument(span::scanner(self));
            let sleep = match round.await {
                Ok(sleep) => sleep,
                Err(fault) => {
                    tracing::error!(cause = fault.cause, "could not act on messages");
                    Duration::from_secs(1)
                }
            };
            let wake = (Instant::now() + sleep).min(next_search);
            tokio::select! {
                () = self.drained() => return,
                () = self.store.signals().earlier_message() => {}
                () = tokio::time::sleep_until(wake) => {
                    self.metrics.mailbox.woke(wake.elapsed());
                }
            }
        }
    }

    /// Acts on every deadline of a message that has come, and answers how long to sleep.
    pub async fn act_on_messages(&self) -> Result<Duration, Fault> {
        let signals = self.store.signals();
        // From here on every new deadline counts as earlier, so that none is missed while looking.
        signals.watch_messages(None);
        self.sweep_messages().await?;
        let longest = i64::try_from(self.settings().sweep_interval_ms).unwrap_or(i64::MAX);
        let next = self.store.mailbox().next_message_due().await?;
        let now = self.now();
        let until = next.map_or(now.plus_millis(longest), |next| {
            let next = if next > now {
                next
            } else {
                now.plus_millis(LOOK_AGAIN_MS)
            };
            next.min(now.plus_millis(longest))
        });
        signals.watch_messages(Some(until));
        let millis = until.millis_since(now);
        Ok(Duration::from_millis(u64::try_from(millis).unwrap_or(0)))
    }

    async fn sweep_messages(&self) -> Result<(), Fault> {
        let mut limit = BATCH;
        loop {
            let mailbox = self.store.mailbox();
            let due = mailbox.messages_due(self.now(), limit).await?;
            let found = due.len();
            let moved = self.move_messages(due).await?;
            if found < limit {
                return Ok(());
            }
            // What cannot be moved must hide nothing behind it.
            limit = if moved == 0 { limit * 2 } else { BATCH };
        }
    }

    /// Ends the lives of messages that have waited longer than any may.
    async fn bury_old_messages(&self) -> Result<(), Fault> {
        let retention = self.settings().policy.mailbox.ready_retention_ms;
        let since = self.now().plus_millis(retention.saturating_neg());
        let mut after = None;
        loop {
            let mailbox = self.store.mailbox();
            let old = mailbox.waiting_since(since, after, BATCH).await?;
            after = old.last().copied();
            if after.is_none() {
                return Ok(());
            }
            self.move_messages(old).await?;
        }
    }

    async fn move_messages(&self, due: Vec<(TenantId, MessageId)>) -> Result<usize, Fault> {
        let mut by_tenant: BTreeMap<TenantId, Vec<MessageId>> = BTreeMap::new();
        for (tenant, message) in due {
            by_tenant.entry(tenant).or_default().push(message);
        }
        let mut moved = 0;
        for (tenant, messages) in by_tenant {
            match self.move_messages_of(tenant, messages.clone()).await {
                Ok(some) => moved += some,
                // One row that cannot be read must not hold up the deadlines of all others.
                Err(fault) if fault.code == Code::Internal => {
                    for message in messages {
                        match self.move_messages_of(tenant, vec![message]).await {
                            Ok(some) => moved += some,
                            Err(fault) => {
                                tracing::error!(cause = fault.cause, "cannot move a message");
                            }
                        }
                    }
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(moved)
    }

    async fn move_messages_of(
        &self,
        tenant: TenantId,
        messages: Vec<MessageId>,
    ) -> Result<usize, Fault> {
        let reads = Reads {
            messages,
            ..Reads::default()
        };
        let swept = self
            .transact(tenant, 0, reads, |env, snapshot| {
                Ok(sweep(&env, snapshot.messages))
            })
            .await?;
        let settings = self.settings();
        let metrics = &self.metrics.mailbox;
        metrics.timed_out(&settings, &swept.timed_out);
        metrics.held_back(tenant, &swept.held_back);
        self.note_deaths(&swept.died);
        Ok(swept.moved())
    }

    /// Counts new dead letters.
    pub(crate) fn note_deaths(&self, died: &[Death]) {
        if died.is_empty() {
            return;
        }
        let settings = self.settings();
        for death in died {
            self.metrics.mailbox.died(&settings, death);
        }
        self.drain_meter.note(self.now(), died.len());
    }
}
