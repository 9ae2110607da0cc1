//! Predicting the writes of a transaction over messages, and the answer to the call behind it.

use std::sync::Arc;

use asyncgate_api::{Code, IdempotencyMode, Payload, Text};
use asyncgate_core::{
    LeaseId, Link, MessageId, Timestamp,
    mailbox::{
        Cause, ChainHead, Changes, Delivery, Kind, Message, State, hash_chain, payload_hash,
        shard_of,
    },
};
use asyncgate_store::mailbox::{DeadFilter, Reads};

use super::{Fate, Mail, TenantMail};
use crate::{
    asked::Asked,
    model::oracle::{Question, Verdict},
    step::Op,
    store::MailWrote,
    violation::{Checked, hold},
};

/// The largest number of messages that one transaction purges.
const PURGE_STEP: usize = 1_000;
const NO_ID: MessageId = MessageId::from_bytes([0; 16]);
const NO_LEASE: LeaseId = LeaseId::from_bytes([0; 16]);

/// The prediction for a transaction.
#[derive(Debug, Default)]
pub(super) struct Foreseen {
    /// The rule that is broken if it does something else.
    rule: &'static str,
    /// The expected outcome of each item of the call.
    pub(super) fates: Vec<Fate>,
    writes: Vec<Expected>,
    forgotten: Vec<MessageId>,
}

/// A message in the form in which it should be written.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub(super) message: Message,
    pub(super) free: Free,
}

impl Expected {
    pub(super) const fn fixed(message: Message) -> Self {
        let free = Free::Nothing;
        Self { message, free }
    }
}

/// The part of a message that is random and cannot be predicted.
#[derive(Debug, Clone, Copy)]
pub(super) enum Free {
    Nothing,
    /// The ids.
    Ids,
    /// The lease.
    Lease,
    /// The backoff, up to this many milliseconds.
    Backoff(i64),
}

impl Foreseen {
    /// Adds the messages that get the turn from those that end.
    fn passing_turns(mut self, mail: &TenantMail, now: Timestamp) -> Self {
        mail.pass_turns(now, &mut self.writes);
        self
    }

    /// Compares the writes with the prediction.
    pub(super) fn check(&self, now: Timestamp, changes: &Changes) -> Checked {
        let written = changes.messages.iter().map(|write| write.message.id);
        let forgotten = changes.forgotten.iter().map(|write| write.message.id);
        let same = changes.messages.len() == self.writes.len()
            && forgotten.eq(self.forgotten.iter().copied());
        hold(same, self.rule, || {
            let written: Vec<_> = written.map(|id| id.seq()).collect();
            let should = self.writes.iter().map(|write| write.message.id.seq());
            let should: Vec<_> = should.collect();
            format!("writes {written:?}, should be {should:?}")
        })?;
        for (write, expected) in changes.messages.iter().zip(&self.writes) {
            let filled = expected.filled(now, &write.message);
            hold(filled == write.message, self.rule, || {
                let (is, should) = (&write.message, &filled);
                format!("writes {is:?}, should be {should:?}")
            })?;
        }
        Ok(())
    }
}

impl Expected {
    /// Returns the expected message, with the random part taken from the written one.
    fn filled(&self, now: Timestamp, written: &Message) -> Message {
        let mut message = self.message.clone();
        match self.free {
            Free::Nothing => {}
            Free::Ids => {
                message.id = written.id;
                message.corr_id = written.corr_id;
            }
            Free::Lease => {
                if let (Some(mine), Some(theirs)) = (&mut message.delivery, written.delivery) {
                    mine.lease = theirs.lease;
                }
            }
            Free::Backoff(longest) => {
                if let State::Delayed { until } = written.state
                    && until > now
                    && until <= now.plus_millis(longest)
                {
                    message.state = written.state;
                }
            }
        }
        message
    }
}

impl Mail {
    /// Predicts a refusal that needs no look at the stored messages.
    pub fn static_verdict(&self, question: &Question<'_>) -> Verdict {
        if !question.may_call() {
            return Err(Code::ECapScope);
        }
        let asked = question.asked;
        if question.asked.has("odd") || !self.is_sound(question.op, asked) {
            return Err(Code::ESchema);
        }
        Ok(())
    }

