//! Operations of the mailbox: messages by topic, delivered at least once.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Access, Batch, Code, Effect, Method, Payload, Refusal, Scope, Text, bounds,
    forms::{self, way},
    operation::operation,
};

operation!(
    /// Sends a message.
    Mailbox, SendMessage: SendInput => SendOutput,
    name: "mailbox_send",
    method: Method::Post,
    path: "/v1/send",
    tool: Some("mailbox.send"),
    access: Access::Needs(&[Scope::MailboxSend]),
    effect: Effect::Advance,
    brings_work: true,
    headers: &[("x-idempotency-mode", "idempotency_mode")],
    summary: "Send a message to a topic.",
    doc: "Puts a message into a topic, where a receiver finds it with mailbox_recv. Give it an \
          idem_key of your own: sending the same again within the replay window (300 seconds by \
          default) does nothing and answers with the first message's id and duplicate: true; the \
          same key with another payload is refused with E_IDEM_CONFLICT. Write text as it is into \
          payload_text; payload_b64 is for bytes that are no text. Give one of the two, at most \
          1 MiB decoded. A success means that the message is on disk. \
          E_SATURATED means that the topic's shard is full: try again after retry_after seconds.",
    refusals: &[Code::EDuplicate, Code::EIdemConflict],
);

/// A message to send.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    way("SendText", &["payload_text"], &["payload_b64"], &Value::Null),
    way("SendBytes", &["payload_b64"], &["payload_text"], &Value::Null),
]))]
pub struct SendInput {
    /// The topic, 1 to 256 bytes, such as `user:42:inbox`.
    pub topic: String,
    /// Your name for this message, 1 to 256 bytes. Repeating it is safe.
    pub idem_key: String,
    /// The content, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_text: Option<Text>,
    /// The content in base64, instead of payload_text, if it is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_b64: Option<Payload>,
    /// Your labels for it, such as `content-type`. At most 64 entries and 16 KiB in all.
    #[serde(default)]
    #[schemars(extend("maxProperties" = bounds::MAX_ATTRS))]
    pub attrs: Option<BTreeMap<String, String>>,
    /// Messages of one topic with one key keep their order.
    #[serde(default)]
    pub partition_key: Option<String>,
    /// Milliseconds before it can be delivered, up to 7 days. Default 0.
    #[serde(default)]
    #[schemars(range(min = 0, max = bounds::MAX_MESSAGE_DELAY_MS))]
    pub delay_ms: Option<i64>,
    /// Milliseconds after which it is too old and becomes a dead letter.
    #[serde(default)]
    #[schemars(range(min = 1, max = bounds::MAX_MESSAGE_TTL_MS))]
    pub ttl_ms: Option<i64>,
    /// Higher goes first. Default 0.
    #[serde(default)]
    pub priority: Option<i32>,
    /// The answer to a repetition. Default `200-flag`.
    #[serde(default)]
    pub idempotency_mode: Option<IdempotencyMode>,
    /// A UUID that follows the message. Default: the request's own, as in `X-Corr-Id`.
    #[serde(default)]
    pub corr_id: Option<String>,
}

/// The answer to a repeated send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum IdempotencyMode {
    /// A success with `duplicate: true`.
    #[default]
    #[serde(rename = "200-flag")]
    Flag,
    /// The error `E_DUPLICATE`, which names the first message.
    #[serde(rename = "409-conflict")]
    Conflict,
}

/// The message that was sent.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SendOutput {
    /// The message's id, a ULID.
    pub msg_id: String,
    /// True if it was sent before.
    pub duplicate: bool,
}

operation!(
    /// Sends many messages.
    Mailbox, SendMessages: SendBatchInput => SendBatchOutput,
    name: "mailbox_send_batch",
    method: Method::Post,
    path: "/v1/send/batch",
    tool: Some("mailbox.send_batch"),
    access: Access::Needs(&[Scope::MailboxSend]),
    effect: Effect::Advance,
    brings_work: true,
    summary: "Send up to 1,000 messages in one call.",
    doc: "Sends messages in order, as mailbox_send does. Each has an answer of its own, in \
          order: msg_id and duplicate, or code and message of what was wrong with it; one that is \
          refused, or cannot even be read, does not stop the others.",
);

