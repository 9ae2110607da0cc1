//! Throws a topic's messages away.

use asyncgate_api::{PurgeInput, PurgeOutput, PurgeState, PurgeTopic};
use asyncgate_core::{TenantId, mailbox::purge};
use asyncgate_store::mailbox::{DeadFilter, Reads};
use serde_json::json;

use super::{Execute, Executed};
use crate::{Caller, Engine, Event, Fault, Touches};

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
        let waiting = waiting.then(|| Reads {
            waiting: Some((topic.clone(), STEP)),
            ..Reads::default()
        });
        let dead = dead.then(|| Reads {
            dead: Some(DeadFilter {
                topic: Some(topic.clone()),
                limit: STEP,
                ..DeadFilter::default()
            }),
            ..Reads::default()
        });
        let mut counts = [0, 0];
        let purged = engine.purge(caller.tenant, [waiting, dead], &mut counts);
        let purged = purged.await;
        let [waiting, dead] = counts;
        // Messages that are gone stay gone, so operators are told of them also if a later step failed.
        if purged.is_ok() || waiting + dead > 0 {
            engine.note_purge(caller.tenant, &topic, waiting, dead);
        }
        purged?;
        Ok(PurgeOutput {
            purged: waiting + dead,
        })
    }

    fn touches(input: &PurgeInput) -> Touches<'_> {
        Touches::Topic(&input.topic)
    }
}

impl Engine {
    /// Throws away the messages that `reads` find, step by step, and counts them. It takes none that came
    /// after the start: else a busy sender could keep this going for ever.
    async fn purge(
        &self,
        tenant: TenantId,
        reads: [Option<Reads>; 2],
        counts: &mut [u64; 2],
    ) -> Result<(), Fault> {
        for (reads, count) in reads.into_iter().zip(counts) {
            let Some(reads) = reads else {
                continue;
            };
            let started = self.now();
            loop {
                let step = self
                    .transact(tenant, 0, reads.clone(), move |env, snapshot| {
                        let mut found = snapshot.waiting;
                        found.extend(snapshot.dead);
                        found.retain(|message| message.since <= started);
                        Ok(purge(&env, found, snapshot.lines))
                    })
                    .await?;
                self.drain_meter.note(self.now(), step);
                *count += step as u64;
                if step < STEP {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Tells operators of messages that one of them threw away.
    pub(super) fn note_purge(&self, tenant: TenantId, topic: &str, waiting: u64, dead: u64) {
        let settings = self.settings();
        self.metrics.mailbox.purged(&settings, topic, waiting, dead);
        let body = json!({
            "topic_class": settings.topic_class(topic), "waiting": waiting, "dead": dead,
        });
        self.publish_event(Event {
            tenant: Some(tenant),
            topic: "mailbox.purged",
            body,
        });
    }
}
