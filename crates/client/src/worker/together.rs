//! Calls of a worker's tasks that go together.
//!
//! - A report is sent at once if no other is on its way. Those that come up meanwhile go together with the next call.
//! - A renewal renews every lease of the worker.
//!
//! A call for one task is the plain one, so that a worker with little to do makes the calls that it always made. If a
//! batch is refused as a whole, its reports are sent one by one: no task may suffer for another's report.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use asyncgate_api::{
    CompleteInput, ErrorBody, FailInput, FinishItem, FinishResult, FinishTasksInput, LeaseItem,
    Refusal, RenewLeaseInput, RenewLeasesInput, RenewResult,
    bounds::{MAX_BATCH, MAX_RENEWED_LEASES},
};
use futures_util::future::join_all;
use tokio::{sync::oneshot, time::Instant};

use super::{Shared, context::Inner};
use crate::{
    Cause, Error, Kind,
    runtime::{End, is_lost},
};

/// The most bytes of results in one call, well below what the server takes.
const MAX_FINISH_BYTES: usize = 8 << 20;

/// What waits to go with the next call, and what is held.
#[derive(Debug, Default)]
pub(super) struct Together {
    reports: Line<Waiting<FinishItem, End>>,
    renewals: Line<Waiting<Arc<Inner>, ()>>,
    held: Mutex<HashMap<String, Weak<Inner>>>,
}

/// Things that wait until somebody sends them.
#[derive(Debug)]
struct Line<T>(Mutex<Queue<T>>);

#[derive(Debug)]
struct Queue<T> {
    waiting: Vec<T>,
    /// True while somebody sends what waits.
    attended: bool,
}

/// Something to send, and who waits for the answer.
#[derive(Debug)]
struct Waiting<T, A> {
    what: T,
    answer: oneshot::Sender<Result<A, Error>>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self(Mutex::new(Queue {
            waiting: Vec::new(),
            attended: false,
        }))
    }
}

impl<T> Line<T> {
    /// Adds something. Returns true if nobody attends to the line yet: the caller must see to it.
    fn join(&self, one: T) -> bool {
        let mut queue = lock(&self.0);
        queue.waiting.push(one);
        !mem::replace(&mut queue.attended, true)
    }

    /// Takes what waits, in order, as far as it fits. If nothing waits, the line is no longer attended to.
    fn take(&self, mut fits: impl FnMut(usize, &T) -> bool) -> Vec<T> {
        let mut queue = lock(&self.0);
        let mut waiting = queue.waiting.iter().enumerate();
        let end = waiting.find(|(place, one)| *place > 0 && !fits(*place, one));
        let end = end.map_or(queue.waiting.len(), |(place, _)| place);
        queue.attended = end > 0;
        queue.waiting.drain(..end).collect()
    }
}

impl Together {
    pub(super) fn hold(&self, held: &Arc<Inner>) {
        let lease = held.task.lease_id.clone();
        lock(&self.held).insert(lease, Arc::downgrade(held));
    }

    pub(super) fn let_go(&self, lease: &str) {
        lock(&self.held).remove(lease);
    }

    fn all_held(&self) -> Vec<Arc<Inner>> {
        let held = lock(&self.held);
        held.values().filter_map(Weak::upgrade).collect()
    }
}

