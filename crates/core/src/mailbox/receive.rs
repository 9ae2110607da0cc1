//! Receiving: messages change hands until a deadline.

use super::{
    Cause, Changes, Death, Decision, Delivery, Flaw, Full, Message, Rejection, State, Trace,
};
use crate::{Env, MessageId};

/// What a receiver wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// How long it keeps each message.
    pub visibility_ms: i64,
    /// The most messages.
    pub max_messages: usize,
    /// The most bytes of content, unless the first message alone has more.
    pub max_bytes: usize,
}

/// What a receiver got, and what was met on the way.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Received {
    /// The messages, each with its delivery.
    pub messages: Vec<Message>,
    /// Messages whose bytes do not agree with their hashes, which are handed to nobody.
    pub damaged: Vec<Damage>,
    /// The messages that became dead letters on the way.
    pub died: Vec<Death>,
}

/// A message whose bytes do not agree with its hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Which message.
    pub id: MessageId,
    /// What logs and counts may know of it.
    pub trace: Trace,
    /// What does not agree.
    pub flaw: Flaw,
}

/// Hands over `candidates`, which are ready messages of one topic in their order. `inflight` is how
/// many messages receivers hold already.
pub fn receive(
    mut env: Env,
    wish: &Wish,
    inflight: u64,
    candidates: Vec<Message>,
) -> Result<Decision<Received>, Rejection> {
    let policy = std::sync::Arc::clone(&env.policy);
    let policy = &policy.mailbox;
    let now = env.now;
    let room = u64::from(policy.global_inflight).saturating_sub(inflight);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    if room == 0 && !candidates.is_empty() {
        return Err(Rejection::Saturated(Full::Inflight));
    }
    let mut changes = Changes::default();
    let mut received = Received::default();
    let mut bytes = 0_usize;
    for mut message in candidates {
        let before = message.standing();
        if message.is_expired(now, policy) {
            received.died.push(message.die(Cause::Expired, now, policy));
            changes.update(before, message);
            continue;
        }
        if let Some(flaw) = message.flaw() {
            received.damaged.push(Damage {
                id: message.id,
                trace: message.trace(),
                flaw,
            });
            message.attempt = message.attempt.saturating_add(1);
            if message.attempt >= policy.max_attempts {
                let death = message.die(Cause::Integrity, now, policy);
                received.died.push(death);
            } else {
                let wait = policy.backoff_ms(message.attempt, env.ids.random());
                let until = now.plus_millis(wait);
                message.state = State::Delayed { until };
            }
            changes.update(before, message);
            continue;
        }
        let first = received.messages.is_empty();
        let fits = first || bytes + message.payload.len() <= wish.max_bytes;
        if !fits || received.messages.len() >= wish.max_messages.min(room) {
            break;
        }
        bytes += message.payload.len();
        message.attempt = message.attempt.saturating_add(1);
        message.delivery = Some(Delivery {
            lease: env.ids.lease(message.id.seq()),
            at: now,
            visibility_ms: wish.visibility_ms,
        });
        message.state = State::Leased {
            until: now.plus_millis(wish.visibility_ms),
        };
        received.messages.push(message.clone());
        changes.update(before, message);
    }
    Ok(Decision {
        changes,
        output: received,
    })
}