    fn is_sound(&self, op: Op, asked: &Asked) -> bool {
        let named = asked.text("topic").is_none_or(|topic| !topic.is_empty());
        let (least, most) = (self.policy.visibility_min_ms, self.policy.visibility_max_ms);
        let held = asked
            .number("visibility_ms")
            .is_none_or(|ms| (least..=most).contains(&ms));
        let some: [Option<usize>; 2] = [asked.number("max_messages"), asked.number("limit")];
        let some = some.into_iter().flatten().all(|count| count > 0);
        let sent = op != Op::SEND || is_sendable(asked);
        named && held && some && sent && is_later(asked)
    }

    /// Predicts the writes of a transaction from the call behind it. A call with several transactions is
    /// told apart by what each reads. A transaction without a call is a sweep over what it reads.
    pub(super) fn foresee(
        &self,
        number: usize,
        op: Option<Op>,
        call: Option<&Question<'_>>,
        now: Timestamp,
        wrote: &MailWrote,
    ) -> Foreseen {
        let mail = &self.tenants[number];
        let reads = &wrote.reads;
        let Some(op) = op else {
            return self
                .sweep(mail, &reads.messages, now)
                .passing_turns(mail, now);
        };
        let Some(asked) = call.map(|call| call.asked) else {
            return Foreseen::default();
        };
        let foreseen = match op {
            Op::SEND => self.send(number, std::slice::from_ref(asked), now),
            Op::SEND_BATCH => self.send(number, &asked.items("messages"), now),
            Op::RECV => self.receive(number, asked, now),
            Op::PURGE => self.purge(mail, reads, asked, wrote.asked_at, now),
            Op::REPROCESS => self.bring_back_all(mail, reads.dead.as_ref(), asked, now),
            Op::REDRIVE_MESSAGE => self.bring_back_one(mail, asked, now),
            Op::ACK_BATCH => self.settle_all(mail, op, &asked.items("acks"), now),
            _ => self.settle_all(mail, op, std::slice::from_ref(asked), now),
        };
        foreseen.passing_turns(mail, now)
    }

    fn settle_all(&self, mail: &TenantMail, op: Op, asked: &[Asked], now: Timestamp) -> Foreseen {
        let mut foreseen = Foreseen {
            rule: match op {
                Op::NACK => "given back",
                Op::EXTEND => "kept longer",
                Op::DELETE_MESSAGE => "thrown away",
                _ => "acknowledged by who may",
            },
            ..Foreseen::default()
        };
        for one in asked {
            let settled = self.settle(mail, op, one, now, &foreseen.writes);
            foreseen.fates.push(match settled {
                Ok(write) => {
                    foreseen.writes.extend(write);
                    Fate::Done
                }
                Err(code) => Fate::Refused(code),
            });
        }
        foreseen
    }

    fn send(&self, number: usize, asked: &[Asked], now: Timestamp) -> Foreseen {
        let mail = &self.tenants[number];
        let mut foreseen = Foreseen {
            rule: "sent as asked",
            ..Foreseen::default()
        };
        // For each new message, the number of the call's item.
        let mut sent: Vec<usize> = Vec::new();
        for one in asked {
            let name = (
                one.text_or_empty("topic").into(),
                one.text_or_empty("idem_key").into(),
            );
            let fresh = foreseen.writes.iter().position(|write| {
                let message = &write.message;
                message.topic == name.0 && message.idem_key == name.1
            });
            let known = mail.names.get(&name).and_then(|seq| mail.messages.get(seq));
            let window = self.policy.t_replay_ms;
            let known = known.filter(|known| known.sent_at.plus_millis(window) > now);
            let first = fresh.map(|n| &foreseen.writes[n].message).or(known);
            // A message of the same batch comes before a stored one that is too old to count.
            let again = fresh.map(|n| Fate::AgainOf(sent[n]));
            let again = again.or(known.map(|known| Fate::Again(known.id)));
            let fate = match (first, again) {
                _ if !is_sendable(one) => Fate::Refused(Code::ESchema),
                (Some(first), Some(again)) => {
                    let same = first.payload_hash == payload_hash(&payload(one).0);
                    match one.value("idempotency_mode").unwrap_or_default() {
                        _ if !same => Fate::Refused(Code::EIdemConflict),
                        IdempotencyMode::Flag => again,
                        IdempotencyMode::Conflict => Fate::Refused(Code::EDuplicate),
                    }
                }
                _ => self.place_new(number, one, now, &mut foreseen.writes),
            };
            if fate == Fate::New {
                sent.push(foreseen.fates.len());
            }
            foreseen.fates.push(fate);
        }
        foreseen
    }

