//! A method for every operation of the mailbox.
//!
//! A call is sent again after a lost answer when that cannot do harm:
//! - a send, because of its `idem_key`; one that has none gets one that nobody else has;
//! - an acknowledgement, which the server remembers; a refusal and an extension if they name the
//!   lease, because without it they could hit somebody else's delivery;
//! - any call that only reads.
//!
//! A lost receive is not repeated: its messages come back by themselves when their time is over, and
//! asking again would only take more of them away. Neither are purge and reprocess, which would take
//! what came since.

use std::{borrow::Cow, time::Duration};

use asyncgate_api::*;

use crate::{Client, Error, Items, pages::Page, random, request::Prepared};

/// The number of dead letters that come back by default.
const DEFAULT_REPROCESS: u32 = 100;

impl Client {
    /// Sends a message. Without an `idem_key` (an empty one) it gets one that nobody else has, unless
    /// the client was told not to.
    pub async fn send_message(&self, input: &SendInput) -> Result<SendOutput, Error> {
        self.call::<SendMessage>(&self.keyed(input)).await
    }

    /// Sends up to 1,000 messages, each with an answer of its own. Those without an `idem_key` get
    /// one, as in [`Client::send_message`].
    pub async fn send_messages(&self, input: &SendBatchInput) -> Result<SendBatchOutput, Error> {
        let mut given = input.messages.readable();
        if given.all(|one| !one.idem_key.is_empty()) {
            return self.call::<SendMessages>(input).await;
        }
        let mut keyed = input.clone();
        for one in keyed.messages.0.iter_mut().flatten() {
            *one = self.keyed(one).into_owned();
        }
        self.call::<SendMessages>(&keyed).await
    }

    /// Receives messages, perhaps after waiting for some. It is not sent again after a lost answer,
    /// whose messages come back by themselves. See [`crate::Consumer`] for a loop that keeps and
    /// settles them.
    pub async fn receive_messages(&self, input: &RecvInput) -> Result<RecvOutput, Error> {
        self.call::<ReceiveMessages>(input).await
    }

    /// Acknowledges a message: it is done.
    pub async fn ack_message(&self, input: &AckInput) -> Result<AckOutput, Error> {
        self.call::<AckMessage>(input).await
    }

    /// Acknowledges up to 1,000 messages; each has an answer of its own.
    pub async fn ack_messages(&self, input: &AckBatchInput) -> Result<AckBatchOutput, Error> {
        self.call::<AckMessages>(input).await
    }

    /// Gives a message back, to be delivered again. The call is repeated after a lost answer only if it
    /// names the lease.
    pub async fn nack_message(&self, input: &NackInput) -> Result<AckOutput, Error> {
        let repeatable = input.lease.is_some();
        self.careful::<NackMessage>(input, repeatable, Duration::ZERO)
            .await
    }

    /// Extends the visibility of a message. The call is repeated after a lost answer only if it names
    /// the lease.
    pub async fn extend_message(&self, input: &ExtendInput) -> Result<ExtendOutput, Error> {
        let repeatable = input.lease.is_some();
        self.careful::<ExtendMessage>(input, repeatable, Duration::ZERO)
            .await
    }

    /// Looks at the next messages without receiving them.
    pub async fn peek_messages(&self, input: &PeekInput) -> Result<RecvOutput, Error> {
        self.call::<PeekMessages>(input).await
    }

    /// Reads a message and its state, without receiving it.
    pub async fn get_message(&self, input: &MessageInput) -> Result<MessageRecord, Error> {
        self.call::<GetMessage>(input).await
    }

    /// Throws one message away. The server remembers that for a while, so the call is repeated after a lost
    /// answer.
    pub async fn delete_message(&self, input: &MessageInput) -> Result<AckOutput, Error> {
        self.call::<DeleteMessage>(input).await
    }

    /// Brings one dead letter back. It is not sent again after a lost answer: the message may have died anew
    /// since.
    pub async fn redrive_message(&self, input: &MessageInput) -> Result<ReprocessOutput, Error> {
        self.call::<RedriveMessage>(input).await
    }

    /// Throws a topic's messages away. It is not sent again after a lost answer.
    pub async fn purge_topic(&self, input: &PurgeInput) -> Result<PurgeOutput, Error> {
        self.careful::<PurgeTopic>(input, false, Duration::ZERO)
            .await
    }

    /// Lists one page of topics; see [`Client::topics`] for all of them.
    pub async fn list_topics(&self, input: &ListTopicsInput) -> Result<ListTopicsOutput, Error> {
        self.call::<ListTopics>(input).await
    }

    /// Streams all topics that hold messages, by name.
    pub fn topics(&self, input: ListTopicsInput) -> Items<TopicState> {
        self.items::<ListTopics, _>(
            input,
            |page| Page::new(page.topics, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Lists one page of dead letters; see [`Client::dead_letters`] for all of them.
    pub async fn list_dead_letters(
        &self,
        input: &ListDeadLettersInput,
    ) -> Result<ListDeadLettersOutput, Error> {
        self.call::<ListDeadLetters>(input).await
    }

    /// Streams all dead letters that match, in the order in which they were sent.
    pub fn dead_letters(&self, input: ListDeadLettersInput) -> Items<DeadLetter> {
        self.items::<ListDeadLetters, _>(
            input,
            |page| Page::new(page.messages, page.next_cursor),
            |input, cursor| input.cursor = Some(cursor),
        )
    }

    /// Brings dead letters back. With `per_second` the answer takes as long as that needs.
    pub async fn reprocess_dead_letters(
        &self,
        input: &ReprocessInput,
    ) -> Result<ReprocessOutput, Error> {
        let limit = input.limit.unwrap_or(DEFAULT_REPROCESS);
        let steps = input.per_second.map_or(0, |step| limit / step.max(1));
        let wait = Duration::from_secs(steps.into());
        self.careful::<ReprocessDeadLetters>(input, false, wait)
            .await
    }

    /// Reads the signed heads of the chains of messages.
    pub async fn mailbox_heads(&self) -> Result<GetMailboxHeadsOutput, Error> {
        self.call::<GetMailboxHeads>(&GetMailboxHeadsInput {}).await
    }

    fn keyed<'a>(&self, input: &'a SendInput) -> Cow<'a, SendInput> {
        if !input.idem_key.is_empty() || !self.generates_keys() {
            return Cow::Borrowed(input);
        }
        Cow::Owned(SendInput {
            idem_key: random::idempotency_key().unwrap_or_default(),
            ..input.clone()
        })
    }

    /// Sends a call that is repeated only if `repeatable` says so, and that may take `wait` longer.
    async fn careful<O: Operation>(
        &self,
        input: &O::Input,
        repeatable: bool,
        wait: Duration,
    ) -> Result<O::Output, Error>
    where
        O::Input: serde::Serialize,
        O::Output: serde::de::DeserializeOwned,
    {
        let prepared = Prepared::new::<O>(input, None).map_err(|e| e.during(O::SPEC.name, 0))?;
        self.send(&Prepared {
            repeatable,
            wait,
            ..prepared
        })
        .await
    }
}
