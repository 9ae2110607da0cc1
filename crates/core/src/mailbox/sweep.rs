//! Moving messages whose time has come.

use super::{
    Cause, Changes, Death, Decision, Lines, Message, MessageWrite, State, Trace,
    partition::pass_turns,
};
use crate::{Env, MessageId};

/// The outcome of a sweep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Messages whose receivers let the deadline pass.
    pub timed_out: Vec<Trace>,
    /// Messages that became dead letters.
    pub died: Vec<Death>,
    /// The number of messages that became ready.
    pub readied: usize,
    /// Those of them that their sender had delayed.
    pub held_back: Vec<MessageId>,
    /// The number of messages that were forgotten.
    pub forgotten: usize,
    /// Those of them that were dead letters.
    pub buried: Vec<Trace>,
}

impl Swept {
    /// Returns the number of messages that moved.
    pub fn moved(&self) -> usize {
        self.died.len() + self.readied + self.forgotten
    }
}

/// Moves those of `messages` whose time has come, and skips the others.
pub fn sweep(env: &Env, messages: Vec<Message>, lines: Lines) -> Decision<Swept> {
    let (mut changes, mut swept) = (Changes::default(), Swept::default());
    for message in messages {
        move_on(env, message, &mut changes, &mut swept);
    }
    pass_turns(env.now, lines, &mut changes);
    Decision {
        changes,
        output: swept,
    }
}

fn move_on(env: &Env, mut message: Message, changes: &mut Changes, swept: &mut Swept) {
    let (now, policy) = (env.now, &env.policy.mailbox);
    let before = message.standing();
    // A state whose time has not come returns: the message changed after the store listed it as due.
    let cause = match message.state {
        State::Leased { until } if until > now => return,
        // A held message does not expire before its lease: the receiver may still finish it in time.
        State::Leased { .. } => {
            swept.timed_out.push(message.trace());
            (message.attempt >= policy.max_attempts).then_some(Cause::MaxAttempts)
        }
        State::Delayed { until } if until > now && !message.is_expired(now, policy) => return,
        State::Ready | State::Blocked { .. } if !message.is_expired(now, policy) => return,
        State::Ready | State::Delayed { .. } | State::Blocked { .. } => None,
        State::Dead { until, .. } | State::Gone { until } if until > now => return,
        State::Dead { .. } | State::Gone { .. } => {
            swept.forgotten += 1;
            if matches!(message.state, State::Dead { .. }) {
                swept.buried.push(message.trace());
            }
            let before = Some(before);
            changes.forgotten.push(MessageWrite { message, before });
            return;
        }
    };
    let expired = message.is_expired(now, policy).then_some(Cause::Expired);
    // The attempts count first: a message whose last delivery failed died of that and not of age.
    match cause.or(expired) {
        Some(cause) => {
            swept.died.push(message.die(cause, now, policy));
        }
        None => {
            message.state = State::Ready;
            swept.readied += 1;
            // Never delivered: its delay was the sender's, not a backoff.
            if message.attempt == 0 {
                swept.held_back.push(message.id);
            }
        }
    }
    changes.update(before, message);
}
