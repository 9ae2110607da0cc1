//! The operations of the mailbox, one file each.

mod ack;
mod ack_batch;
mod dead_letters;
mod delete_message;
mod extend;
mod get_message;
mod heads;
mod nack;
mod peek;
mod purge;
mod receive;
mod redrive_message;
mod reprocess;
mod send;
mod send_batch;
mod topics;

use asyncgate_core::{
    MessageId, Timestamp,
    mailbox::{Message, Rejection, Settlement},
};
use asyncgate_store::{
    Stopwatch,
    mailbox::{Reads, Snapshot},
};

use super::{Execute, Executed};
use crate::Engine;

/// Declares one message to load.
fn one_message(id: MessageId) -> Reads {
    Reads {
        messages: vec![id],
        ..Reads::default()
    }
}

/// Takes the one message that was declared, if it exists.
fn the_message(snapshot: &mut Snapshot) -> Option<Message> {
    snapshot.messages.pop()
}

impl Engine {
    /// Counts messages that were acknowledged, or not found.
    fn note_acks<'a>(
        &self,
        settled: impl Iterator<Item = Result<&'a Settlement, &'a Rejection>>,
        watch: Stopwatch,
    ) {
        let (settings, metrics) = (self.settings(), &self.metrics.mailbox);
        let mut left = 0;
        for settled in settled {
            match settled {
                Ok(settlement) => {
                    metrics.acked(&settings, settlement, watch);
                    left += usize::from(!settlement.repeated);
                }
                Err(Rejection::NotFound) => metrics.ack_unknown(watch),
                Err(_) => {}
            }
        }
        self.drain_meter.note(self.now(), left);
        metrics.ack_committed(watch);
    }

    /// Returns the time so many seconds ago.
    fn seconds_ago(&self, seconds: u64) -> Timestamp {
        let millis = i64::try_from(seconds).unwrap_or(i64::MAX);
        self.now()
            .plus_millis(millis.saturating_mul(1_000).saturating_neg())
    }
}