/// Messages to send.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendBatchInput {
    /// 1 to 1,000 messages.
    pub messages: Batch<SendInput>,
}

/// The answers in order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SendBatchOutput {
    /// One for each message.
    pub results: Vec<SendResult>,
}

/// The answer to one send of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
// A client tells the two apart by their fields: one has `msg_id` and `duplicate`, the other `code`.
#[serde(untagged)]
pub enum SendResult {
    /// It was sent, now or before.
    Sent(SendOutput),
    /// It was not sent.
    Refused(Refusal),
}

operation!(
    /// Receives messages.
    Mailbox, ReceiveMessages: RecvInput => RecvOutput,
    name: "mailbox_recv",
    method: Method::Post,
    path: "/v1/recv",
    tool: Some("mailbox.recv"),
    access: Access::Needs(&[Scope::MailboxRecv]),
    effect: Effect::Add,
    summary: "Receive messages of a topic.",
    doc: "Hands you messages of a topic, highest priority first, then oldest. They are yours for \
          visibility_ms: finish each with mailbox_ack, or give it back with mailbox_nack, or keep \
          it longer with mailbox_extend. What you do not settle in time is delivered again, so do \
          work that can be repeated. Send the lease with your answer: it tells you if somebody \
          else got the message meanwhile. With wait_seconds (up to 60) the call waits for a \
          message and answers as soon as there is one; an empty list means there was none.",
    refusals: &[Code::EIntegrity],
);

/// A receiver's request.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RecvInput {
    /// The topic.
    pub topic: String,
    /// Milliseconds for which you hold the messages, 250 to 12 hours. Default 5000.
    #[serde(default)]
    pub visibility_ms: Option<i64>,
    /// The most messages, at least 1; lowered to the server's limit (32).
    #[serde(default)]
    pub max_messages: Option<u32>,
    /// The most bytes of decoded content; at least one message is always given.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Seconds to wait for a message, 0 to 60. Default 0.
    #[serde(default)]
    pub wait_seconds: Option<u32>,
}

/// The messages that you now hold.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RecvOutput {
    /// The messages in the order of delivery.
    pub messages: Vec<Envelope>,
}

/// A message as receivers see it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope {
    /// The message's id.
    pub msg_id: String,
    /// The topic it was sent to.
    pub topic: String,
    /// The time it was sent.
    pub ts: String,
    /// The sender's name for it.
    pub idem_key: String,
    /// `b3:` and the BLAKE3 hash of the content.
    pub payload_hash: String,
    /// The content in base64.
    pub payload_b64: Payload,
    /// The same content as text, if it was sent as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload_text: Option<Text>,
    /// The sender's labels.
    pub attrs: BTreeMap<String, String>,
    /// Its id in logs.
    pub corr_id: String,
    /// The shard it is in.
    pub shard: u16,
    /// Deliveries so far, this one included.
    pub attempt: u32,
    /// `b3:` and the hash of the envelope.
    pub hash_chain: String,
    /// A detached signature; none for now.
    pub sig: Option<String>,
    /// Its place in the shard's chain.
    pub seq: u64,
    /// The link of the shard's chain at this message.
    pub link: String,
    /// The sender's partition key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_key: Option<String>,
    /// Its priority.
    pub priority: i32,
    /// Your proof of this delivery: send it with ack, nack and extend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The end of your hold. Of a message that is only looked at: the time from which it can be delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible_at: Option<String>,
    /// The time at which it expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

operation!(
    /// Acknowledges a message.
    Mailbox, AckMessage: AckInput => AckOutput,
    name: "mailbox_ack",
    method: Method::Post,
    path: "/v1/ack/{msg_id}",
    tool: Some("mailbox.ack"),
    access: Access::Needs(&[Scope::MailboxRecv]),
    effect: Effect::Advance,
    summary: "Say that a message is done.",
    doc: "Ends a message: it is never delivered again. Repeating it is safe for as long as the \
          replay window. With the lease from mailbox_recv, E_STALE_LEASE tells you that your time \
          was over and somebody else got the message; without it, the message is ended whoever \
          has it.",
    refusals: &[Code::NotFound, Code::EStaleLease, Code::ENotLeased],
);

