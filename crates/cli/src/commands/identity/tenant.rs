//! `asyncgate tenant`: tenants, their tiers and quotas.

use asyncgate_client::api::{
    ChangeTenantInput, CreateTenantInput, ListTenants, ListTenantsInput, QuotaChanges, Quotas,
    TenantInput, TenantRecord,
};
use clap::{Args, Subcommand};

use super::{
    exception::{Bypass, Throttle},
    tenant_id,
};
use crate::{
    listing::{Paging, Quiet},
    remote::Common,
    show::{Cell, Style, fields, table},
};

/// The subcommands of `asyncgate tenant`.
#[derive(Debug, Subcommand)]
pub enum Tenant {
    /// Make a tenant (platform admin).
    #[command(after_help = "\
Examples:
  asyncgate tenant create acme --tier paid
  asyncgate tenant create trial --quota active_tasks=10 --quota tasks_per_hour=50
  asyncgate key create --tenant acme --role admin --principal human/ada")]
    Create(Create),
    /// List tenants (platform admin).
    #[command(after_help = "Example:\n  asyncgate tenant list --all")]
    List(List),
    /// Show a tenant with its quotas.
    #[command(after_help = "Example:\n  asyncgate tenant show acme")]
    Show(One),
    /// Change a tenant's tier or quotas (platform admin).
    #[command(after_help = "\
Examples:
  asyncgate tenant change acme --tier enterprise
  asyncgate tenant change acme --quota concurrent_leases=-1      no bound
  asyncgate tenant change acme --quota concurrent_leases=tier    that of the tier again")]
    Change(Change),
    /// Refuse all credentials of a tenant (platform admin).
    #[command(after_help = "Example:\n  asyncgate tenant suspend acme")]
    Suspend(One),
    /// Let a suspended tenant in again (platform admin).
    #[command(after_help = "Example:\n  asyncgate tenant resume acme")]
    Resume(One),
    /// Make a tenant's limits stricter for a time, to slow an abuse down (platform admin).
    #[command(after_help = "\
Examples:
  asyncgate tenant throttle acme --quota api_calls_per_hour=100 --for 2h --reason 'a loop in their agent'
  asyncgate tenant throttle acme --end")]
    Throttle(Throttle),
    /// Lift a tenant's hourly limits for a time (platform admin).
    #[command(after_help = "\
Examples:
  asyncgate tenant bypass acme --for 7d --reason 'contract, clause 3.2'
  asyncgate tenant bypass acme --end")]
    Bypass(Bypass),
}

#[derive(Debug, Args)]
pub struct Create {
    /// Its name. No other tenant may have it.
    name: String,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Terms {
    /// Its tier: free, paid or enterprise.
    #[arg(long, value_parser = ["free", "paid", "enterprise"])]
    tier: Option<String>,
    /// A quota of its own: NAME=NUMBER, -1 for none, `tier` for that of the tier.
    #[arg(long = "quota", value_name = "NAME=NUMBER", value_parser = quota)]
    quotas: Vec<(String, Option<i64>)>,
}

#[derive(Debug, Args)]
pub struct List {
    #[command(flatten)]
    paging: Paging,
    #[command(flatten)]
    quiet: Quiet,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct One {
    /// The tenant, by its name or its id.
    tenant: String,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub struct Change {
    /// The tenant, by its name or its id.
    tenant: String,
    #[command(flatten)]
    terms: Terms,
    #[command(flatten)]
    common: Common,
}

impl Tenant {
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Create(args) => args.run().await,
            Self::List(args) => args.run().await,
            Self::Show(args) => args.show().await,
            Self::Change(args) => args.run().await,
            Self::Suspend(args) => args.suspend(true).await,
            Self::Resume(args) => args.suspend(false).await,
            Self::Throttle(args) => args.run().await,
            Self::Bypass(args) => args.run().await,
        }
    }
}

impl Create {
    async fn run(self) -> anyhow::Result<()> {
        let input = CreateTenantInput {
            name: self.name,
            quotas: self.terms.quotas()?,
            tier: self.terms.tier,
        };
        let made = self.common.client()?.create_tenant(&input).await?;
        self.common.show(&made, || text(&made))
    }
}

impl List {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let pages = self.paging.gather(async |cursor, limit| {
            let limit = Some(limit);
            let input = ListTenantsInput { limit, cursor };
            let page = client.call::<ListTenants>(&input).await?;
            Ok((page.tenants, page.next_cursor))
        });
        let id = |tenant: &TenantRecord| tenant.tenant_id.clone();
        let listed = pages.await?;
        listed.show_or_ids(&self.common, self.quiet, id, |tenants| {
            let row = |tenant: &TenantRecord| -> [Cell; 5] {
                [
                    tenant.tenant_id.as_str().into(),
                    tenant.name.as_str().into(),
                    tenant.tier.as_str().into(),
                    standing(tenant),
                    tenant.created_at.as_str().into(),
                ]
            };
            let header = ["TENANT", "NAME", "TIER", "STANDING", "CREATED"];
            table(header, tenants.iter().map(row).collect())
        })
    }
}

