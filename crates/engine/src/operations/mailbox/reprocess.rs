//! Brings dead letters back.

use std::time::Duration;

use asyncgate_api::{
    ReprocessDeadLetters, ReprocessInput, ReprocessOutput, bounds::MAX_REPROCESSED,
};
use asyncgate_core::{
    MessageId, TenantId,
    mailbox::{Decision, redrive},
};
use asyncgate_store::mailbox::{DeadFilter, Reads};
use serde_json::json;

use super::{Execute, Executed};
use crate::{Caller, Engine, Event, Fault, Touches};

const DEFAULT_LIMIT: u32 = 100;

impl Execute for ReprocessDeadLetters {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let topic = input.topic;
        let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_REPROCESSED).contains(&limit) {
            return Err(Fault::bad_request(format!(
                "limit must be 1 to {MAX_REPROCESSED}"
            )));
        }
        let filter = DeadFilter {
            topic: Some(topic.clone()),
            reason: input.reason,
            died_by: input
                .older_than_secs
                .map(|seconds| engine.seconds_ago(seconds)),
            after: None,
            limit: limit as usize,
        };
        let moved = if input.dry_run.unwrap_or(false) {
            engine.count_dead(caller.tenant, filter).await?
        } else {
            let moved = match input.per_second {
                None => engine.redrive_all(caller.tenant, filter).await?,
                Some(0) => return Err(Fault::bad_request("per_second must be at least 1")),
                Some(step) => engine.redrive_slowly(caller.tenant, filter, step).await?,
            };
            engine.note_redrive(caller.tenant, &topic, moved);
            moved
        };
        Ok(ReprocessOutput {
            moved: moved as u64,
        })
    }

    fn touches(input: &ReprocessInput) -> Touches<'_> {
        Touches::Topic(&input.topic)
    }
}

/// The outcome of one step of a redrive.
struct Step {
    moved: usize,
    /// The message to go on behind, if there may be more.
    next: Option<MessageId>,
}

impl Engine {
    /// Tells operators of dead letters that one of them brought back.
    pub(super) fn note_redrive(&self, tenant: TenantId, topic: &str, moved: usize) {
        let settings = self.settings();
        self.metrics.mailbox.reprocessed(&settings, topic, moved);
        let body = json!({ "topic_class": settings.topic_class(topic), "count": moved });
        self.publish_event(Event {
            tenant: Some(tenant),
            topic: "mailbox.dlq.reprocessed",
            body,
        });
    }

    /// Counts the dead letters that the filter finds.
    async fn count_dead(&self, tenant: TenantId, mut filter: DeadFilter) -> Result<usize, Fault> {
        let mut found = 0;
        loop {
            let page = self.store.mailbox().dead_letters(tenant, filter.clone());
            let page = page.await?;
            found += page.letters.len();
            filter.limit -= page.letters.len();
            if filter.limit == 0 || page.next.is_none() {
                return Ok(found);
            }
            filter.after = page.next;
        }
    }

    /// Brings back the dead letters that one look of the filter finds, all or none.
    async fn redrive(&self, tenant: TenantId, filter: DeadFilter) -> Result<Step, Fault> {
        let reads = Reads {
            dead: Some(filter),
            ..Reads::default()
        };
        self.transact(tenant, 0, reads, |env, snapshot| {
            let next = snapshot.dead_next;
            let decided = redrive(&env, snapshot.depths, snapshot.occupied, snapshot.dead)?;
            let output = Step {
                moved: decided.output,
                next,
            };
            let changes = decided.changes;
            Ok(Decision { changes, output })
        })
        .await
    }

    /// Brings back the dead letters that the filter finds. A filter that finds few takes many short looks,
    /// so that nobody waits behind a long one.
    async fn redrive_all(&self, tenant: TenantId, mut filter: DeadFilter) -> Result<usize, Fault> {
        let mut moved = 0;
        loop {
            let step = match self.redrive(tenant, filter.clone()).await {
                Ok(step) => step,
                // Messages that have moved stay moved, so the caller is told their number.
                Err(_) if moved > 0 => return Ok(moved),
                Err(fault) => return Err(fault),
            };
            moved += step.moved;
            filter.limit -= step.moved;
            if filter.limit == 0 || step.next.is_none() || self.is_draining() {
                return Ok(moved);
            }
            filter.after = step.next;
        }
    }

    /// Does the same as [`Engine::redrive_all`], with so many each second.
    async fn redrive_slowly(
        &self,
        tenant: TenantId,
        mut filter: DeadFilter,
        per_second: u32,
    ) -> Result<usize, Fault> {
        let mut left = filter.limit;
        let mut moved = 0;
        loop {
            filter.limit = left.min(per_second as usize);
            let step = match self.redrive(tenant, filter.clone()).await {
                Ok(step) => step,
                // Messages that have moved stay moved, so the caller is told their number.
                Err(_) if moved > 0 => return Ok(moved),
                Err(fault) => return Err(fault),
            };
            moved += step.moved;
            left -= step.moved;
            if left == 0 || step.next.is_none() {
                return Ok(moved);
            }
            // A message that dies again meanwhile does not come back twice.
            filter.after = step.next;
            if step.moved == 0 {
                continue;
            }
            let pause = self.wait_for(std::future::pending(), Duration::from_secs(1));
            if !pause.await && self.is_draining() {
                return Ok(moved);
            }
        }
    }
}
