//! Brings one dead letter back.

use asyncgate_api::{RedriveMessage, ReprocessOutput};
use asyncgate_core::mailbox::redrive_one;

use super::{Execute, Executed, one_message, the_message};
use crate::{Caller, Engine, Touches, mailbox::message_id};

impl Execute for RedriveMessage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id = message_id(&input.msg_id)?;
        let settled = engine
            .transact(caller.tenant, 0, one_message(id), |env, mut snapshot| {
                let message = the_message(&mut snapshot);
                redrive_one(&env, snapshot.depths, snapshot.occupied, message)
            })
            .await?;
        let moved = usize::from(!settled.repeated);
        if moved > 0 {
            engine.note_redrive(caller.tenant, &settled.trace.topic, moved);
        }
        Ok(ReprocessOutput {
            moved: moved as u64,
        })
    }

    fn touches(input: &Self::Input) -> Touches<'_> {
        Touches::Message(&input.msg_id)
    }
}
