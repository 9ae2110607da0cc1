//! `asyncgate revoke` and `asyncgate revocations`.

use asyncgate_client::api::{
    ListRevocationsInput, RevocationRecord, RevokeInput, SubjectInput, UnrevokeInput,
};
use clap::Args;
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::{remote::Common, show::table};

#[derive(Debug, Args)]
pub struct Revoke {
    /// What it is: warrant_id, issuer_key or holder_key.
    kind: String,
    /// The warrant's id or the key; its hash with --hash or --undo.
    value: String,
    /// The value is the SHA-256 of the id or key.
    #[arg(long)]
    hash: bool,
    /// Why.
    #[arg(long)]
    reason: Option<String>,
    /// Take the revocation back.
    #[arg(long, conflicts_with = "reason")]
    undo: bool,
    #[command(flatten)]
    common: Common,
}

impl Revoke {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        if self.undo {
            let input = UnrevokeInput {
                kind: self.kind,
                hash: self.value,
            };
            let answer = client.unrevoke(&input).await?;
            return self.common.show(&answer, || "taken back".to_owned());
        }
        let value = Some(self.value);
        let is_id = self.kind == "warrant_id";
        let (hash, id, key) = match (self.hash, is_id) {
            (true, _) => (value, None, None),
            (false, true) => (None, value, None),
            (false, false) => (None, None, value),
        };
        let subject = SubjectInput {
            kind: self.kind,
            hash,
            id,
            key,
        };
        let reason = self.reason;
        let answer = client.revoke(&RevokeInput { subject, reason }).await?;
        self.common.show(&answer, || {
            let before = if answer.created {
                ""
            } else {
                "  (was revoked before)"
            };
            format!("{}/{}{before}", answer.subject.kind, answer.subject.hash)
        })
    }
}

#[derive(Debug, Args)]
pub struct Revocations {
    /// The most to print.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    common: Common,
}

impl Revocations {
    pub async fn run(self) -> anyhow::Result<()> {
        let input = ListRevocationsInput {
            limit: Some(self.limit.clamp(1, 200) as u32),
            cursor: None,
        };
        let found = self.common.client()?.revocations(input);
        let found: Vec<RevocationRecord> = found.take(self.limit).try_collect().await?;
        self.common.show(&found, || {
            let row = |record: &RevocationRecord| {
                [
                    record.subject.kind.clone(),
                    record.subject.hash.clone(),
                    record.revoked_at.to_string(),
                    // A caller wrote this: its control characters must not reach the terminal.
                    record.reason.as_ref().map_or_else(String::new, |reason| {
                        reason.chars().filter(|sign| !sign.is_control()).collect()
                    }),
                ]
            };
            let header = ["KIND", "HASH", "REVOKED", "REASON"];
            table(header, found.iter().map(row).collect())
        })
    }
}
