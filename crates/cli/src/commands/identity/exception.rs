//! `asyncgate tenant throttle` and `asyncgate tenant bypass`: exceptions from a tenant's limits, for a time.

use asyncgate_client::api::{
    ExceptionInput, GrantBypassInput, LimitExceptionRecord, StricterQuotas, ThrottleTenantInput,
};
use asyncgate_core::Timestamp;
use clap::Args;

use super::{seconds, tenant_id};
use crate::{remote::Common, show::fields, wall_clock::now_secs};

/// The arguments of `asyncgate tenant throttle`.
#[derive(Debug, Args)]
pub struct Throttle {
    /// The tenant, by its name or its id.
    tenant: String,
    /// A limit that counts where it is stricter than the usual one: NAME=NUMBER.
    #[arg(long = "quota", value_name = "NAME=NUMBER", value_parser = limit, required_unless_present = "end")]
    quotas: Vec<(String, i64)>,
    #[command(flatten)]
    term: Term,
    #[command(flatten)]
    common: Common,
}

/// The arguments of `asyncgate tenant bypass`.
#[derive(Debug, Args)]
pub struct Bypass {
    /// The tenant, by its name or its id.
    tenant: String,
    #[command(flatten)]
    term: Term,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Term {
    /// How long it counts: seconds, or like 2h or 7d.
    #[arg(long = "for", value_name = "TIME", value_parser = seconds, required_unless_present = "end")]
    length: Option<u64>,
    /// Why; it stands in the audit log.
    #[arg(long, required_unless_present = "end")]
    reason: Option<String>,
    /// End it now.
    #[arg(long, conflicts_with_all = ["length", "reason"])]
    end: bool,
}

impl Term {
    /// Returns the end as the server takes it.
    fn until(&self) -> String {
        let end = now_secs().saturating_add(self.length.unwrap_or_default());
        let millis = i64::try_from(end.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Timestamp::from_millis(millis).to_string()
    }
}

impl Throttle {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let tenant_id = tenant_id(&client, &self.tenant).await?;
        if self.term.end {
            let ended = client.end_throttle(&ExceptionInput { tenant_id }).await?;
            return self
                .common
                .show(&ended, || "The usual limits count.".to_owned());
        }
        let named = self.quotas.iter().cloned();
        let named: serde_json::Map<_, _> =
            named.map(|(name, value)| (name, value.into())).collect();
        let input = ThrottleTenantInput {
            tenant_id,
            until: self.term.until(),
            reason: self.term.reason.unwrap_or_default(),
            quotas: serde_json::from_value(named.into())?,
        };
        let made = client.throttle_tenant(&input).await?;
        self.common.show(&made, || text(&made))
    }
}

impl Bypass {
    pub async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let tenant_id = tenant_id(&client, &self.tenant).await?;
        if self.term.end {
            let ended = client.end_bypass(&ExceptionInput { tenant_id }).await?;
            return self
                .common
                .show(&ended, || "The usual limits count.".to_owned());
        }
        let input = GrantBypassInput {
            tenant_id,
            until: self.term.until(),
            reason: self.term.reason.unwrap_or_default(),
        };
        let made = client.grant_bypass(&input).await?;
        self.common.show(&made, || text(&made))
    }
}

/// Reads a limit, so that a wrong name is told before anything is sent.
fn limit(text: &str) -> Result<(String, i64), String> {
    let wrong = || "must be NAME=NUMBER, such as api_calls_per_hour=100".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let value: i64 = value.parse().map_err(|_| wrong())?;
    let known: Result<StricterQuotas, _> =
        serde_json::from_value(serde_json::json!({ name: value }));
    known.map_err(|_| format!("there is no limit `{name}`"))?;
    Ok((name.to_owned(), value))
}

fn text(made: &LimitExceptionRecord) -> String {
    let quotas = made.quotas.iter();
    let quotas: Vec<_> = quotas
        .map(|(name, most)| format!("{name}={most}"))
        .collect();
    fields([
        ("tenant", Some(made.tenant_id.clone())),
        ("exception", Some(made.kind.clone())),
        ("limits", (!quotas.is_empty()).then(|| quotas.join(" "))),
        ("reason", Some(made.reason.clone())),
        ("until", Some(made.until.clone())),
        ("approved by", Some(made.approved_by.clone())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_known_before_they_are_sent() {
        for (text, expected) in [
            ("api_calls_per_hour=5", Some(("api_calls_per_hour", 5))),
            ("calls=5", None),
            ("api_calls_per_hour", None),
            ("api_calls_per_hour=few", None),
        ] {
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(limit(text).ok(), expected, "{text}");
        }
    }
}