/// The message that is done.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckInput {
    /// The message's id.
    pub msg_id: String,
    /// The lease of your delivery.
    #[serde(default)]
    pub lease: Option<String>,
}

/// The call succeeded.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AckOutput {
    /// Always true.
    pub ok: bool,
}

operation!(
    /// Acknowledges many messages.
    Mailbox, AckMessages: AckBatchInput => AckBatchOutput,
    name: "mailbox_ack_batch",
    method: Method::Post,
    path: "/v1/ack/batch",
    tool: Some("mailbox.ack_batch"),
    access: Access::Needs(&[Scope::MailboxRecv]),
    effect: Effect::Advance,
    summary: "Say that up to 1,000 messages are done.",
    doc: "Ends messages as mailbox_ack does, in one commit. Each has an answer of its own, in \
          order: ok, or code and message of what was wrong with it.",
);

/// The messages that are done.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckBatchInput {
    /// 1 to 1,000 messages.
    pub acks: Batch<AckInput>,
}

/// The answers in order.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AckBatchOutput {
    /// One for each message.
    pub results: Vec<AckResult>,
}

/// The answer to one acknowledgement of a batch.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum AckResult {
    /// It is done.
    Done(AckOutput),
    /// It was not done.
    Refused(Refusal),
}

operation!(
    /// Gives a message back.
    Mailbox, NackMessage: NackInput => AckOutput,
    name: "mailbox_nack",
    method: Method::Post,
    path: "/v1/nack/{msg_id}",
    tool: Some("mailbox.nack"),
    access: Access::Needs(&[Scope::MailboxRecv]),
    effect: Effect::Advance,
    summary: "Give a message back, to be delivered again.",
    doc: "Says that you could not do the work. The message is delivered again after a random \
          backoff that grows with each attempt, or after delay_ms if you give it. After its last \
          allowed attempt it becomes a dead letter with your reason and error.",
    refusals: &[Code::NotFound, Code::EStaleLease, Code::ENotLeased],
);

/// The message to give back, and the reason.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NackInput {
    /// The message's id.
    pub msg_id: String,
    /// The reason in a word, such as `parse_error`; dead letters are found by it.
    #[serde(default)]
    #[schemars(length(max = bounds::MAX_NAME_BYTES), regex(pattern = forms::VISIBLE))]
    pub reason: Option<String>,
    /// The error in more words.
    #[serde(default)]
    #[schemars(length(max = bounds::MAX_TEXT_BYTES))]
    pub error: Option<String>,
    /// Milliseconds until it can be delivered again, instead of the backoff.
    #[serde(default)]
    #[schemars(range(min = 0, max = bounds::MAX_MESSAGE_DELAY_MS))]
    pub delay_ms: Option<i64>,
    /// The lease of your delivery.
    #[serde(default)]
    pub lease: Option<String>,
}

operation!(
    /// Keeps a message longer.
    Mailbox, ExtendMessage: ExtendInput => ExtendOutput,
    name: "mailbox_extend",
    method: Method::Post,
    path: "/v1/extend/{msg_id}",
    tool: Some("mailbox.extend"),
    access: Access::Needs(&[Scope::MailboxRecv]),
    effect: Effect::Advance,
    summary: "Keep a message longer.",
    doc: "Moves the end of your delivery to now plus visibility_ms; it never comes nearer, and in \
          all you may keep a message ten times as long as you first asked for.",
    refusals: &[Code::NotFound, Code::EStaleLease, Code::ENotLeased],
);

/// The message to keep.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExtendInput {
    /// The message's id.
    pub msg_id: String,
    /// Milliseconds from now. Default: the server's default visibility.
    #[serde(default)]
    pub visibility_ms: Option<i64>,
    /// The lease of your delivery.
    #[serde(default)]
    pub lease: Option<String>,
}

