//! Conversions between the messages of the protocol and the wire types. Structs are taken apart by
//! name, so that the compiler finds a field which is new on one side and forgotten on the other.

use asyncgate_api::{self as api, Payload};
use asyncgate_engine::Fault;

use crate::pb;

/// A message of the protocol that becomes an operation's input.
pub(crate) trait Decode<T> {
    fn decode(self) -> Result<T, Fault>;
}

/// Reads the items of a batch, each alone.
pub(crate) fn batch<T>(items: Vec<impl Decode<T>>) -> api::Batch<T> {
    let items = items.into_iter().map(|item| {
        let misread = |fault: Fault| api::Misread::new(fault.message);
        item.decode().map_err(misread)
    });
    api::Batch(items.collect())
}

impl Decode<api::SendInput> for pb::SendRequest {
    fn decode(self) -> Result<api::SendInput, Fault> {
        let Self {
            topic,
            idem_key,
            attrs,
            payload,
            partition_key,
            delay_ms,
            ttl_ms,
            priority,
            idempotency_mode,
            corr_id,
        } = self;
        let mode = pb::IdempotencyMode::try_from(idempotency_mode);
        Ok(api::SendInput {
            topic,
            idem_key,
            payload_text: None,
            payload_b64: Some(Payload(payload)),
            attrs: (!attrs.is_empty()).then_some(attrs),
            partition_key,
            delay_ms,
            ttl_ms,
            priority,
            idempotency_mode: match mode {
                Ok(pb::IdempotencyMode::Flag) => None,
                Ok(pb::IdempotencyMode::Conflict) => Some(api::IdempotencyMode::Conflict),
                Err(_) => return Err(unknown("idempotency_mode")),
            },
            corr_id,
        })
    }
}

/// Reads the mode from a call's metadata.
pub(crate) fn idempotency_mode(text: &str) -> Result<api::IdempotencyMode, Fault> {
    serde_json::from_value(text.into()).map_err(|_| unknown("x-idempotency-mode"))
}

impl Decode<api::SendBatchInput> for pb::SendBatchRequest {
    fn decode(self) -> Result<api::SendBatchInput, Fault> {
        Ok(api::SendBatchInput {
            messages: batch(self.messages),
        })
    }
}

impl Decode<api::RecvInput> for pb::RecvRequest {
    fn decode(self) -> Result<api::RecvInput, Fault> {
        let Self {
            topic,
            visibility_ms,
            max_messages,
            max_bytes,
            wait_seconds,
        } = self;
        Ok(api::RecvInput {
            topic,
            visibility_ms: visibility_ms.map(i64::from),
            max_messages,
            max_bytes: max_bytes.map(u64::from),
            wait_seconds,
        })
    }
}

impl Decode<api::AckInput> for pb::AckRequest {
    fn decode(self) -> Result<api::AckInput, Fault> {
        let Self { msg_id, lease } = self;
        Ok(api::AckInput { msg_id, lease })
    }
}

impl Decode<api::AckBatchInput> for pb::AckBatchRequest {
    fn decode(self) -> Result<api::AckBatchInput, Fault> {
        Ok(api::AckBatchInput {
            acks: batch(self.acks),
        })
    }
}

impl Decode<api::NackInput> for pb::NackRequest {
    fn decode(self) -> Result<api::NackInput, Fault> {
        let Self {
            msg_id,
            reason,
            error,
            delay_ms,
            lease,
        } = self;
        Ok(api::NackInput {
            msg_id,
            reason,
            error,
            delay_ms,
            lease,
        })
    }
}

impl Decode<api::ExtendInput> for pb::ExtendRequest {
    fn decode(self) -> Result<api::ExtendInput, Fault> {
        let Self {
            msg_id,
            visibility_ms,
            lease,
        } = self;
        Ok(api::ExtendInput {
            msg_id,
            visibility_ms: visibility_ms.map(i64::from),
            lease,
        })
    }
}

impl Decode<api::PeekInput> for pb::PeekRequest {
    fn decode(self) -> Result<api::PeekInput, Fault> {
        let Self {
            topic,
            max_messages,
            max_bytes,
        } = self;
        Ok(api::PeekInput {
            topic,
            max_messages,
            max_bytes: max_bytes.map(u64::from),
        })
    }
}

