//! Keeps a message longer.

use asyncgate_api::{ExtendMessage, ExtendOutput};
use asyncgate_core::mailbox;

use super::{Execute, Executed, one_message, the_message};
use crate::{
    Caller, Engine, Touches,
    mailbox::{lease, message_id, visibility_ms},
};

impl Execute for ExtendMessage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id = message_id(&input.msg_id)?;
        let lease = lease(input.lease.as_deref())?;
        let policy = &engine.settings().policy.mailbox;
        let wished = visibility_ms(policy, input.visibility_ms)?;
        let until = engine
            .transact(
                caller.tenant,
                0,
                one_message(id),
                move |env, mut snapshot| {
                    mailbox::extend(&env, the_message(&mut snapshot), lease, wished)
                },
            )
            .await?;
        Ok(ExtendOutput {
            ok: true,
            visible_at: until.to_string(),
        })
    }

    fn touches(input: &Self::Input) -> Touches<'_> {
        Touches::Message(&input.msg_id)
    }
}
