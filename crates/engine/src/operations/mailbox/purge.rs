//! Throws a topic's messages away.

use asyncgate_api::{PurgeInput, PurgeOutput, PurgeState, PurgeTopic};
use asyncgate_core::{TenantId, mailbox::purge};
use asyncgate_store::mailbox::{DeadFilter, Reads};

use super::{Execute, Executed};
use crate::{Caller, Engine, Fault, Touches};

/// The most messages that one transaction throws away, so that other requests do not wait long behind it.
const STEP: usize = 1_000;

impl Execute for PurgeTopic {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let topic = input.topic;
        let (waiting, dead) = match input.state {
            PurgeState::Ready => (true, false),
            PurgeState::Dlq => (false, true),
            PurgeState::All => (true, true),
        };
        let mut purged = 0;
        if waiting {
            let reads = Reads {
                waiting: Some((topic.clone(), STEP)),
                ..Reads::default()
            };
            purged += engine.purge(caller.tenant, &reads).await?;
        }
        if dead {
            let filter = DeadFilter {
                topic: Some(topic),
                limit: STEP,
                ..DeadFilter::default()
            };
            let reads = Reads {
                dead: Some(filter),
                ..Reads::default()
            };
            purged += engine.purge(caller.tenant, &reads).await?;
        }
        Ok(PurgeOutput { purged })
    }

    fn touches(input: &PurgeInput) -> Touches<'_> {
        Touches::Topic(&input.topic)
    }
}

impl Engine {
    /// Throws away the messages that `reads` finds, step by step, but none that came after the start:
    /// else a busy sender could keep this going for ever.
    async fn purge(&self, tenant: TenantId, reads: &Reads) -> Result<u64, Fault> {
        let started = self.now();
        let mut purged = 0;
        loop {
            let step = self
                .transact(tenant, 0, reads.clone(), move |env, snapshot| {
                    let mut found = snapshot.waiting;
                    found.extend(snapshot.dead);
                    found.retain(|message| message.since <= started);
                    Ok(purge(&env, found))
                })
                .await?;
            self.drain_meter.note(self.now(), step);
            purged += step as u64;
            if step < STEP {
                return Ok(purged);
            }
        }
    }
}
