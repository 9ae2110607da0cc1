//! Brings dead letters back.

use std::time::Duration;

use asyncgate_api::{ReprocessDeadLetters, ReprocessInput, ReprocessOutput};
use asyncgate_core::{
    MessageId, TenantId,
    mailbox::{Decision, redrive},
};
use asyncgate_store::mailbox::{DeadFilter, Reads};

use super::Execute;
use crate::{Caller, Engine, Fault, input, metrics::span};

const DEFAULT_LIMIT: u32 = 100;
const MAX_LIMIT: u32 = 10_000;

impl Execute for ReprocessDeadLetters {
    async fn execute(
        engine: &Engine,
        caller: &Caller,
        input: ReprocessInput,
    ) -> Result<ReprocessOutput, Fault> {
        let topic = input::name("topic", input.topic)?;
        span::note(engine.settings().topic_class(&topic), None, None);
        let limit = input.limit.unwrap_or(DEFAULT_LIMIT);
        if !(1..=MAX_LIMIT).contains(&limit) {
            return Err(Fault::bad_request(format!(
                "limit must be 1 to {MAX_LIMIT}"
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
            let dead = engine.store.mailbox().dead_letters(caller.tenant, filter);
            dead.await?.len()
        } else {
            let moved = match input.per_second {
                None => engine.redrive(caller.tenant, filter).await?.0,
                Some(0) => return Err(Fault::bad_request("per_second must be at least 1")),
                Some(step) => engine.redrive_slowly(caller.tenant, filter, step).await?,
            };
            let settings = engine.settings();
            engine.metrics.mailbox.reprocessed(&settings, &topic, moved);
            moved
        };
        Ok(ReprocessOutput {
            moved: moved as u64,
        })
    }
}

impl Engine {
    /// Brings back what the filter finds, all or none. Answers how many, and the last one.
    async fn redrive(
        &self,
        tenant: TenantId,
        filter: DeadFilter,
    ) -> Result<(usize, Option<MessageId>), Fault> {
        let reads = Reads {
            dead: Some(filter),
            ..Reads::default()
        };
        self.transact_mailbox(tenant, 0, reads, |env, snapshot| {
            let last = snapshot.dead.last().map(|message| message.id);
            let Decision { changes, output } = redrive(&env, snapshot.depths, snapshot.dead)?;
            let output = (output, last);
            Ok(Decision { changes, output })
        })
        .await
    }

    /// As [`Engine::redrive`], so many each second.
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
            let (step, last) = match self.redrive(tenant, filter.clone()).await {
                Ok(step) => step,
                // What has moved stays moved, so the caller is told of it.
                Err(_) if moved > 0 => return Ok(moved),
                Err(fault) => return Err(fault),
            };
            moved += step;
            left -= step;
            if left == 0 || step < filter.limit {
                return Ok(moved);
            }
            // One that dies again meanwhile does not come back twice.
            filter.after = last;
            let pause = self.wait_for(std::future::pending(), Duration::from_secs(1));
            if !pause.await && self.is_draining() {
                return Ok(moved);
            }
        }
    }
}
