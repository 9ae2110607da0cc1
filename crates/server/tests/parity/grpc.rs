//! The mailbox by gRPC: inputs as messages of the protocol, answers as the JSON that REST gives.

use asyncgate_api::{self as api, Payload};
use asyncgate_grpc::pb;
use axum::{
    body::Body,
    http::{HeaderMap, Request},
};
use bytes::Bytes;
use prost::Message;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tonic_types::StatusExt as _;

use crate::facades::Outcome;

/// A call, or that the protocol has no way to say this.
pub fn request(operation: &str, input: &Value) -> Result<Request<Body>, Outcome> {
    let (method, message) = encode(operation, input)
        .ok_or_else(|| Outcome::Refused(api::Code::ESchema.as_str().to_owned()))?;
    let mut frame = vec![0];
    frame.extend(u32::try_from(message.len()).expect("a size").to_be_bytes());
    frame.extend(message);
    let request = Request::post(format!("/ron.mailbox.v1.Mailbox/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    Ok(request.body(Body::from(frame)).expect("a request"))
}

fn input<T: DeserializeOwned>(input: &Value) -> Option<T> {
    serde_json::from_value(input.clone()).ok()
}

/// A number that may be left out, if the protocol can say it.
fn number<T: TryInto<u32>>(value: Option<T>) -> Option<Option<u32>> {
    value.map(TryInto::try_into).transpose().ok()
}

/// The items of a batch, if the protocol can say them.
fn all<T, M>(items: api::Batch<T>, item: fn(T) -> M) -> Option<Vec<M>> {
    let items = items.0.into_iter();
    items.map(|one| one.ok().map(item)).collect()
}

fn encode(operation: &str, json: &Value) -> Option<(&'static str, Vec<u8>)> {
    Some(match operation {
        "mailbox_send" => ("Send", send(input(json)?).encode_to_vec()),
        "mailbox_send_batch" => {
            let batch: api::SendBatchInput = input(json)?;
            let messages = all(batch.messages, send)?;
            (
                "SendBatch",
                pb::SendBatchRequest { messages }.encode_to_vec(),
            )
        }
        "mailbox_recv" => {
            let wish: api::RecvInput = input(json)?;
            let message = pb::RecvRequest {
                topic: wish.topic,
                visibility_ms: number(wish.visibility_ms)?,
                max_messages: wish.max_messages,
                max_bytes: number(wish.max_bytes)?,
                wait_seconds: wish.wait_seconds,
            };
            ("Recv", message.encode_to_vec())
        }
        "mailbox_ack" => ("Ack", ack(input(json)?).encode_to_vec()),
        "mailbox_ack_batch" => {
            let batch: api::AckBatchInput = input(json)?;
            let acks = all(batch.acks, ack)?;
            ("AckBatch", pb::AckBatchRequest { acks }.encode_to_vec())
        }
        "mailbox_nack" => {
            let nack: api::NackInput = input(json)?;
            let message = pb::NackRequest {
                msg_id: nack.msg_id,
                reason: nack.reason,
                error: nack.error,
                delay_ms: nack.delay_ms,
                lease: nack.lease,
            };
            ("Nack", message.encode_to_vec())
        }
        "mailbox_extend" => {
            let extend: api::ExtendInput = input(json)?;
            let message = pb::ExtendRequest {
                msg_id: extend.msg_id,
                visibility_ms: number(extend.visibility_ms)?,
                lease: extend.lease,
            };
            ("Extend", message.encode_to_vec())
        }
        "mailbox_peek" => {
            let peek: api::PeekInput = input(json)?;
            let message = pb::PeekRequest {
                topic: peek.topic,
                max_messages: peek.max_messages,
                max_bytes: number(peek.max_bytes)?,
            };
            ("Peek", message.encode_to_vec())
        }
        "mailbox_get_message" => ("GetMessage", one_message(json)?),
        "mailbox_delete_message" => ("DeleteMessage", one_message(json)?),
        "mailbox_redrive_message" => ("RedriveMessage", one_message(json)?),
        "mailbox_purge" => {
            let purge: api::PurgeInput = input(json)?;
            let state = match purge.state {
                api::PurgeState::Ready => pb::PurgeState::Ready,
                api::PurgeState::Dlq => pb::PurgeState::Dlq,
                api::PurgeState::All => pb::PurgeState::All,
            };
            let message = pb::PurgeRequest {
                topic: purge.topic,
                state: state.into(),
            };
            ("Purge", message.encode_to_vec())
        }
        "mailbox_topics" => {
            let api::ListTopicsInput { limit, cursor } = input(json)?;
            (
                "Topics",
                pb::TopicsRequest { limit, cursor }.encode_to_vec(),
            )
        }
        "mailbox_dlq" => {
            let list: api::ListDeadLettersInput = input(json)?;
            let message = pb::DlqRequest {
                topic: list.topic,
                reason: list.reason,
                older_than_secs: list.older_than_secs,
                limit: list.limit,
                cursor: list.cursor,
            };
            ("Dlq", message.encode_to_vec())
        }
        "mailbox_dlq_reprocess" => {
            let back: api::ReprocessInput = input(json)?;
            let message = pb::DlqReprocessRequest {
                topic: back.topic,
                limit: back.limit,
                reason: back.reason,
                older_than_secs: back.older_than_secs,
                dry_run: back.dry_run,
                per_second: back.per_second,
            };
            ("DlqReprocess", message.encode_to_vec())
        }
        "mailbox_heads" => {
            let api::GetMailboxHeadsInput {} = input(json)?;
            ("Heads", pb::HeadsRequest {}.encode_to_vec())
        }
        other => panic!("{other} has no method"),
    })
}

fn one_message(json: &Value) -> Option<Vec<u8>> {
    let api::MessageInput { msg_id } = input(json)?;
    Some(pb::MessageRequest { msg_id }.encode_to_vec())
}

fn send(input: api::SendInput) -> pb::SendRequest {
    let mode = match input.idempotency_mode.unwrap_or_default() {
        api::IdempotencyMode::Flag => pb::IdempotencyMode::Flag,
        api::IdempotencyMode::Conflict => pb::IdempotencyMode::Conflict,
    };
    pb::SendRequest {
        topic: input.topic,
        idem_key: input.idem_key,
        attrs: input.attrs.unwrap_or_default(),
        payload: input.payload_b64.unwrap_or_default().into_bytes(),
        partition_key: input.partition_key,
        delay_ms: input.delay_ms,
        ttl_ms: input.ttl_ms,
        priority: input.priority,
        idempotency_mode: mode.into(),
        corr_id: input.corr_id,
    }
}

fn ack(input: api::AckInput) -> pb::AckRequest {
    pb::AckRequest {
        msg_id: input.msg_id,
        lease: input.lease,
    }
}

/// What came back.
pub fn outcome(operation: &str, headers: &HeaderMap, body: &Bytes) -> Outcome {
    if let Some(status) = tonic::Status::from_header_map(headers) {
        let info = status.get_details_error_info().expect("ErrorInfo");
        return Outcome::Refused(info.reason);
    }
    Outcome::Answer(decode(operation, &body[5..]))
}

fn message<T: Message + Default>(bytes: &[u8]) -> T {
    T::decode(bytes).expect("a message of the protocol")
}

fn json(output: impl Serialize) -> Value {
    serde_json::to_value(output).expect("JSON")
}

fn decode(operation: &str, bytes: &[u8]) -> Value {
    match operation {
        "mailbox_send" => json(sent(message(bytes))),
        "mailbox_send_batch" => {
            let batch: pb::SendBatchResponse = message(bytes);
            let results = batch.results.into_iter().map(|item| match item.result {
                Some(pb::send_result::Result::Sent(done)) => api::SendResult::Sent(sent(done)),
                Some(pb::send_result::Result::Refused(why)) => {
                    api::SendResult::Refused(refusal(why))
                }
                None => panic!("an item without an answer"),
            });
            json(api::SendBatchOutput {
                results: results.collect(),
            })
        }
        "mailbox_recv" | "mailbox_peek" => {
            let received: pb::RecvResponse = message(bytes);
            json(api::RecvOutput {
                messages: received.messages.into_iter().map(envelope).collect(),
            })
        }
        "mailbox_ack" | "mailbox_nack" | "mailbox_delete_message" => json(acked(message(bytes))),
        "mailbox_get_message" => json(record(message(bytes))),
        "mailbox_ack_batch" => {
            let batch: pb::AckBatchResponse = message(bytes);
            let results = batch.results.into_iter().map(|item| match item.result {
                Some(pb::ack_result::Result::Done(done)) => api::AckResult::Done(acked(done)),
                Some(pb::ack_result::Result::Refused(why)) => api::AckResult::Refused(refusal(why)),
                None => panic!("an item without an answer"),
            });
            json(api::AckBatchOutput {
                results: results.collect(),
            })
        }
        "mailbox_extend" => {
            let pb::ExtendResponse { ok, visible_at } = message(bytes);
            json(api::ExtendOutput { ok, visible_at })
        }
        "mailbox_purge" => {
            let pb::PurgeResponse { purged } = message(bytes);
            json(api::PurgeOutput { purged })
        }
        "mailbox_topics" => {
            let list: pb::TopicsResponse = message(bytes);
            json(api::ListTopicsOutput {
                topics: list.topics.into_iter().map(topic).collect(),
                next_cursor: list.next_cursor,
            })
        }
        "mailbox_dlq" => {
            let list: pb::DlqResponse = message(bytes);
            json(api::ListDeadLettersOutput {
                messages: list.messages.into_iter().map(dead_letter).collect(),
                next_cursor: list.next_cursor,
            })
        }
        "mailbox_dlq_reprocess" | "mailbox_redrive_message" => {
            let pb::DlqReprocessResponse { moved } = message(bytes);
            json(api::ReprocessOutput { moved })
        }
        "mailbox_heads" => {
            let heads: pb::HeadsResponse = message(bytes);
            json(api::GetMailboxHeadsOutput {
                heads: heads.heads.into_iter().map(head).collect(),
            })
        }
        other => panic!("{other} has no method"),
    }
}

fn sent(response: pb::SendResponse) -> api::SendOutput {
    api::SendOutput {
        msg_id: response.msg_id,
        duplicate: response.duplicate,
    }
}

fn acked(response: pb::AckResponse) -> api::AckOutput {
    api::AckOutput { ok: response.ok }
}

fn refusal(refusal: pb::Refusal) -> api::Refusal {
    let mut codes = api::Code::ALL.into_iter();
    api::Refusal {
        code: codes
            .find(|code| code.as_str() == refusal.code)
            .expect("a code"),
        message: refusal.message,
        field: refusal.field,
        retry_after_secs: refusal.retry_after_secs,
        msg_id: refusal.msg_id,
    }
}

fn small(number: u32) -> u16 {
    u16::try_from(number).expect("a shard")
}

fn envelope(envelope: pb::Envelope) -> api::Envelope {
    api::Envelope {
        msg_id: envelope.msg_id,
        topic: envelope.topic,
        ts: envelope.ts,
        idem_key: envelope.idem_key,
        payload_hash: envelope.payload_hash,
        payload_b64: Payload(envelope.payload.expect("a payload")),
        payload_text: None,
        attrs: envelope.attrs,
        corr_id: envelope.corr_id,
        shard: small(envelope.shard),
        attempt: envelope.attempt,
        hash_chain: envelope.hash_chain,
        sig: envelope.sig,
        seq: envelope.seq,
        link: envelope.link,
        partition_key: envelope.partition_key,
        priority: envelope.priority,
        lease: envelope.lease,
        visible_at: envelope.visible_at,
        expires_at: envelope.expires_at,
    }
}

fn topic(state: pb::TopicState) -> api::TopicState {
    api::TopicState {
        topic: state.topic,
        ready: state.ready,
        delayed: state.delayed,
        depth: state.depth,
        inflight: state.inflight,
        dlq_depth: state.dlq_depth,
        oldest_age_ms: state.oldest_age_ms,
    }
}

fn dead_letter(letter: pb::DeadLetter) -> api::DeadLetter {
    api::DeadLetter {
        envelope: envelope(letter.envelope.expect("an envelope")),
        cause: letter.cause,
        reason: letter.reason,
        last_error: letter.last_error,
        died_at: letter.died_at,
    }
}

fn record(record: pb::MessageRecord) -> api::MessageRecord {
    api::MessageRecord {
        envelope: envelope(record.envelope.expect("an envelope")),
        state: serde_json::from_value(record.state.into()).expect("a state"),
        cause: record.cause,
        reason: record.reason,
        last_error: record.last_error,
        died_at: record.died_at,
    }
}

fn head(head: pb::MailboxHead) -> api::MailboxHead {
    api::MailboxHead {
        shard: small(head.shard),
        seq: head.seq,
        link: head.link,
        tenant_id: head.tenant_id,
        signed_at: head.signed_at,
        signed_at_millis: head.signed_at_millis,
        public_key: head.public_key,
        signature: head.signature,
    }
}
