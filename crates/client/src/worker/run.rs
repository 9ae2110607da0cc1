//! The worker's loop: claim for the free places, start handlers, and drain at the end.
//!
//! A claim asks for all places that are free. While it is under way more become free, so that under
//! load claims come in batches by themselves; a second one is sent only when many places would stand
//! empty. A place is claimed for once, so that no task is ever taken without a place.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use asyncgate_api::{Code, LeasedTask};
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
    End, Event, Shared, Summary,
    drive::{drive, give_back},
};
use crate::{Error, Kind};

/// The most tasks that a claim may ask for.
const MAX_CLAIM: usize = 100;
/// An empty answer that comes faster is followed by a pause, so that no server is asked in a loop.
const LEAST_WAIT: Duration = Duration::from_millis(500);
/// How long a claim under way may still take when the worker stops. Dropped later, it may leave
/// leases that nobody knows of; they run out by themselves.
const LAST_CLAIM: Duration = Duration::from_millis(250);
/// How long reports may take once every handler was stopped.
const LAST_REPORTS: Duration = Duration::from_secs(10);

/// How many places must be free for a second claim, at least.
const WORTH_A_CLAIM: usize = 8;

/// What a claim came to.
struct Claimed {
    /// How many places it was for.
    places: usize,
    result: Result<Found, Error>,
}

struct Found {
    tasks: Vec<LeasedTask>,
    /// An empty answer that came before the wait was over: the server is about to stop, or the
    /// worker does not wish to wait.
    early: bool,
}

type Claim = BoxFuture<'static, Claimed>;

/// The tasks in hand.
struct Hands {
    shared: Arc<Shared>,
    drivers: JoinSet<(String, End)>,
    leases: HashSet<String>,
    stop: watch::Sender<bool>,
    summary: Summary,
}

