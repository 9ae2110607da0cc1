//! Messages: what was sent, which never changes, and where the message stands.

use std::{collections::BTreeMap, sync::Arc};

use asyncgate_core::{
    LeaseId, Link, MessageId,
    mailbox::{Cause, Delivery, Digest, Message, State},
};
use bytes::Bytes;

use super::{Packer, Result, Unpacker, damaged};

/// Packs what was sent, with the length of the payload, which has a row of its own.
pub(crate) fn pack_content(message: &Message) -> Vec<u8> {
    let mut p = Packer::new();
    p.fixed(&message.id.to_bytes());
    p.text(&message.topic);
    p.some_text(message.partition_key.as_deref());
    p.number(message.shard.into());
    p.time(message.sent_at);
    p.text(&message.idem_key);
    p.all(message.attrs.iter(), |p, (name, value)| {
        p.text(name);
        p.text(value);
    });
    p.number(message.is_text.into());
    p.fixed(message.payload_hash.as_bytes());
    p.fixed(message.hash_chain.as_bytes());
    p.fixed(message.prev.as_bytes());
    p.number(message.chain_seq);
    p.fixed(&message.corr_id);
    p.signed(message.priority.into());
    p.number(message.payload.len() as u64);
    p.done()
}

/// Packs what changes about a message.
pub(crate) fn pack_standing(message: &Message) -> Vec<u8> {
    let mut p = Packer::new();
    p.some_time(message.expires_at);
    p.time(message.since);
    p.signed(message.attempt.into());
    p.some(message.delivery.as_ref(), |p, delivery| {
        p.fixed(delivery.lease.as_bytes());
        p.time(delivery.at);
        p.signed(delivery.visibility_ms);
    });
    p.some_text(message.reason.as_deref());
    p.some_text(message.last_error.as_deref());
    let (kind, until) = match message.state {
        State::Ready => (0, None),
        State::Delayed { until } => (1, Some(until)),
        State::Blocked { until } => (2, Some(until)),
        State::Leased { until } => (3, Some(until)),
        State::Dead { until, .. } => (4, Some(until)),
        State::Gone { until } => (5, Some(until)),
    };
    p.number(kind);
    p.some_time(until);
    if let State::Dead { cause, at, .. } = message.state {
        p.number(cause as u64);
        p.time(at);
    }
    p.done()
}

/// Reads a message without its payload from its parts, and the length of the payload. One that is gone has neither content
/// nor labels left.
pub(crate) fn unpack_message(content: &[u8], standing: &[u8]) -> Result<(Message, usize)> {
    let mut u = Unpacker::new(standing)?;
    let expires_at = u.some(Unpacker::time)?;
    let since = u.time()?;
    let attempt = u.narrow()?;
    let delivery = u.some(|u| {
        Ok(Delivery {
            lease: LeaseId::from_bytes(u.fixed()?),
            at: u.time()?,
            visibility_ms: u.signed()?,
        })
    })?;
    let reason = u.some(Unpacker::owned)?;
    let last_error = u.some(Unpacker::owned)?;
    let state = unpack_state(&mut u)?;
    let gone = matches!(state, State::Gone { .. });
    let mut u = Unpacker::new(content)?;
    let id = MessageId::from_bytes(u.fixed()?);
    let topic = u.shared()?;
    let partition_key = u.some(Unpacker::shared)?;
    let shard = u16::try_from(u.number()?).map_err(|_| damaged("a shard is too large"))?;
    let sent_at = u.time()?;
    let idem_key = u.shared()?;
    let attrs = u.all(|u| Ok((u.owned()?, u.owned()?)))?;
    let attrs: BTreeMap<String, String> = attrs.into_iter().filter(|_| !gone).collect();
    let message = Message {
        id,
        topic,
        partition_key,
        shard,
        sent_at,
        idem_key,
        attrs: Arc::new(attrs),
        payload: Bytes::new(),
        is_text: u.flag()?,
        payload_hash: Digest::from_bytes(u.fixed()?),
        hash_chain: Digest::from_bytes(u.fixed()?),
        prev: Link::from_bytes(u.fixed()?),
        chain_seq: u.number()?,
        corr_id: u.fixed()?,
        priority: u.narrow()?,
        expires_at,
        since,
        state,
        attempt,
        delivery,
        reason,
        last_error,
    };
    let length = usize::try_from(u.number()?).unwrap_or(usize::MAX);
    Ok((message, length))
}

fn unpack_state(u: &mut Unpacker<'_>) -> Result<State> {
    let kind = u.number()?;
    let until = u.some(Unpacker::time)?.unwrap_or_default();
    match kind {
        0 => Ok(State::Ready),
        1 => Ok(State::Delayed { until }),
        2 => Ok(State::Blocked { until }),
        3 => Ok(State::Leased { until }),
        4 => Ok(State::Dead {
            cause: u.one_of(&Cause::ALL)?,
            at: u.time()?,
            until,
        }),
        5 => Ok(State::Gone { until }),
        _ => Err(damaged("a message has no known state")),
    }
}
