//! Tiers of clients, for operators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Access, Effect, Method, Scope, forms, operation::operation};

/// A client's tier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Tier")]
pub struct TierRecord {
    /// The client.
    pub client: String,
    /// `standard`, `trusted`, `batch` or `throttled`.
    pub tier: String,
    /// The reason, if one was given.
    pub reason: Option<String>,
    /// The end; null if there is none or the tier is from the settings.
    pub until: Option<String>,
}

operation!(
    /// Sets a client's tier.
    Admission, SetTier: SetTierInput => TierRecord,
    name: "set_tier",
    method: Method::Put,
    path: "/v1/admin/tiers/{client}",
    tool: None,
    access: Access::Needs(&[Scope::AdminWrite]),
    effect: Effect::Advance,
    summary: "Set a client's tier (admin).",
    doc: "Counts at once on this server and within 30 seconds on others, until it is taken back or its \
          time is over. Each tier has a bucket of its own for each client.",
);

/// The new tier of a client.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetTierInput {
    /// The client, 1 to 256 bytes.
    pub client: String,
    /// `standard`, `trusted`, `batch` or `throttled`.
    #[schemars(with = "forms::TierName")]
    pub tier: String,
    /// The reason, at most 4,096 bytes.
    #[serde(default)]
    pub reason: Option<String>,
    /// The end in RFC 3339. Default: none.
    #[serde(default)]
    pub until: Option<String>,
}

operation!(
    /// Reads a client's tier.
    Admission, GetTier: TierInput => TierRecord,
    name: "get_tier",
    method: Method::Get,
    path: "/v1/admin/tiers/{client}",
    tool: None,
    access: Access::Needs(&[Scope::AdminRead]),
    effect: Effect::Read,
    summary: "Read a client's tier (admin).",
    doc: "The tier that counts now, whether it was set or stands in the settings.",
);

operation!(
    /// Takes a client's tier back.
    Admission, ClearTier: TierInput => TierRecord,
    name: "clear_tier",
    method: Method::Delete,
    path: "/v1/admin/tiers/{client}",
    tool: None,
    access: Access::Needs(&[Scope::AdminWrite]),
    effect: Effect::Advance,
    summary: "Take a client's tier back (admin).",
    doc: "The client has the tier of the settings again, which is answered.",
);

/// A client.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TierInput {
    /// The client, 1 to 256 bytes.
    pub client: String,
}

operation!(
    /// Lists tiers.
    Admission, ListTiers: ListTiersInput => ListTiersOutput,
    name: "list_tiers",
    method: Method::Get,
    path: "/v1/admin/tiers",
    tool: None,
    access: Access::Needs(&[Scope::AdminRead]),
    effect: Effect::Read,
    summary: "List the clients that have a tier of their own (admin).",
    doc: "Lists clients whose tier was set or stands in the settings, by name.",
);

/// A page of clients.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListTiersInput {
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// Clients and their tiers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListTiersOutput {
    /// The clients by name.
    pub tiers: Vec<TierRecord>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}
