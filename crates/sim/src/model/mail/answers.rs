//! Checking answers about messages against the prediction and the commits.

use std::cell::RefCell;

use asyncgate_api::{
    AckBatchOutput, AckResult, Code, Envelope, ExtendOutput, GetMailboxHeadsOutput,
    ListDeadLettersOutput, ListTopicsOutput, MessageRecord, PurgeOutput, RecvOutput,
    ReprocessOutput, SendBatchOutput, SendOutput, SendResult,
};
use asyncgate_core::{
    LeaseId, MessageId, Timestamp,
    mailbox::{Kind, Message, State},
};
use asyncgate_store::mailbox::DeadFilter;
use serde::de::DeserializeOwned;

use super::{Fate, Mail, Notes, foresee::letters};
use crate::{
    cast::tenant_id,
    entrance::Output,
    model::{
        Gains,
        answers::read,
        audit::Journal,
        lists::limit,
        oracle::{Question, Verdict},
        times::shows,
    },
    step::Op,
    violation::{Checked, broken, hold},
};

const DEFAULT_REPROCESS: usize = 100;

/// A call about messages that was answered with a success.
#[derive(Debug)]
pub struct AnsweredMail<'a> {
    /// The call.
    pub question: Question<'a>,
    /// The output, until it is read.
    pub output: RefCell<Option<Output>>,
    /// The model's notes on its transactions.
    pub notes: &'a Notes,
    /// True if nothing else was committed between its reads and its answer, and nothing failed.
    pub exact: bool,
}

impl Mail {
    /// Predicts if a call succeeds.
    pub fn verdict(&self, question: &Question<'_>, notes: &Notes) -> Verdict {
        self.static_verdict(question)?;
        let mail = &self.tenants[question.actor.tenant];
        match (question.op, &notes.fates[..]) {
            (Op::GET_MESSAGE, _) if mail.known(question.asked).is_none() => Err(Code::ENotFound),
            // Each item of a batch has an answer of its own.
            (Op::SEND_BATCH | Op::ACK_BATCH, _) => Ok(()),
            // Letters that came back stay back, so the caller must be told of them.
            (Op::REPROCESS, _) if notes.wrote > 0 => Ok(()),
            (_, [Fate::Refused(code)]) => Err(*code),
            _ => Ok(()),
        }
    }

    /// Checks an answer, records its promises, and returns the ids that the client learns.
    pub fn check_answer(
        &self,
        answered: &AnsweredMail<'_>,
        journal: &mut Journal,
    ) -> Checked<Gains> {
        let mut gains = Gains::default();
        let asked = answered.question.asked;
        match answered.question.op {
            Op::SEND => {
                let sent = SendResult::Sent(answered.read()?);
                self.sent(answered, &[sent], journal, &mut gains)?;
            }
            Op::SEND_BATCH => {
                let output: SendBatchOutput = answered.read()?;
                self.sent(answered, &output.results, journal, &mut gains)?;
            }
            Op::RECV => self.received(answered, &mut gains)?,
            Op::ACK_MESSAGE | Op::DELETE_MESSAGE => {
                self.acked(answered, asked.text_or_empty("msg_id"), journal)?;
            }
            Op::REDRIVE_MESSAGE => {
                let output: ReprocessOutput = answered.read()?;
                answered.counts(output.moved, answered.notes.wrote)?;
            }
            Op::ACK_BATCH => {
                let output: AckBatchOutput = answered.read()?;
                let fates = answered.notes.fates.iter();
                let told = output.results.iter().map(|result| match result {
                    AckResult::Done(_) => Fate::Done,
                    AckResult::Refused(refusal) => Fate::Refused(refusal.code),
                });
                hold(fates.copied().eq(told), "verdict", || {
                    format!("{output:?}, should be {:?}", answered.notes.fates)
                })?;
                for (ack, fate) in asked.items("acks").iter().zip(&answered.notes.fates) {
                    if *fate == Fate::Done {
                        self.acked(answered, ack.text_or_empty("msg_id"), journal)?;
                    }
                }
            }
            Op::EXTEND => {
                let output: ExtendOutput = answered.read()?;
                let kept = answered.notes.given.first().is_some_and(|message| {
                    matches!(message.state, State::Leased { until } if shows(&output.visible_at, until))
                });
                hold(kept, "who holds which message", || format!("{output:?}"))?;
            }
            Op::PURGE => {
                let output: PurgeOutput = answered.read()?;
                answered.counts(output.purged, answered.notes.ended)?;
            }
            Op::REPROCESS => {
                let output: ReprocessOutput = answered.read()?;
                if asked.flag("dry_run") {
                    self.would_move(answered, output.moved)?;
                } else {
                    answered.counts(output.moved, answered.notes.wrote)?;
                }
            }
            Op::PEEK | Op::TOPICS | Op::DEAD_LETTERS | Op::HEADS | Op::GET_MESSAGE
                if !answered.exact => {}
            Op::PEEK => self.peeked(answered)?,
            Op::TOPICS => self.listed_topics(answered)?,
            Op::DEAD_LETTERS => self.listed_dead(answered)?,
            Op::HEADS => self.told_heads(answered)?,
            Op::GET_MESSAGE => self.looked_at(answered)?,
            _ => {}
        }
        Ok(gains)
    }