    /// Adds a new message, if there is room.
    fn place_new(
        &self,
        number: usize,
        asked: &Asked,
        now: Timestamp,
        new: &mut Vec<Expected>,
    ) -> Fate {
        let (mail, policy) = (&self.tenants[number], &self.policy);
        let (topic, idem_key) = (
            asked.text_or_empty("topic"),
            asked.text_or_empty("idem_key"),
        );
        let shard = shard_of(topic, asked.text("partition_key"), policy.shards);
        let siblings = || new.iter().filter(|write| write.message.shard == shard);
        let payload = payload(asked).0;
        if payload.len() > policy.max_payload_bytes {
            return Fate::Refused(Code::EFrameTooLarge);
        }
        let beside = new.iter().filter(|write| &*write.message.topic == topic);
        let depth = mail.depth(topic) + beside.count() as u64;
        let oldest = mail.sends.front().map_or(now, |oldest| *oldest);
        let oldest_counts = oldest.plus_millis(policy.t_replay_ms) > now;
        let sends = |mail: &TenantMail| mail.sends.len() as u64;
        let room = self.room(number, policy.dedup_capacity, sends, new.len() as u64);
        if depth >= u64::from(policy.topic_capacity) || oldest_counts && room == 0 {
            return Fate::Refused(Code::ESaturated);
        }
        let last = siblings().last().map(|write| write.message.chain_head());
        let stored = mail.chains.get(&shard).copied();
        let ChainHead { seq, link }: ChainHead = last.or(stored).unwrap_or_default();
        let content = payload_hash(&payload);
        let until = now.plus_millis(asked.number("delay_ms").unwrap_or(0));
        let attrs = asked.value("attrs").unwrap_or_default();
        let mut message = Message {
            id: NO_ID,
            hash_chain: hash_chain(topic, now, idem_key, &content, &attrs),
            topic: topic.into(),
            partition_key: asked.text("partition_key").map(Into::into),
            shard,
            sent_at: now,
            idem_key: idem_key.into(),
            attrs: Arc::new(attrs),
            payload,
            is_text: asked.has("payload_text"),
            payload_hash: content,
            prev: Link::from_bytes(*link.as_bytes()),
            chain_seq: seq + 1,
            corr_id: [0; 16],
            priority: asked.number("priority").unwrap_or(0),
            expires_at: asked.number("ttl_ms").map(|ttl| now.plus_millis(ttl)),
            since: now,
            state: State::Ready,
            attempt: 0,
            delivery: None,
            reason: None,
            last_error: None,
        };
        message.state = mail.waits(&message, until, now, new);
        let free = Free::Ids;
        new.push(Expected { message, free });
        Fate::New
    }

