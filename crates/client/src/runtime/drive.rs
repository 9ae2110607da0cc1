//! One task or message from lease to end.
//!
//! The handler runs in a task of its own, so that a handler which never yields does not hold up the
//! renewals; dropping its guard ends it.

use std::{
    any::Any,
    pin::{Pin, pin},
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, timeout_at},
};

use super::{Cause, End, Held, Notice, Work, is_lost};
use crate::{Error, Kind, worker::Failure};

/// The way in which a lease is settled with the server.
#[derive(Debug)]
pub(crate) enum Settlement<O> {
    Done(O),
    Failed(Failure),
    /// Somebody else may do it.
    GivenBack,
}

/// Runs the handler and reports how it ended. `stop` becomes true when the grace of a shutdown is over.
pub(super) async fn drive<W: Work>(
    work: Arc<W>,
    item: W::Item,
    stop: watch::Receiver<bool>,
) -> End {
    let (held, handling) = work.begin(item);
    let end = match handling {
        Some(handling) => handle(&held, Running(tokio::spawn(handling)), stop).await,
        None => send(&held, Settlement::GivenBack).await,
    };
    work.notify(&Notice::Ended(&held, end));
    end
}

/// Gives an item back that no handler has begun.
pub(super) async fn give_back<W: Work>(work: Arc<W>, item: W::Item) -> End {
    let (held, _) = work.begin(item);
    send(&held, Settlement::GivenBack).await
}

async fn handle<H: Held>(
    held: &H,
    mut running: Running<H::Outcome>,
    stop: watch::Receiver<bool>,
) -> End {
    let pace = held.pace();
    let mut keeping = pin!(keep(held));
    let cause = tokio::select! {
        biased;
        answer = &mut running => return report(held, keeping, settlement_of(held, answer)).await,
        () = &mut keeping => Cause::LeaseLost,
        cause = held.hold().cancelled() => cause,
        () = over(pace.timeout) => Cause::Timeout,
        () = stopped(stop) => Cause::Shutdown,
    };
    held.hold().cancel(cause);
    let answer = tokio::select! {
        biased;
        answer = &mut running => Some(answer),
        () = &mut keeping, if cause != Cause::LeaseLost => return End::Lost,
        () = sleep(pace.cancel_grace) => None,
    };
    drop(running);
    let settlement = match (cause, answer) {
        (Cause::LeaseLost, _) => return End::Lost,
        (_, Some(Ended::Answered(Ok(outcome)))) => Settlement::Done(outcome),
        (Cause::Timeout, _) => Settlement::Failed(timed_out(pace.timeout)),
        (Cause::Shutdown, _) => Settlement::GivenBack,
    };
    report(held, keeping, settlement).await
}

/// Renews a lease at a third of its time, for as long as that works. Returns when the lease is lost:
/// the server said so, or its time is over and the server could not be reached.
async fn keep<H: Held>(held: &H) {
    let (pace, hold) = (held.pace(), held.hold());
    let third = pace.lease / 3;
    let mut pause = third;
    let mut failures = 0;
    loop {
        sleep(pause).await;
        // A renewal of another lease may have renewed this one too.
        if hold.is_fresh(pace.lease, third) {
            failures = 0;
            let due = hold.deadline() - (pace.lease - third);
            pause = due.saturating_duration_since(Instant::now());
            continue;
        }
        let Ok(renewed) = timeout_at(hold.deadline(), Box::pin(held.renew())).await else {
            return;
        };
        match renewed {
            Ok(()) => {
                failures = 0;
                pause = third;
            }
            Err(error) if is_lost(&error) => return,
            Err(error) => {
                tracing::debug!(id = held.name(), %error, "not renewed yet");
                failures += 1;
                let left = hold.deadline().saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                pause = pace.pause.wait(failures, error.retry_after()).min(left);
            }
        }
    }
}

/// Sends the report while the lease is kept. A renewal that is refused now may only mean that an
/// earlier attempt at the report succeeded, so the answer to the report decides.
async fn report<H: Held>(
    held: &H,
    keeping: Pin<&mut impl Future<Output = ()>>,
    settlement: Settlement<H::Outcome>,
) -> End {
    let mut sending = pin!(send(held, settlement));
    tokio::select! {
        biased;
        end = &mut sending => end,
        () = keeping => sending.await,
    }
}

