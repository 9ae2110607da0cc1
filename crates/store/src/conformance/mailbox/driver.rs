//! A driver takes the mailbox of a store through the real rules.

use std::{
    collections::BTreeMap,
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex},
};

use asyncgate_core::{
    Env, LeaseId, MessageId,
    mailbox::{
        self, Changes, Decision, Message, Nack, Outgoing, Received, Rejection, Sent, Settlement,
        Swept, Wish,
    },
};

use crate::{
    Error,
    conformance::Driver,
    mailbox::{DeadFilter, DeadPage, Mailbox, Reads, SendKey, Snapshot, Take},
};

/// A wish for everything that is ready, for five seconds.
pub const ALL: Wish = Wish {
    visibility_ms: 5_000,
    max_messages: 1_000,
    max_bytes: usize::MAX,
};

/// A wish for one message, for five seconds.
pub const ONE: Wish = Wish {
    max_messages: 1,
    ..ALL
};

/// Makes a message to `inbox` under this key, with its key as content.
pub fn mail(key: &str) -> Outgoing {
    Outgoing {
        topic: "inbox".to_owned(),
        idem_key: key.to_owned(),
        payload: key.to_owned().into(),
        is_text: false,
        attrs: BTreeMap::new(),
        partition_key: None,
        delay_ms: 0,
        ttl_ms: None,
        priority: 0,
        corr_id: None,
    }
}

/// Makes a wish for everything that is ready in a topic.
pub fn of_topic(topic: &str) -> Take {
    Take {
        topic: topic.to_owned(),
        max_messages: 1_000,
        max_bytes: usize::MAX,
    }
}

/// Makes a choice of all dead letters of a topic, or of all topics.
pub fn dead(topic: Option<&str>) -> DeadFilter {
    DeadFilter {
        topic: topic.map(str::to_owned),
        limit: 1_000,
        ..DeadFilter::default()
    }
}

/// A driver of one tenant's mailbox. It is a [`Driver`] too, whose clock and settings it shares.
#[derive(Debug)]
pub struct MailDriver {
    driver: Driver,
    decided: Arc<Mutex<Changes>>,
}

impl Deref for MailDriver {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.driver
    }
}

impl DerefMut for MailDriver {
    fn deref_mut(&mut self) -> &mut Driver {
        &mut self.driver
    }
}

impl MailDriver {
    /// Makes a driver of the mailbox of the driver's tenant.
    pub fn new(driver: Driver) -> Self {
        Self {
            driver,
            decided: Arc::default(),
        }
    }

    /// Makes a driver of another tenant of the same store.
    #[must_use]
    pub fn other(&self, number: u8) -> Self {
        Self::new(Driver::of_tenant(Arc::clone(self.store()), number))
    }

    /// Returns the store's mailbox.
    pub fn mailbox(&self) -> &dyn Mailbox {
        self.store().mailbox()
    }

    /// Returns the changes of the last decision that was not refused.
    pub fn written(&self) -> Changes {
        self.decided.lock().unwrap().clone()
    }

