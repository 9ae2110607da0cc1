//! The audit log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::READERS;
use crate::{Access, Effect, Method, forms, operation::operation};

operation!(
    /// Reads the audit log.
    Identity, ListAudit: ListAuditInput => ListAuditOutput,
    name: "list_audit",
    method: Method::Get,
    path: "/v1/admin/audit",
    access: Access::Needs(READERS),
    effect: Effect::Read,
    pages: true,
    summary: "Read the audit log of a tenant (admin).",
    doc: "Who was let in, who was not, and who changed what; the newest first. A rare filter may leave a page short \
          or empty although there is a next one.",
);

/// A choice of entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListAuditInput {
    /// The tenant. Default: the caller's own. `none` is the server's own log, for platform admins.
    #[serde(default)]
    #[schemars(regex(pattern = forms::TENANT_OR_NONE))]
    pub tenant_id: Option<String>,
    /// Only this event.
    #[serde(default)]
    #[schemars(with = "Option<forms::AuditEvent>")]
    pub event: Option<String>,
    /// Only what principals with this id did.
    #[serde(default)]
    pub principal_id: Option<String>,
    /// Only those at or after this time.
    #[serde(default)]
    pub since: Option<String>,
    /// Only those at or before this time.
    #[serde(default)]
    pub until: Option<String>,
    /// Only those of this severity.
    #[serde(default)]
    #[schemars(with = "Option<forms::SeverityName>")]
    pub severity: Option<String>,
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(regex(pattern = forms::PLACE))]
    pub cursor: Option<String>,
}

/// Entries of an audit log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListAuditOutput {
    /// The entries, the newest first.
    pub entries: Vec<AuditEntry>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// Something that happened to credentials and rights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// Its id.
    pub audit_id: String,
    /// The time of the event.
    pub timestamp: String,
    /// The event, such as `key_created`.
    pub event: String,
    /// The tenant whose log it is in; null in the server's own.
    pub tenant_id: Option<String>,
    /// The sort of the principal that acted.
    pub principal_kind: Option<String>,
    /// The name of the principal that acted.
    pub principal_id: Option<String>,
    /// The address from which it acted.
    pub ip: Option<String>,
    /// The program that it said it used.
    pub user_agent: Option<String>,
    /// The reason, in a word or a sentence.
    pub reason: Option<String>,
    /// `info`, `warning` or `critical`.
    pub severity: String,
    /// The correlation id of the request.
    pub corr_id: Option<String>,
    /// More facts, by name.
    pub details: Map<String, Value>,
}