/// Sends the report until the server answers or the lease is over.
async fn send<H: Held>(held: &H, settlement: Settlement<H::Outcome>) -> End {
    let mut stage = Stage::of(&settlement);
    let mut report = held.report(settlement);
    let mut failures = 0;
    loop {
        let error = match held.send(&report).await {
            Ok(end) => return end,
            Err(error) => error,
        };
        if is_lost(&error) {
            return End::Lost;
        }
        if let Some(instead) = stage.instead(&error) {
            stage = Stage::of(&instead);
            report = held.report(instead);
            continue;
        }
        failures += 1;
        if !error.is_transient() || Instant::now() >= held.hold().deadline() {
            tracing::warn!(id = held.name(), %error, "not reported");
            return End::Unreported;
        }
        sleep(held.pace().pause.wait(failures, error.retry_after())).await;
    }
}

/// The kind of report that is being sent.
enum Stage {
    Done,
    Failed,
    GivenBack,
}

impl Stage {
    fn of<O>(settlement: &Settlement<O>) -> Self {
        match settlement {
            Settlement::Done(_) => Self::Done,
            Settlement::Failed(_) => Self::Failed,
            Settlement::GivenBack => Self::GivenBack,
        }
    }

    /// Returns the settlement to try if the server refuses this one: a success that cannot be stored
    /// becomes a failure, and a failure that cannot be stored is given back.
    fn instead<O>(&self, error: &Error) -> Option<Settlement<O>> {
        let refused = match error.kind() {
            Kind::Refused(body) => matches!(body.code.http_status(), 400 | 413),
            Kind::Unreachable | Kind::Timeout | Kind::Protocol => false,
            Kind::Invalid => true,
        };
        match self {
            Self::Done if refused => {
                let message = format!("the result was not accepted: {error}");
                Some(Settlement::Failed(
                    Failure::permanent(message).of_kind("result"),
                ))
            }
            Self::Failed if refused => Some(Settlement::GivenBack),
            Self::Done | Self::Failed | Self::GivenBack => None,
        }
    }
}

fn settlement_of<H: Held>(held: &H, ended: Ended<H::Outcome>) -> Settlement<H::Outcome> {
    match ended {
        Ended::Answered(Ok(outcome)) => Settlement::Done(outcome),
        Ended::Answered(Err(failure)) => Settlement::Failed(failure),
        Ended::Panicked(message) => {
            tracing::error!(id = held.name(), "the handler panicked");
            let message = format!("the handler panicked: {message}");
            let failure = if held.pace().retry_panics {
                Failure::retryable(message)
            } else {
                Failure::permanent(message)
            };
            Settlement::Failed(failure.of_kind("panic"))
        }
        // The tokio runtime is shutting down and has dropped the handler first.
        Ended::Dropped => Settlement::GivenBack,
    }
}

fn timed_out(limit: Option<Duration>) -> Failure {
    let seconds = limit.unwrap_or_default().as_secs_f32();
    Failure::retryable(format!("the handler did not end within {seconds} s")).of_kind("timeout")
}

async fn over(limit: Option<Duration>) {
    match limit {
        Some(limit) => sleep(limit).await,
        None => std::future::pending().await,
    }
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    // An error means that the sender is gone, and with it the worker: it has stopped too.
    drop(stop.wait_for(|stop| *stop).await);
}

/// A running handler. It ends when this is dropped.
struct Running<O>(JoinHandle<Result<O, Failure>>);

enum Ended<O> {
    Answered(Result<O, Failure>),
    Panicked(String),
    Dropped,
}

impl<O> Future for Running<O> {
    type Output = Ended<O>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Ended<O>> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(answer) => Ended::Answered(answer),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Ended::Panicked(message_of(panic.as_ref())),
                Err(_) => Ended::Dropped,
            },
        })
    }
}

impl<O> Drop for Running<O> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("it did not say why")
        .to_owned()
}
