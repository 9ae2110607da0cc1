//! Tenants.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use super::{PLATFORM, READERS};
use crate::{Access, Code, Effect, Method, bounds, forms, operation::operation};

operation!(
    /// Makes a tenant.
    Identity, CreateTenant: CreateTenantInput => TenantRecord,
    name: "create_tenant",
    method: Method::Post,
    path: "/v1/admin/tenants",
    access: Access::Needs(PLATFORM),
    effect: Effect::Add,
    creates: true,
    summary: "Make a tenant (platform admin).",
    doc: "No two tenants have one name. Quotas that are not named are those of the tier.",
    refusals: &[Code::Conflict],
);

/// The wish for a tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateTenantInput {
    /// Its name, 1 to 256 bytes; not `none`, and no UUID.
    #[schemars(length(min = 1, max = bounds::MAX_NAME_BYTES), regex(pattern = forms::VISIBLE))]
    pub name: String,
    /// `free`, `paid` or `enterprise`. Default: that of the settings.
    #[serde(default)]
    #[schemars(with = "Option<forms::TenantTierName>")]
    pub tier: Option<String>,
    /// Quotas of its own.
    #[serde(default)]
    pub quotas: Option<QuotaChanges>,
}

/// A tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tenant")]
pub struct TenantRecord {
    /// Its id.
    pub tenant_id: String,
    /// Its name.
    pub name: String,
    /// Its tier.
    pub tier: String,
    /// The quotas that count: its own, and those of its tier.
    pub quotas: Quotas,
    /// The time at which it was made.
    pub created_at: String,
    /// True if its credentials are refused.
    pub suspended: bool,
}

/// What a tenant may use; -1 means that there is no bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Quotas {
    /// Tasks that have not ended.
    pub active_tasks: i64,
    /// Bytes of one payload.
    pub payload_bytes: i64,
    /// Leases held at one time.
    pub concurrent_leases: i64,
    /// The longest lease in seconds.
    pub lease_ttl_secs: i64,
    /// Tasks created in an hour.
    pub tasks_per_hour: i64,
    /// Calls in an hour.
    pub api_calls_per_hour: i64,
    /// Calls of one principal in an hour.
    pub principal_api_calls_per_hour: i64,
    /// Bytes of all receipts.
    pub receipt_storage_bytes: i64,
    /// Receipts of one task.
    pub receipts_per_task: i64,
}

/// Quotas of a tenant's own. -1 means that there is no bound, null takes a value back so that the tier's counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaChanges {
    /// Tasks that have not ended.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::Bound<0>")]
    pub active_tasks: Option<Option<i64>>,
    /// Bytes of one payload.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::Bound<1>")]
    pub payload_bytes: Option<Option<i64>>,
    /// Leases held at one time.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::Bound<0>")]
    pub concurrent_leases: Option<Option<i64>>,
    /// The longest lease in seconds.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::Bound<1>")]
    pub lease_ttl_secs: Option<Option<i64>>,
    /// Tasks created in an hour.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::HourlyBound")]
    pub tasks_per_hour: Option<Option<i64>>,
    /// Calls in an hour.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::HourlyBound")]
    pub api_calls_per_hour: Option<Option<i64>>,
    /// Calls of one principal in an hour.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::HourlyBound")]
    pub principal_api_calls_per_hour: Option<Option<i64>>,
    /// Bytes of all receipts.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::Bound<0>")]
    pub receipt_storage_bytes: Option<Option<i64>>,
    /// Receipts of one task.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::Bound<1>")]
    pub receipts_per_task: Option<Option<i64>>,
}

/// Reads a field that is there, and may be null. A field that is not there is absent.
fn given<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Option<i64>>, D::Error> {
    Option::deserialize(from).map(Some)
}

operation!(
    /// Lists tenants.
    Identity, ListTenants: ListTenantsInput => ListTenantsOutput,
    name: "list_tenants",
    method: Method::Get,
    path: "/v1/admin/tenants",
    access: Access::Needs(PLATFORM),
    effect: Effect::Read,
    summary: "List tenants (platform admin).",
    doc: "Lists tenants in the order in which they were made.",
);

/// A page of tenants.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTenantsInput {
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(extend("format" = "uuid"))]
    pub cursor: Option<String>,
}

/// Tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListTenantsOutput {
    /// The tenants, the oldest first.
    pub tenants: Vec<TenantRecord>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

operation!(
    /// Reads a tenant.
    Identity, GetTenant: TenantInput => TenantRecord,
    name: "get_tenant",
    method: Method::Get,
    path: "/v1/admin/tenants/{tenant_id}",
    access: Access::Needs(READERS),
    effect: Effect::Read,
    summary: "Read a tenant (admin).",
    doc: "An admin reads its own tenant, a platform admin any.",
    refusals: &[Code::NotFound],
);

/// A tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TenantInput {
    /// The tenant's id.
    pub tenant_id: String,
}

operation!(
    /// Changes a tenant.
    Identity, ChangeTenant: ChangeTenantInput => TenantRecord,
    name: "change_tenant",
    method: Method::Patch,
    path: "/v1/admin/tenants/{tenant_id}",
    access: Access::Needs(PLATFORM),
    effect: Effect::Advance,
    summary: "Change, suspend or resume a tenant (platform admin).",
    doc: "What is not named stays. A suspended tenant's credentials are refused, on this server at once and within \
          30 seconds on others. A platform admin cannot suspend its own tenant.",
    refusals: &[Code::NotFound, Code::Conflict],
);

/// A change of a tenant.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeTenantInput {
    /// The tenant's id.
    pub tenant_id: String,
    /// The new tier: `free`, `paid` or `enterprise`.
    #[serde(default)]
    #[schemars(with = "Option<forms::TenantTierName>")]
    pub tier: Option<String>,
    /// Quotas to set or to take back.
    #[serde(default)]
    pub quotas: Option<QuotaChanges>,
    /// Whether its credentials are to be refused.
    #[serde(default)]
    pub suspended: Option<bool>,
}
