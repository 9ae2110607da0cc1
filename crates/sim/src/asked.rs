//! What a call asked for, read from the same input that the engine was given.

use std::{collections::BTreeMap, sync::LazyLock};

use asyncgate_api::{IdempotencyMode, Payload};
use asyncgate_core::{PrincipalKind, Timestamp};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::step::Op;

/// What the model looks at in the inputs that simulated clients send.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    /// A field that no operation knows: such a call must be refused.
    pub odd: Option<u32>,
    pub task_id: Option<String>,
    pub lease_id: Option<String>,
    pub receipt_id: Option<String>,
    pub receipt_type: Option<String>,
    pub since_receipt_id: Option<String>,
    pub principal_kind: Option<String>,
    pub principal_id: Option<String>,
    pub worker_id: Option<String>,
    #[serde(rename = "type")]
    pub task_type: Option<String>,
    pub payload: Option<Box<RawValue>>,
    pub requirements: Option<Required>,
    pub idempotency_key: Option<String>,
    pub status: Option<String>,
    pub cursor: Option<String>,
    pub limit: Option<usize>,
    pub max_items: Option<usize>,
    pub capabilities: Option<Vec<String>>,
    pub accept_types: Option<Vec<String>>,
    pub max_tasks: Option<usize>,
    pub lease_ttl_seconds: Option<i64>,
    pub extend_by_seconds: Option<i64>,
    pub progress: Option<Box<RawValue>>,
    pub result: Option<Box<RawValue>>,
    pub artifacts: Option<Box<RawValue>>,
    pub delivery_proof: Option<Box<RawValue>>,
    pub error: Option<Box<RawValue>>,
    pub retryable: bool,
    #[serde(skip)]
    mail: Option<Box<AskedMail>>,
}

/// What the model looks at in calls of the mailbox.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AskedMail {
    pub topic: Option<String>,
    pub idem_key: String,
    pub payload_b64: Payload,
    pub attrs: BTreeMap<String, String>,
    pub partition_key: Option<String>,
    pub delay_ms: Option<i64>,
    pub ttl_ms: Option<i64>,
    pub priority: i32,
    pub idempotency_mode: IdempotencyMode,
    pub messages: Vec<AskedMail>,
    pub msg_id: String,
    pub lease: Option<String>,
    pub reason: Option<String>,
    pub error: Option<String>,
    pub acks: Vec<AskedMail>,
    pub visibility_ms: Option<i64>,
    pub max_messages: Option<usize>,
    pub max_bytes: Option<usize>,
    pub state: String,
    pub cursor: Option<String>,
    pub limit: Option<usize>,
    pub older_than_secs: Option<i64>,
    pub dry_run: bool,
    odd: Option<u32>,
}

/// What a task requires of its worker.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Required {
    pub capabilities: Vec<String>,
    pub tags: Vec<String>,
}

impl Asked {
    /// Reads an input; one that cannot be read asks for nothing.
    pub fn read(op: Op, input: &str) -> Self {
        if !op.is_mail() {
            return serde_json::from_str(input).unwrap_or_default();
        }
        let mail: Box<AskedMail> = serde_json::from_str(input).unwrap_or_default();
        Self {
            odd: mail.odd,
            mail: Some(mail),
            ..Self::default()
        }
    }

    /// What is asked of the mailbox.
    pub fn mail(&self) -> &AskedMail {
        static NOTHING: LazyLock<AskedMail> = LazyLock::new(AskedMail::default);
        self.mail.as_deref().unwrap_or(&NOTHING)
    }

    /// The principal kind that is named.
    pub fn kind(&self) -> Option<PrincipalKind> {
        self.principal_kind.as_ref()?.parse().ok()
    }

    /// Whether a success says where its result is.
    pub fn is_locatable(&self) -> bool {
        [&self.artifacts, &self.delivery_proof]
            .into_iter()
            .flatten()
            .any(|proof| {
                proof.get().starts_with(['[', '{']) && !["[]", "{}"].contains(&proof.get())
            })
    }

    /// The end of a lease that is asked for at `now`.
    pub fn lease_end(&self, now: Timestamp, seconds: Option<i64>) -> Timestamp {
        now.plus_millis(seconds.map_or(300_000, |seconds| (seconds * 1_000).min(1_800_000)))
    }
}

/// The length of a value as it was sent.
pub fn size(value: Option<&RawValue>) -> usize {
    value.map_or(0, |value| value.get().len())
}
