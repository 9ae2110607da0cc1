//! Taking messages, at once or when they come.

use std::time::Duration;

use asyncgate_api::RecvInput;
use asyncgate_core::{
    MessageId, TenantId,
    mailbox::{Message, Policy, Received, Wish, receive},
};
use asyncgate_store::{
    MessageWait, Stopwatch,
    mailbox::{Reads, Take},
};
use tokio::time::Instant;

use super::visibility_ms;
use crate::{Engine, Fault, input, metrics::span};

/// What a receiver asks for.
#[derive(Debug, Clone)]
pub(crate) struct Order {
    pub(crate) topic: String,
    pub(crate) wish: Wish,
}

impl Order {
    pub(crate) fn new(policy: &Policy, input: RecvInput) -> Result<Self, Fault> {
        Ok(Self {
            topic: input::name("topic", input.topic)?,
            wish: Wish {
                visibility_ms: visibility_ms(policy, input.visibility_ms)?,
                max_messages: max_messages(policy, input.max_messages)?,
                max_bytes: max_bytes(policy, input.max_bytes),
            },
        })
    }

    fn take(&self) -> Take {
        Take {
            topic: self.topic.clone(),
            max_messages: self.wish.max_messages,
            max_bytes: self.wish.max_bytes,
        }
    }
}

/// The most messages that a call gives.
pub(crate) fn max_messages(policy: &Policy, wished: Option<u32>) -> Result<usize, Fault> {
    let most = u32::from(policy.max_messages);
    input::limit("max_messages", wished, most, most)
}

/// The most bytes of content that a call gives, unless the first message alone has more.
pub(crate) fn max_bytes(policy: &Policy, wished: Option<u64>) -> usize {
    let wished = wished.and_then(|bytes| usize::try_from(bytes).ok());
    wished.map_or(policy.max_bytes, |bytes| bytes.min(policy.max_bytes))
}

/// What a look for messages gave.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) messages: Vec<Message>,
    /// Messages that were met but are handed to nobody.
    pub(crate) damaged: Vec<MessageId>,
}

impl Taken {
    /// Whether there is nothing to tell the receiver.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.damaged.is_empty()
    }
}

impl Engine {
    /// Takes the messages that are there. It looks again if all it met had grown too old or was
    /// damaged, so that an empty answer means that nothing is ready.
    pub(crate) async fn take_messages(
        &self,
        tenant: TenantId,
        order: &Order,
    ) -> Result<Taken, Fault> {
        let watch = Stopwatch::start();
        span::note_visibility(order.wish.visibility_ms);
        let mut taken = Taken::default();
        loop {
            let reads = Reads {
                ready: Some(order.take()),
                ..Reads::default()
            };
            let wish = order.wish;
            let received = self
                .transact(tenant, 0, reads, move |env, snapshot| {
                    receive(env, &wish, snapshot.inflight, snapshot.ready)
                })
                .await?;
            self.note_received(tenant, &received, watch);
            let found = received.messages.len() + received.damaged.len() + received.died.len();
            let damaged = received.damaged.into_iter().map(|damage| damage.id);
            taken.damaged.extend(damaged);
            if !received.messages.is_empty() || found == 0 {
                taken.messages = received.messages;
                break;
            }
        }
        if !taken.messages.is_empty() {
            self.metrics.mailbox.dequeued(watch);
        }
        Ok(taken)
    }

    /// Takes messages, and waits for one if there is none.
    ///
    /// It registers before it looks, so that it misses none, and holds on to a wake-up until it has
    /// looked, so that the wake-up passes to another receiver if this call is given up.
    pub(crate) async fn await_messages(
        &self,
        tenant: TenantId,
        order: &Order,
        limit: Duration,
    ) -> Result<Taken, Fault> {
        let started = Instant::now();
        let mut woken: Option<MessageWait<'_>> = None;
        loop {
            let mut wait = self.store.signals().message(tenant, &order.topic);
            let taken = self.take_messages(tenant, order).await?;
            // Only who found nothing knows that nothing is left; else the wake-up is passed on.
            if let Some(woken) = woken.take().filter(|_| taken.messages.is_empty()) {
                woken.looked();
            }
            let left = limit.saturating_sub(started.elapsed());
            if !taken.is_empty() || left.is_zero() || !self.wait_for(wait.woken(), left).await {
                return Ok(taken);
            }
            woken = Some(wait);
        }
    }

    fn note_received(&self, tenant: TenantId, received: &Received, watch: Stopwatch) {
        let settings = self.settings();
        let metrics = &self.metrics.mailbox;
        for message in &received.messages {
            metrics.handed_over(&settings, tenant, message, watch);
        }
        for damage in &received.damaged {
            metrics.damaged(&settings, damage);
        }
        self.note_deaths(&received.died);
    }
}
