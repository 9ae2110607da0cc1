//! The operator's actions: bring dead letters back, and purge messages.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Changes, Decision, Full, Kind, Lines, Message, Occupied, Rejection, Settlement, State,
    partition::{join, pass_turns},
};
use crate::Env;

/// Brings dead letters back into their topics, all or none. `depths` gives the number of messages
/// that wait in each of the topics.
pub fn redrive(
    env: &Env,
    mut depths: BTreeMap<Arc<str>, u64>,
    mut occupied: Occupied,
    mut dead: Vec<Message>,
) -> Result<Decision<usize>, Rejection> {
    // Of the letters with one key, the oldest has the turn.
    dead.sort_unstable_by_key(|message| message.id.seq());
    let capacity = env.policy.mailbox.topic_capacity;
    let mut changes = Changes::default();
    for mut message in dead {
        // Another operator may have brought it back or purged it meanwhile.
        if !matches!(message.state, State::Dead { .. }) {
            continue;
        }
        let depth = depths.entry(Arc::clone(&message.topic)).or_default();
        // All or none: half of a redrive would leave the operator guessing which letters came back.
        if *depth >= u64::from(capacity) {
            return Err(Rejection::Saturated(Full::Topic { capacity }));
        }
        *depth += 1;
        let before = message.standing();
        let has_turn = join(&mut occupied, message.partition());
        message.state = State::waiting(env.now, env.now, has_turn);
        // Its age counts anew; otherwise it would expire again at once.
        message.since = env.now;
        message.attempt = 0;
        // Without the old delivery, a late acknowledgement under its lease is refused.
        message.delivery = None;
        message.reason = None;
        message.last_error = None;
        // A time to live that is over would make it a dead letter again at once.
        message.expires_at = message.expires_at.filter(|end| *end > env.now);
        changes.update(before, message);
    }
    let output = changes.messages.len();
    Ok(Decision { changes, output })
}

/// Brings one message back, if it is a dead letter. One that is none (any more) stays as it is.
pub fn redrive_one(
    env: &Env,
    depths: BTreeMap<Arc<str>, u64>,
    occupied: Occupied,
    message: Option<Message>,
) -> Result<Decision<Settlement>, Rejection> {
    let message = message.filter(|message| !matches!(message.state, State::Gone { .. }));
    let message = message.ok_or(Rejection::NotFound)?;
    let mut output = Settlement::of(&message);
    let Decision { changes, .. } = redrive(env, depths, occupied, vec![message])?;
    output.repeated = changes.messages.is_empty();
    Ok(Decision { changes, output })
}

/// Purges messages, except those that a receiver holds.
pub fn purge(env: &Env, messages: Vec<Message>, lines: Lines) -> Decision<usize> {
    let mut changes = Changes::default();
    for message in messages {
        // A held message belongs to its receiver until the deadline.
        if !matches!(message.standing().kind, Kind::Leased | Kind::Gone) {
            discard(env, message, &mut changes);
        }
    }
    let output = changes.messages.len();
    pass_turns(env.now, lines, &mut changes);
    Decision { changes, output }
}

/// Throws one message away. Doing it again is answered with ok for as long as an acknowledgement is.
pub fn delete(
    env: &Env,
    message: Option<Message>,
    lines: Lines,
) -> Result<Decision<Settlement>, Rejection> {
    let message = message.filter(|message| !message.is_forgotten(env.now));
    let message = message.ok_or(Rejection::NotFound)?;
    let mut changes = Changes::default();
    let mut output = Settlement::of(&message);
    match message.state {
        State::Leased { .. } => return Err(Rejection::Leased),
        State::Gone { .. } => output.repeated = true,
        State::Ready | State::Delayed { .. } | State::Blocked { .. } | State::Dead { .. } => {
            discard(env, message, &mut changes);
        }
    }
    pass_turns(env.now, lines, &mut changes);
    Ok(Decision { changes, output })
}

/// Makes a message gone. It is remembered like an acknowledged one, so that a repeated send of it is
/// recognised.
fn discard(env: &Env, mut message: Message, changes: &mut Changes) {
    let before = message.standing();
    message.go(env.now.plus_millis(env.policy.mailbox.t_replay_ms));
    changes.update(before, message);
}
