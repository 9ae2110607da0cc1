//! Lists dead letters.

use asyncgate_api::{ListDeadLetters, ListDeadLettersInput, ListDeadLettersOutput};
use asyncgate_store::{
    MAX_ANSWER_BYTES,
    mailbox::{DeadFilter, DeadPage},
};

use super::{Execute, Executed};
use crate::{
    Caller, Engine, Fault, Touches,
    mailbox::{dead_letter, message_id},
};

impl Execute for ListDeadLetters {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let limit = engine.page_size(input.limit)?;
        let after = input.cursor.map(|cursor| {
            message_id(&cursor).map_err(|_| Fault::bad_request("cursor names no message"))
        });
        let filter = DeadFilter {
            topic: input.topic,
            reason: input.reason,
            died_by: input
                .older_than_secs
                .map(|seconds| engine.seconds_ago(seconds)),
            after: after.transpose()?,
            limit,
        };
        let page = engine.store.mailbox().dead_letters(caller.tenant, filter);
        let DeadPage { letters, next } = page.await?;
        // A page that grows too large ends early, but has at least one message.
        let mut bytes = 0_usize;
        let given = letters.iter().take_while(|message| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(message.weight());
            first || bytes <= MAX_ANSWER_BYTES
        });
        let given = given.count();
        let next = if given < letters.len() {
            letters[..given].last().map(|last| last.id)
        } else {
            next
        };
        Ok(ListDeadLettersOutput {
            messages: letters[..given].iter().filter_map(dead_letter).collect(),
            next_cursor: next.map(|id| id.to_string()),
        })
    }

    fn touches(input: &ListDeadLettersInput) -> Touches<'_> {
        input
            .topic
            .as_deref()
            .map_or(Touches::Nothing, Touches::Topic)
    }
}
