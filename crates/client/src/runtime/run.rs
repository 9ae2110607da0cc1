//! The loop of a worker or a consumer: claim for the free places, start handlers, and drain at the
//! end.
//!
//! A claim asks for as many items as there are free places. While it is under way more places become
//! free, so under load claims ask for batches by themselves; a second claim is sent only if many places
//! would stay empty. A place is claimed for only once, so no item is ever taken without a place.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use futures_util::{
    future::BoxFuture,
    stream::{FuturesUnordered, StreamExt},
};
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    End, Notice, Pace, Summary, Work,
    drive::{drive, give_back},
};
use crate::{Error, Kind};

/// An empty answer that comes faster than this is followed by a pause, so that the server is not asked
/// in a tight loop.
const LEAST_WAIT: Duration = Duration::from_millis(500);
/// The time that a claim under way has to end at a shutdown. A claim that is dropped after it may leave
/// leases that nobody knows of; they run out by themselves.
const LAST_CLAIM: Duration = Duration::from_millis(250);
/// The time for reports after every handler was stopped.
const LAST_REPORTS: Duration = Duration::from_secs(10);

/// The least number of free places for a second claim.
const WORTH_A_CLAIM: usize = 8;

/// The outcome of a claim.
struct Claimed<T> {
    /// The number of places that it asked for.
    places: usize,
    result: Result<Found<T>, Error>,
}

struct Found<T> {
    items: Vec<T>,
    /// True for an empty answer that came before the wait was over: the server is about to stop, or
    /// the wait is set to nothing.
    early: bool,
}

type Claim<T> = BoxFuture<'static, Claimed<T>>;

/// The items that are being handled.
struct Active<W: Work> {
    work: Arc<W>,
    drivers: JoinSet<(String, End)>,
    leases: HashSet<String>,
    stop: watch::Sender<bool>,
    summary: Summary,
}

