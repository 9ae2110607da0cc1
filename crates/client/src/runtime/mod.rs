//! What a worker and a consumer have in common: taking things under leases, running a handler for
//! each, keeping the lease meanwhile, and saying at the end what became of it.

mod drive;
mod hold;
mod run;

use std::{sync::Arc, time::Duration};

use asyncgate_api::Code;

pub(crate) use drive::Last;
pub use hold::Cause;
pub(crate) use hold::Hold;
pub(crate) use run::run;

use crate::{Error, Retry, worker::Failure};

/// The longest wait that the server grants.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);

/// How much is done at once, and how long things may take.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    pub concurrency: usize,
    /// How long a lease lasts without a renewal.
    pub lease: Duration,
    /// How long a claim waits for something to do.
    pub wait: Duration,
    /// How long a handler may take.
    pub timeout: Option<Duration>,
    /// How long handlers may go on after a shutdown began.
    pub grace: Duration,
    /// How long a handler may go on after it was asked to stop.
    pub cancel_grace: Duration,
    /// Whether trying again may help after a panic.
    pub retry_panics: bool,
    /// How long to wait between attempts; only the waits count.
    pub pause: Retry,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            concurrency: 1,
            lease: Duration::from_secs(60),
            wait: Duration::from_secs(20),
            timeout: None,
            grace: Duration::from_secs(30),
            cancel_grace: Duration::from_secs(1),
            retry_panics: false,
            pause: Retry::default(),
        }
    }
}

/// What there is to do, and how it is taken.
pub(crate) trait Work: Send + Sync + 'static {
    /// What a claim gives.
    type Item: Send + 'static;
    /// The same in hand.
    type Held: Held;

    fn pace(&self) -> &Pace;

    /// Takes up to so many.
    fn claim(
        &self,
        places: usize,
    ) -> impl Future<Output = Result<Vec<Self::Item>, Error>> + Send + '_;

    /// The name of an item's lease, which no other has.
    fn lease(item: &Self::Item) -> &str;

    /// Takes an item in hand, with the handler for it. Without one it is given back.
    #[expect(clippy::type_complexity, reason = "a future cannot be named")]
    fn begin(
        self: &Arc<Self>,
        item: Self::Item,
    ) -> (
        Self::Held,
        Option<
            impl Future<Output = Result<<Self::Held as Held>::Outcome, Failure>> + Send + 'static,
        >,
    );

    /// Tells whoever watches.
    fn tell(&self, _moment: &Moment<'_, Self>) {}
}

/// What happens while working.
pub(crate) enum Moment<'a, W: Work + ?Sized> {
    Taken(&'a W::Item),
    Ended(&'a W::Held, End),
    ClaimFailed(&'a Error, u32),
    /// So many handlers still run.
    Draining(usize),
}

/// Something in hand under a lease.
pub(crate) trait Held: Send + Sync + 'static {
    /// What a handler answers with success.
    type Outcome: Send + 'static;
    /// What is told to the server at the end.
    type Word: Send + Sync;

    /// Its name in the log.
    fn name(&self) -> &str;

    fn pace(&self) -> &Pace;

    fn hold(&self) -> &Hold;

    /// Keeps the lease for another while.
    fn renew(&self) -> impl Future<Output = Result<(), Error>> + Send;

    /// How to say what became of it.
    fn word(&self, last: Last<Self::Outcome>) -> Self::Word;

    /// Says it once.
    fn say(&self, word: &Self::Word) -> impl Future<Output = Result<End, Error>> + Send;
}

/// What became of a task or a message that was in hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It succeeded.
    Completed {
        /// Whether an earlier attempt at the report had reached the server. Not known of messages.
        duplicate: bool,
    },
    /// It failed.
    Failed {
        /// Whether it will be tried again. Of a message it is not known: after its last allowed
        /// delivery it is a dead letter.
        requeued: bool,
    },
    /// It was given back undone.
    Released,
    /// It was cancelled, or the lease ran out.
    Lost,
    /// The server could not be told; the lease runs out by itself.
    Unreported,
}

/// How many tasks or messages came to which end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Succeeded.
    pub completed: u64,
    /// Failed, also those that will be tried again.
    pub failed: u64,
    /// Given back undone.
    pub released: u64,
    /// Cancelled, or lost because the lease ran out.
    pub lost: u64,
    /// Ended here, but the server could not be told.
    pub unreported: u64,
}

impl Summary {
    fn count(&mut self, end: End) {
        let counter = match end {
            End::Completed { .. } => &mut self.completed,
            End::Failed { .. } => &mut self.failed,
            End::Released => &mut self.released,
            End::Lost => &mut self.lost,
            End::Unreported => &mut self.unreported,
        };
        *counter += 1;
    }
}

/// Whether a refusal says that the lease is no longer ours.
pub(crate) fn is_lost(error: &Error) -> bool {
    matches!(
        error.code(),
        Some(
            Code::LeaseInvalidOrExpired
                | Code::InvalidStateTransition
                | Code::TaskNotFound
                | Code::EStaleLease
                | Code::ENotLeased
                | Code::ENotFound
        )
    )
}

/// Rounded up.
pub(crate) fn whole_seconds(duration: Duration) -> Duration {
    let more = u64::from(duration.subsec_nanos() > 0);
    Duration::from_secs(duration.as_secs().saturating_add(more))
}