    /// Runs one decision.
    pub async fn try_decide_mail<T: Send + 'static>(
        &mut self,
        reads: Reads,
        decide: impl FnMut(Env, Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> Result<Result<T, Rejection>, Error> {
        let decided = Arc::clone(&self.decided);
        self.driver.transact(reads, decided, decide).await
    }

    /// Runs one decision; a failure of the store fails the test.
    pub async fn decide_mail<T: Send + 'static>(
        &mut self,
        reads: Reads,
        decide: impl FnMut(Env, Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> Result<T, Rejection> {
        self.try_decide_mail(reads, decide).await.unwrap()
    }

    /// Returns what a decision would be given, without deciding anything.
    pub async fn look(&self, reads: Reads) -> Snapshot {
        self.show(reads).await.1
    }

    /// Returns the keys by which sends are looked up.
    pub fn keys(&self, outgoing: &[Outgoing]) -> Vec<SendKey> {
        let shards = self.policy.mailbox.shards;
        let key = |sent: &Outgoing| {
            let partition_key = sent.partition_key.as_deref();
            SendKey::new(&sent.topic, &sent.idem_key, partition_key, shards)
        };
        outgoing.iter().map(key).collect()
    }

    /// Sends several messages at once.
    pub async fn send_all(&mut self, outgoing: Vec<Outgoing>) -> Vec<Result<Sent, Rejection>> {
        let reads = Reads {
            sends: self.keys(&outgoing),
            ..Reads::default()
        };
        self.decide_mail(reads, move |env, snapshot| {
            Ok(mailbox::send(env, snapshot.send_context, outgoing.clone()))
        })
        .await
        .unwrap()
    }

    /// Sends a message, or finds the one behind its key.
    pub async fn try_send(&mut self, sent: Outgoing) -> Result<Sent, Rejection> {
        self.send_all(vec![sent]).await.remove(0)
    }

    /// Sends a message that must be new.
    pub async fn send(&mut self, sent: Outgoing) -> MessageId {
        let sent = self.try_send(sent).await.unwrap();
        assert!(!sent.duplicate, "it was sent before");
        sent.id
    }

    /// Receives messages of a topic.
    pub async fn receive_from(&mut self, topic: &str, wish: Wish) -> Result<Received, Rejection> {
        let take = Take {
            topic: topic.to_owned(),
            max_messages: wish.max_messages,
            max_bytes: wish.max_bytes,
        };
        let reads = Reads {
            ready: Some(take),
            ..Reads::default()
        };
        self.decide_mail(reads, move |env, snapshot| {
            mailbox::receive(
                env,
                &wish,
                snapshot.inflight,
                snapshot.ready,
                snapshot.lines,
            )
        })
        .await
    }

    /// Receives messages of `inbox`.
    pub async fn receive(&mut self, wish: Wish) -> Vec<Message> {
        self.receive_from("inbox", wish).await.unwrap().messages
    }

    /// Receives the one message of `inbox` that is first in line.
    pub async fn take(&mut self) -> (MessageId, LeaseId) {
        let message = self.receive(ONE).await.pop().unwrap();
        (message.id, message.delivery.unwrap().lease)
    }

    fn about(id: MessageId) -> Reads {
        Reads {
            messages: vec![id],
            ..Reads::default()
        }
    }

    /// Acknowledges a message.
    pub async fn ack(
        &mut self,
        id: MessageId,
        lease: Option<LeaseId>,
    ) -> Result<Settlement, Rejection> {
        self.decide_mail(Self::about(id), move |env, mut snapshot| {
            mailbox::ack(&env, snapshot.messages.pop(), lease, snapshot.lines)
        })
        .await
    }

    /// Gives a message back.
    pub async fn nack(
        &mut self,
        id: MessageId,
        lease: Option<LeaseId>,
        nack: Nack,
    ) -> Result<Settlement, Rejection> {
        self.decide_mail(Self::about(id), move |env, mut snapshot| {
            let message = snapshot.messages.pop();
            mailbox::nack(env, message, lease, nack.clone(), snapshot.lines)
        })
        .await
    }

    /// Gives a message back so that it is ready at once, or dies.
    pub async fn give_back(&mut self, id: MessageId, reason: &str) -> Settlement {
        let nack = Nack {
            reason: Some(reason.to_owned()),
            error: None,
            delay_ms: Some(0),
        };
        self.nack(id, None, nack).await.unwrap()
    }

    /// Keeps a message longer.
    pub async fn extend(
        &mut self,
        id: MessageId,
        lease: Option<LeaseId>,
        visibility_ms: i64,
    ) -> Result<asyncgate_core::Timestamp, Rejection> {
        self.decide_mail(Self::about(id), move |env, mut snapshot| {
            mailbox::extend(&env, snapshot.messages.pop(), lease, visibility_ms)
        })
        .await
    }

    /// Moves these messages if their time has come.
    pub async fn sweep_these(&mut self, mut messages: Vec<MessageId>) -> Swept {
        // Two stores may list messages with one deadline in different orders.
        messages.sort_unstable_by_key(MessageId::seq);
        messages.dedup();
        let reads = Reads {
            messages,
            ..Reads::default()
        };
        self.decide_mail(reads, |env, snapshot| {
            Ok(mailbox::sweep(&env, snapshot.messages, snapshot.lines))
        })
        .await
        .unwrap()
    }

    /// Moves the messages of this tenant that are due.
    pub async fn sweep_mail(&mut self) -> Swept {
        let due = self.mailbox().messages_due(self.now, 100_000).await;
        let mine = due.unwrap().into_iter();
        let mine = mine.filter(|(tenant, _)| *tenant == self.tenant);
        let ids = mine.map(|(_, id)| id).collect();
        self.sweep_these(ids).await
    }

    /// Brings dead letters back.
    pub async fn redrive(&mut self, filter: DeadFilter) -> Result<usize, Rejection> {
        let reads = Reads {
            dead: Some(filter),
            ..Reads::default()
        };
        self.decide_mail(reads, |env, snapshot| {
            mailbox::redrive(&env, snapshot.depths, snapshot.occupied, snapshot.dead)
        })
        .await
    }

    /// Throws waiting messages of a topic away.
    pub async fn purge_waiting(&mut self, topic: &str, limit: usize) -> usize {
        let reads = Reads {
            waiting: Some((topic.to_owned(), limit)),
            ..Reads::default()
        };
        let purged = self.decide_mail(reads, |env, snapshot| {
            Ok(mailbox::purge(&env, snapshot.waiting, snapshot.lines))
        });
        purged.await.unwrap()
    }

    /// Throws dead letters away.
    pub async fn purge_dead(&mut self, filter: DeadFilter) -> usize {
        let reads = Reads {
            dead: Some(filter),
            ..Reads::default()
        };
        let purged = self.decide_mail(reads, |env, snapshot| {
            Ok(mailbox::purge(&env, snapshot.dead, snapshot.lines))
        });
        purged.await.unwrap()
    }

    /// Throws one message away.
    pub async fn delete(&mut self, id: MessageId) -> Result<Settlement, Rejection> {
        self.decide_mail(Self::about(id), |env, mut snapshot| {
            mailbox::delete(&env, snapshot.messages.pop(), snapshot.lines)
        })
        .await
    }

    /// Brings one dead letter back. Returns false if the message is none.
    pub async fn redrive_one(&mut self, id: MessageId) -> Result<bool, Rejection> {
        let settled = self.decide_mail(Self::about(id), |env, mut snapshot| {
            let message = snapshot.messages.pop();
            mailbox::redrive_one(&env, snapshot.depths, snapshot.occupied, message)
        });
        settled.await.map(|settled| !settled.repeated)
    }

    /// Returns the message, if there is one.
    pub async fn message(&self, id: MessageId) -> Option<Message> {
        self.mailbox().message(self.tenant, id).await.unwrap()
    }

    /// Returns every message that is stored.
    pub async fn messages(&self) -> Vec<Message> {
        let all = self.mailbox().messages(self.tenant, None, 100_000);
        all.await.unwrap()
    }

    /// Returns the ready messages of a topic. They stay where they are.
    pub async fn peek(&self, take: Take) -> Vec<Message> {
        self.mailbox().peek(self.tenant, take).await.unwrap()
    }

    /// Returns dead letters, as far as one look finds them.
    pub async fn dead_letters(&self, filter: DeadFilter) -> Vec<Message> {
        self.dead_page(filter).await.letters
    }

    /// Returns a page of dead letters.
    pub async fn dead_page(&self, filter: DeadFilter) -> DeadPage {
        let found = self.mailbox().dead_letters(self.tenant, filter).await;
        found.unwrap()
    }
}

/// Returns the keys under which messages were sent.
pub(super) fn keys_of(messages: &[Message]) -> Vec<&str> {
    let keys = messages.iter().map(|message| &*message.idem_key);
    keys.collect()
}
