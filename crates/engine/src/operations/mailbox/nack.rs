//! Gives a message back.

use asyncgate_api::{AckOutput, NackMessage, bounds::MAX_MESSAGE_DELAY_MS};
use asyncgate_core::mailbox::{self, Nack};
use asyncgate_store::Stopwatch;

use super::{Execute, Executed, one_message, the_message};
use crate::{
    Caller, Engine, Touches, input,
    mailbox::{lease, message_id},
};

impl Execute for NackMessage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let watch = Stopwatch::start();
        let id = message_id(&input.msg_id)?;
        let lease = lease(input.lease.as_deref())?;
        let reason = input.reason.filter(|reason| !reason.is_empty());
        let delay = |delay| input::within("delay_ms", delay, &(0..=MAX_MESSAGE_DELAY_MS));
        let nack = Nack {
            reason: reason
                .map(|reason| input::name("reason", reason))
                .transpose()?,
            error: input::text("error", input.error)?,
            delay_ms: input.delay_ms.map(delay).transpose()?,
        };
        let backs_off = nack.delay_ms.is_none();
        let settled = engine
            .transact(
                caller.tenant,
                0,
                one_message(id),
                move |env, mut snapshot| {
                    let message = the_message(&mut snapshot);
                    mailbox::nack(env, message, lease, nack.clone(), snapshot.lines)
                },
            )
            .await?;
        let settings = engine.settings();
        engine.metrics.mailbox.nacked(&settings, &settled, watch);
        if let Some(death) = settled.died {
            engine.note_deaths(caller.tenant, &[death]);
        } else if backs_off && !settled.repeated {
            engine.metrics.mailbox.backed_off();
        }
        Ok(AckOutput { ok: true })
    }

    fn touches(input: &Self::Input) -> Touches<'_> {
        Touches::Message(&input.msg_id)
    }
}
