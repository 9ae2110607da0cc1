//! A stream of messages: receiving that goes on by itself, as far as the receiver keeps up.

use std::time::Duration;

use asyncgate_api::{Code, Envelope, Operation, ReceiveMessages, RecvInput};
use asyncgate_core::{TenantId, mailbox::Message};
use asyncgate_store::{Deliveries, MessageWait};
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{Order, envelope};
use crate::{Caller, Engine, Fault, call, metrics::span};

/// How long a stream is silent at most.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long to wait when receivers hold too many messages together.
const SATURATED: Duration = Duration::from_millis(250);

/// What a stream gives next.
#[derive(Debug, PartialEq)]
pub enum Streamed {
    /// Messages, at least one.
    Messages(Vec<Envelope>),
    /// Nothing, but the stream is alive.
    Heartbeat,
}

/// Messages of a topic as they come. At most as many as `max_messages` are with the receiver at a
/// time: when one is settled or times out, the next is given.
///
/// Messages are taken when [`MessageStream::next`] is called and not before, so that nobody's time
/// runs out in a buffer: call it only when there is room to pass them on.
pub struct MessageStream<'e> {
    engine: &'e Engine,
    tenant: TenantId,
    order: Order,
    window: usize,
    deliveries: Deliveries<'e>,
    /// What the first look gave.
    first: Option<Vec<Envelope>>,
    beat: Instant,
}

impl std::fmt::Debug for MessageStream<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageStream")
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens a stream: one call of [`ReceiveMessages`]. It looks for messages once, so that whatever
    /// refuses a receiver refuses a stream too. `wait_seconds` means nothing here: a stream waits.
    ///
    /// # Errors
    /// As [`ReceiveMessages`] has them, and the facade's own if it could not decode the input.
    pub async fn receive_stream(
        &self,
        caller: &Caller,
        input: Result<RecvInput, Fault>,
    ) -> Result<MessageStream<'_>, Fault> {
        let open = |input| self.open_stream(caller, input);
        call::run::<ReceiveMessages, _, _, _>(self, caller, || input, open, |stream, _| stream)
            .await
    }

    async fn open_stream(
        &self,
        caller: &Caller,
        input: RecvInput,
    ) -> Result<MessageStream<'_>, Fault> {
        let order = Order::new(&self.settings().policy.mailbox, input)?;
        let mut stream = MessageStream {
            engine: self,
            tenant: caller.tenant,
            window: order.wish.max_messages,
            order,
            deliveries: self.store.signals().deliveries(),
            first: None,
            beat: Instant::now() + HEARTBEAT,
        };
        let first = self.take_messages(stream.tenant, &stream.order).await?;
        stream.first = stream.given(&first.messages);
        Ok(stream)
    }
}

impl MessageStream<'_> {
    /// The next messages, or a sign of life. Nothing when the stream has ended: the engine drains,
    /// or cannot go on.
    pub async fn next(&mut self) -> Option<Streamed> {
        if let Some(first) = self.first.take() {
            return Some(self.beaten(Streamed::Messages(first)));
        }
        let mut woken: Option<MessageWait<'_>> = None;
        loop {
            if self.engine.is_draining() {
                return None;
            }
            let room = self.window - self.deliveries.open(self.engine.now()).min(self.window);
            if room == 0 {
                // A wake-up for a message that this stream has no room for is another's.
                drop(woken.take());
                let settled = self.deliveries.settled();
                if !wait(self.engine, settled, self.beat).await {
                    return self.heartbeat();
                }
                continue;
            }
            self.order.wish.max_messages = room;
            let signals = self.engine.store.signals();
            let mut next = signals.message(self.tenant, &self.order.topic);
            let taking = self.engine.take_messages(self.tenant, &self.order);
            let span = span::of(self.engine, &ReceiveMessages::SPEC);
            let taken = match taking.instrument(span).await {
                Ok(taken) => taken.messages,
                Err(fault) if fault.code == Code::ESaturated => {
                    let soon = (Instant::now() + SATURATED).min(self.beat);
                    drop(next);
                    wait(self.engine, std::future::pending(), soon).await;
                    if Instant::now() >= self.beat {
                        return self.heartbeat();
                    }
                    continue;
                }
                Err(fault) => {
                    tracing::error!(cause = fault.cause, "a stream of messages was cut");
                    return None;
                }
            };
            if let Some(given) = self.given(&taken) {
                return Some(self.beaten(Streamed::Messages(given)));
            }
            // Only who found nothing knows that nothing is left.
            if let Some(woken) = woken.take() {
                woken.looked();
            }
            if !wait(self.engine, next.woken(), self.beat).await {
                return self.heartbeat();
            }
            woken = Some(next);
        }
    }

    /// Counts messages against the window.
    fn given(&mut self, messages: &[Message]) -> Option<Vec<Envelope>> {
        let factor = self.engine.settings().policy.mailbox.inflight_factor;
        for message in messages {
            if let Some(delivery) = message.delivery {
                // The receiver may keep it longer, up to here; an earlier end is signalled.
                let longest = delivery.visibility_ms.saturating_mul(i64::from(factor));
                let until = delivery.at.plus_millis(longest);
                self.deliveries.watch(delivery.lease, until);
            }
        }
        (!messages.is_empty()).then(|| messages.iter().map(envelope).collect())
    }

    fn heartbeat(&mut self) -> Option<Streamed> {
        let draining = self.engine.is_draining();
        (!draining).then(|| self.beaten(Streamed::Heartbeat))
    }

    fn beaten(&mut self, given: Streamed) -> Streamed {
        self.beat = Instant::now() + HEARTBEAT;
        given
    }
}

/// Waits for an event, until a time.
async fn wait(engine: &Engine, event: impl Future<Output = ()>, until: Instant) -> bool {
    let limit = until.saturating_duration_since(Instant::now());
    engine.wait_for(event, limit).await
}