    /// Predicts a receive: the best messages of a topic, in order, as many as may be held. Messages that are
    /// too old become dead letters on the way.
    fn receive(&self, number: usize, asked: &Asked, now: Timestamp) -> Foreseen {
        let mail = &self.tenants[number];
        let mut foreseen = Foreseen {
            rule: "delivery order",
            fates: vec![Fate::Done],
            ..Foreseen::default()
        };
        let most = asked.number("max_messages").unwrap_or(usize::MAX);
        let most = most.min(self.policy.max_messages.into());
        let bytes = asked.number("max_bytes").unwrap_or(usize::MAX);
        let bytes = bytes.min(self.policy.max_bytes);
        let topic = asked.text_or_empty("topic");
        let room = self.room(number, self.policy.global_inflight, |mail| mail.inflight, 0);
        let (mut seen, mut given, mut handed) = (0, 0, 0);
        for (n, message) in mail.queue(topic, Kind::Ready).take(most).enumerate() {
            if room == 0 {
                foreseen.fates = vec![Fate::Refused(Code::ESaturated)];
                break;
            }
            // The store reads no more bytes than the receiver may get, so an expired message takes up room.
            let size = message.payload.len();
            seen += size;
            if n > 0 && seen > bytes {
                break;
            }
            if self.is_too_old(message, now) {
                foreseen
                    .writes
                    .push(self.dead(message, Cause::Expired, now));
                continue;
            }
            if handed == room || handed > 0 && given + size > bytes {
                break;
            }
            handed += 1;
            given += size;
            let visibility_ms = self.visibility(asked);
            let until = now.plus_millis(visibility_ms);
            let message = Message {
                attempt: message.attempt + 1,
                state: State::Leased { until },
                delivery: Some(Delivery {
                    lease: NO_LEASE,
                    at: now,
                    visibility_ms,
                }),
                ..message.clone()
            };
            let free = Free::Lease;
            foreseen.writes.push(Expected { message, free });
        }
        foreseen
    }

    fn is_too_old(&self, message: &Message, now: Timestamp) -> bool {
        let waited = now.millis_since(message.since);
        message.expires_at.is_some_and(|end| end <= now) || waited >= self.policy.ready_retention_ms
    }

    fn sweep(&self, mail: &TenantMail, looked_at: &[MessageId], now: Timestamp) -> Foreseen {
        let mut foreseen = Foreseen {
            rule: "deadlines of messages",
            ..Foreseen::default()
        };
        for message in looked_at.iter().filter_map(|id| mail.message(*id)) {
            let old = self.is_too_old(message, now);
            let spent = message.attempt >= self.policy.max_attempts;
            let cause = match message.state {
                State::Leased { until } if until > now => continue,
                State::Delayed { until } if until > now && !old => continue,
                State::Ready | State::Blocked { .. } if !old => continue,
                State::Dead { until, .. } | State::Gone { until } => {
                    if until <= now {
                        foreseen.forgotten.push(message.id);
                    }
                    continue;
                }
                State::Leased { .. } if spent => Some(Cause::MaxAttempts),
                State::Ready
                | State::Delayed { .. }
                | State::Blocked { .. }
                | State::Leased { .. } => old.then_some(Cause::Expired),
            };
            let ready = || {
                let state = State::Ready;
                let message = message.clone();
                Expected::fixed(Message { state, ..message })
            };
            let write = cause.map_or_else(ready, |cause| self.dead(message, cause, now));
            foreseen.writes.push(write);
        }
        foreseen
    }

    /// Predicts a purge: waiting and dead messages go, except those that came after the call.
    fn purge(
        &self,
        mail: &TenantMail,
        reads: &Reads,
        asked: &Asked,
        asked_at: Timestamp,
        now: Timestamp,
    ) -> Foreseen {
        let topic = asked.text_or_empty("topic");
        let waits = reads.waiting.is_some() && asked.text_or_empty("state") != "dlq";
        let waiting = [Kind::Ready, Kind::Delayed];
        let waiting = waiting.into_iter().filter(|_| waits);
        let waiting = waiting.flat_map(|kind| mail.queue(topic, kind));
        let is_dead = reads.dead.is_some() && asked.text_or_empty("state") != "ready";
        let dead = mail.dead.iter().filter(|_| is_dead);
        let dead = dead.filter_map(|seq| mail.messages.get(seq));
        let dead = dead.filter(|message| &*message.topic == topic);
        let found = waiting.chain(dead).take(PURGE_STEP);
        let found = found.filter(|message| message.since <= asked_at);
        Foreseen {
            rule: "purged",
            fates: vec![Fate::Done],
            writes: found.map(|message| self.gone(message, now)).collect(),
            forgotten: Vec::new(),
        }
    }

