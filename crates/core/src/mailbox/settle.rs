//! The receiver's answers about a message: done, not done, or not yet.

use std::collections::HashMap;

use super::{
    Cause, Changes, Death, Decision, Lines, Message, MessageWrite, Rejection, State, Trace,
    partition::pass_turns,
};
use crate::{Env, LeaseId, MessageId, Timestamp};

/// The answer to an acknowledgement or a refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// True if the same was said before and nothing changed.
    pub repeated: bool,
    /// The facts about the message that logs and metrics may see.
    pub trace: Trace,
    /// The number of deliveries.
    pub attempt: u32,
    /// The dead letter that the message became, if it did.
    pub died: Option<Death>,
}

impl Settlement {
    pub(super) fn of(message: &Message) -> Self {
        Self {
            repeated: false,
            trace: message.trace(),
            attempt: message.attempt,
            died: None,
        }
    }
}

/// A refusal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nack {
    /// The reason, in a word.
    pub reason: Option<String>,
    /// The error, in more words.
    pub error: Option<String>,
    /// The time to wait before the next delivery, instead of the backoff.
    pub delay_ms: Option<i64>,
}

/// Returns the message if it exists and `lease` is that of its last delivery. A message whose time
/// to be forgotten has come does not exist, even if no sweep has removed it yet.
fn admit(
    env: &Env,
    message: Option<Message>,
    lease: Option<LeaseId>,
) -> Result<Message, Rejection> {
    let message = message.filter(|message| !message.is_forgotten(env.now));
    let message = message.ok_or(Rejection::NotFound)?;
    let Some(lease) = lease else {
        return if env.policy.mailbox.require_lease {
            // Without a lease anybody may settle any message, so an operator can demand it.
            Err(Rejection::LeaseMissing)
        } else if message.delivery.is_none() {
            Err(Rejection::NotLeased)
        } else {
            Ok(message)
        };
    };
    match message.delivery {
        Some(delivery) if delivery.lease == lease => Ok(message),
        _ => Err(Rejection::StaleLease),
    }
}

/// Acknowledges a message. A lease that has ended, by a deadline or because its receiver gave the
/// message back, is still accepted if the message was not delivered again since.
pub fn ack(
    env: &Env,
    message: Option<Message>,
    lease: Option<LeaseId>,
    lines: Lines,
) -> Result<Decision<Settlement>, Rejection> {
    let (output, write) = end(env, message, lease)?;
    let mut changes = Changes::default();
    changes.messages.extend(write);
    pass_turns(env.now, lines, &mut changes);
    Ok(Decision { changes, output })
}

/// Acknowledges messages independently: one that is refused does not stop the others. `messages`
/// are the named messages that exist.
pub fn ack_all(
    env: &Env,
    messages: Vec<Message>,
    acks: &[(MessageId, Option<LeaseId>)],
    lines: Lines,
) -> Decision<Vec<Result<Settlement, Rejection>>> {
    let known = messages.into_iter().map(|message| (message.id, message));
    let mut known: HashMap<MessageId, Message> = known.collect();
    let mut changes = Changes::default();
    let mut output = Vec::with_capacity(acks.len());
    for (id, lease) in acks {
        let ended = end(env, known.get(id).cloned(), *lease).map(|(settlement, write)| {
            // A call may name a message twice: the second time it must find it gone.
            if let Some(write) = write {
                known.insert(*id, write.message.clone());
                changes.messages.push(write);
            }
            settlement
        });
        output.push(ended);
    }
    pass_turns(env.now, lines, &mut changes);
    Decision { changes, output }
}

/// Acknowledges one message. It is not written if it was acknowledged before.
fn end(
    env: &Env,
    message: Option<Message>,
    lease: Option<LeaseId>,
) -> Result<(Settlement, Option<MessageWrite>), Rejection> {
    let mut message = admit(env, message, lease)?;
    let mut settlement = Settlement::of(&message);
    match message.state {
        State::Gone { .. } => {
            settlement.repeated = true;
            Ok((settlement, None))
        }
        // A dead letter is the operator's. But a receiver that names the lease proves that it did the
        // work after all.
        State::Dead { .. } if lease.is_none() => Err(Rejection::NotLeased),
        State::Ready
        | State::Delayed { .. }
        | State::Blocked { .. }
        | State::Leased { .. }
        | State::Dead { .. } => {
            let before = Some(message.standing());
            // The row stays for the replay window, so that a repeated acknowledgement is answered with ok.
            message.go(env.now.plus_millis(env.policy.mailbox.t_replay_ms));
            Ok((settlement, Some(MessageWrite { message, before })))
        }
    }
}

/// Gives a message back. It is delivered again after a while, or dies if this was its last delivery.
pub fn nack(
    mut env: Env,
    message: Option<Message>,
    lease: Option<LeaseId>,
    nack: Nack,
    lines: Lines,
) -> Result<Decision<Settlement>, Rejection> {
    let mut message = admit(&env, message, lease)?;
    let mut changes = Changes::default();
    let mut output = Settlement::of(&message);
    match message.state {
        // The deadline came first and already did what the refusal asks for.
        State::Ready | State::Delayed { .. } | State::Blocked { .. } | State::Dead { .. }
            if lease.is_some() =>
        {
            output.repeated = true;
        }
        State::Ready
        | State::Delayed { .. }
        | State::Blocked { .. }
        | State::Dead { .. }
        | State::Gone { .. } => {
            return Err(Rejection::NotLeased);
        }
        State::Leased { .. } => {
            let before = message.standing();
            message.reason = Some(nack.reason.unwrap_or_else(|| "nack".to_owned()));
            message.last_error = nack.error;
            if message.attempt >= env.policy.mailbox.max_attempts {
                let death = message.die(Cause::MaxAttempts, env.now, &env.policy.mailbox);
                output.died = Some(death);
            } else {
                let random = env.ids.random();
                let backoff = env.policy.mailbox.backoff_ms(message.attempt, random);
                let until = env.now.plus_millis(nack.delay_ms.unwrap_or(backoff));
                message.state = State::waiting(env.now, until, true);
            }
            changes.update(before, message);
        }
    }
    pass_turns(env.now, lines, &mut changes);
    Ok(Decision { changes, output })
}

/// Keeps a message longer. The deadline never moves back, and never beyond the longest total time
/// that the settings allow. A delivery that has ended cannot be extended, even if no sweep has
/// moved it yet.
pub fn extend(
    env: &Env,
    message: Option<Message>,
    lease: Option<LeaseId>,
    visibility_ms: i64,
) -> Result<Decision<Timestamp>, Rejection> {
    let mut message = admit(env, message, lease)?;
    let (until, delivery) = match (message.state, message.delivery) {
        (State::Leased { until }, Some(delivery)) if until > env.now => (until, delivery),
        _ if lease.is_some() => return Err(Rejection::StaleLease),
        _ => return Err(Rejection::NotLeased),
    };
    let before = message.standing();
    let factor = i64::from(env.policy.mailbox.inflight_factor);
    // Counted from the handover, so that extensions cannot add up to more than the allowed total.
    let last = delivery
        .at
        .plus_millis(delivery.visibility_ms.saturating_mul(factor));
    let wished = env.now.plus_millis(visibility_ms);
    // The deadline never moves back, even if it lies beyond the allowed total already.
    let until = until.max(wished.min(last));
    message.state = State::Leased { until };
    let mut changes = Changes::default();
    changes.update(before, message);
    Ok(Decision {
        changes,
        output: until,
    })
}
