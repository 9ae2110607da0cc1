//! Sends a message.

use std::collections::BTreeMap;

use asyncgate_api::{
    Code, IdempotencyMode, Payload, SendInput, SendMessage, SendOutput, Text,
    bounds::{MAX_ATTRS, MAX_ATTRS_BYTES, MAX_MESSAGE_DELAY_MS, MAX_MESSAGE_TTL_MS},
};
use asyncgate_core::{
    TenantId,
    mailbox::{Outgoing, Rejection, Sent, send},
};
use asyncgate_store::{
    Stopwatch,
    mailbox::{Reads, SendKey},
};
use bytes::Bytes;
use uuid::Uuid;

use super::{Execute, Executed};
use crate::{Caller, CorrId, Engine, Fault, Settings, Touches, input};

/// The most bytes that a byte of a payload takes in a JSON body: those of an escaped control character in
/// `payload_text`. Base64 takes fewer.
const ESCAPED_BYTES: usize = 6;
/// The most messages of a batch that are sent in one job: nobody else has a turn while it runs.
const MAX_SENT_TOGETHER: usize = 256;
/// Room in a body for everything but the payload.
const AROUND_PAYLOAD_BYTES: usize = 64 << 10;

impl Execute for SendMessage {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        agree(input.corr_id.as_deref())?;
        let (outgoing, mode) = check(input)?;
        let sent = engine.send(caller.tenant, vec![outgoing]).await?;
        let sent = sent.into_iter().next();
        let sent = sent.ok_or_else(|| Fault::new(Code::Internal, "the send has no answer"))?;
        answer(engine, mode, sent)
    }

    fn touches(input: &SendInput) -> Touches<'_> {
        Touches::Send(input)
    }

    fn max_input_bytes(settings: &Settings) -> Option<usize> {
        let payload = settings.policy.mailbox.max_payload_bytes;
        let encoded = payload.saturating_mul(ESCAPED_BYTES);
        Some(encoded.saturating_add(AROUND_PAYLOAD_BYTES))
    }
}

/// Reads a message, and the way in which its sender wants a repetition answered.
pub(super) fn check(input: SendInput) -> Result<(Outgoing, IdempotencyMode), Fault> {
    let name =
        |field: &str, text: Option<String>| text.map(|text| input::name(field, text)).transpose();
    let delay_ms = input.delay_ms.unwrap_or(0);
    let ttl_ms = input.ttl_ms;
    let outgoing = Outgoing {
        topic: input::name("topic", input.topic)?,
        idem_key: input::name("idem_key", input.idem_key)?,
        is_text: input.payload_text.is_some(),
        payload: payload(input.payload_text, input.payload_b64)?,
        attrs: attrs(input.attrs.unwrap_or_default())?,
        partition_key: name("partition_key", input.partition_key)?,
        delay_ms: input::within("delay_ms", delay_ms, &(0..=MAX_MESSAGE_DELAY_MS))?,
        ttl_ms: ttl_ms
            .map(|ttl| input::within("ttl_ms", ttl, &(1..=MAX_MESSAGE_TTL_MS)))
            .transpose()?,
        priority: input.priority.unwrap_or(0),
        corr_id: corr_id(input.corr_id),
    };
    Ok((outgoing, input.idempotency_mode.unwrap_or_default()))
}

/// Reads the content of a message, which is given either as text or in base64.
fn payload(text: Option<Text>, bytes: Option<Payload>) -> Result<Bytes, Fault> {
    match (text, bytes) {
        (Some(text), None) => Ok(Payload::from(text).into_bytes()),
        (None, Some(bytes)) => Ok(bytes.into_bytes()),
        (None, None) | (Some(_), Some(_)) => {
            let message = "give exactly one of payload_text and payload_b64";
            Err(Fault::bad_request(message).with("field", "payload_text"))
        }
    }
}