    /// Predicts a redrive of the dead letters that a filter selects.
    fn bring_back_all(
        &self,
        mail: &TenantMail,
        filter: Option<&DeadFilter>,
        asked: &Asked,
        now: Timestamp,
    ) -> Foreseen {
        let filter = filter.map(|filter| DeadFilter {
            topic: asked.text("topic").map(str::to_owned),
            reason: asked.text("reason").map(str::to_owned),
            ..filter.clone()
        });
        let letters = filter.iter().flat_map(|filter| letters(mail, filter));
        self.bring_back(mail, letters, now)
    }

    /// Predicts a redrive of one message, which changes nothing if it is no dead letter.
    fn bring_back_one(&self, mail: &TenantMail, asked: &Asked, now: Timestamp) -> Foreseen {
        let Some(message) = mail.known(asked) else {
            return Foreseen {
                rule: "brought back",
                fates: vec![Fate::Refused(Code::ENotFound)],
                ..Foreseen::default()
            };
        };
        let is_dead = message.standing().kind == Kind::Dead;
        self.bring_back(mail, is_dead.then_some(message).into_iter(), now)
    }

    /// Predicts a redrive: dead letters come back all together, or none does.
    fn bring_back<'a>(
        &self,
        mail: &TenantMail,
        letters: impl Iterator<Item = &'a Message>,
        now: Timestamp,
    ) -> Foreseen {
        let mut foreseen = Foreseen {
            rule: "brought back",
            fates: vec![Fate::Done],
            ..Foreseen::default()
        };
        for message in letters {
            let siblings = foreseen.writes.iter();
            let siblings = siblings.filter(|write| write.message.topic == message.topic);
            let depth = mail.depth(&message.topic) + siblings.count() as u64;
            if depth >= u64::from(self.policy.topic_capacity) {
                foreseen.fates = vec![Fate::Refused(Code::ESaturated)];
                foreseen.writes.clear();
                break;
            }
            foreseen.writes.push(Expected::fixed(Message {
                state: mail.waits(message, now, now, &foreseen.writes),
                since: now,
                attempt: 0,
                delivery: None,
                reason: None,
                last_error: None,
                expires_at: message.expires_at.filter(|end| *end > now),
                ..message.clone()
            }));
        }
        foreseen
    }
}

impl TenantMail {
    /// Returns the message that a call names, unless it is gone.
    pub(super) fn known(&self, asked: &Asked) -> Option<&Message> {
        let message = self.message(asked.parsed("msg_id")?)?;
        (message.standing().kind != Kind::Gone).then_some(message)
    }
}

/// Returns the dead letters that a filter selects, in the order in which they were sent.
pub(super) fn letters<'a>(
    mail: &'a TenantMail,
    filter: &'a DeadFilter,
) -> impl Iterator<Item = &'a Message> {
    let dead = mail.dead.iter().filter_map(|seq| mail.messages.get(seq));
    let after = filter.after.map_or(0, |id| id.seq());
    dead.filter(move |message| {
        let State::Dead { at, .. } = message.state else {
            return false;
        };
        let topic = filter.topic.as_ref();
        topic.is_none_or(|topic| **topic == *message.topic)
            && (filter.reason.is_none() || filter.reason == message.reason)
            && filter.died_by.is_none_or(|by| at <= by)
            && message.id.seq() > after
    })
    .take(filter.limit)
}

fn is_sendable(asked: &Asked) -> bool {
    let lives = asked.number("ttl_ms").is_none_or(|ttl: i64| ttl > 0);
    !asked.text_or_empty("topic").is_empty()
        && !asked.text_or_empty("idem_key").is_empty()
        && is_later(asked)
        && lives
        && asked.has("payload_text") != asked.has("payload_b64")
}

/// Returns true if the delay is not negative.
fn is_later(asked: &Asked) -> bool {
    asked.number("delay_ms").is_none_or(|delay: i64| delay >= 0)
}

/// Returns the content to send.
fn payload(asked: &Asked) -> Payload {
    let text: Option<Text> = asked.value("payload_text");
    let text = text.map(Payload::from);
    text.or_else(|| asked.value("payload_b64"))
        .unwrap_or_default()
}