/// The new end of your delivery.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ExtendOutput {
    /// Always true.
    pub ok: bool,
    /// The end of your hold.
    pub visible_at: String,
}

operation!(
    /// Looks at messages.
    Mailbox, PeekMessages: PeekInput => RecvOutput,
    name: "mailbox_peek",
    method: Method::Post,
    path: "/v1/peek",
    tool: Some("mailbox.peek"),
    access: Access::Needs(&[Scope::MailboxRecv, Scope::MailboxAdmin]),
    effect: Effect::Read,
    pages: true,
    summary: "Look at the next messages of a topic without receiving them.",
    doc: "Shows the messages that would be delivered next. They stay where they are and have no \
          lease; nothing is counted.",
);

/// The topic to look at.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PeekInput {
    /// The topic.
    pub topic: String,
    /// The most messages. Default 32.
    #[serde(default)]
    pub max_messages: Option<u32>,
    /// The most bytes of decoded content; at least one message is always given.
    #[serde(default)]
    pub max_bytes: Option<u64>,
}

operation!(
    /// Throws messages away.
    Mailbox, PurgeTopic: PurgeInput => PurgeOutput,
    name: "mailbox_purge",
    method: Method::Post,
    path: "/v1/purge",
    tool: Some("mailbox.purge"),
    access: Access::Needs(&[Scope::MailboxAdmin]),
    effect: Effect::End,
    summary: "Throw away a topic's messages (admin).",
    doc: "Throws away the waiting messages of a topic (ready), its dead letters (dlq) or both \
          (all). Messages that receivers have are left alone. This cannot be undone.",
);

/// The messages to throw away.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PurgeInput {
    /// The topic.
    pub topic: String,
    /// The messages.
    pub state: PurgeState,
}

/// The messages to throw away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PurgeState {
    /// Waiting messages, delayed ones included.
    Ready,
    /// Dead letters.
    Dlq,
    /// Both.
    All,
}

/// The outcome of a purge.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PurgeOutput {
    /// Messages thrown away.
    pub purged: u64,
}

operation!(
    /// Lists topics.
    Mailbox, ListTopics: ListTopicsInput => ListTopicsOutput,
    name: "mailbox_topics",
    method: Method::Get,
    path: "/v1/topics",
    tool: Some("mailbox.topics"),
    access: Access::Needs(&[Scope::MailboxRecv, Scope::MailboxAdmin]),
    effect: Effect::Read,
    summary: "List topics and what they hold.",
    doc: "Lists the topics that hold messages, by name, with how many wait, are with receivers \
          and are dead letters, and how old the oldest waiting message is.",
);

/// A page of topics.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTopicsInput {
    /// The most topics. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(length(min = 1, max = bounds::MAX_NAME_BYTES), regex(pattern = forms::VISIBLE))]
    pub cursor: Option<String>,
}

/// A page of topics.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ListTopicsOutput {
    /// The topics by name.
    pub topics: Vec<TopicState>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// The counts of a topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TopicState {
    /// Its name.
    pub topic: String,
    /// Messages that can be delivered now.
    pub ready: u64,
    /// Messages that can be delivered later.
    pub delayed: u64,
    /// Ready plus delayed messages.
    pub depth: u64,
    /// Messages held by receivers.
    pub inflight: u64,
    /// Dead letters.
    pub dlq_depth: u64,
    /// Milliseconds that the oldest waiting message has waited; null when none waits.
    pub oldest_age_ms: Option<i64>,
}

operation!(
    /// Lists dead letters.
    Mailbox, ListDeadLetters: ListDeadLettersInput => ListDeadLettersOutput,
    name: "mailbox_dlq",
    method: Method::Get,
    path: "/v1/dlq",
    tool: Some("mailbox.dlq"),
    access: Access::Needs(&[Scope::MailboxRecv, Scope::MailboxAdmin]),
    effect: Effect::Read,
    pages: true,
    summary: "List dead letters.",
    doc: "Lists messages that were not done: their last allowed delivery failed (max_attempts), \
          they grew too old (expired), or their stored bytes were damaged (integrity). Bring them \
          back with mailbox_dlq_reprocess once the cause is mended.",
);