/// Refuses a message with two correlation ids: its own, and one that the caller gave the request.
fn agree(own: Option<&str>) -> Result<(), Fault> {
    let request = CorrId::current().filter(|request| request.given);
    match (own, request) {
        (Some(own), Some(request)) if !own.eq_ignore_ascii_case(&request.text) => {
            let message = "corr_id and X-Corr-Id differ; give one of them";
            Err(Fault::bad_request(message).with("field", "corr_id"))
        }
        _ => Ok(()),
    }
}

/// Returns the correlation id of a message: its own, else the request's. Callers choose ids freely, but
/// a message can only keep a UUID.
fn corr_id(own: Option<String>) -> Option<[u8; 16]> {
    let id = match own {
        Some(own) => Uuid::try_parse(&own),
        None => Uuid::try_parse(&CorrId::current()?.text),
    };
    Some(id.ok()?.into_bytes())
}

fn attrs(attrs: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Fault> {
    let bytes = attrs.iter().map(|(key, value)| key.len() + value.len());
    if attrs.len() > MAX_ATTRS || bytes.sum::<usize>() > MAX_ATTRS_BYTES {
        return Err(Fault::bad_request(format!(
            "attrs must have at most {MAX_ATTRS} entries and {MAX_ATTRS_BYTES} bytes in all"
        )));
    }
    Ok(attrs)
}

/// Makes the answer to a send, with a repetition answered as its sender wants.
pub(super) fn answer(
    engine: &Engine,
    mode: IdempotencyMode,
    sent: Result<Sent, Rejection>,
) -> Result<SendOutput, Fault> {
    let sent = sent.map_err(|rejection| engine.mailbox_fault(rejection))?;
    let msg_id = sent.id.to_string();
    if sent.duplicate && mode == IdempotencyMode::Conflict {
        return Err(Fault::new(Code::EDuplicate, "this was sent before")
            .with("msg_id", msg_id)
            .with("duplicate", true));
    }
    Ok(SendOutput {
        msg_id,
        duplicate: sent.duplicate,
    })
}

impl Engine {
    /// Sends messages, in their order. Many are sent in several jobs, between which others have their turn. They go one after
    /// the other: if one fails, nothing behind it was sent, and whoever sends all of it again keeps the order.
    pub(super) async fn send(
        &self,
        tenant: TenantId,
        mut outgoing: Vec<Outgoing>,
    ) -> Result<Vec<Result<Sent, Rejection>>, Fault> {
        let mut sent = Vec::with_capacity(outgoing.len());
        loop {
            let rest = outgoing.split_off(outgoing.len().min(MAX_SENT_TOGETHER));
            sent.append(&mut self.send_together(tenant, outgoing).await?);
            if rest.is_empty() {
                return Ok(sent);
            }
            outgoing = rest;
        }
    }

    /// Sends messages in one commit.
    async fn send_together(
        &self,
        tenant: TenantId,
        outgoing: Vec<Outgoing>,
    ) -> Result<Vec<Result<Sent, Rejection>>, Fault> {
        let watch = Stopwatch::start();
        let settings = self.settings();
        let shards = settings.policy.mailbox.shards;
        let key = |sent: &Outgoing| {
            let partition = sent.partition_key.as_deref();
            SendKey::new(&sent.topic, &sent.idem_key, partition, shards)
        };
        let reads = Reads {
            sends: outgoing.iter().map(key).collect(),
            ..Reads::default()
        };
        let topics: Vec<String> = outgoing.iter().map(|sent| sent.topic.clone()).collect();
        let weight = outgoing.iter().map(weight).sum();
        let sent = self
            .transact(tenant, weight, reads, move |env, snapshot| {
                Ok(send(env, snapshot.send_context, outgoing.clone()))
            })
            .await?;
        for (topic, sent) in topics.iter().zip(&sent) {
            let metrics = &self.metrics.mailbox;
            metrics.sent(&settings, topic, sent, watch);
        }
        self.metrics.mailbox.enqueued(watch);
        Ok(sent)
    }
}

fn weight(sent: &Outgoing) -> usize {
    let attrs = sent.attrs.iter();
    let attrs = attrs.map(|(key, value)| key.len() + value.len());
    sent.payload.len() + sent.topic.len() + sent.idem_key.len() + attrs.sum::<usize>()
}
