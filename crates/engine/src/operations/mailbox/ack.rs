//! Ends a message.

use asyncgate_api::{AckInput, AckMessage, AckOutput};
use asyncgate_core::mailbox;
use asyncgate_store::Stopwatch;

use super::{Execute, one_message, the_message};
use crate::{
    Caller, Engine, Fault,
    mailbox::{lease, message_id},
};

impl Execute for AckMessage {
    async fn execute(
        engine: &Engine,
        caller: &Caller,
        input: AckInput,
    ) -> Result<AckOutput, Fault> {
        let watch = Stopwatch::start();
        let id = message_id(&input.msg_id)?;
        let lease = lease(input.lease.as_deref())?;
        let settled = engine
            .transact_mailbox(
                caller.tenant,
                0,
                one_message(id),
                move |env, mut snapshot| mailbox::ack(&env, the_message(&mut snapshot), lease),
            )
            .await?;
        engine.note_acks(&[&settled]);
        engine.metrics.mailbox.ack_committed(watch);
        Ok(AckOutput { ok: true })
    }
}
