//! What tenants use, and exceptions from what they may use.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Access, Code, Effect, Method, Scope, operation::operation};

/// The largest quota.
const MAX_QUOTA: i64 = (1 << 53) - 1;
/// The largest quota of something in an hour.
const MAX_HOURLY_QUOTA: i64 = 1_000_000_000;

/// Those who may see what a tenant uses.
const READERS: &[Scope] = &[Scope::AdminRead, Scope::PlatformAdmin];
/// Those who may make exceptions.
const PLATFORM: &[Scope] = &[Scope::PlatformAdmin];

operation!(
    /// Tells what a tenant uses now.
    Identity, GetUsage: UsageInput => TenantUsage,
    name: "get_usage",
    method: Method::Get,
    path: "/v1/admin/usage",
    access: Access::Needs(READERS),
    effect: Effect::Read,
    summary: "Tell what a tenant uses, and what it may use (admin).",
    doc: "Counted live, except that calls on other servers are known once they are metered. A platform admin may \
          name another tenant.",
    refusals: &[Code::NotFound],
);

/// A tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UsageInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
}

/// What a tenant uses, and what it may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantUsage {
    /// The tenant.
    pub tenant_id: String,
    /// What it uses.
    pub usage: UsageCounts,
    /// The quotas that count now, by name; -1 means that there is no bound.
    pub quotas: BTreeMap<String, i64>,
    /// The exception from its usual quotas that counts now, if there is one.
    pub exception: Option<LimitExceptionRecord>,
}

/// Counts of what a tenant uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsageCounts {
    /// Tasks that have not ended.
    pub active_tasks: u64,
    /// Leases that are held.
    pub concurrent_leases: u64,
    /// Bytes of all receipts.
    pub receipt_storage_bytes: u64,
    /// Tasks that were ever created.
    pub tasks_created: u64,
    /// Calls that were ever made and not refused by a limit.
    pub api_calls: u64,
    /// The time for which leases were held, those that are held now included.
    pub lease_seconds: u64,
}

operation!(
    /// Lists what a tenant used.
    Identity, ListUsageEvents: ListUsageEventsInput => ListUsageEventsOutput,
    name: "list_usage_events",
    method: Method::Get,
    path: "/v1/admin/usage/events",
    access: Access::Needs(READERS),
    effect: Effect::Read,
    pages: true,
    summary: "List what a tenant used, from one metering to the next (admin).",
    doc: "Newest first. Tenants are metered every few minutes; one that used nothing has no event for that time. A \
          platform admin may name another tenant.",
    refusals: &[Code::NotFound],
);

/// A page of usage events.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListUsageEventsInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(regex(pattern = "^[1-9][0-9]{0,12}$"))]
    pub cursor: Option<String>,
}

/// Usage events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListUsageEventsOutput {
    /// The events, newest first.
    pub events: Vec<UsageEventRecord>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// What a tenant used in a time. The same object is sent to whoever bills.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UsageEvent")]
pub struct UsageEventRecord {
    /// The event's id. Whoever gets an event twice knows it by this.
    pub usage_event_id: String,
    /// The tenant.
    pub tenant_id: String,
    /// The number of the event among those of its tenant, from 1 without gaps.
    pub seq: u64,
    /// The end of the event before; null for the first, which counts from the tenant's beginning.
    pub since: Option<String>,
    /// The end of its time.
    pub until: String,
    /// What was used since the event before.
    pub used: UsedAmounts,
    /// What was used up to its end.
    pub total: UsedAmounts,
}

/// Amounts of what was used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UsedAmounts {
    /// Tasks that were created.
    pub tasks_created: u64,
    /// The time for which leases were held.
    pub lease_seconds: u64,
    /// Bytes of receipts, each times the seconds for which it was kept.
    pub receipt_byte_seconds: u64,
    /// Calls that were made and not refused by a limit.
    pub api_calls: u64,
}

/// An exception from the usual quotas of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "LimitException")]
pub struct LimitExceptionRecord {
    /// The tenant.
    pub tenant_id: String,
    /// `bypass` if its hourly limits do not count, `throttle` if its limits are stricter.
    pub kind: String,
    /// The stricter limits of a throttle, by name.
    pub quotas: BTreeMap<String, i64>,
    /// Why it was made.
    pub reason: String,
    /// The time at which it was made.
    pub since: String,
    /// The time at which it ends.
    pub until: String,
    /// Who made it: the kind and id of a principal.
    pub approved_by: String,
}