    /// Checks that each send was answered with its message, and that the message is known.
    fn sent(
        &self,
        answered: &AnsweredMail<'_>,
        results: &[SendResult],
        journal: &mut Journal,
        gains: &mut Gains,
    ) -> Checked {
        let fates = &answered.notes.fates;
        let number = answered.question.actor.tenant;
        hold(results.len() == fates.len(), "verdict", || {
            format!("{} results, should be {fates:?}", results.len())
        })?;
        let mut new = answered.notes.given.iter().map(|message| message.id);
        let mut ids: Vec<Option<MessageId>> = Vec::with_capacity(fates.len());
        for (result, fate) in results.iter().zip(fates) {
            let (id, duplicate) = match fate {
                Fate::New => (new.next(), false),
                Fate::Again(id) => (Some(*id), true),
                Fate::AgainOf(item) => (ids[*item], true),
                Fate::Done | Fate::Refused(_) => (None, false),
            };
            ids.push(id);
            let told = || format!("{result:?}, should be {fate:?} {id:?}");
            let code = match result {
                SendResult::Refused(refusal) => Some(refusal.code),
                SendResult::Sent(_) => None,
            };
            if let Fate::Refused(expected) = fate {
                hold(code == Some(*expected), "verdict", told)?;
                continue;
            }
            let SendResult::Sent(output) = result else {
                return broken("verdict", told());
            };
            self.check_sent(number, output, id, duplicate)?;
            if let Some(id) = id {
                journal.sent(number, id);
            }
            gains.messages.push(output.msg_id.clone());
        }
        Ok(())
    }

    fn check_sent(
        &self,
        number: usize,
        output: &SendOutput,
        id: Option<MessageId>,
        duplicate: bool,
    ) -> Checked {
        let told = || format!("{output:?}, should be {id:?}");
        let known = id.is_some_and(|id| {
            let mail = &self.tenants[number];
            mail.message(id).is_some() || mail.over.contains(&id.seq())
        });
        hold(known, "nothing acknowledged is lost", told)?;
        let same = id.is_some_and(|id| id.to_string() == output.msg_id);
        hold(same, "one message per name", told)?;
        hold(output.duplicate == duplicate, "duplicates are told", told)
    }

    /// Checks that a receiver is told of exactly the messages that were handed over to it.
    fn received(&self, answered: &AnsweredMail<'_>, gains: &mut Gains) -> Checked {
        let output: RecvOutput = answered.read()?;
        let given = answered.notes.given.iter();
        let given = given.filter(|message| message.standing().kind == Kind::Leased);
        let given: Vec<&Message> = given.collect();
        hold(given.len() == output.messages.len(), "done once", || {
            format!("{} told, {} given", output.messages.len(), given.len())
        })?;
        for (shown, message) in output.messages.into_iter().zip(given) {
            check_envelope(&shown, message)?;
            gains.messages.push(shown.msg_id);
            gains.deliveries.extend(shown.lease);
        }
        Ok(())
    }

    fn acked(&self, answered: &AnsweredMail<'_>, id: &str, journal: &mut Journal) -> Checked {
        let number = answered.question.actor.tenant;
        let Ok(id) = id.parse::<MessageId>() else {
            return broken("verdict", format!("{id} is acknowledged"));
        };
        let over = self.tenants[number].over.contains(&id.seq());
        hold(over, "acknowledged is final", || id.to_string())?;
        journal.acked(number, id);
        Ok(())
    }

