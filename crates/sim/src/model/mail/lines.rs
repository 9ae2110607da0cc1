//! The order of messages with one partition key: predicting who gets the turn, and the laws about it.

use std::collections::BTreeSet;

use asyncgate_core::{
    Timestamp,
    mailbox::{Changes, Kind, Message, State},
};

use super::{Mail, TenantMail, foresee::Expected};
use crate::violation::{Checked, hold};

impl TenantMail {
    /// Returns the live messages with the key of this one, in the order in which they were sent.
    fn beside(&self, message: &Message) -> impl Iterator<Item = &Message> {
        let line = message.partition().and_then(|name| self.lines.get(&name));
        let places = line.into_iter().flatten();
        places.filter_map(|seq| self.messages.get(seq))
    }

    /// Returns the state of a message that begins to wait until a time, behind others with its key if
    /// there are any, stored or just written.
    pub(super) fn waits(
        &self,
        message: &Message,
        until: Timestamp,
        now: Timestamp,
        written: &[Expected],
    ) -> State {
        let mut siblings = written.iter().map(|write| &write.message);
        let is_beside = |other: &Message| {
            message.partition_key.is_some()
                && other.topic == message.topic
                && other.partition_key == message.partition_key
        };
        if self.beside(message).next().is_some() || siblings.any(is_beside) {
            return State::Blocked { until };
        }
        turned(until, now)
    }

    /// Predicts who gets the turn from the live messages that a transaction ends.
    pub(super) fn pass_turns(&self, now: Timestamp, writes: &mut Vec<Expected>) {
        let ended = writes.iter().map(|write| &write.message);
        let ended = ended.filter(|message| !message.is_live());
        let lines: BTreeSet<_> = ended.clone().filter_map(Message::partition).collect();
        if lines.is_empty() {
            return;
        }
        let ended: BTreeSet<u64> = ended.map(|message| message.id.seq()).collect();
        for line in lines.iter().filter_map(|name| self.lines.get(name)) {
            let left = line.iter().filter(|seq| !ended.contains(seq));
            let mut left = left.filter_map(|seq| self.messages.get(seq));
            let is_blocked = |message: &Message| matches!(message.state, State::Blocked { .. });
            let Some(next) = left.clone().next().filter(|_| left.all(is_blocked)) else {
                continue;
            };
            if let State::Blocked { until } = next.state {
                let state = turned(until, now);
                writes.push(Expected::fixed(Message {
                    state,
                    ..next.clone()
                }));
            }
        }
    }
}

/// Returns the state of a message that has the turn and waits until a time.
fn turned(until: Timestamp, now: Timestamp) -> State {
    match until > now {
        true => State::Delayed { until },
        false => State::Ready,
    }
}

impl Mail {
    /// Checks that nobody is given a message while an older one with its key is not done. A dead letter
    /// that came back has left its place.
    pub(super) fn check_turns(&self, number: usize, changes: &Changes) -> Checked {
        let mail = &self.tenants[number];
        for write in &changes.messages {
            let message = &write.message;
            let was_leased = write.before.is_some_and(|was| was.kind == Kind::Leased);
            if was_leased || message.standing().kind != Kind::Leased {
                continue;
            }
            let mut others = mail.beside(message).filter(|other| other.id != message.id);
            let is_ahead = |other: &Message| {
                let is_older = other.id.seq() < message.id.seq() && other.since == other.sent_at;
                other.standing().kind == Kind::Leased
                    || is_older && message.since == message.sent_at
            };
            let ahead = others.find(|other| is_ahead(other));
            hold(ahead.is_none(), "one after the other", || {
                format!("{} is given before {ahead:?}", message.id)
            })?;
        }
        Ok(())
    }
}
