//! Operations about one message, by its id: to look at it, to throw it away, to bring it back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Access, AckOutput, Code, Effect, Envelope, Method, ReprocessOutput, Scope, operation::operation,
};

operation!(
    /// Reads a message.
    Mailbox, GetMessage: MessageInput => MessageRecord,
    name: "mailbox_get_message",
    method: Method::Get,
    path: "/v1/messages/{msg_id}",
    tool: Some("mailbox.get_message"),
    access: Access::Needs(&[Scope::MailboxRecv, Scope::MailboxAdmin]),
    effect: Effect::Read,
    summary: "Look at one message, wherever it is.",
    doc: "Shows a message and its state without receiving it: ready, delayed, blocked (it waits \
          behind an older message with its partition_key), leased (a receiver has it) or dead (a \
          dead letter, with why). A message that was acknowledged or thrown away is not found.",
    refusals: &[Code::NotFound, Code::EIntegrity],
);

/// One message.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageInput {
    /// The message's id.
    pub msg_id: String,
}

/// A message and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MessageRecord {
    /// The message, without a lease.
    // Flattened, so that a program that reads messages can read this too.
    #[serde(flatten)]
    pub envelope: Envelope,
    /// Its state.
    pub state: MessageState,
    /// Of a dead letter: `max_attempts`, `expired` or `integrity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// The last receiver's reason; of a dead letter also `visibility_timeout`, `expired` or `integrity`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The last receiver's error text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The time it became a dead letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub died_at: Option<String>,
}

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MessageState {
    /// It can be delivered.
    Ready,
    /// It can be delivered at `visible_at`.
    Delayed,
    /// An older message with its partition key must end first.
    Blocked,
    /// A receiver has it until `visible_at`.
    Leased,
    /// It is a dead letter.
    Dead,
}

impl MessageState {
    /// The state's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Blocked => "blocked",
            Self::Leased => "leased",
            Self::Dead => "dead",
        }
    }
}

operation!(
    /// Throws a message away.
    Mailbox, DeleteMessage: MessageInput => AckOutput,
    name: "mailbox_delete_message",
    method: Method::Delete,
    path: "/v1/messages/{msg_id}",
    tool: Some("mailbox.delete_message"),
    access: Access::Needs(&[Scope::MailboxAdmin]),
    effect: Effect::End,
    summary: "Throw one message away (admin).",
    doc: "Throws away a message that waits or is a dead letter, as mailbox_purge does. While a \
          receiver has it, it is refused with E_LEASED. Repeating it is safe for as long as the \
          replay window. This cannot be undone.",
    refusals: &[Code::NotFound, Code::ELeased],
);

operation!(
    /// Brings a dead letter back.
    Mailbox, RedriveMessage: MessageInput => ReprocessOutput,
    name: "mailbox_redrive_message",
    method: Method::Post,
    path: "/v1/messages/{msg_id}/redrive",
    tool: Some("mailbox.redrive_message"),
    access: Access::Needs(&[Scope::MailboxAdmin]),
    effect: Effect::Add,
    summary: "Bring one dead letter back into its topic (admin).",
    doc: "Moves a dead letter back as mailbox_dlq_reprocess does: same msg_id, attempts counted \
          anew. moved is 1, or 0 if the message is no dead letter, or no longer.",
    refusals: &[Code::NotFound],
);
