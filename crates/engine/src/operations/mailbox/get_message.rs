//! Reads one message.

use asyncgate_api::{Code, GetMessage};
use asyncgate_core::mailbox::{Message, Rejection, State};

use super::{Execute, Executed};
use crate::{
    Caller, Engine, Fault, Touches,
    mailbox::{message_id, record},
};

impl Execute for GetMessage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let id = message_id(&input.msg_id)?;
        let message = engine.store.mailbox().message(caller.tenant, id).await?;
        let message = message.as_ref();
        if message.is_some_and(is_damaged) {
            let text = "the message does not agree with its hashes";
            return Err(Fault::new(Code::EIntegrity, text));
        }
        message
            .and_then(record)
            .ok_or_else(|| engine.mailbox_fault(Rejection::NotFound))
    }

    fn touches(input: &Self::Input) -> Touches<'_> {
        Touches::Message(&input.msg_id)
    }
}

/// Returns true if the message is not the one that was sent, and nobody was told yet. As a dead letter it is
/// shown with that cause, and one that is gone has no content to compare.
fn is_damaged(message: &Message) -> bool {
    let is_over = matches!(message.state, State::Dead { .. } | State::Gone { .. });
    !is_over && message.flaw().is_some()
}