    fn would_move(&self, answered: &AnsweredMail<'_>, moved: u64) -> Checked {
        let asked = answered.question.asked;
        let most = asked.number("limit").unwrap_or(DEFAULT_REPROCESS);
        let filter = self.filter(answered, most);
        let mail = &self.tenants[answered.question.actor.tenant];
        let count = letters(mail, &filter).count() as u64;
        hold(count == moved || !answered.exact, "dead letters", || {
            format!("{moved} dead letters, should be {count}")
        })
    }

    /// Returns the filter for the dead letters that a call asks for.
    fn filter(&self, answered: &AnsweredMail<'_>, limit: usize) -> DeadFilter {
        let Question { asked, now, .. } = answered.question;
        let seconds: Option<i64> = asked.number("older_than_secs");
        DeadFilter {
            topic: asked.text("topic").map(str::to_owned),
            reason: asked.text("reason").map(str::to_owned),
            died_by: seconds.map(|seconds| now.plus_millis(-1_000 * seconds)),
            after: asked.parsed("cursor"),
            limit,
        }
    }

    fn peeked(&self, answered: &AnsweredMail<'_>) -> Checked {
        let output: RecvOutput = answered.read()?;
        let asked = answered.question.asked;
        let most = asked.number("max_messages").unwrap_or(usize::MAX);
        let most = most.min(self.policy.max_messages.into());
        let bytes = asked.number("max_bytes").unwrap_or(usize::MAX);
        let bytes = bytes.min(self.policy.max_bytes);
        let mut seen = 0;
        let mail = &self.tenants[answered.question.actor.tenant];
        let queue = mail.queue(asked.text_or_empty("topic"), Kind::Ready);
        let next = queue.take(most).enumerate().take_while(|(n, message)| {
            seen += message.payload.len();
            *n == 0 || seen <= bytes
        });
        let next: Vec<&Message> = next.map(|(_, message)| message).collect();
        hold(
            next.len() == output.messages.len(),
            "lists are complete",
            || format!("{} peeked, should be {}", output.messages.len(), next.len()),
        )?;
        let mut shown = output.messages.iter().zip(next);
        shown.try_for_each(|(shown, message)| check_envelope(shown, message))
    }

    fn listed_topics(&self, answered: &AnsweredMail<'_>) -> Checked {
        let output: ListTopicsOutput = answered.read()?;
        let Question {
            actor, asked, now, ..
        } = answered.question;
        let topics = self.tenants[actor.tenant].topics();
        let after = asked.text_or_empty("cursor");
        let mut later = topics.iter().filter(|topic| topic.name.as_str() > after);
        let page: Vec<_> = later.by_ref().take(limit(asked.number("limit"))).collect();
        let more = later.next().is_some();
        let same = page.len() == output.topics.len()
            && more == output.next_cursor.is_some()
            && page.iter().zip(&output.topics).all(|(topic, shown)| {
                let age = topic.oldest.map(|since| now.millis_since(since).max(0));
                topic.name == shown.topic
                    && topic.counts.of(Kind::Ready) == shown.ready
                    && topic.counts.of(Kind::Delayed) == shown.delayed
                    && shown.depth == shown.ready + shown.delayed
                    && topic.counts.of(Kind::Leased) == shown.inflight
                    && topic.counts.of(Kind::Dead) == shown.dlq_depth
                    && age == shown.oldest_age_ms
            });
        hold(same, "topics", || format!("{output:?}, should be {page:?}"))
    }

    fn listed_dead(&self, answered: &AnsweredMail<'_>) -> Checked {
        let output: ListDeadLettersOutput = answered.read()?;
        let Question { actor, asked, .. } = answered.question;
        let filter = self.filter(answered, usize::MAX);
        let mut found = letters(&self.tenants[actor.tenant], &filter);
        let page = found.by_ref().take(limit(asked.number("limit")));
        let page: Vec<&Message> = page.collect();
        let more = found.next().is_some();
        let complete = page.len() == output.messages.len() && more == output.next_cursor.is_some();
        hold(complete, "dead letters", || {
            format!("{} listed, should be {}", output.messages.len(), page.len())
        })?;
        for (shown, message) in output.messages.iter().zip(page) {
            check_envelope(&shown.envelope, message)?;
            let same = matches!(message.state, State::Dead { cause, at, .. }
                if cause.as_str() == shown.cause && shows(&shown.died_at, at))
                && message.reason.as_ref() == Some(&shown.reason)
                && message.last_error == shown.last_error;
            hold(same, "dead letters", || format!("{shown:?}"))?;
        }
        Ok(())
    }

