//! Settings of tenants: what they may use, and who is told what they used.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{DAY, DAY_MS, integer, live};

/// A number of things in an hour; -1 means any number.
const HOURLY: Rule = integer(-1, 1_000_000_000);
/// A number of leases; -1 means any number.
const LEASES: Rule = integer(-1, 1_000_000_000);
/// A number of gigabytes; -1 means any number.
const GIGABYTES: Rule = integer(-1, 8_388_607);

pub(super) static KEYS: &[Key] = &[
    live(
        "security.rate_limiting.enabled",
        "true",
        Rule::Switch,
        "Limits what tenants do in an hour by their quotas; without it only the other quotas count.",
    ),
    live(
        "security.rate_limiting.default_tier",
        "free",
        Rule::OneOf(&["free", "paid", "enterprise"]),
        "The tier of a tenant that is made without one.",
    ),
    live(
        "rate_limits.free_tier.tasks_per_hour",
        "100",
        HOURLY,
        "The tasks that a tenant of the tier free may create in an hour, or -1.",
    ),
    live(
        "rate_limits.free_tier.concurrent_leases",
        "10",
        LEASES,
        "The leases that a tenant of the tier free may hold at one time, or -1.",
    ),
    live(
        "rate_limits.free_tier.api_calls_per_hour",
        "1000",
        HOURLY,
        "The calls that a tenant of the tier free may make in an hour, or -1.",
    ),
    live(
        "rate_limits.free_tier.receipt_storage_gb",
        "1",
        GIGABYTES,
        "The gigabytes of receipts that a tenant of the tier free may have, or -1.",
    ),
    live(
        "rate_limits.paid_tier.tasks_per_hour",
        "10000",
        HOURLY,
        "The tasks that a tenant of the tier paid may create in an hour, or -1.",
    ),
    live(
        "rate_limits.paid_tier.concurrent_leases",
        "100",
        LEASES,
        "The leases that a tenant of the tier paid may hold at one time, or -1.",
    ),
    live(
        "rate_limits.paid_tier.api_calls_per_hour",
        "100000",
        HOURLY,
        "The calls that a tenant of the tier paid may make in an hour, or -1.",
    ),
    live(
        "rate_limits.paid_tier.receipt_storage_gb",
        "10",
        GIGABYTES,
        "The gigabytes of receipts that a tenant of the tier paid may have, or -1.",
    ),
    live(
        "rate_limits.enterprise_tier.tasks_per_hour",
        "-1",
        HOURLY,
        "The tasks that a tenant of the tier enterprise may create in an hour, or -1.",
    ),
    live(
        "rate_limits.enterprise_tier.concurrent_leases",
        "-1",
        LEASES,
        "The leases that a tenant of the tier enterprise may hold at one time, or -1.",
    ),
    live(
        "rate_limits.enterprise_tier.api_calls_per_hour",
        "-1",
        HOURLY,
        "The calls that a tenant of the tier enterprise may make in an hour, or -1.",
    ),
    live(
        "rate_limits.enterprise_tier.receipt_storage_gb",
        "-1",
        GIGABYTES,
        "The gigabytes of receipts that a tenant of the tier enterprise may have, or -1.",
    ),
    live(
        "metering.interval_seconds",
        "300",
        integer(1, DAY),
        "The time between two looks at what tenants used, each of which becomes a usage event.",
    ),
    live(
        "metering.retention_days",
        "400",
        integer(1, 36_500),
        "The days for which usage events are kept.",
    ),
    live(
        "billing.webhook_url",
        "",
        Rule::Optional(&Rule::Webhook),
        "The address to which usage events are sent, signed with billing.webhook_secret.",
    ),
    live(
        "billing.webhook_secret",
        "",
        Rule::Secret,
        "The secret that signs usage events, by HMAC-SHA256 in the header X-Signature-256.",
    ),
    live(
        "billing.webhook_timeout",
        "10s",
        Rule::Duration {
            min_ms: 100,
            max_ms: 30_000,
        },
        "The longest time that one try to send a usage event may take.",
    ),
    live(
        "billing.webhook_give_up_after",
        "3d",
        Rule::Duration {
            min_ms: 60_000,
            max_ms: 90 * DAY_MS,
        },
        "The age at which a usage event is not sent any more; it is kept and counted as dead.",
    ),
];
