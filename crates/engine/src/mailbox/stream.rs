//! A stream of messages: receiving that goes on by itself, as far as the receiver keeps up.

use std::{future::pending, mem, pin::pin, sync::Arc, time::Duration};

use asyncgate_api::{Code, Envelope, Operation, ReceiveMessages, RecvInput};
use asyncgate_core::{TenantId, mailbox::Message};
use asyncgate_store::{Deliveries, take_or_wait};
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{Order, envelope};
use crate::{Caller, Engine, Fault, call, metrics::span, origin::Origin};

/// The longest silence of a stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// The pause before the next look while receivers hold too many messages in all.
const SATURATED: Duration = Duration::from_millis(250);

/// A part of a stream.
#[derive(Debug, PartialEq)]
pub enum Streamed {
    /// Messages, at least one.
    Messages(Vec<Envelope>),
    /// Nothing, but the stream is alive.
    Heartbeat,
}

/// Messages of a topic as they come. The receiver has at most `max_messages` of them at a time: when
/// one is settled or times out, the next is given.
///
/// Messages are taken when [`MessageStream::next`] is polled and not before, so that nobody's time
/// runs out in a buffer: poll it only when there is room to pass them on.
pub struct MessageStream {
    engine: Arc<Engine>,
    tenant: TenantId,
    order: Order,
    window: usize,
    deliveries: Deliveries,
    /// The messages that the first look took, until they are given.
    first: Vec<Envelope>,
    /// The time of the next sign of life.
    beat: Instant,
    /// The request that opened the stream, which the log names for as long as the stream works.
    origin: Origin,
}

impl std::fmt::Debug for MessageStream {
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
    /// The errors of [`ReceiveMessages`], and the facade's own if it could not decode the input.
    pub fn receive_stream<'a>(
        self: &'a Arc<Self>,
        caller: &'a Caller,
        input: Result<RecvInput, Fault>,
    ) -> BoxFuture<'a, Result<MessageStream, Fault>> {
        let open = |input| self.open_stream(caller, input);
        // Boxed, so that it is compiled here and not where it is awaited.
        Box::pin(call::run::<ReceiveMessages, _, _>(
            self,
            caller,
            || input,
            open,
        ))
    }

    async fn open_stream(
        self: &Arc<Self>,
        caller: &Caller,
        input: RecvInput,
    ) -> Result<MessageStream, Fault> {
        let order = Order::new(&self.settings().policy.mailbox, input)?;
        let mut stream = MessageStream {
            engine: Arc::clone(self),
            tenant: caller.tenant,
            window: order.wish.max_messages,
            order,
            deliveries: self.store.signals().deliveries(),
            first: Vec::new(),
            beat: Instant::now() + HEARTBEAT,
            origin: Origin::current(),
        };
        let first = self.take_messages(stream.tenant, &stream.order).await?;
        stream.first = stream.given(&first.messages);
        Ok(stream)
    }
}

impl MessageStream {
    /// Returns the next messages, or a sign of life. Returns nothing when the stream has ended: the
    /// engine drains, or cannot go on.
    pub async fn next(&mut self) -> Option<Streamed> {
        self.step().await
    }

    fn step(&mut self) -> BoxFuture<'_, Option<Streamed>> {
        // The task that polls a stream may have turned to other requests since it opened this one.
        let origin = self.origin.clone();
        Box::pin(async move {
            let next = pin!(self.advance());
            origin.scope(next).await
        })
    }

    async fn advance(&mut self) -> Option<Streamed> {
        let first = mem::take(&mut self.first);
        if !first.is_empty() {
            return Some(self.beaten(Streamed::Messages(first)));
        }
        // A stream without room does not stand in the queue: its wake-ups would be missing elsewhere.
        while self.room() == 0 {
            let settled = self.deliveries.settled();
            if !self.engine.wait_for(settled, until(self.beat)).await {
                return self.heartbeat();
            }
        }
        if self.engine.is_draining() {
            return None;
        }
        match self.await_messages().await {
            Ok(Some(messages)) => {
                let given = self.given(&messages);
                Some(self.beaten(Streamed::Messages(given)))
            }
            Ok(None) => self.heartbeat(),
            Err(fault) if fault.code == Code::ESaturated => self.heartbeat(),
            Err(fault) => {
                tracing::error!(cause = fault.cause, "a stream of messages was cut");
                None
            }
        }
    }

    /// Takes messages, and waits for one if there is none, until a sign of life is due.
    async fn await_messages(&mut self) -> Result<Option<Vec<Message>>, Fault> {
        let (engine, tenant, beat) = (Arc::clone(&self.engine), self.tenant, self.beat);
        let (engine, topic) = (&*engine, self.order.topic.clone());
        let signals = engine.store.signals();
        let register = || signals.message_waiter(tenant, &topic);
        let look = || {
            let mut order = self.order.clone();
            order.wish.max_messages = self.room();
            async move {
                let messages = take(engine, tenant, &order, beat).await;
                messages.map(|messages| (!messages.is_empty()).then_some(messages))
            }
        };
        let stop = engine.wait_for(pending(), until(beat));
        take_or_wait(register, look, stop).await
    }

    /// Returns how many more messages the receiver may have. It grows while the stream waits: only
    /// giving messages makes it less.
    fn room(&mut self) -> usize {
        let open = self.deliveries.open(self.engine.now());
        self.window.saturating_sub(open)
    }

    /// Counts messages against the window and returns them as the receiver gets them.
    fn given(&mut self, messages: &[Message]) -> Vec<Envelope> {
        let factor = self.engine.settings().policy.mailbox.inflight_factor;
        for message in messages {
            if let Some(delivery) = message.delivery {
                // The receiver may keep it longer, up to here; an earlier end is signalled.
                let longest = delivery.visibility_ms.saturating_mul(i64::from(factor));
                let until = delivery.at.plus_millis(longest);
                self.deliveries.watch(delivery.lease, until);
            }
        }
        messages.iter().map(envelope).collect()
    }

    fn heartbeat(&mut self) -> Option<Streamed> {
        let draining = self.engine.is_draining();
        (!draining).then(|| self.beaten(Streamed::Heartbeat))
    }

    /// Sets the time of the next sign of life, because something is given now.
    fn beaten(&mut self, given: Streamed) -> Streamed {
        self.beat = Instant::now() + HEARTBEAT;
        given
    }
}

/// Takes the messages that are ready. While receivers hold too many in all, it tries again, until a sign
/// of life is due.
async fn take(
    engine: &Engine,
    tenant: TenantId,
    order: &Order,
    beat: Instant,
) -> Result<Vec<Message>, Fault> {
    loop {
        let span = span::of(engine, &ReceiveMessages::SPEC);
        let taken = engine.take_messages(tenant, order).instrument(span).await;
        let interrupted = until(beat).is_zero() || engine.is_draining();
        match taken {
            // No signal tells when receivers hold fewer messages, so this look goes on. It keeps the
            // stream's wake-up: passed on, it would make every other stream do the same.
            Err(fault) if fault.code == Code::ESaturated && !interrupted => {
                let pause = SATURATED.min(until(beat));
                engine.wait_for(pending(), pause).await;
            }
            taken => return Ok(taken?.messages),
        }
    }
}

/// Returns how long it is until a time.
fn until(time: Instant) -> Duration {
    time.saturating_duration_since(Instant::now())
}
