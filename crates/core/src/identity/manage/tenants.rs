//! Tenants: created, changed, suspended.

use super::{Actor, Managed, decided, must_be_free, the_tenant, unchanged};
use crate::{
    Env, TenantId,
    identity::{
        Quota, QuotaName, Quotas, Record, Rejection, TenantRecord, TenantTier, audit::Event,
    },
};

/// The word that stands for the server's own log where a tenant is named.
pub const NO_TENANT: &str = "none";

/// The wish for a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTenant {
    /// Its name. No other tenant may have it.
    pub name: String,
    /// Its tier.
    pub tier: TenantTier,
    /// The quotas that it is given by name.
    pub quotas: Quotas,
}

/// A change of a tenant. What is absent stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantChange {
    /// The new tier.
    pub tier: Option<TenantTier>,
    /// Quotas to set, or to take back so that those of the tier count again.
    pub quotas: Vec<(QuotaName, Option<Quota>)>,
    /// Whether it is to be suspended.
    pub suspended: Option<bool>,
}

/// Makes a tenant. `taken` is the tenant that has its name already.
pub fn create(
    actor: &Actor,
    env: &mut Env,
    taken: Option<&Record>,
    new: NewTenant,
) -> Managed<TenantRecord> {
    actor.must_be_platform_admin()?;
    // A tenant can be named by its name or its id wherever settings name one, so a name must not look like an
    // id.
    if new.name == NO_TENANT || new.name.parse::<TenantId>().is_ok() {
        return Err(Rejection::UnfitName);
    }
    must_be_free(taken)?;
    let tenant = TenantRecord {
        id: TenantId::from_bytes(*env.ids.record().as_bytes()),
        name: new.name,
        tier: new.tier,
        own_quotas: new.quotas,
        suspended_at: None,
        exception: None,
        created_at: env.now,
    };
    let details = [
        ("name", tenant.name.as_str()),
        ("tier", tenant.tier.as_str()),
    ];
    let audit = actor.tell(env, tenant.id, Event::TenantCreated, &details);
    let put = vec![Record::Tenant(tenant.clone())];
    Ok(decided(tenant, put, audit))
}

/// Changes a tenant.
pub fn change(
    actor: &Actor,
    env: &mut Env,
    found: Option<&Record>,
    change: &TenantChange,
) -> Managed<TenantRecord> {
    actor.must_be_platform_admin()?;
    let before = the_tenant(found)?;
    // Whoever suspends its own tenant could not take it back.
    if before.id == actor.tenant && change.suspended == Some(true) {
        return Err(Rejection::OwnTenant);
    }
    let suspended = change.suspended.unwrap_or(before.suspended_at.is_some());
    let quotas = change.quotas.iter();
    let after = TenantRecord {
        tier: change.tier.unwrap_or(before.tier),
        own_quotas: quotas.fold(before.own_quotas, |quotas, (name, quota)| match quota {
            Some(quota) => quotas.with(*name, *quota),
            None => quotas.without(*name),
        }),
        suspended_at: before.tenant().suspended(suspended, env.now).suspended_at,
        ..before.clone()
    };
    if after == *before {
        return Ok(unchanged(after));
    }
    let details = Differences::between(before, &after);
    let audit = actor.tell(env, after.id, Event::TenantChanged, &details.as_pairs());
    let put = vec![Record::Tenant(after.clone())];
    Ok(decided(after, put, audit))
}

/// The parts of a tenant that changed, as the audit log tells of them.
struct Differences(Vec<(&'static str, String)>);

impl Differences {
    fn between(before: &TenantRecord, after: &TenantRecord) -> Self {
        let mut parts = Vec::new();
        if before.tier != after.tier {
            let (from, to) = (before.tier.as_str(), after.tier.as_str());
            parts.push(("tier", format!("{from} to {to}")));
        }
        if before.suspended_at.is_some() != after.suspended_at.is_some() {
            let suspended = after.suspended_at.is_some();
            parts.push(("suspended", suspended.to_string()));
        }
        for name in QuotaName::ALL {
            let (from, to) = (
                before.own_quotas.set_value(name),
                after.own_quotas.set_value(name),
            );
            if from != to {
                parts.push((name.as_str(), format!("{} to {}", shown(from), shown(to))));
            }
        }
        Self(parts)
    }

    fn as_pairs(&self) -> Vec<(&str, &str)> {
        let parts = self.0.iter();
        parts.map(|(name, value)| (*name, value.as_str())).collect()
    }
}

/// Writes a quota of a tenant's own, or that it has none of its own.
fn shown(quota: Option<Quota>) -> String {
    match quota {
        Some(quota) => quota.as_number().to_string(),
        None => "that of the tier".to_owned(),
    }
}
