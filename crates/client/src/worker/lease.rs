//! A worker's tasks for the runtime: claiming, renewing and settling them.

use std::{mem, sync::Arc};

use asyncgate_api::{
    Failing, FinishItem, LeasedTask, ReleaseLeaseInput, Success, bounds::MAX_CLAIMED_TASKS,
};

use super::{Context, Event, Failure, Outcome, Payload, Shared};
use crate::{
    Error,
    runtime::{End, Held, Hold, Notice, Pace, Settlement, Work},
};

impl Work for Shared {
    type Item = LeasedTask;
    type Held = Context;

    fn pace(&self) -> &Pace {
        &self.pace
    }

    async fn claim(&self, places: usize) -> Result<Vec<LeasedTask>, Error> {
        let mut input = self.claim.clone();
        let places = u32::try_from(places).unwrap_or(MAX_CLAIMED_TASKS);
        input.max_tasks = Some(places.min(MAX_CLAIMED_TASKS));
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
        if let Notice::Ended(context, _) = notice {
            // The handler may keep its context, but the lease is no longer held.
            self.together.let_go(&context.task().lease_id);
        }
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
    Finish(Box<FinishItem>),
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
        self.shared().renew(Arc::clone(self.inner())).await
    }

    fn report(&self, settlement: Settlement<Outcome>) -> Report {
        let (task, who) = (self.task(), &self.shared().who);
        let (task_id, lease_id) = (task.task_id.clone(), task.lease_id.clone());
        match settlement {
            Settlement::Done(outcome) => Report::Finish(Box::new(FinishItem {
                task_id,
                lease_id,
                complete: Some(Success {
                    result: outcome.result,
                    artifacts: outcome.artifacts,
                    delivery_proof: outcome.delivery_proof,
                    result_summary: outcome.summary,
                    completion_metadata: outcome.metadata,
                }),
                fail: None,
            })),
            Settlement::Failed(failure) => Report::Finish(Box::new(FinishItem {
                task_id,
                lease_id,
                complete: None,
                fail: Some(Failing {
                    error: failure.report(),
                    retryable: failure.is_retryable(),
                    retry_after_seconds: failure.retry_after_seconds,
                }),
            })),
            Settlement::GivenBack => Report::Release(ReleaseLeaseInput {
                task_id,
                lease_id,
                worker_id: who.id.clone(),
                worker_kind: None,
                worker_instance_id: who.instance_id.clone(),
            }),
        }
    }

    async fn send(&self, report: &Report) -> Result<End, Error> {
        match report {
            Report::Finish(item) => self.shared().finish((**item).clone()).await,
            Report::Release(input) => {
                let released = self.client().release_lease(input).await;
                released.map(|_| End::Released)
            }
        }
    }
}
