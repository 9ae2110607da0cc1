//! `asyncgate revoke` and `asyncgate revocations`.

use asyncgate_client::api::{
    ListRevocations, ListRevocationsInput, RevocationRecord, RevokeInput, SubjectInput,
    UnrevokeInput,
};
use clap::Args;

use crate::{listing::Paging, remote::Common, show::table};

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
#[command(after_help = "Example:\n  asyncgate revocations --all")]
pub struct Revocations {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    common: Common,
}

impl Revocations {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let pages = self.paging.gather(async |cursor, limit| {
            let limit = Some(limit);
            let input = ListRevocationsInput { limit, cursor };
            let page = client.call::<ListRevocations>(&input).await?;
            Ok((page.revocations, page.next_cursor))
        });
        pages.await?.show(&self.common, |found| {
            let row = |record: &RevocationRecord| {
                [
                    record.subject.kind.clone(),
                    record.subject.hash.clone(),
                    record.revoked_at.to_string(),
                    record.reason.clone().unwrap_or_default(),
                ]
            };
            let header = ["KIND", "HASH", "REVOKED", "REASON"];
            table(header, found.iter().map(row).collect())
        })
    }
}
