//! The operator's actions: bring dead letters back, and purge messages.

use std::collections::BTreeMap;

use super::{Changes, Decision, Full, Kind, Message, Rejection, State};
use crate::Env;

/// Brings dead letters back into their queues, all or none. `depths` gives the number of messages
/// that wait in each of their shards.
pub fn redrive(
    env: &Env,
    mut depths: BTreeMap<u16, u64>,
    dead: Vec<Message>,
) -> Result<Decision<usize>, Rejection> {
    let mut changes = Changes::default();
    for mut message in dead {
        // Another operator may have brought it back or purged it meanwhile.
        if !matches!(message.state, State::Dead { .. }) {
            continue;
        }
        let shard = message.shard;
        let depth = depths.entry(shard).or_default();
        // All or none: half of a redrive would leave the operator guessing which letters came back.
        if *depth >= u64::from(env.policy.mailbox.shard_capacity) {
            return Err(Rejection::Saturated(Full::Shard { shard }));
        }
        *depth += 1;
        let before = message.standing();
        message.state = State::Ready;
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

/// Purges messages, except those that a receiver holds.
pub fn purge(env: &Env, messages: Vec<Message>) -> Decision<usize> {
    let mut changes = Changes::default();
    for mut message in messages {
        let before = message.standing();
        // A held message belongs to its receiver until the deadline.
        if matches!(before.kind, Kind::Leased | Kind::Gone) {
            continue;
        }
        // A purged message is remembered like an acknowledged one, so that a repeated send of it is
        // recognised.
        message.go(env.now.plus_millis(env.policy.mailbox.t_replay_ms));
        changes.update(before, message);
    }
    let output = changes.messages.len();
    Decision { changes, output }
}
