//! Lists revocations.

use asyncgate_api::{ListRevocations, ListRevocationsOutput, RevocationRecord};
use asyncgate_core::{admission::Subject, hex};

use super::{Execute, Executed, host_fault, subject, unix};
use crate::{Caller, Engine, Fault};

impl Execute for ListRevocations {
    async fn execute(engine: &Engine, caller: &Caller, input: Self::Input) -> Executed<Self> {
        let limit = engine.page_size(input.limit)?;
        let after = input.cursor.as_deref().map(cursor).transpose()?;
        let found = engine
            .host
            .revocations(caller.tenant, engine.now(), after, limit + 1)
            .await
            .map_err(host_fault)?;
        let more = found.len() > limit;
        let page = &found[..found.len().min(limit)];
        let last = page.last().map(|revocation| revocation.subject.to_string());
        Ok(ListRevocationsOutput {
            revocations: page
                .iter()
                .map(|revocation| RevocationRecord {
                    subject: subject::show(revocation.subject),
                    reason: revocation.reason.clone(),
                    revoked_at: unix(revocation.revoked_at),
                })
                .collect(),
            next_cursor: last.filter(|_| more),
        })
    }
}

/// Reads the subject that the page before ended with.
fn cursor(text: &str) -> Result<Subject, Fault> {
    let wrong = || Fault::bad_request("cursor is not one that was given").with("field", "cursor");
    let (kind, hash) = text.split_once('/').ok_or_else(wrong)?;
    Ok(Subject {
        kind: kind.parse().map_err(|_| wrong())?,
        hash: hex::decode(hash).ok_or_else(wrong)?,
    })
}
