//! The settings of tenants: quotas of tiers, metering, and whom to bill.

use std::time::Duration;

use asyncgate_core::identity::{QuotaName, Quotas, TenantTier};
use asyncgate_core::outbox::RetryPolicy;
use asyncgate_courier::Address;
use asyncgate_engine::{MeteringSettings, RETRIES, TenantSettings};

use super::Error;
use super::resolve::Entries;
use super::value::Secret;

const DAY_MS: i64 = 86_400_000;

/// The settings of tenants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenants {
    pub quotas: TenantSettings,
    pub metering: MeteringSettings,
    pub billing: Option<Billing>,
    pub retries: RetryPolicy,
}

/// Where usage events are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Billing {
    pub address: Address,
    pub secret: Secret,
    pub patience: Duration,
}

/// The settings of a tier's quotas, and what one of their units is.
type TierKeys = [(QuotaName, &'static str, i64); 4];

const FREE: TierKeys = [
    (
        QuotaName::TasksPerHour,
        "rate_limits.free_tier.tasks_per_hour",
        1,
    ),
    (
        QuotaName::ConcurrentLeases,
        "rate_limits.free_tier.concurrent_leases",
        1,
    ),
    (
        QuotaName::ApiCallsPerHour,
        "rate_limits.free_tier.api_calls_per_hour",
        1,
    ),
    (
        QuotaName::ReceiptStorageBytes,
        "rate_limits.free_tier.receipt_storage_gb",
        1 << 30,
    ),
];
const PAID: TierKeys = [
    (
        QuotaName::TasksPerHour,
        "rate_limits.paid_tier.tasks_per_hour",
        1,
    ),
    (
        QuotaName::ConcurrentLeases,
        "rate_limits.paid_tier.concurrent_leases",
        1,
    ),
    (
        QuotaName::ApiCallsPerHour,
        "rate_limits.paid_tier.api_calls_per_hour",
        1,
    ),
    (
        QuotaName::ReceiptStorageBytes,
        "rate_limits.paid_tier.receipt_storage_gb",
        1 << 30,
    ),
];
const ENTERPRISE: TierKeys = [
    (
        QuotaName::TasksPerHour,
        "rate_limits.enterprise_tier.tasks_per_hour",
        1,
    ),
    (
        QuotaName::ConcurrentLeases,
        "rate_limits.enterprise_tier.concurrent_leases",
        1,
    ),
    (
        QuotaName::ApiCallsPerHour,
        "rate_limits.enterprise_tier.api_calls_per_hour",
        1,
    ),
    (
        QuotaName::ReceiptStorageBytes,
        "rate_limits.enterprise_tier.receipt_storage_gb",
        1 << 30,
    ),
];

impl Tenants {
    pub(super) fn new(from: &Entries) -> Result<Self, Error> {
        let billing = billing(from)?;
        Ok(Self {
            quotas: quotas(from)?,
            metering: MeteringSettings {
                interval: from.seconds("metering.interval_seconds")?,
                keep_ms: DAY_MS * from.number::<i64>("metering.retention_days")?,
                bills: billing.is_some(),
            },
            billing,
            retries: RetryPolicy {
                give_up_after_ms: from.millis("billing.webhook_give_up_after")?.unsigned_abs(),
                ..RETRIES
            },
        })
    }
}

fn quotas(from: &Entries) -> Result<TenantSettings, Error> {
    let default_tier = "security.rate_limiting.default_tier";
    let word = from.word(default_tier)?;
    let of_tier = |tier| match tier {
        TenantTier::Free => tier_quotas(from, FREE),
        TenantTier::Paid => tier_quotas(from, PAID),
        TenantTier::Enterprise => tier_quotas(from, ENTERPRISE),
    };
    Ok(TenantSettings {
        limits_rates: from.read("security.rate_limiting.enabled")?,
        default_tier: word.parse().map_err(|_| Error::Defect(default_tier))?,
        tiers: [
            of_tier(TenantTier::Free)?,
            of_tier(TenantTier::Paid)?,
            of_tier(TenantTier::Enterprise)?,
        ],
    })
}

fn tier_quotas(from: &Entries, keys: TierKeys) -> Result<Quotas, Error> {
    let mut quotas = Quotas::default();
    for (name, key, unit) in keys {
        let number: i64 = from.read(key)?;
        let value = if number < 0 { -1 } else { number * unit };
        let quota = name.read(value);
        let quota = quota.map_err(|_| from.refuse(key, "must be -1 or at least 1"))?;
        quotas = quotas.with(name, quota);
    }
    Ok(quotas)
}

fn billing(from: &Entries) -> Result<Option<Billing>, Error> {
    let url = "billing.webhook_url";
    let Some(address) = from.optional(url)? else {
        return Ok(None);
    };
    let secret: Option<Secret> = from.read("billing.webhook_secret")?;
    // Whoever bills must be able to tell this server from others.
    let unsigned = || from.refuse(url, "needs billing.webhook_secret");
    Ok(Some(Billing {
        address,
        secret: secret.ok_or_else(unsigned)?,
        patience: from.read("billing.webhook_timeout")?,
    }))
}

#[cfg(test)]
mod tests {
    use asyncgate_core::identity::Quota;

    use super::super::tests::{refused, settings};
    use super::*;

    #[test]
    fn the_tiers_are_those_that_are_built_in_unless_the_settings_say_otherwise() {
        let tenants = settings(&[]).tenants;
        assert_eq!(tenants.quotas.default_tier, TenantTier::Free);
        assert!(tenants.quotas.limits_rates && tenants.billing.is_none());
        for tier in TenantTier::ALL {
            let of_settings = tenants.quotas.of_tier(tier);
            for (name, quota) in of_settings.iter() {
                assert_eq!(Quotas::of_tier(tier).get(name), quota, "{tier:?} {name:?}");
            }
        }
        let tenants = settings(&[
            ("rate_limits.free_tier.api_calls_per_hour", "7"),
            ("rate_limits.paid_tier.tasks_per_hour", "-1"),
            ("rate_limits.enterprise_tier.receipt_storage_gb", "2"),
            ("rate_limits.free_tier.concurrent_leases", "0"),
            ("security.rate_limiting.default_tier", "paid"),
            ("security.rate_limiting.enabled", "false"),
        ]);
        let quotas = tenants.tenants.quotas;
        let of = |tier, name| quotas.of_tier(tier).get(name);
        let calls = of(TenantTier::Free, QuotaName::ApiCallsPerHour);
        assert_eq!(calls, Quota::AtMost(7));
        assert_eq!(of(TenantTier::Paid, QuotaName::TasksPerHour), Quota::None);
        let bytes = of(TenantTier::Enterprise, QuotaName::ReceiptStorageBytes);
        assert_eq!(bytes, Quota::AtMost(2 << 30));
        let leases = of(TenantTier::Free, QuotaName::ConcurrentLeases);
        assert_eq!(leases, Quota::AtMost(0));
        assert_eq!(quotas.default_tier, TenantTier::Paid);
        assert!(!quotas.limits_rates);
        let message = refused(&[("rate_limits.free_tier.tasks_per_hour", "0")]);
        assert!(message.contains("must be -1 or at least 1"), "{message}");
    }

    #[test]
    fn usage_is_billed_where_there_is_an_address_and_a_secret() {
        let url = (
            "billing.webhook_url",
            "https://billing.example/hook?token=s3cret",
        );
        let message = refused(&[url]);
        assert!(
            message.contains("needs billing.webhook_secret"),
            "{message}"
        );
        assert!(!message.contains("s3cret"), "{message}");
        let billed = settings(&[url, ("billing.webhook_secret", "shh")]).tenants;
        assert!(billed.metering.bills);
        let billing = billed.billing.unwrap();
        assert_eq!(billing.address.shown(), "https://billing.example/...");
        assert_eq!(billing.patience, Duration::from_secs(10));
        for bad in ["billing.example", "ftp://x/", "https://u:p@x/"] {
            let message = refused(&[("billing.webhook_url", bad)]);
            assert!(message.contains("http"), "{message}");
        }
    }
}