/// Works until `shutdown` comes or the server refuses the worker for good.
pub(super) async fn run(
    shared: Arc<Shared>,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, Error> {
    let mut shutdown = pin!(shutdown);
    let mut hands = Hands {
        drivers: JoinSet::new(),
        leases: HashSet::new(),
        stop: watch::Sender::new(false),
        summary: Summary::default(),
        shared: Arc::clone(&shared),
    };
    let mut claims = FuturesUnordered::new();
    let mut claimed_for = 0;
    let mut failures = 0;
    let mut retry_after = None;
    let fatal = loop {
        let free = shared
            .concurrency
            .saturating_sub(hands.drivers.len() + claimed_for);
        if is_worth_a_claim(&shared, free, claims.len()) {
            let pause = pause(&shared, failures, retry_after.take());
            claims.push(claim(Arc::clone(&shared), free, pause));
            claimed_for += free;
        }
        tokio::select! {
            biased;
            () = &mut shutdown => break None,
            Some(ended) = hands.drivers.join_next() => {
                hands.tally(ended);
                while let Some(ended) = hands.drivers.try_join_next() {
                    hands.tally(ended);
                }
            }
            Some(claimed) = claims.next() => {
                claimed_for -= claimed.places;
                match claimed.result {
                    Ok(found) => {
                        failures = if found.early { failures + 1 } else { 0 };
                        hands.take(found.tasks);
                    }
                    Err(error) if is_fatal(&error) => break Some(error),
                    Err(error) => {
                        failures += 1;
                        retry_after = error.retry_after();
                        tracing::warn!(%error, failures, "cannot claim; trying again");
                        shared.tell(&Event::ClaimFailed { error: &error, failures });
                    }
                }
            }
        }
    };
    let summary = hands.drain(claims).await;
    fatal.map_or(Ok(summary), Err)
}

/// Whether to send a claim for `free` places while `under_way` others wait for their answers.
fn is_worth_a_claim(shared: &Shared, free: usize, under_way: usize) -> bool {
    match under_way {
        0 => free > 0,
        1 => free >= (shared.concurrency / 4).max(WORTH_A_CLAIM),
        _ => false,
    }
}

fn pause(shared: &Shared, failures: u32, retry_after: Option<Duration>) -> Option<Duration> {
    (failures > 0).then(|| shared.pause.wait(failures, retry_after))
}

fn claim(shared: Arc<Shared>, places: usize, pause: Option<Duration>) -> Claim {
    Box::pin(async move {
        if let Some(pause) = pause {
            sleep(pause).await;
        }
        let result = ask(&shared, places).await;
        Claimed { places, result }
    })
}

async fn ask(shared: &Shared, places: usize) -> Result<Found, Error> {
    let mut input = shared.claim.clone();
    input.max_tasks = u32::try_from(places.min(MAX_CLAIM)).ok();
    let asked = Instant::now();
    let tasks = shared.client.lease_next(&input).await?.tasks;
    let early = tasks.is_empty() && asked.elapsed() < (shared.wait / 2).max(LEAST_WAIT);
    Ok(Found { tasks, early })
}

/// Whether no later claim can succeed unless a person acts.
fn is_fatal(error: &Error) -> bool {
    match error.kind() {
        Kind::Refused(body) => matches!(
            body.code,
            Code::Unauthorized | Code::Forbidden | Code::BadRequest | Code::LimitExceeded
        ),
        Kind::Invalid => true,
        Kind::Unreachable | Kind::Timeout | Kind::Protocol => false,
    }
}

impl Hands {
    fn take(&mut self, tasks: Vec<LeasedTask>) {
        for task in tasks {
            // A lease has one handler, whatever a broken proxy repeats.
            if !self.leases.insert(task.lease_id.clone()) {
                continue;
            }
            self.shared.tell(&Event::Leased { task: &task });
            let lease = task.lease_id.clone();
            let ids = (task.task_id.clone(), task.task_type.clone());
            let (shared, stop) = (Arc::clone(&self.shared), self.stop.subscribe());
            self.drivers.spawn(async move {
                let end = drive(Arc::clone(&shared), task, stop).await;
                shared.tell(&Event::Ended {
                    task_id: &ids.0,
                    task_type: &ids.1,
                    end,
                });
                (lease, end)
            });
        }
    }

    fn tally(&mut self, ended: Result<(String, End), tokio::task::JoinError>) {
        match ended {
            Ok((lease, end)) => {
                self.leases.remove(&lease);
                self.summary.count(end);
            }
            Err(error) => {
                // A driver has nothing that panics; an observer may.
                tracing::error!(%error, "a task was dropped; its lease will run out");
                self.summary.count(End::Unreported);
            }
        }
    }

    /// Lets what runs finish, then stops it and gives it back.
    async fn drain(mut self, mut claims: FuturesUnordered<Claim>) -> Summary {
        self.shared.tell(&Event::Draining {
            running: self.drivers.len(),
        });
        let grace = Instant::now() + self.shared.grace;
        let last = Instant::now() + LAST_CLAIM;
        while let Ok(Some(claimed)) = timeout_at(last, claims.next()).await {
            for task in claimed.result.into_iter().flat_map(|found| found.tasks) {
                let shared = Arc::clone(&self.shared);
                let lease = task.lease_id.clone();
                self.drivers
                    .spawn(async move { (lease, give_back(shared, task).await) });
            }
        }
        drop(claims);
        let left = grace.saturating_duration_since(Instant::now());
        if timeout(left, self.join_all()).await.is_err() {
            self.stop.send_replace(true);
            let last = self.shared.cancel_grace + LAST_REPORTS;
            if timeout(last, self.join_all()).await.is_err() {
                let left = self.drivers.len();
                tracing::warn!(
                    left,
                    "tasks could not be given back; their leases will run out"
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
    use super::super::{Outcome, Worker};
    use super::*;
    use crate::Client;

    /// A task's future is moved when it is spawned, so that its size is paid for by every task.
    #[tokio::test]
    async fn a_task_in_hand_is_small() {
        let client = Client::new("http://127.0.0.1:1", "k").unwrap();
        let worker = Worker::builder(client).handle("t", |_, _| async { Ok(Outcome::empty()) });
        let task = serde_json::json!({
            "task_id": "t", "lease_id": "l", "type": "t", "payload": null, "attempt": 0,
            "expires_at": "", "created_by": { "kind": "agent", "id": "a" }, "principal_ai": "a",
        });
        let task: LeasedTask = serde_json::from_value(task).unwrap();
        let stop = watch::Sender::new(false);
        let future = drive(worker.build().unwrap().0, task, stop.subscribe());
        let bytes = size_of_val(&future);
        assert!(bytes <= 4 << 10, "{bytes} bytes");
    }
}