    /// Checks that a message is shown in its state, and without the lease of whoever has it.
    fn looked_at(&self, answered: &AnsweredMail<'_>) -> Checked {
        let output: MessageRecord = answered.read()?;
        let Question { actor, asked, .. } = answered.question;
        let Some(message) = self.tenants[actor.tenant].known(asked) else {
            return broken("verdict", format!("{output:?} is shown"));
        };
        let (state, until, died) = match message.state {
            State::Ready => ("ready", None, None),
            State::Delayed { until } => ("delayed", Some(until), None),
            State::Blocked { .. } => ("blocked", None, None),
            State::Leased { until } => ("leased", Some(until), None),
            State::Dead { cause, at, .. } => ("dead", None, Some((cause.as_str(), at))),
            State::Gone { .. } => ("gone", None, None),
        };
        let same = output.state.as_str() == state
            && output.cause.as_deref() == died.map(|(cause, _)| cause)
            && at(&output.died_at, died.map(|(_, at)| at))
            && output.reason == message.reason
            && output.last_error == message.last_error;
        hold(same, "messages are shown as they are", || {
            format!("{output:?}, should be {message:?}")
        })?;
        check_content(&output.envelope, message, None, until)
    }

    fn told_heads(&self, answered: &AnsweredMail<'_>) -> Checked {
        let output: GetMailboxHeadsOutput = answered.read()?;
        let tenant = answered.question.actor.tenant;
        let chains = &self.tenants[tenant].chains;
        let same = chains.len() == output.heads.len()
            && chains
                .iter()
                .zip(&output.heads)
                .all(|((shard, head), shown)| {
                    *shard == shown.shard
                        && head.seq == shown.seq
                        && head.link.to_string() == shown.link
                        && tenant_id(tenant).to_string() == shown.tenant_id
                        && shown.signature.is_some()
                });
        hold(same, "chain of messages", || {
            format!("{output:?}, should be {chains:?}")
        })
    }
}

impl AnsweredMail<'_> {
    fn read<T: DeserializeOwned + 'static>(&self) -> Checked<T> {
        read(self.question.op, &self.output)
    }

    /// Checks that as many messages moved as the answer says.
    fn counts(&self, told: u64, moved: usize) -> Checked {
        hold(told == moved as u64, "done once", || {
            format!("{told} told, {moved} moved")
        })
    }
}

/// Checks that a message is shown in its true state; its lease only while somebody holds it.
fn check_envelope(shown: &Envelope, message: &Message) -> Checked {
    let (lease, until) = match (message.state, message.delivery) {
        (State::Leased { until }, Some(given)) => (Some(given.lease), Some(until)),
        _ => (None, None),
    };
    check_content(shown, message, lease, until)
}

/// Returns true if a time is shown as it is, or not at all if there is none.
fn at(text: &Option<String>, time: Option<Timestamp>) -> bool {
    match (text, time) {
        (Some(text), Some(time)) => shows(text, time),
        (text, time) => text.is_none() && time.is_none(),
    }
}

fn check_content(
    shown: &Envelope,
    message: &Message,
    lease: Option<LeaseId>,
    until: Option<Timestamp>,
) -> Checked {
    let text = shown.payload_text.as_ref().map(|text| text.0.as_bytes());
    let same = shown.msg_id == message.id.to_string()
        && shown.topic == *message.topic
        && shown.idem_key == *message.idem_key
        && shown.payload_b64.0 == message.payload
        && text == message.is_text.then_some(&*message.payload)
        && shown.payload_hash == message.payload_hash.to_string()
        && shown.attrs == *message.attrs
        && shown.shard == message.shard
        && shown.attempt == message.attempt
        && shown.hash_chain == message.hash_chain.to_string()
        && shown.seq == message.chain_seq
        && shown.link == message.chain_head().link.to_string()
        && shown.partition_key.as_deref() == message.partition_key.as_deref()
        && shown.priority == message.priority
        && shown.lease == lease.map(|lease| lease.to_string())
        && shows(&shown.ts, message.sent_at)
        && at(&shown.visible_at, until)
        && at(&shown.expires_at, message.expires_at);
    hold(same, "messages are shown as they are", || {
        format!("{shown:?}, should be {message:?}")
    })
}
