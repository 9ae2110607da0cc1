//! Ends a message.

use asyncgate_api::{AckMessage, AckOutput, Code};
use asyncgate_core::mailbox;
use asyncgate_store::Stopwatch;

use super::{Execute, Executed, one_message, the_message};
use crate::{
    Caller, Engine, Touches,
    mailbox::{lease, message_id},
};

impl Execute for AckMessage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let watch = Stopwatch::start();
        let id = message_id(&input.msg_id)?;
        let lease = lease(input.lease.as_deref())?;
        let settled = engine
            .transact(
                caller.tenant,
                0,
                one_message(id),
                move |env, mut snapshot| {
                    let message = the_message(&mut snapshot);
                    mailbox::ack(&env, message, lease, snapshot.lines)
                },
            )
            .await;
        match &settled {
            Ok(settled) => engine.note_acks([Ok(settled)].into_iter(), watch),
            Err(fault) if fault.code == Code::ENotFound => {
                engine.metrics.mailbox.ack_unknown(watch);
            }
            Err(_) => {}
        }
        settled.map(|_| AckOutput { ok: true })
    }

    fn touches(input: &Self::Input) -> Touches<'_> {
        Touches::Message(&input.msg_id)
    }
}
