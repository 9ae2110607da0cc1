//! Receiving: a receiver gets messages under leases, until a deadline.

use super::{
    Cause, Changes, Death, Decision, Delivery, Flaw, Full, Lines, Message, Rejection, Share, State,
    Trace, partition::pass_turns,
};
use crate::{Env, MessageId};

/// A receiver's request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The time for which it keeps each message.
    pub visibility_ms: i64,
    /// The most messages.
    pub max_messages: usize,
    /// The most bytes of content, unless the first message alone has more.
    pub max_bytes: usize,
}

/// The outcome of a receive.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Received {
    /// The messages, each with its delivery.
    pub messages: Vec<Message>,
    /// Messages that do not match their hashes. They are handed to nobody.
    pub damaged: Vec<Damage>,
    /// Messages that became dead letters during the call.
    pub died: Vec<Death>,
}

/// A message that does not match its hashes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The message.
    pub id: MessageId,
    /// The facts about it that logs and metrics may see.
    pub trace: Trace,
    /// The hash that does not match.
    pub flaw: Flaw,
}

/// Hands over `candidates`, which are ready messages of one topic in their order. `inflight` tells how
/// many messages receivers hold already.
pub fn receive(
    mut env: Env,
    wish: &Wish,
    inflight: Share,
    candidates: Vec<Message>,
    lines: Lines,
) -> Result<Decision<Received>, Rejection> {
    let policy = std::sync::Arc::clone(&env.policy);
    let policy = &policy.mailbox;
    let now = env.now;
    let room = inflight.room(policy.global_inflight);
    let room = usize::try_from(room).unwrap_or(usize::MAX);
    // With nothing to give, an empty answer is the truth, even when receivers hold too much.
    if room == 0 && !candidates.is_empty() {
        return Err(Rejection::Saturated(Full::Inflight));
    }
    let mut changes = Changes::default();
    let mut received = Received::default();
    let mut bytes = 0_usize;
    for mut message in candidates {
        let before = message.standing();
        // Checked at delivery and not only by sweeps: an expired message is never delivered late.
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
            // It is tried again later, as after a refusal, and counts as a delivery, so that a message
            // that stays damaged becomes a dead letter.
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
        // The first message is given even if it alone exceeds the bytes: otherwise a large message
        // could never be delivered.
        let first = received.messages.is_empty();
        let fits = first || bytes + message.payload.len() <= wish.max_bytes;
        // It stops here and does not look for a smaller message: that one would overtake.
        if !fits || received.messages.len() >= wish.max_messages.min(room) {
            break;
        }
        bytes += message.payload.len();
        message.attempt = message.attempt.saturating_add(1);
        message.delivery = Some(Delivery {
            // The id of a message's lease carries the place of the message, not of a receipt.
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
    pass_turns(now, lines, &mut changes);
    Ok(Decision {
        changes,
        output: received,
    })
}
