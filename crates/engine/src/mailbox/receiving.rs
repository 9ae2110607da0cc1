//! Taking messages, at once or as soon as they come.

use std::{future::pending, time::Duration};

use asyncgate_api::RecvInput;
use asyncgate_core::{
    MessageId, TenantId,
    mailbox::{Message, Policy, Received, Wish, receive},
};
use asyncgate_store::{
    Stopwatch,
    mailbox::{Reads, Take},
    take_or_wait,
};

use super::visibility_ms;
use crate::{Caller, Engine, Fault, input, metrics::span};

/// The request of a receiver.
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

/// Returns how many messages a call gives at most.
pub(crate) fn max_messages(policy: &Policy, wished: Option<u32>) -> Result<usize, Fault> {
    let most = u32::from(policy.max_messages);
    input::limit("max_messages", wished, most, most)
}

/// Returns how many bytes of content a call gives at most, unless the first message alone has more.
pub(crate) fn max_bytes(policy: &Policy, wished: Option<u64>) -> usize {
    let wished = wished.and_then(|bytes| usize::try_from(bytes).ok());
    wished.map_or(policy.max_bytes, |bytes| bytes.min(policy.max_bytes))
}

/// The outcome of a look for messages.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) messages: Vec<Message>,
    /// Messages whose bytes do not agree with their hashes. Nobody is given them.
    pub(crate) damaged: Vec<MessageId>,
}

impl Taken {
    /// Returns true if there is nothing to tell the receiver.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.damaged.is_empty()
    }
}

impl Engine {
    /// Takes the messages that are ready. An empty answer means that nothing is ready.
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
                    receive(
                        env,
                        &wish,
                        snapshot.inflight,
                        snapshot.ready,
                        snapshot.lines,
                    )
                })
                .await?;
            self.note_received(tenant, &received, watch);
            let found = received.messages.len() + received.damaged.len() + received.died.len();
            let damaged = received.damaged.into_iter().map(|damage| damage.id);
            taken.damaged.extend(damaged);
            // Messages that had grown too old or were damaged may have stood before good ones: only a
            // look that finds none at all proves that nothing is ready.
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
    pub(crate) async fn await_messages(
        &self,
        caller: &Caller,
        order: &Order,
        limit: Duration,
    ) -> Result<Taken, Fault> {
        let (signals, tenant) = (self.store.signals(), caller.tenant);
        let register = || signals.message_waiter(tenant, &order.topic);
        let look = || async {
            let taken = self.take_messages(tenant, order).await;
            taken.map(|taken| (!taken.is_empty()).then_some(taken))
        };
        let stop = self.wait_as(caller, pending(), limit);
        let taken = take_or_wait(register, look, stop).await;
        taken.map(Option::unwrap_or_default)
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
        self.note_deaths(tenant, &received.died);
    }
}
