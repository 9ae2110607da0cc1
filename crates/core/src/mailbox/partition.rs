//! Partitions: messages of one topic with one key are delivered one at a time, in the order in which
//! they were sent.
//!
//! A message is live until it is dead or gone. One live message of a partition has the turn and is
//! ready, delayed or leased; the others are blocked. A message that is given back or times out keeps
//! the turn. When it ends, the turn passes to the oldest that is blocked, whatever its priority: the
//! priority ranks partitions among each other. A dead letter that is brought back waits for the
//! message that has the turn, and comes before all that were sent after it.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
};

use super::{Changes, Message, State};
use crate::Timestamp;

/// The name of a partition: a topic and a key.
pub type Partition = (Arc<str>, Arc<str>);

/// The partitions in question that have a live message.
pub type Occupied = BTreeSet<Partition>;

/// The partitions of the messages that a decision may end.
pub type Lines = BTreeMap<Partition, Line>;

/// The first live messages of a partition: one more than the decision may end of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Line {
    /// The places of the messages that have the turn. There is one; a file from before the order by
    /// keys may have more, until they end.
    pub turns: Vec<u64>,
    /// The next blocked messages, oldest first.
    pub blocked: Vec<Message>,
}

impl Message {
    /// Returns the partition that the message belongs to, if it has a key.
    pub fn partition(&self) -> Option<Partition> {
        let key = self.partition_key.as_ref()?;
        Some((Arc::clone(&self.topic), Arc::clone(key)))
    }

    /// Returns true if the message is neither dead nor gone.
    pub const fn is_live(&self) -> bool {
        match self.state {
            State::Ready | State::Delayed { .. } | State::Blocked { .. } | State::Leased { .. } => {
                true
            }
            State::Dead { .. } | State::Gone { .. } => false,
        }
    }

    /// Returns true if the message waits for others with its key.
    pub const fn is_blocked(&self) -> bool {
        matches!(self.state, State::Blocked { .. })
    }
}

impl State {
    /// Returns the state of a message that waits until a time, and for its turn if it has none.
    pub(super) fn waiting(now: Timestamp, until: Timestamp, has_turn: bool) -> Self {
        match has_turn {
            false => Self::Blocked { until },
            true if until > now => Self::Delayed { until },
            true => Self::Ready,
        }
    }
}

/// Lets a message join its partition. Returns true if it has the turn at once.
pub(super) fn join(occupied: &mut Occupied, partition: Option<Partition>) -> bool {
    // A set says whether the entry is new: the first message of a partition has the turn.
    partition.is_none_or(|partition| occupied.insert(partition))
}

/// Passes on the turns of the messages that `changes` end. Every decision that may end live messages
/// does this last.
pub(super) fn pass_turns(now: Timestamp, lines: Lines, changes: &mut Changes) {
    if lines.is_empty() {
        return;
    }
    let ended = changes.messages.iter();
    let ended = ended.filter(|write| !write.message.is_live());
    let ended: HashSet<u64> = ended.map(|write| write.message.id.seq()).collect();
    for line in lines.into_values() {
        if !line.turns.iter().all(|place| ended.contains(place)) {
            continue;
        }
        let mut next = line.blocked.into_iter();
        if let Some(mut message) = next.find(|message| !ended.contains(&message.id.seq()))
            && let State::Blocked { until } = message.state
        {
            let before = message.standing();
            message.state = State::waiting(now, until, true);
            changes.update(before, message);
        }
    }
}
