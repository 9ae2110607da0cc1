//! The consumer runtime: a handler for the messages of a topic, each kept while it is handled.
//!
//! - The visibility of a message is extended when a third of it is over, for as long as the server
//!   allows in all (ten times the visibility by default).
//! - It is acknowledged when its handler succeeds. It is given back, with the failure's kind as the
//!   reason and its message as the error, when the handler fails, takes too long or panics. After its
//!   last allowed delivery the server makes it a dead letter, even if the failure is retryable.
//! - A message may be delivered more than once, so a handler must tolerate repetition. `idem_key`
//!   and `msg_id` identify a message.
//! - A shutdown, a server that cannot be reached and one that refuses have the same effects as for a
//!   [`Worker`](crate::Worker).

use std::{fmt, sync::Arc, time::Duration};

use asyncgate_api::{AckInput, Envelope, ExtendInput, NackInput, RecvInput};
use futures_util::future::BoxFuture;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use crate::{
    Cause, Client, End, Error, Failure, Retry, Summary,
    runtime::{self, Held, Hold, MAX_WAIT, Pace, Settlement, Work, whole_seconds},
};

/// The bounds that the server sets.
const VISIBILITY: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(250)..=Duration::from_secs(12 * 3_600);
/// The reason that is given for a message which no handler has finished.
const RELEASED: &str = "released";

type Handler = Arc<dyn Fn(Delivery) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// Handles the messages of a topic. Made by [`Consumer::builder`]; the [front page](crate#handle-messages)
/// shows a whole program.
pub struct Consumer(Arc<Shared>);

/// The settings of a consumer.
pub struct ConsumerBuilder(Shared);

struct Shared {
    /// Sends each call once: the runtime itself decides when to try again.
    client: Client,
    handler: Handler,
    /// The input of every receive, without the number of messages.
    receive: RecvInput,
    pace: Pace,
}

/// A message that a handler has. Clones are cheap and share their state.
#[derive(Clone)]
pub struct Delivery(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    message: Envelope,
    hold: Hold,
}

impl Consumer {
    /// Begins to set up a consumer that handles the messages of `topic` with `handler`.
    pub fn builder<F, A>(client: &Client, topic: impl Into<String>, handler: F) -> ConsumerBuilder
    where
        F: Fn(Delivery) -> A + Send + Sync + 'static,
        A: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        ConsumerBuilder(Shared {
            client: client.with_retry(Retry::NONE),
            handler: Arc::new(move |delivery| Box::pin(handler(delivery))),
            receive: RecvInput {
                topic: topic.into(),
                ..RecvInput::default()
            },
            pace: Pace {
                lease: Duration::from_secs(30),
                retry_panics: true,
                ..Pace::default()
            },
        })
    }

    /// Handles messages until `shutdown` is ready, then drains. Returns an error only if the server
    /// refuses for good: a wrong key, or a topic that no server accepts.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
        runtime::run(self.0, shutdown).await
    }
}

impl ConsumerBuilder {
    /// Sets the number of messages that are handled at once. Default 1.
    #[must_use]
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.0.pace.concurrency = concurrency;
        self
    }

    /// Sets the time until a message is delivered again if this consumer dies, 250 ms to 12 hours. A
    /// handler may take ten times as long, unless the server is set otherwise. Default 30 s.
    #[must_use]
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.0.pace.lease = visibility;
        self
    }

    /// Sets the time that a receive waits for a message, in whole seconds, up to a minute. Default 20 s.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.0.pace.wait = wait;
        self
    }

    /// Sets the longest time for a handler. One that takes longer is stopped, and its message is given
    /// back. Default: as long as the message can be kept.
    #[must_use]
    pub fn handler_timeout(mut self, timeout: Duration) -> Self {
        self.0.pace.timeout = Some(timeout);
        self
    }

    /// Sets the time that handlers have to end after a shutdown began. Default 30 s.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.0.pace.grace = grace;
        self
    }

    /// Sets the time that a handler has to end after it was asked to stop. Default 1 s.
    #[must_use]
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.0.pace.cancel_grace = grace;
        self
    }

    /// Sets the waits before a server that could not be reached is asked again. The number of attempts
    /// and the total time are ignored here.
    #[must_use]
    pub fn pause(mut self, pause: Retry) -> Self {
        self.0.pace.pause = pause;
        self
    }

    /// Makes the consumer.
    pub fn build(self) -> Result<Consumer, Error> {
        let mut shared = self.0;
        let pace = &mut shared.pace;
        if pace.concurrency == 0 {
            return Err(Error::invalid(
                "a consumer's concurrency must be at least 1",
            ));
        }
        pace.lease = pace.lease.clamp(*VISIBILITY.start(), *VISIBILITY.end());
        pace.wait = whole_seconds(pace.wait).min(MAX_WAIT);
        shared.receive.visibility_ms = i64::try_from(pace.lease.as_millis()).ok();
        shared.receive.wait_seconds = u32::try_from(pace.wait.as_secs()).ok();
        Ok(Consumer(Arc::new(shared)))
    }
}

