//! Lists topics.

use asyncgate_api::{ListTopics, ListTopicsOutput, TopicState};
use asyncgate_core::{Timestamp, mailbox::Kind};
use asyncgate_store::mailbox::Topic;

use super::{Execute, Executed};
use crate::{Caller, Engine, input};

impl Execute for ListTopics {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let limit = engine.page_size(input.limit)?;
        let after = input.cursor.map(|name| input::name("cursor", name));
        let after = after.transpose()?;
        let mailbox = engine.store.mailbox();
        let mut topics = mailbox.topics(caller.tenant, after, limit + 1).await?;
        let more = topics.len() > limit;
        topics.truncate(limit);
        let next_cursor = topics.last().filter(|_| more);
        Ok(ListTopicsOutput {
            next_cursor: next_cursor.map(|topic| topic.name.clone()),
            topics: topics
                .into_iter()
                .map(|topic| state(topic, engine.now()))
                .collect(),
        })
    }
}

fn state(topic: Topic, now: Timestamp) -> TopicState {
    let counts = topic.counts;
    TopicState {
        topic: topic.name,
        ready: counts.of(Kind::Ready),
        delayed: counts.of(Kind::Delayed),
        depth: counts.waiting(),
        inflight: counts.of(Kind::Leased),
        dlq_depth: counts.of(Kind::Dead),
        oldest_age_ms: topic.oldest.map(|since| now.millis_since(since).max(0)),
    }
}