impl Decode<api::MessageInput> for pb::MessageRequest {
    fn decode(self) -> Result<api::MessageInput, Fault> {
        let Self { msg_id } = self;
        Ok(api::MessageInput { msg_id })
    }
}

impl Decode<api::PurgeInput> for pb::PurgeRequest {
    fn decode(self) -> Result<api::PurgeInput, Fault> {
        let Self { topic, state } = self;
        let state = match pb::PurgeState::try_from(state) {
            Ok(pb::PurgeState::Ready) => api::PurgeState::Ready,
            Ok(pb::PurgeState::Dlq) => api::PurgeState::Dlq,
            Ok(pb::PurgeState::All) => api::PurgeState::All,
            Ok(pb::PurgeState::Unspecified) | Err(_) => return Err(unknown("state")),
        };
        Ok(api::PurgeInput { topic, state })
    }
}

impl Decode<api::ListTopicsInput> for pb::TopicsRequest {
    fn decode(self) -> Result<api::ListTopicsInput, Fault> {
        let Self { limit, cursor } = self;
        Ok(api::ListTopicsInput { limit, cursor })
    }
}

impl Decode<api::ListDeadLettersInput> for pb::DlqRequest {
    fn decode(self) -> Result<api::ListDeadLettersInput, Fault> {
        let Self {
            topic,
            reason,
            older_than_secs,
            limit,
            cursor,
        } = self;
        Ok(api::ListDeadLettersInput {
            topic,
            reason,
            older_than_secs,
            limit,
            cursor,
        })
    }
}

impl Decode<api::ReprocessInput> for pb::DlqReprocessRequest {
    fn decode(self) -> Result<api::ReprocessInput, Fault> {
        let Self {
            topic,
            limit,
            reason,
            older_than_secs,
            dry_run,
            per_second,
        } = self;
        Ok(api::ReprocessInput {
            topic,
            limit,
            reason,
            older_than_secs,
            dry_run,
            per_second,
        })
    }
}

impl Decode<api::GetMailboxHeadsInput> for pb::HeadsRequest {
    fn decode(self) -> Result<api::GetMailboxHeadsInput, Fault> {
        let Self {} = self;
        Ok(api::GetMailboxHeadsInput {})
    }
}

fn unknown(field: &'static str) -> Fault {
    Fault::bad_request(format!("{field} has no such value")).with("field", field)
}

impl From<api::SendOutput> for pb::SendResponse {
    fn from(output: api::SendOutput) -> Self {
        let api::SendOutput { msg_id, duplicate } = output;
        Self { msg_id, duplicate }
    }
}

impl From<api::SendBatchOutput> for pb::SendBatchResponse {
    fn from(output: api::SendBatchOutput) -> Self {
        use pb::send_result::Result;
        let results = output.results.into_iter().map(|result| pb::SendResult {
            result: Some(match result {
                api::SendResult::Sent(sent) => Result::Sent(sent.into()),
                api::SendResult::Refused(refusal) => Result::Refused(refusal.into()),
            }),
        });
        Self {
            results: results.collect(),
        }
    }
}

impl From<api::Refusal> for pb::Refusal {
    fn from(refusal: api::Refusal) -> Self {
        let api::Refusal {
            code,
            message,
            field,
            retry_after_secs,
            msg_id,
        } = refusal;
        Self {
            code: code.as_str().to_owned(),
            message,
            msg_id,
            retry_after_secs,
            field,
        }
    }
}

