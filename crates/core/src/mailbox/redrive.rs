//! What an operator does: bring dead letters back, throw messages away.

use std::collections::BTreeMap;

use super::{Changes, Decision, Full, Kind, Message, Rejection, State};
use crate::Env;

/// Brings dead letters back into their queues, all or none. `depths` says how many messages wait in
/// each of their shards.
pub fn redrive(
    env: &Env,
    mut depths: BTreeMap<u16, u64>,
    dead: Vec<Message>,
) -> Result<Decision<usize>, Rejection> {
    let mut changes = Changes::default();
    for mut message in dead {
        if !matches!(message.state, State::Dead { .. }) {
            continue;
        }
        let shard = message.shard;
        let depth = depths.entry(shard).or_default();
        if *depth >= u64::from(env.policy.mailbox.shard_capacity) {
            return Err(Rejection::Saturated(Full::Shard { shard }));
        }
        *depth += 1;
        let before = message.standing();
        message.state = State::Ready;
        message.since = env.now;
        message.attempt = 0;
        message.delivery = None;
        message.reason = None;
        message.last_error = None;
        // What expired would die again at once.
        message.expires_at = message.expires_at.filter(|end| *end > env.now);
        changes.update(before, message);
    }
    let output = changes.messages.len();
    Ok(Decision { changes, output })
}

/// Throws messages away, but none that a receiver has.
pub fn purge(env: &Env, messages: Vec<Message>) -> Decision<usize> {
    let mut changes = Changes::default();
    for mut message in messages {
        let before = message.standing();
        if matches!(before.kind, Kind::Leased | Kind::Gone) {
            continue;
        }
        message.go(env.now.plus_millis(env.policy.mailbox.t_replay_ms));
        changes.update(before, message);
    }
    let output = changes.messages.len();
    Decision { changes, output }
}
