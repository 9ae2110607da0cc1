//! The worker's loop: claim for the free places, start handlers, and drain at the end.
//!
//! One claim is under way at a time. While it is, more places become free, so that under load claims
//! come in batches by themselves.

use std::{collections::HashSet, pin::pin, sync::Arc, time::Duration};

use asyncgate_api::{Code, LeasedTask};
use futures_util::future::BoxFuture;
use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use super::{
    End, Event, Shared, Summary,
    drive::{drive, give_back},
};
use crate::{Error, Kind};

/// The most tasks that a claim may ask for.
const MAX_CLAIM: usize = 100;
/// How long a claim under way may still take when the worker stops. Dropped later, it may leave
/// leases that nobody knows of; they run out by themselves.
const LAST_CLAIM: Duration = Duration::from_millis(250);
/// How long reports may take once every handler was stopped.
const LAST_REPORTS: Duration = Duration::from_secs(10);

/// What a claim came to.
struct Claimed {
    tasks: Vec<LeasedTask>,
    /// An empty answer that came before the wait was over: the server is about to stop.
    early: bool,
}

type Claim = BoxFuture<'static, Result<Claimed, Error>>;

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
    let mut claiming: Option<Claim> = None;
    let mut failures = 0;
    let fatal = loop {
        let free = shared.concurrency.saturating_sub(hands.drivers.len());
        if claiming.is_none() && free > 0 {
            claiming = Some(claim(Arc::clone(&shared), free, failures));
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
            claimed = under_way(&mut claiming) => {
                claiming = None;
                match claimed {
                    Ok(claimed) => {
                        failures = if claimed.early { failures + 1 } else { 0 };
                        hands.take(claimed.tasks);
                    }
                    Err(error) if is_fatal(&error) => break Some(error),
                    Err(error) => {
                        failures += 1;
                        tracing::warn!(%error, failures, "cannot claim; trying again");
                        shared.tell(&Event::ClaimFailed { error: &error, failures });
                    }
                }
            }
        }
    };
    let summary = hands.drain(claiming).await;
    fatal.map_or(Ok(summary), Err)
}

async fn under_way(claiming: &mut Option<Claim>) -> Result<Claimed, Error> {
    match claiming {
        Some(claim) => claim.await,
        None => std::future::pending().await,
    }
}

fn claim(shared: Arc<Shared>, free: usize, failures: u32) -> Claim {
    Box::pin(async move {
        if failures > 0 {
            sleep(shared.pause.wait(failures, None)).await;
        }
        let mut input = shared.claim.clone();
        input.max_tasks = u32::try_from(free.min(MAX_CLAIM)).ok();
        let asked = Instant::now();
        let tasks = shared.client.lease_next(&input).await?.tasks;
        let early = tasks.is_empty() && asked.elapsed() <= shared.wait / 2;
        Ok(Claimed { tasks, early })
    })
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
    async fn drain(mut self, claiming: Option<Claim>) -> Summary {
        self.shared.tell(&Event::Draining {
            running: self.drivers.len(),
        });
        let grace = Instant::now() + self.shared.grace;
        if let Some(claim) = claiming
            && let Ok(Ok(claimed)) = timeout(LAST_CLAIM, claim).await
        {
            for task in claimed.tasks {
                let shared = Arc::clone(&self.shared);
                let lease = task.lease_id.clone();
                self.drivers
                    .spawn(async move { (lease, give_back(shared, task).await) });
            }
        }
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
