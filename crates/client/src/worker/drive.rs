//! One task from lease to end.
//!
//! The handler runs in a task of its own, so that one which never yields does not hold up the
//! renewals; dropping its guard ends it.

use std::{
    any::Any,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};

use asyncgate_api::LeasedTask;
use tokio::{sync::watch, task::JoinHandle, time::sleep};

use super::{
    Cause, Context, End, Failure, Outcome, Payload, Shared,
    lease::{Report, keep},
};

type Answer = Result<Outcome, Failure>;

/// Runs a task's handler and reports what became of it. `stop` tells that the worker shuts down and
/// the grace is over.
pub(super) async fn drive(
    shared: Arc<Shared>,
    mut task: LeasedTask,
    stop: watch::Receiver<bool>,
) -> End {
    let payload = Payload(mem::take(&mut task.payload));
    let handler = shared.handlers.get(&task.task_type).cloned();
    let context = Context::new(Arc::clone(&shared), task);
    let Some(handler) = handler else {
        // No server gives out a type that was not asked for.
        return Report::release(&context).send(&context).await;
    };
    let mut running = Running(tokio::spawn(handler(context.clone(), payload)));
    let mut keeping = pin!(keep(&context));
    let cause = tokio::select! {
        biased;
        answer = &mut running => return report(&context, keeping, told(&context, answer)).await,
        () = &mut keeping => Cause::LeaseLost,
        cause = context.cancelled() => cause,
        () = over(shared.task_timeout) => Cause::Timeout,
        () = stopped(stop) => Cause::Shutdown,
    };
    context.cancel(cause);
    let answer = tokio::select! {
        biased;
        answer = &mut running => Some(answer),
        () = &mut keeping, if cause != Cause::LeaseLost => return End::Lost,
        () = sleep(shared.cancel_grace) => None,
    };
    drop(running);
    let last = match (cause, answer) {
        (Cause::LeaseLost, _) => return End::Lost,
        (_, Some(Ended::Answered(Ok(outcome)))) => Report::complete(&context, outcome),
        (Cause::Timeout, _) => Report::fail(&context, &timed_out(shared.task_timeout)),
        (Cause::Shutdown, _) => Report::release(&context),
    };
    report(&context, keeping, last).await
}

/// Gives a task back that nobody began.
pub(super) async fn give_back(shared: Arc<Shared>, task: LeasedTask) -> End {
    let context = Context::new(shared, task);
    Report::release(&context).send(&context).await
}

/// Sends the last word while the lease is kept. A renewal that is refused now may only mean that an
/// earlier attempt at the report succeeded, so that the report is what counts.
async fn report(
    context: &Context,
    keeping: Pin<&mut impl Future<Output = ()>>,
    last: Report,
) -> End {
    let mut sending = pin!(last.send(context));
    tokio::select! {
        biased;
        end = &mut sending => end,
        () = keeping => sending.await,
    }
}

fn told(context: &Context, ended: Ended) -> Report {
    match ended {
        Ended::Answered(Ok(outcome)) => Report::complete(context, outcome),
        Ended::Answered(Err(failure)) => Report::fail(context, &failure),
        Ended::Panicked(message) => {
            tracing::error!(
                task_id = context.task().task_id,
                task_type = context.task().task_type,
                "the handler panicked"
            );
            let message = format!("the handler panicked: {message}");
            let failure = if context.shared().retry_panics {
                Failure::retryable(message)
            } else {
                Failure::permanent(message)
            };
            Report::fail(context, &failure.of_kind("panic"))
        }
        // The runtime goes down and takes the handler first.
        Ended::Dropped => Report::release(context),
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
    // A worker that is gone has stopped.
    drop(stop.wait_for(|stop| *stop).await);
}

/// A running handler. It ends when this is dropped.
struct Running(JoinHandle<Answer>);

enum Ended {
    Answered(Answer),
    Panicked(String),
    Dropped,
}

impl Future for Running {
    type Output = Ended;

    fn poll(mut self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<Ended> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(cx)) {
            Ok(answer) => Ended::Answered(answer),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => Ended::Panicked(message_of(panic.as_ref())),
                Err(_) => Ended::Dropped,
            },
        })
    }
}

impl Drop for Running {
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
