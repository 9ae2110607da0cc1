//! Receives messages, perhaps after waiting for one.

use asyncgate_api::{Code, ReceiveMessages, RecvInput, RecvOutput};
use asyncgate_core::MessageId;

use super::{Execute, Executed};
use crate::{
    Caller, Engine, Fault, Touches, input,
    mailbox::{Order, envelope},
};

impl Execute for ReceiveMessages {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let limit = input::wait(input.wait_seconds)?;
        let order = Order::new(&engine.settings().policy.mailbox, input)?;
        let mut taken = engine.take_messages(caller.tenant, &order).await?;
        if taken.is_empty() && !limit.is_zero() {
            let _waiting = engine.metrics.waiting();
            let found = engine.await_messages(caller, &order, limit);
            taken = found.await?;
        }
        // A receiver of intact messages need not hear of damaged ones.
        if taken.messages.is_empty() && !taken.damaged.is_empty() {
            return Err(damaged(&taken.damaged));
        }
        Ok(RecvOutput {
            messages: taken.messages.iter().map(envelope).collect(),
        })
    }

    fn touches(input: &RecvInput) -> Touches<'_> {
        Touches::Topic(&input.topic)
    }
}

fn damaged(ids: &[MessageId]) -> Fault {
    let ids: Vec<String> = ids.iter().map(MessageId::to_string).collect();
    let message = "the next messages do not agree with their hashes; try again for others";
    Fault::new(Code::EIntegrity, message).with("msg_ids", ids)
}