/// A filter and a page of dead letters.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListDeadLettersInput {
    /// Only this topic.
    #[serde(default)]
    pub topic: Option<String>,
    /// Only this reason.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only letters at least this many seconds dead.
    #[serde(default)]
    pub older_than_secs: Option<u64>,
    /// The most messages. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(regex(pattern = forms::ULID))]
    pub cursor: Option<String>,
}

/// A page of dead letters.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ListDeadLettersOutput {
    /// The messages in the order in which they were sent.
    pub messages: Vec<DeadLetter>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// A message that was not done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeadLetter {
    /// The message.
    // Flattened, so that a program that reads messages can read dead letters too.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// `max_attempts`, `expired` or `integrity`.
    pub cause: String,
    /// The last receiver's reason, or `visibility_timeout`, `expired` or `integrity`.
    pub reason: String,
    /// The last receiver's error text.
    pub last_error: Option<String>,
    /// The time it became a dead letter.
    pub died_at: String,
}

operation!(
    /// Brings dead letters back.
    Mailbox, ReprocessDeadLetters: ReprocessInput => ReprocessOutput,
    name: "mailbox_dlq_reprocess",
    method: Method::Post,
    path: "/v1/dlq/reprocess",
    tool: Some("mailbox.dlq_reprocess"),
    access: Access::Needs(&[Scope::MailboxAdmin]),
    effect: Effect::Add,
    summary: "Bring dead letters back into their topic (admin).",
    doc: "Moves dead letters of a topic back, in the order in which they were sent: same msg_id, \
          attempts counted anew. They move all together or not at all; with per_second they move \
          in steps of that many. With dry_run it only says how many would move.",
);

/// The dead letters to bring back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReprocessInput {
    /// The topic.
    pub topic: String,
    /// The most messages, 1 to 10,000. Default 100.
    #[serde(default)]
    #[schemars(range(min = 1, max = bounds::MAX_REPROCESSED))]
    pub limit: Option<u32>,
    /// Only this reason.
    #[serde(default)]
    pub reason: Option<String>,
    /// Only letters at least this many seconds dead.
    #[serde(default)]
    pub older_than_secs: Option<u64>,
    /// Only count the messages that would move.
    #[serde(default)]
    pub dry_run: Option<bool>,
    /// Move at most this many each second, so that receivers are not flooded.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub per_second: Option<u32>,
}

/// The outcome of a reprocess.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReprocessOutput {
    /// Messages that moved, or would move.
    pub moved: u64,
}

operation!(
    /// Reads the heads of the chains.
    Mailbox, GetMailboxHeads: GetMailboxHeadsInput => GetMailboxHeadsOutput,
    name: "mailbox_heads",
    method: Method::Get,
    path: "/v1/mailbox/heads",
    tool: Some("mailbox.heads"),
    access: Access::Needs(&[Scope::MailboxRecv, Scope::MailboxAdmin]),
    effect: Effect::Read,
    upkeep: true,
    summary: "Get the signed heads of the message chains.",
    doc: "Each shard chains the hashes of its messages. A signed head proves what had been sent \
          when it was made: keep it, and asyncgate verify can tell later whether messages were \
          changed or left out.",
);

/// An empty input.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetMailboxHeadsInput {}

/// The heads of the chains.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct GetMailboxHeadsOutput {
    /// One for each shard that ever had messages.
    pub heads: Vec<MailboxHead>,
}

/// The end of a shard's chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MailboxHead {
    /// The shard.
    pub shard: u16,
    /// The number of messages so far.
    pub seq: u64,
    /// The link of the last one.
    pub link: String,
    /// The tenant whose messages these are.
    pub tenant_id: String,
    /// The time of the signature.
    pub signed_at: String,
    /// The same in milliseconds since 1970.
    pub signed_at_millis: i64,
    /// The public key, in hexadecimal digits; absent when the server has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The Ed25519 signature over the head, in hexadecimal digits; absent when the server has no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}