operation!(
    /// Lifts the hourly limits of a tenant for a time.
    Identity, GrantBypass: GrantBypassInput => LimitExceptionRecord,
    name: "grant_bypass",
    method: Method::Put,
    path: "/v1/admin/tenants/{tenant_id}/bypass",
    access: Access::Needs(PLATFORM),
    effect: Effect::Advance,
    summary: "Lift the hourly limits of a tenant for a time (platform admin).",
    doc: "Counts at once on this server and within 30 seconds on others, and ends by itself. It takes the place of any \
          other exception of the tenant. Quotas that are not by the hour still count.",
    refusals: &[Code::NotFound],
);

/// An exception for a tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantBypassInput {
    /// The tenant's id.
    pub tenant_id: String,
    /// The reason, 1 to 4,096 bytes. It stands in the audit log.
    #[schemars(length(min = 1))]
    pub reason: String,
    /// The end in RFC 3339.
    pub until: String,
}

operation!(
    /// Ends a bypass.
    Identity, EndBypass: ExceptionInput => EndedException,
    name: "end_bypass",
    method: Method::Delete,
    path: "/v1/admin/tenants/{tenant_id}/bypass",
    access: Access::Needs(PLATFORM),
    effect: Effect::Advance,
    summary: "End the bypass of a tenant (platform admin).",
    doc: "Its hourly limits count again. A tenant without a bypass is left as it is.",
    refusals: &[Code::NotFound],
);

operation!(
    /// Makes the limits of a tenant stricter for a time.
    Identity, ThrottleTenant: ThrottleTenantInput => LimitExceptionRecord,
    name: "throttle_tenant",
    method: Method::Put,
    path: "/v1/admin/tenants/{tenant_id}/throttle",
    access: Access::Needs(PLATFORM),
    effect: Effect::End,
    summary: "Make the limits of a tenant stricter for a time (platform admin).",
    doc: "For an abuse that must be slowed down. The named quotas count where they are stricter than the usual ones, at \
          once on this server and within 30 seconds on others. It takes the place of any other exception of the tenant.",
    refusals: &[Code::NotFound],
);

/// Stricter limits for a tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ThrottleTenantInput {
    /// The tenant's id.
    pub tenant_id: String,
    /// The reason, 1 to 4,096 bytes. It stands in the audit log.
    #[schemars(length(min = 1))]
    pub reason: String,
    /// The end in RFC 3339.
    pub until: String,
    /// The stricter limits.
    pub quotas: StricterQuotas,
}

/// Limits that count where they are stricter than the usual ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StricterQuotas {
    /// Tasks that have not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_QUOTA))]
    pub active_tasks: Option<i64>,
    /// Leases held at one time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = MAX_QUOTA))]
    pub concurrent_leases: Option<i64>,
    /// Tasks created in an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_HOURLY_QUOTA))]
    pub tasks_per_hour: Option<i64>,
    /// Calls in an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_HOURLY_QUOTA))]
    pub api_calls_per_hour: Option<i64>,
    /// Calls of one principal in an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_HOURLY_QUOTA))]
    pub principal_api_calls_per_hour: Option<i64>,
}

operation!(
    /// Ends a throttle.
    Identity, EndThrottle: ExceptionInput => EndedException,
    name: "end_throttle",
    method: Method::Delete,
    path: "/v1/admin/tenants/{tenant_id}/throttle",
    access: Access::Needs(PLATFORM),
    effect: Effect::Advance,
    summary: "End the throttle of a tenant (platform admin).",
    doc: "Its usual limits count again. A tenant without a throttle is left as it is.",
    refusals: &[Code::NotFound],
);

/// A tenant whose exception ends.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExceptionInput {
    /// The tenant's id.
    pub tenant_id: String,
}

/// The end of an exception.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndedException {
    /// The tenant.
    pub tenant_id: String,
    /// True if there was something to end.
    pub ended: bool,
}
