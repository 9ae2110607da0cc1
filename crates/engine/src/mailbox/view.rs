//! Translation of messages from the types of the rules to those of the wire.

use asyncgate_api as api;
use asyncgate_core::mailbox::{Message, State};
use uuid::Uuid;

use crate::view::name;

/// Returns a message. Only its receiver sees its lease.
pub(crate) fn envelope(message: &Message) -> api::Envelope {
    let (lease, visible_at) = match (message.state, message.delivery) {
        (State::Leased { until }, Some(delivery)) => {
            (Some(delivery.lease.to_string()), Some(until.to_string()))
        }
        _ => (None, None),
    };
    api::Envelope {
        msg_id: message.id.to_string(),
        topic: name(&message.topic),
        ts: message.sent_at.to_string(),
        idem_key: name(&message.idem_key),
        payload_hash: message.payload_hash.to_string(),
        payload_b64: message.payload.clone().into(),
        payload_text: text(message),
        attrs: message.attrs.as_ref().clone(),
        corr_id: corr_id(message.corr_id),
        shard: message.shard,
        attempt: message.attempt,
        hash_chain: message.hash_chain.to_string(),
        sig: None,
        seq: message.chain_seq,
        link: message.chain_head().link.to_string(),
        partition_key: message.partition_key.as_ref().map(name),
        priority: message.priority,
        lease,
        visible_at,
        expires_at: message.expires_at.map(|at| at.to_string()),
    }
}

/// Returns the content as text, if it was sent as text. Damaged bytes may be none any more.
fn text(message: &Message) -> Option<api::Text> {
    let text = str::from_utf8(&message.payload).ok()?;
    message.is_text.then(|| api::Text(text.to_owned()))
}

/// Returns a message as somebody sees it who did not receive it. A message that is gone is not shown.
pub(crate) fn record(message: &Message) -> Option<api::MessageRecord> {
    let (state, visible_at, death) = match message.state {
        State::Ready => (api::MessageState::Ready, None, None),
        State::Delayed { until } => (api::MessageState::Delayed, Some(until), None),
        State::Blocked { .. } => (api::MessageState::Blocked, None, None),
        State::Leased { until } => (api::MessageState::Leased, Some(until), None),
        State::Dead { cause, at, .. } => (api::MessageState::Dead, None, Some((cause, at))),
        State::Gone { .. } => return None,
    };
    Some(api::MessageRecord {
        envelope: api::Envelope {
            lease: None,
            visible_at: visible_at.map(|at| at.to_string()),
            ..envelope(message)
        },
        state,
        cause: death.map(|(cause, _)| cause.as_str().to_owned()),
        reason: message.reason.clone(),
        last_error: message.last_error.clone(),
        died_at: death.map(|(_, at)| at.to_string()),
    })
}

/// Returns a dead letter, or nothing if the message is none.
pub(crate) fn dead_letter(message: &Message) -> Option<api::DeadLetter> {
    let State::Dead { cause, at, .. } = message.state else {
        return None;
    };
    Some(api::DeadLetter {
        envelope: envelope(message),
        cause: cause.as_str().to_owned(),
        reason: message.reason.clone().unwrap_or_default(),
        last_error: message.last_error.clone(),
        died_at: at.to_string(),
    })
}

/// Writes a correlation id as text.
pub(crate) fn corr_id(bytes: [u8; 16]) -> String {
    Uuid::from_bytes(bytes).hyphenated().to_string()
}