impl Shared {
    /// Reports the end of a task, perhaps together with others.
    pub(super) async fn finish(self: &Arc<Self>, item: FinishItem) -> Result<End, Error> {
        let (answer, answered) = oneshot::channel();
        let what = item;
        if self.together.reports.join(Waiting { what, answer }) {
            // The line is attended to by a task of its own: whoever waits in it may give up.
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.send_reports().await });
        }
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn send_reports(&self) {
        loop {
            let mut bytes = 0;
            let reports = self.together.reports.take(|count, report| {
                bytes += size(&report.what);
                count < MAX_BATCH && bytes <= MAX_FINISH_BYTES
            });
            if reports.is_empty() {
                return;
            }
            let (items, answers): (Vec<_>, Vec<_>) = reports
                .into_iter()
                .map(|report| (report.what, report.answer))
                .unzip();
            for (answer, end) in answers.into_iter().zip(self.finish_all(items).await) {
                // Nobody may wait for it any more.
                drop(answer.send(end));
            }
        }
    }

    async fn finish_all(&self, items: Vec<FinishItem>) -> Vec<Result<End, Error>> {
        if let [item] = items.as_slice() {
            return vec![self.finish_one(item).await];
        }
        let input = FinishTasksInput {
            items: items.iter().cloned().collect(),
            worker_id: self.who.id.clone(),
            worker_kind: None,
            worker_instance_id: self.who.instance_id.clone(),
        };
        match self.client.finish_tasks(&input).await {
            Ok(output) if output.results.len() == items.len() => {
                output.results.into_iter().map(end_of).collect()
            }
            Ok(_) => all_failed(&items, &odd_answer()),
            Err(error) if error.is_transient() => all_failed(&items, &error),
            Err(_) => join_all(items.iter().map(|item| self.finish_one(item))).await,
        }
    }

    async fn finish_one(&self, item: &FinishItem) -> Result<End, Error> {
        let FinishItem {
            task_id,
            lease_id,
            complete,
            fail,
        } = item.clone();
        let (worker_id, worker_kind) = (self.who.id.clone(), None);
        let worker_instance_id = self.who.instance_id.clone();
        if let Some(failing) = fail {
            let input = FailInput {
                task_id,
                lease_id,
                error: failing.error,
                retryable: failing.retryable,
                retry_after_seconds: failing.retry_after_seconds,
                worker_id,
                worker_kind,
                worker_instance_id,
            };
            let answer = self.client.fail(&input).await?;
            let requeued = answer.requeued;
            return Ok(End::Failed { requeued });
        }
        let success = complete.unwrap_or_default();
        let input = CompleteInput {
            task_id,
            lease_id,
            result: success.result,
            artifacts: success.artifacts,
            delivery_proof: success.delivery_proof,
            result_summary: success.result_summary,
            completion_metadata: success.completion_metadata,
            worker_id,
            worker_kind,
            worker_instance_id,
        };
        let duplicate = self.client.complete(&input).await?.duplicate;
        Ok(End::Completed { duplicate })
    }

    /// Renews a lease, together with all others.
    pub(super) async fn renew(self: &Arc<Self>, held: Arc<Inner>) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let what = held;
        if self.together.renewals.join(Waiting { what, answer }) {
            let shared = Arc::clone(self);
            tokio::spawn(async move { shared.send_renewals().await });
        }
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    async fn send_renewals(&self) {
        loop {
            let wanted = self.together.renewals.take(|_, _| true);
            if wanted.is_empty() {
                return;
            }
            // The call that was just under way has renewed most of those that came up meanwhile.
            let third = self.pace.lease / 3;
            let (fresh, due): (Vec<_>, Vec<_>) = wanted
                .into_iter()
                .partition(|one| one.what.hold.is_fresh(self.pace.lease, third));
            for one in fresh {
                drop(one.answer.send(Ok(())));
            }
            if due.is_empty() {
                continue;
            }
            let mut told = self.renew_all(&due).await;
            for one in due {
                let answer = told.remove(&one.what.task.lease_id);
                drop(one.answer.send(answer.unwrap_or_else(|| Err(odd_answer()))));
            }
        }
    }

    /// Renews the leases that are due, and all others that are held.
    async fn renew_all(
        &self,
        due: &[Waiting<Arc<Inner>, ()>],
    ) -> HashMap<String, Result<(), Error>> {
        let mut leases: HashMap<String, Arc<Inner>> = HashMap::new();
        let held = due.iter().map(|one| Arc::clone(&one.what));
        for one in held.chain(self.together.all_held()) {
            leases.insert(one.task.lease_id.clone(), one);
        }
        let leases: Vec<Arc<Inner>> = leases.into_values().collect();
        let mut told = HashMap::new();
        for some in leases.chunks(MAX_RENEWED_LEASES) {
            let sent = Instant::now();
            let answers = self.renew_some(some).await;
            for (one, answer) in some.iter().zip(answers) {
                match &answer {
                    Ok(()) => one.hold.keep_until(sent + self.pace.lease),
                    // The handler of a lease that is not due hears of it all the same.
                    Err(error) if is_lost(error) => one.hold.cancel(Cause::LeaseLost),
                    Err(_) => {}
                }
                told.insert(one.task.lease_id.clone(), answer);
            }
        }
        told
    }

    async fn renew_some(&self, leases: &[Arc<Inner>]) -> Vec<Result<(), Error>> {
        let extend_by_seconds = i64::try_from(self.pace.lease.as_secs()).ok();
        let (worker_id, worker_instance_id) = (self.who.id.clone(), self.who.instance_id.clone());
        if let [one] = leases {
            let input = RenewLeaseInput {
                task_id: one.task.task_id.clone(),
                lease_id: one.task.lease_id.clone(),
                extend_by_seconds,
                worker_id,
                worker_kind: None,
                worker_instance_id,
            };
            return vec![self.client.renew_lease(&input).await.map(drop)];
        }
        let item = |one: &Arc<Inner>| LeaseItem {
            task_id: one.task.task_id.clone(),
            lease_id: one.task.lease_id.clone(),
        };
        let input = RenewLeasesInput {
            leases: leases.iter().map(item).collect(),
            extend_by_seconds,
            wait_seconds: None,
            worker_id,
            worker_kind: None,
            worker_instance_id,
        };
        match self.client.renew_leases(&input).await {
            Ok(output) if output.results.len() == leases.len() => {
                let answer = |result| match result {
                    RenewResult::Renewed(_) => Ok(()),
                    RenewResult::Refused(refusal) => Err(refused(refusal)),
                };
                output.results.into_iter().map(answer).collect()
            }
            Ok(_) => all_failed(leases, &odd_answer()),
            Err(error) => all_failed(leases, &error),
        }
    }
}