/// Handles items until `shutdown` is ready or the server refuses for good.
pub(crate) async fn run<W: Work>(
    work: Arc<W>,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, Error> {
    let pace = work.pace();
    let mut shutdown = pin!(shutdown);
    let mut active = Active {
        drivers: JoinSet::new(),
        leases: HashSet::new(),
        stop: watch::Sender::new(false),
        summary: Summary::default(),
        work: Arc::clone(&work),
    };
    let mut claims = FuturesUnordered::new();
    let mut claimed_for = 0;
    let mut failures = 0;
    let mut retry_after = None;
    let fatal = loop {
        let free = pace
            .concurrency
            .saturating_sub(active.drivers.len() + claimed_for);
        if is_worth_a_claim(pace, free, claims.len()) {
            let pause = pause(pace, failures, retry_after.take());
            claims.push(claim(Arc::clone(&work), free, pause));
            claimed_for += free;
        }
        tokio::select! {
            biased;
            () = &mut shutdown => break None,
            Some(ended) = active.drivers.join_next() => {
                active.tally(ended);
                while let Some(ended) = active.drivers.try_join_next() {
                    active.tally(ended);
                }
            }
            Some(claimed) = claims.next() => {
                claimed_for -= claimed.places;
                match claimed.result {
                    Ok(found) => {
                        failures = if found.early { failures + 1 } else { 0 };
                        active.take(found.items);
                    }
                    Err(error) if is_fatal(&error) => break Some(error),
                    Err(error) => {
                        failures += 1;
                        retry_after = error.retry_after();
                        tracing::warn!(%error, failures, "cannot claim; trying again");
                        work.notify(&Notice::ClaimFailed(&error, failures));
                    }
                }
            }
        }
    };
    let summary = active.drain(claims).await;
    fatal.map_or(Ok(summary), Err)
}

/// Returns true if a claim for `free` places should be sent while `under_way` others wait for their
/// answers.
fn is_worth_a_claim(pace: &Pace, free: usize, under_way: usize) -> bool {
    match under_way {
        0 => free > 0,
        1 => free >= (pace.concurrency / 4).max(WORTH_A_CLAIM),
        _ => false,
    }
}

fn pause(pace: &Pace, failures: u32, retry_after: Option<Duration>) -> Option<Duration> {
    (failures > 0).then(|| pace.pause.wait(failures, retry_after))
}

fn claim<W: Work>(work: Arc<W>, places: usize, pause: Option<Duration>) -> Claim<W::Item> {
    Box::pin(async move {
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        let result = ask(&*work, places).await;
        Claimed { places, result }
    })
}

async fn ask<W: Work>(work: &W, places: usize) -> Result<Found<W::Item>, Error> {
    let asked = Instant::now();
    let items = work.claim(places).await?;
    let early = items.is_empty() && asked.elapsed() < (work.pace().wait / 2).max(LEAST_WAIT);
    Ok(Found { items, early })
}

/// Returns true if no later claim can succeed unless a person acts.
fn is_fatal(error: &Error) -> bool {
    match error.kind() {
        Kind::Refused(body) => matches!(body.code.http_status(), 400 | 401 | 403),
        Kind::Invalid => true,
        Kind::Unreachable | Kind::Timeout | Kind::Protocol => false,
    }
}

impl<W: Work> Active<W> {
    fn take(&mut self, items: Vec<W::Item>) {
        for item in items {
            // A broken proxy may repeat an answer. A lease must not get a second handler.
            let lease = W::lease(&item).to_owned();
            if !self.leases.insert(lease.clone()) {
                continue;
            }
            self.work.notify(&Notice::Taken(&item));
            let (work, stop) = (Arc::clone(&self.work), self.stop.subscribe());
            self.drivers
                .spawn(async move { (lease, drive(work, item, stop).await) });
        }
    }

    fn tally(&mut self, ended: Result<(String, End), tokio::task::JoinError>) {
        match ended {
            Ok((lease, end)) => {
                self.leases.remove(&lease);
                self.summary.count(end);
            }
            Err(error) => {
                // The runtime itself does not panic here, but an observer may.
                tracing::error!(%error, "something was dropped; its lease will run out");
                self.summary.count(End::Unreported);
            }
        }
    }

    /// Lets the running handlers finish, then stops those that are left and gives their items back.
    async fn drain(mut self, mut claims: FuturesUnordered<Claim<W::Item>>) -> Summary {
        self.work.notify(&Notice::Draining(self.drivers.len()));
        let pace = self.work.pace();
        let (grace, cancel_grace) = (Instant::now() + pace.grace, pace.cancel_grace);
        let last = Instant::now() + LAST_CLAIM;
        while let Ok(Some(claimed)) = timeout_at(last, claims.next()).await {
            for item in claimed.result.into_iter().flat_map(|found| found.items) {
                let work = Arc::clone(&self.work);
                let lease = W::lease(&item).to_owned();
                self.drivers
                    .spawn(async move { (lease, give_back(work, item).await) });
            }
        }
        drop(claims);
        let left = grace.saturating_duration_since(Instant::now());
        if timeout(left, self.join_all()).await.is_err() {
            self.stop.send_replace(true);
            if timeout(cancel_grace + LAST_REPORTS, self.join_all())
                .await
                .is_err()
            {
                let left = self.drivers.len();
                tracing::warn!(
                    left,
                    "not all could be given back; their leases will run out"
                );
                self.summary.unreported += left as u64;
            }
        }
        self.summary
    }

    async fn join_all(&mut self) {
        while let Some(ended) = self.drivers.join_next().await {
            self.tally(ended);
        }
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_api::LeasedTask;

    use super::*;
    use crate::{Client, Outcome, Worker};

    /// Spawning moves the future, so every task pays for its size.
    #[tokio::test]
    async fn a_task_in_hand_is_small() {
        let client = Client::new("http://127.0.0.1:1", "k").unwrap();
        let worker = Worker::builder(&client).handle("t", |_, _| async { Ok(Outcome::empty()) });
        let task = serde_json::json!({
            "task_id": "t", "lease_id": "l", "type": "t", "payload": null, "attempt": 0,
            "expires_at": "", "created_by": { "kind": "agent", "id": "a" }, "principal_ai": "a",
        });
        let task: LeasedTask = serde_json::from_value(task).unwrap();
        let stop = watch::Sender::new(false);
        let future = drive(worker.build().unwrap().work(), task, stop.subscribe());
        let bytes = size_of_val(&future);
        assert!(bytes <= 4 << 10, "{bytes} bytes");
    }
}