impl One {
    async fn show(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = TenantInput {
            tenant_id: tenant_id(&client, &self.tenant).await?,
        };
        let found = client.get_tenant(&input).await?;
        self.common.show(&found, || text(&found))
    }

    async fn suspend(self, suspended: bool) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = ChangeTenantInput {
            tenant_id: tenant_id(&client, &self.tenant).await?,
            suspended: Some(suspended),
            ..ChangeTenantInput::default()
        };
        let changed = client.change_tenant(&input).await?;
        self.common.show(&changed, || text(&changed))
    }
}

impl Change {
    async fn run(self) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let input = ChangeTenantInput {
            tenant_id: tenant_id(&client, &self.tenant).await?,
            quotas: self.terms.quotas()?,
            tier: self.terms.tier,
            suspended: None,
        };
        let changed = client.change_tenant(&input).await?;
        self.common.show(&changed, || text(&changed))
    }
}

impl Terms {
    /// Returns the quotas that were named, as the server takes them.
    fn quotas(&self) -> anyhow::Result<Option<QuotaChanges>> {
        if self.quotas.is_empty() {
            return Ok(None);
        }
        let named = self.quotas.iter().cloned();
        let named: serde_json::Map<_, _> =
            named.map(|(name, value)| (name, value.into())).collect();
        Ok(Some(serde_json::from_value(named.into())?))
    }
}

/// Reads a quota, so that a wrong name is told before anything is sent.
fn quota(text: &str) -> Result<(String, Option<i64>), String> {
    let wrong = || "must be NAME=NUMBER, such as active_tasks=100".to_owned();
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let value: Option<i64> = match value {
        "tier" => None,
        number => Some(number.parse().map_err(|_| wrong())?),
    };
    let one = serde_json::json!({ name: value });
    let known: Result<QuotaChanges, _> = serde_json::from_value(one);
    known.map_err(|_| format!("there is no quota `{name}`"))?;
    Ok((name.to_owned(), value))
}

fn standing(tenant: &TenantRecord) -> Cell {
    match tenant.suspended {
        true => Cell::new(Style::Red, "suspended"),
        false => Cell::new(Style::Green, "active"),
    }
}

fn text(tenant: &TenantRecord) -> String {
    let bound = |bound: i64| match bound {
        -1 => "no bound".to_owned(),
        bound => bound.to_string(),
    };
    let Quotas {
        active_tasks,
        payload_bytes,
        concurrent_leases,
        lease_ttl_secs,
        tasks_per_hour,
        api_calls_per_hour,
        principal_api_calls_per_hour,
        receipt_storage_bytes,
        receipts_per_task,
    } = &tenant.quotas;
    let quota = |value: &i64| Some(Cell::from(bound(*value)));
    fields([
        ("tenant", Some(tenant.tenant_id.as_str().into())),
        ("name", Some(tenant.name.as_str().into())),
        ("tier", Some(tenant.tier.as_str().into())),
        ("standing", Some(standing(tenant))),
        ("created", Some(tenant.created_at.as_str().into())),
        ("active_tasks", quota(active_tasks)),
        ("payload_bytes", quota(payload_bytes)),
        ("concurrent_leases", quota(concurrent_leases)),
        ("lease_ttl_secs", quota(lease_ttl_secs)),
        ("tasks_per_hour", quota(tasks_per_hour)),
        ("api_calls_per_hour", quota(api_calls_per_hour)),
        (
            "principal_api_calls_per_hour",
            quota(principal_api_calls_per_hour),
        ),
        ("receipt_storage_bytes", quota(receipt_storage_bytes)),
        ("receipts_per_task", quota(receipts_per_task)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_known_before_they_are_sent() {
        for (text, expected) in [
            ("active_tasks=5", Some(("active_tasks", Some(5)))),
            ("active_tasks=-1", Some(("active_tasks", Some(-1)))),
            ("tasks_per_hour=tier", Some(("tasks_per_hour", None))),
            ("tasks=5", None),
            ("active_tasks", None),
            ("active_tasks=many", None),
        ] {
            let read = quota(text).ok();
            let expected = expected.map(|(name, value)| (name.to_owned(), value));
            assert_eq!(read, expected, "{text}");
        }
        let terms = Terms {
            tier: None,
            quotas: vec![
                quota("active_tasks=5").unwrap(),
                quota("lease_ttl_secs=tier").unwrap(),
            ],
        };
        let sent = serde_json::to_value(terms.quotas().unwrap()).unwrap();
        let expected = serde_json::json!({"active_tasks": 5, "lease_ttl_secs": null});
        assert_eq!(sent, expected);
    }
}
