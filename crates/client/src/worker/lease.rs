//! A worker's tasks for the runtime: claiming, renewing and settling them.

use std::{mem, sync::Arc};

use asyncgate_api::{CompleteInput, FailInput, LeasedTask, ReleaseLeaseInput, RenewLeaseInput};

use super::{Context, Event, Failure, Outcome, Payload, Shared};
use crate::{
    Error,
    runtime::{End, Held, Hold, Notice, Pace, Settlement, Work},
};

/// The most tasks that a claim may ask for.
const MAX_CLAIM: usize = 100;

impl Work for Shared {
    type Item = LeasedTask;
    type Held = Context;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    async fn claim(&self, places: usize) -> Result<Vec<LeasedTask>, Error> {
        let mut input = self.claim.clone();
        input.max_tasks = u32::try_from(places.min(MAX_CLAIM)).ok();
        Ok(self.client.lease_next(&input).await?.tasks)
    }

    fn lease(task: &LeasedTask) -> &str {
        &task.lease_id
    }

    fn begin(
        self: &Arc<Self>,
        mut task: LeasedTask,
    ) -> (
        Context,
        Option<impl Future<Output = Result<Outcome, Failure>> + Send + 'static>,
    ) {
        let payload = Payload(mem::take(&mut task.payload));
        // No server gives out a type that was not asked for.
        let handler = self.handlers.get(&task.task_type).cloned();
        let context = Context::new(Arc::clone(self), task);
        let given = context.clone();
        let handling = handler.map(|handler| async move { handler(given, payload).await });
        (context, handling)
    }

    fn notify(&self, notice: &Notice<'_, Self>) {
        let Some(observer) = &self.observer else {
            return;
        };
        observer(&match *notice {
            Notice::Taken(task) => Event::Leased { task },
            Notice::Ended(context, end) => Event::Ended {
                task_id: &context.task().task_id,
                task_type: &context.task().task_type,
                end,
            },
            Notice::ClaimFailed(error, failures) => Event::ClaimFailed { error, failures },
            Notice::Draining(running) => Event::Draining { running },
        });
    }
}

/// The call that settles a task with the server.
#[derive(Debug)]
pub(crate) enum Report {
    Complete(Box<CompleteInput>),
    Fail(Box<FailInput>),
    Release(ReleaseLeaseInput),
}

impl Held for Context {
    type Outcome = Outcome;
    type Report = Report;

    fn name(&self) -> &str {
        &self.task().task_id
    }

    fn pace(&self) -> &Pace {
        &self.shared().pace
    }

    fn hold(&self) -> &Hold {
        self.hold()
    }

    async fn renew(&self) -> Result<(), Error> {
        let (task, who) = (self.task(), &self.shared().who);
        let input = RenewLeaseInput {
            task_id: task.task_id.clone(),
            lease_id: task.lease_id.clone(),
            extend_by_seconds: i64::try_from(self.shared().pace.lease.as_secs()).ok(),
            worker_id: who.id.clone(),
            worker_kind: None,
            worker_instance_id: who.instance_id.clone(),
        };
        self.client().renew_lease(&input).await.map(drop)
    }

    fn report(&self, settlement: Settlement<Outcome>) -> Report {
        let (task, who) = (self.task(), &self.shared().who);
        let (task_id, lease_id) = (task.task_id.clone(), task.lease_id.clone());
        let (worker_id, worker_kind) = (who.id.clone(), None);
        let worker_instance_id = who.instance_id.clone();
        match settlement {
            Settlement::Done(outcome) => Report::Complete(Box::new(CompleteInput {
                task_id,
                lease_id,
                result: outcome.result,
                artifacts: outcome.artifacts,
                delivery_proof: outcome.delivery_proof,
                result_summary: outcome.summary,
                completion_metadata: outcome.metadata,
                worker_id,
                worker_kind,
                worker_instance_id,
            })),
            Settlement::Failed(failure) => Report::Fail(Box::new(FailInput {
                task_id,
                lease_id,
                error: failure.report(),
                retryable: failure.is_retryable(),
                retry_after_seconds: failure.retry_after_seconds,
                worker_id,
                worker_kind,
                worker_instance_id,
            })),
            Settlement::GivenBack => Report::Release(ReleaseLeaseInput {
                task_id,
                lease_id,
                worker_id,
                worker_kind,
                worker_instance_id,
            }),
        }
    }

    async fn send(&self, report: &Report) -> Result<End, Error> {
        let client = self.client();
        match report {
            Report::Complete(input) => client.complete(input).await.map(|answer| End::Completed {
                duplicate: answer.duplicate,
            }),
            Report::Fail(input) => client.fail(input).await.map(|answer| End::Failed {
                requeued: answer.requeued,
            }),
            Report::Release(input) => client.release_lease(input).await.map(|_| End::Released),
        }
    }
}
