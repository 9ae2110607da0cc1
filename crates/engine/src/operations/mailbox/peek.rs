//! Looks at the next messages of a topic.

use asyncgate_api::{PeekInput, PeekMessages, RecvOutput};
use asyncgate_store::mailbox::Take;

use super::{Execute, Executed};
use crate::{
    Caller, Engine, Touches,
    mailbox::{envelope, max_bytes, max_messages},
};

impl Execute for PeekMessages {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let policy = &engine.settings().policy.mailbox;
        let take = Take {
            topic: input.topic,
            max_messages: max_messages(policy, input.max_messages)?,
            max_bytes: max_bytes(policy, input.max_bytes),
        };
        let next = engine.store.mailbox().peek(caller.tenant, take).await?;
        // Damaged messages are shown to nobody. A receiver gets an error about them.
        let intact = next.iter().filter(|message| message.flaw().is_none());
        Ok(RecvOutput {
            messages: intact.map(envelope).collect(),
        })
    }

    fn touches(input: &PeekInput) -> Touches<'_> {
        Touches::Topic(&input.topic)
    }
}
