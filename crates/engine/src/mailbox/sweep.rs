//! The deadlines of messages: deliveries that time out, delays and lives that end, and the end of what is only
//! remembered. How they are watched stands in the engine's `sweep.rs`.

use std::time::Duration;

use asyncgate_core::{
    MessageId, TenantId, Timestamp,
    mailbox::{Death, sweep},
};
use asyncgate_store::{Answer, Messages, Signals, Store, mailbox::Reads};
use tracing::Span;

use crate::{Engine, Fault, metrics::span, sweep::Deadlines};

/// The pause between two searches for messages that nobody came for. They have no deadline of their own.
const OLD_MESSAGES_EVERY: Duration = Duration::from_secs(3_600);

impl Deadlines for Messages {
    type Id = MessageId;

    const PLANE: &'static str = "messages";
    const BATCH: usize = 256;
    const LOOK_AGAIN_MS: i64 = 50;

    fn due(
        store: &dyn Store,
        now: Timestamp,
        limit: usize,
    ) -> Answer<'_, Vec<(TenantId, MessageId)>> {
        store.mailbox().messages_due(now, limit)
    }

    fn next_due(store: &dyn Store) -> Answer<'_, Option<Timestamp>> {
        store.mailbox().next_message_due()
    }

    fn watch_until(signals: &Signals, until: Option<Timestamp>) {
        signals.watch_messages(until);
    }

    async fn earlier_deadline(signals: &Signals) {
        signals.earlier_message().await;
    }

    async fn move_due(
        engine: &Engine,
        tenant: TenantId,
        messages: Vec<MessageId>,
    ) -> Result<usize, Fault> {
        let reads = Reads {
            messages,
            ..Reads::default()
        };
        let swept = engine
            .transact(tenant, 0, reads, |env, snapshot| {
                Ok(sweep(&env, snapshot.messages, snapshot.lines))
            })
            .await?;
        let settings = engine.settings();
        let metrics = &engine.metrics.mailbox;
        metrics.timed_out(&settings, tenant, &swept.timed_out);
        metrics.held_back(tenant, &swept.held_back);
        metrics.buried(&settings, tenant, &swept.buried);
        engine.note_deaths(tenant, &swept.died);
        Ok(swept.moved())
    }

    fn round(engine: &Engine) -> Span {
        engine.note_scan();
        span::scanner(engine)
    }

    fn woke(engine: &Engine, late: Duration) {
        engine.metrics.mailbox.woke(late);
    }
}

impl Engine {
    /// Acts on the deadlines of messages, and ends the lives of those that nobody came for, until the engine drains.
    pub async fn watch_messages(&self) {
        tokio::join!(self.watch::<Messages>(), self.watch_old_messages());
    }

    /// Ends the lives of messages that have waited longer than any may, from time to time.
    async fn watch_old_messages(&self) {
        while !self.is_draining() {
            if let Err(fault) = self.bury_old_messages().await {
                tracing::error!(cause = fault.cause, "could not look for old messages");
            }
            self.wait_for(std::future::pending(), OLD_MESSAGES_EVERY)
                .await;
        }
    }

    async fn bury_old_messages(&self) -> Result<(), Fault> {
        let retention = self.settings().policy.mailbox.ready_retention_ms;
        let since = self.now().plus_millis(retention.saturating_neg());
        let (mut after, mut failure) = (None, None);
        loop {
            let mailbox = self.store.mailbox();
            let old = mailbox.waiting_since(since, after, Messages::BATCH).await?;
            after = old.last().copied();
            if after.is_none() {
                return failure.map_or(Ok(()), Err);
            }
            self.move_all::<Messages>(old, &mut failure).await;
        }
    }

    /// Counts new dead letters.
    pub(crate) fn note_deaths(&self, tenant: TenantId, died: &[Death]) {
        if died.is_empty() {
            return;
        }
        let settings = self.settings();
        for death in died {
            self.metrics.mailbox.died(&settings, tenant, death);
        }
        self.drain_meter.note(self.now(), died.len());
    }
}