impl Delivery {
    /// Returns the message.
    pub fn message(&self) -> &Envelope {
        &self.0.message
    }

    /// Returns the message's content.
    pub fn payload(&self) -> &[u8] {
        &self.0.message.payload_b64.0
    }

    /// Reads the content as JSON.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(self.payload()).map_err(|error| {
            let message = format!("the content is not what this topic takes: {error}");
            Failure::permanent(message).of_kind("payload")
        })
    }

    /// Returns the consumer's client, which sends each call once.
    pub fn client(&self) -> &Client {
        &self.0.shared.client
    }

    /// Waits until the handler should stop, and returns the cause. A handler that does not stop within
    /// the consumer's cancel grace is dropped.
    pub async fn cancelled(&self) -> Cause {
        self.0.hold.cancelled().await
    }

    /// Returns the cause if the handler should stop.
    pub fn cause(&self) -> Option<Cause> {
        self.0.hold.cause()
    }

    fn nack(&self, reason: &str) -> NackInput {
        NackInput {
            msg_id: self.0.message.msg_id.clone(),
            lease: self.0.message.lease.clone(),
            reason: Some(reason.to_owned()),
            ..NackInput::default()
        }
    }
}

impl Work for Shared {
    type Item = Envelope;
    type Held = Delivery;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    async fn claim(&self, places: usize) -> Result<Vec<Envelope>, Error> {
        let mut input = self.receive.clone();
        input.max_messages = u32::try_from(places).ok();
        Ok(self.client.receive_messages(&input).await?.messages)
    }

    fn lease(message: &Envelope) -> &str {
        message.lease.as_deref().unwrap_or(&message.msg_id)
    }

    fn begin(
        self: &Arc<Self>,
        message: Envelope,
    ) -> (
        Delivery,
        Option<impl Future<Output = Result<(), Failure>> + Send + 'static>,
    ) {
        let delivery = Delivery(Arc::new(Inner {
            shared: Arc::clone(self),
            message,
            hold: Hold::new(self.pace.lease),
        }));
        let (handler, given) = (Arc::clone(&self.handler), delivery.clone());
        (delivery, Some(async move { handler(given).await }))
    }
}

/// The call that settles a message with the server.
pub(crate) enum Report {
    Ack(AckInput),
    Nack(NackInput),
    GiveBack(NackInput),
}

impl Held for Delivery {
    type Outcome = ();
    type Report = Report;

    fn name(&self) -> &str {
        &self.0.message.msg_id
    }

    fn pace(&self) -> &Pace {
        &self.0.shared.pace
    }

    fn hold(&self) -> &Hold {
        &self.0.hold
    }

    async fn renew(&self) -> Result<(), Error> {
        let input = ExtendInput {
            msg_id: self.0.message.msg_id.clone(),
            visibility_ms: self.0.shared.receive.visibility_ms,
            lease: self.0.message.lease.clone(),
        };
        let sent = Instant::now();
        self.client().extend_message(&input).await?;
        let hold = self.hold();
        hold.keep_until(sent + self.pace().lease);
        Ok(())
    }

    fn report(&self, settlement: Settlement<()>) -> Report {
        match settlement {
            Settlement::Done(()) => Report::Ack(AckInput {
                msg_id: self.0.message.msg_id.clone(),
                lease: self.0.message.lease.clone(),
            }),
            Settlement::Failed(failure) => Report::Nack(NackInput {
                error: Some(failure.message().to_owned()),
                ..self.nack(failure.kind())
            }),
            // Nothing was tried, so there is nothing to wait for: another consumer may have it at once.
            Settlement::GivenBack => Report::GiveBack(NackInput {
                delay_ms: Some(0),
                ..self.nack(RELEASED)
            }),
        }
    }

    async fn send(&self, report: &Report) -> Result<End, Error> {
        let client = self.client();
        match report {
            Report::Ack(input) => client
                .ack_message(input)
                .await
                .map(|_| End::Completed { duplicate: false }),
            Report::Nack(input) => client
                .nack_message(input)
                .await
                .map(|_| End::Failed { requeued: true }),
            Report::GiveBack(input) => client.nack_message(input).await.map(|_| End::Released),
        }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Consumer").field(&self.0.receive).finish()
    }
}

impl fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set_up = &self.0.receive;
        f.debug_tuple("ConsumerBuilder").field(set_up).finish()
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("msg_id", &self.0.message.msg_id)
            .field("attempt", &self.0.message.attempt)
            .field("cause", &self.cause())
            .finish_non_exhaustive()
    }
}
