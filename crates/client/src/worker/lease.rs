//! Keeping a lease, and ending it: renewals, and the report of what became of a task.

use asyncgate_api::{Code, CompleteInput, FailInput, ReleaseLeaseInput, RenewLeaseInput};
use tokio::time::{Instant, sleep, timeout_at};

use super::{Context, End, Failure, Outcome, context::is_lost};
use crate::{Error, Kind};

/// Renews a lease at a third of its time, for as long as that works. Returns when the lease is lost,
/// by the server's word or because its time is over and nobody could be asked.
pub(super) async fn keep(context: &Context) {
    let shared = context.shared();
    let third = shared.lease_ttl / 3;
    let mut pause = third;
    let mut failures = 0;
    loop {
        sleep(pause).await;
        let sent = Instant::now();
        let input = renewal(context);
        let renewing = Box::pin(shared.client.renew_lease(&input));
        let renewed = timeout_at(context.deadline(), renewing).await;
        let Ok(renewed) = renewed else { return };
        match renewed {
            Ok(_) => {
                context.set_deadline(sent + shared.lease_ttl);
                failures = 0;
                pause = third;
            }
            Err(error) if is_lost(&error) => return,
            Err(error) => {
                tracing::debug!(task_id = context.task().task_id, %error, "not renewed yet");
                failures += 1;
                let left = context.deadline().saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return;
                }
                pause = shared.pause.wait(failures, error.retry_after()).min(left);
            }
        }
    }
}

fn renewal(context: &Context) -> RenewLeaseInput {
    let (task, who) = (context.task(), &context.shared().who);
    RenewLeaseInput {
        task_id: task.task_id.clone(),
        lease_id: task.lease_id.clone(),
        extend_by_seconds: i64::try_from(context.shared().lease_ttl.as_secs()).ok(),
        worker_id: who.id.clone(),
        worker_kind: None,
        worker_instance_id: who.instance_id.clone(),
    }
}

/// What is told to the server at the end.
#[derive(Debug)]
pub(super) enum Report {
    Complete(Box<CompleteInput>),
    Fail(Box<FailInput>),
    Release(ReleaseLeaseInput),
}

impl Report {
    pub fn complete(context: &Context, outcome: Outcome) -> Self {
        let (task, who) = (context.task(), &context.shared().who);
        Self::Complete(Box::new(CompleteInput {
            task_id: task.task_id.clone(),
            lease_id: task.lease_id.clone(),
            result: outcome.result,
            artifacts: outcome.artifacts,
            delivery_proof: outcome.delivery_proof,
            worker_id: who.id.clone(),
            worker_kind: None,
            worker_instance_id: who.instance_id.clone(),
        }))
    }

    pub fn fail(context: &Context, failure: &Failure) -> Self {
        let (task, who) = (context.task(), &context.shared().who);
        Self::Fail(Box::new(FailInput {
            task_id: task.task_id.clone(),
            lease_id: task.lease_id.clone(),
            error: failure.report(),
            retryable: failure.is_retryable(),
            worker_id: who.id.clone(),
            worker_kind: None,
            worker_instance_id: who.instance_id.clone(),
        }))
    }

    pub fn release(context: &Context) -> Self {
        let (task, who) = (context.task(), &context.shared().who);
        Self::Release(ReleaseLeaseInput {
            task_id: task.task_id.clone(),
            lease_id: task.lease_id.clone(),
            worker_id: who.id.clone(),
            worker_kind: None,
            worker_instance_id: who.instance_id.clone(),
        })
    }

    /// Sends the report until the server answers or the lease is over.
    pub async fn send(mut self, context: &Context) -> End {
        let shared = context.shared();
        let mut failures = 0;
        loop {
            let error = match self.send_once(context).await {
                Ok(end) => return end,
                Err(error) => error,
            };
            if is_lost(&error) {
                return End::Lost;
            }
            if let Some(instead) = self.instead(context, &error) {
                self = instead;
                continue;
            }
            failures += 1;
            if !error.is_transient() || Instant::now() >= context.deadline() {
                tracing::warn!(task_id = context.task().task_id, %error, "not reported");
                return End::Unreported;
            }
            sleep(shared.pause.wait(failures, error.retry_after())).await;
        }
    }

    async fn send_once(&self, context: &Context) -> Result<End, Error> {
        let client = &context.shared().client;
        match self {
            Self::Complete(input) => client.complete(input).await.map(|answer| End::Completed {
                duplicate: answer.duplicate,
            }),
            Self::Fail(input) => client.fail(input).await.map(|answer| End::Failed {
                requeued: answer.requeued,
            }),
            Self::Release(input) => client.release_lease(input).await.map(|_| End::Released),
        }
    }

    /// What to tell when the server does not take this: a success that cannot be stored is a
    /// failure, and a failure that cannot be told is none.
    fn instead(&self, context: &Context, error: &Error) -> Option<Self> {
        let refused = match error.kind() {
            Kind::Refused(body) => matches!(
                body.code,
                Code::BadRequest | Code::TooLarge | Code::LimitExceeded
            ),
            Kind::Unreachable | Kind::Timeout | Kind::Protocol => false,
            Kind::Invalid => true,
        };
        match self {
            Self::Complete(_) if refused => {
                let message = format!("the result was not accepted: {error}");
                let failure = Failure::permanent(message).of_kind("result");
                Some(Self::fail(context, &failure))
            }
            Self::Fail(_) if refused => Some(Self::release(context)),
            Self::Complete(_) | Self::Fail(_) | Self::Release(_) => None,
        }
    }
}