impl From<api::RecvOutput> for pb::RecvResponse {
    fn from(output: api::RecvOutput) -> Self {
        Self {
            messages: output.messages.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<api::Envelope> for pb::Envelope {
    fn from(envelope: api::Envelope) -> Self {
        let api::Envelope {
            msg_id,
            topic,
            ts,
            idem_key,
            payload_hash,
            payload_b64,
            // The same bytes, which need no other form here.
            payload_text: _,
            attrs,
            corr_id,
            shard,
            attempt,
            hash_chain,
            sig,
            seq,
            link,
            partition_key,
            priority,
            lease,
            visible_at,
            expires_at,
        } = envelope;
        Self {
            msg_id,
            topic,
            ts,
            idem_key,
            payload_hash,
            attrs,
            corr_id,
            shard: u32::from(shard),
            attempt,
            hash_chain,
            sig,
            payload: Some(payload_b64.into_bytes()),
            lease,
            visible_at,
            seq,
            link,
            partition_key,
            priority,
            expires_at,
        }
    }
}

impl From<api::AckOutput> for pb::AckResponse {
    fn from(output: api::AckOutput) -> Self {
        let api::AckOutput { ok } = output;
        Self { ok }
    }
}

impl From<api::AckBatchOutput> for pb::AckBatchResponse {
    fn from(output: api::AckBatchOutput) -> Self {
        use pb::ack_result::Result;
        let results = output.results.into_iter().map(|result| pb::AckResult {
            result: Some(match result {
                api::AckResult::Done(done) => Result::Done(done.into()),
                api::AckResult::Refused(refusal) => Result::Refused(refusal.into()),
            }),
        });
        Self {
            results: results.collect(),
        }
    }
}

impl From<api::ExtendOutput> for pb::ExtendResponse {
    fn from(output: api::ExtendOutput) -> Self {
        let api::ExtendOutput { ok, visible_at } = output;
        Self { ok, visible_at }
    }
}

impl From<api::PurgeOutput> for pb::PurgeResponse {
    fn from(output: api::PurgeOutput) -> Self {
        let api::PurgeOutput { purged } = output;
        Self { purged }
    }
}

impl From<api::ListTopicsOutput> for pb::TopicsResponse {
    fn from(output: api::ListTopicsOutput) -> Self {
        let api::ListTopicsOutput {
            topics,
            next_cursor,
        } = output;
        Self {
            topics: topics.into_iter().map(Into::into).collect(),
            next_cursor,
        }
    }
}

impl From<api::TopicState> for pb::TopicState {
    fn from(state: api::TopicState) -> Self {
        let api::TopicState {
            topic,
            ready,
            delayed,
            depth,
            inflight,
            dlq_depth,
            oldest_age_ms,
        } = state;
        Self {
            topic,
            ready,
            delayed,
            depth,
            inflight,
            dlq_depth,
            oldest_age_ms,
        }
    }
}

impl From<api::ListDeadLettersOutput> for pb::DlqResponse {
    fn from(output: api::ListDeadLettersOutput) -> Self {
        let api::ListDeadLettersOutput {
            messages,
            next_cursor,
        } = output;
        Self {
            messages: messages.into_iter().map(Into::into).collect(),
            next_cursor,
        }
    }
}

impl From<api::DeadLetter> for pb::DeadLetter {
    fn from(letter: api::DeadLetter) -> Self {
        let api::DeadLetter {
            envelope,
            cause,
            reason,
            last_error,
            died_at,
        } = letter;
        Self {
            envelope: Some(envelope.into()),
            cause,
            reason,
            last_error,
            died_at,
        }
    }
}

impl From<api::MessageRecord> for pb::MessageRecord {
    fn from(record: api::MessageRecord) -> Self {
        let api::MessageRecord {
            envelope,
            state,
            cause,
            reason,
            last_error,
            died_at,
        } = record;
        Self {
            envelope: Some(envelope.into()),
            state: state.as_str().to_owned(),
            cause,
            reason,
            last_error,
            died_at,
        }
    }
}

impl From<api::ReprocessOutput> for pb::DlqReprocessResponse {
    fn from(output: api::ReprocessOutput) -> Self {
        let api::ReprocessOutput { moved } = output;
        Self { moved }
    }
}

impl From<api::GetMailboxHeadsOutput> for pb::HeadsResponse {
    fn from(output: api::GetMailboxHeadsOutput) -> Self {
        Self {
            heads: output.heads.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<api::MailboxHead> for pb::MailboxHead {
    fn from(head: api::MailboxHead) -> Self {
        let api::MailboxHead {
            shard,
            seq,
            link,
            tenant_id,
            signed_at,
            signed_at_millis,
            public_key,
            signature,
        } = head;
        Self {
            shard: u32::from(shard),
            seq,
            link,
            tenant_id,
            signed_at,
            signed_at_millis,
            public_key,
            signature,
        }
    }
}