fn end_of(result: FinishResult) -> Result<End, Error> {
    match result {
        FinishResult::Completed(answer) => Ok(End::Completed {
            duplicate: answer.duplicate,
        }),
        FinishResult::Failed(answer) => Ok(End::Failed {
            requeued: answer.requeued,
        }),
        FinishResult::Refused(refusal) => Err(refused(refusal)),
    }
}

fn refused(refusal: Refusal) -> Error {
    let wait = refusal.retry_after_secs;
    let body = ErrorBody {
        error: refusal.code.as_str().to_lowercase(),
        code: refusal.code,
        message: refusal.message,
        corr_id: String::new(),
        details: serde_json::Map::new(),
    };
    let wait = wait.map(|secs| Duration::from_secs(secs.into()));
    Error::refused(body, true).after(wait)
}

fn all_failed<T, A>(items: &[T], error: &Error) -> Vec<Result<A, Error>> {
    items.iter().map(|_| Err(error.clone())).collect()
}

fn odd_answer() -> Error {
    Error::new(
        Kind::Protocol,
        "the answer has not one result for each item",
    )
}

fn gone() -> Error {
    Error::new(Kind::Unreachable, "the worker's calls have ended")
}

/// Returns roughly the bytes of a report.
fn size(item: &FinishItem) -> usize {
    let success = item.complete.as_ref();
    let sent = success.into_iter().flat_map(|success| {
        [
            &success.result,
            &success.artifacts,
            &success.delivery_proof,
            &success.completion_metadata,
        ]
    });
    let sent = sent.flatten().map(|raw| raw.get().len());
    let error = item.fail.as_ref().map_or(0, |fail| fail.error.get().len());
    256 + error + sent.sum::<usize>()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
