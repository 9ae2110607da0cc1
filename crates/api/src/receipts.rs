//! Operations on receipts and obligations.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    Access, Code, Done, Effect, Method, NoInput, Principal, PrincipalKind, Scope, ServerInfo,
    forms, operation::operation,
};

/// An immutable record of a request, of work or of proof.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Receipt")]
pub struct ReceiptRecord {
    /// Its id.
    pub receipt_id: String,
    /// The kind of event, e.g. `task.completed`.
    pub receipt_type: String,
    /// The time of writing.
    pub created_at: String,
    /// The acting principal.
    pub from: Principal,
    /// The addressee.
    pub to: Principal,
    /// The task it is about.
    pub task_id: Option<String>,
    /// The lease used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_id: Option<String>,
    /// The schedule it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule_id: Option<String>,
    /// The receipts that caused it; a terminal receipt discharges them.
    pub parents: Vec<String>,
    /// The statement.
    pub body: Box<RawValue>,
    /// The hash of the statement, equal for equal statements.
    pub hash: String,
    /// Its place in the tenant's ledger, counted from 1 without gaps.
    pub seq: u64,
    /// The hash of the ledger up to and including it.
    pub link: String,
    /// The server instance that wrote it.
    pub asyncgate_instance: String,
    /// The tenant it belongs to.
    pub tenant_id: String,
    /// The first delivery by bootstrap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<String>,
}

operation!(
    /// Lists open obligations.
    Tasks, ListOpenObligations: ListOpenObligationsInput => ListOpenObligationsOutput,
    name: "list_open_obligations",
    method: Method::Get,
    path: "/v1/obligations/open",
    tool: Some("asyncgate.list_open_obligations"),
    access: Access::Needs(&[Scope::ReceiptsRead]),
    effect: Effect::Read,
    pages: true,
    summary: "List what you are still owed.",
    doc: "Call this first when you start: it says who you are to this server and lists every \
          task.assigned receipt to you that no outcome has discharged.",
);

/// A filter and a page of obligations.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListOpenObligationsInput {
    /// Its kind. Default `agent`.
    #[serde(default)]
    pub principal_kind: Option<PrincipalKind>,
    /// The owner, if you may act for others.
    #[serde(default)]
    pub principal_id: Option<String>,
    /// Your device, process or session.
    #[serde(default)]
    pub principal_instance_id: Option<String>,
    /// Only obligations after this receipt.
    #[serde(default)]
    pub since_receipt_id: Option<String>,
    /// The most to return, 1 to 200. Default 50.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// The open obligations. Each entry is a receipt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ListOpenObligationsOutput {
    /// The server.
    pub server: ServerInfo,
    /// Your history with the server.
    pub relationship: RelationshipRecord,
    /// The open obligations, in ledger order.
    pub open_obligations: Vec<ReceiptRecord>,
    /// The last receipt returned, for since_receipt_id; null if none.
    pub cursor: Option<String>,
    /// The since_receipt_id of the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// A principal's history with the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Relationship")]
pub struct RelationshipRecord {
    /// The principal's kind.
    pub principal_kind: PrincipalKind,
    /// The principal's id.
    pub principal_id: String,
    /// The instance seen last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal_instance_id: Option<String>,
    /// The time of the first call.
    pub first_seen_at: String,
    /// The time of the last call.
    pub last_seen_at: String,
    /// The number of sessions so far.
    pub sessions_count: u64,
}

operation!(
    /// The deprecated first call of an agent.
    Tasks, Bootstrap: BootstrapInput => BootstrapOutput,
    name: "bootstrap",
    method: Method::Get,
    path: "/v1/bootstrap",
    tool: Some("asyncgate.bootstrap"),
    access: Access::Needs(&[Scope::ReceiptsRead]),
    effect: Effect::Advance,
    pages: true,
    summary: "Deprecated: use list_open_obligations.",
    doc: "Returns your newest inbox receipts, or those after since_receipt_id, and marks them \
          delivered. The other attention lists are always empty.",
    successor: Some("/v1/obligations/open"),
);

/// The agent that starts.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BootstrapInput {
    /// Your kind, if you may act for others. Default `agent` when principal_id is given.
    #[serde(default)]
    pub principal_kind: Option<PrincipalKind>,
    /// Your id, if you may act for others.
    #[serde(default, alias = "agent_id")]
    pub principal_id: Option<String>,
    /// Your device, process or session.
    #[serde(default, alias = "agent_instance_id")]
    pub principal_instance_id: Option<String>,
    /// Accepted and not used.
    #[serde(default)]
    pub agent_version: Option<String>,
    /// Accepted and not used, as a text or any JSON.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub client_capabilities: Option<serde_json::Value>,
    /// Only receipts after this one. Default: the newest.
    #[serde(default)]
    pub since_receipt_id: Option<String>,
    /// The most to return, 1 to 200. Default 50.
    #[serde(default)]
    pub max_items: Option<u32>,
}

/// Your history with the server and your inbox.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapOutput {
    /// The server.
    pub server: ServerInfo,
    /// Your history with the server.
    pub relationship: RelationshipRecord,
    /// Your inbox.
    pub attention: Attention,
    /// The end of this page.
    pub cursor: BootstrapCursor,
    /// Quotas of the tenant of which little is left.
    pub warnings: Vec<QuotaWarning>,
}

/// A quota of which little is left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuotaWarning {
    /// The quota.
    pub quota: String,
    /// Its bound.
    pub limit: u64,
    /// The number that is in use.
    pub current: u64,
    /// What that means, for people.
    pub message: String,
}

/// An inbox. All lists but the first are always empty.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Attention {
    /// Receipts addressed to you.
    pub inbox_receipts: Vec<ReceiptRecord>,
    // An array of length 0 says in the type, and so in the schema, that nothing is ever here.
    /// Always empty.
    pub assigned_tasks: [(); 0],
    /// Always empty.
    pub waiting_results: [(); 0],
    /// Always empty.
    pub running_or_scheduled: [(); 0],
    /// Always empty.
    pub anomalies: [(); 0],
}

/// The end of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapCursor {
    /// The last receipt returned.
    pub latest_receipt_id: Option<String>,
}

operation!(
    /// Lists an inbox.
    Tasks, ListReceipts: ListReceiptsInput => ReceiptPage,
    name: "list_receipts",
    method: Method::Get,
    path: "/v1/receipts",
    tool: Some("asyncgate.list_receipts"),
    access: Access::Needs(&[Scope::ReceiptsRead]),
    effect: Effect::Read,
    pages: true,
    summary: "List the receipts addressed to you.",
    doc: "In ledger order. Give cursor as since_receipt_id next time: you get every later receipt exactly once.",
);

/// A page of an inbox.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListReceiptsInput {
    /// Its kind. Default `agent`.
    #[serde(default, alias = "to_kind")]
    #[schemars(extend("not" = forms::NOBODY))]
    pub principal_kind: Option<PrincipalKind>,
    /// The inbox owner, if you may act for others.
    #[serde(default, alias = "to_id")]
    pub principal_id: Option<String>,
    /// Only receipts after this one.
    #[serde(default)]
    pub since_receipt_id: Option<String>,
    /// The most to return, 1 to 200. Default 50.
    #[serde(default)]
    pub limit: Option<u32>,
}

/// A page of the ledger.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptPage {
    /// The receipts, in ledger order.
    pub receipts: Vec<ReceiptRecord>,
    /// The last receipt returned, for since_receipt_id; null if none.
    pub cursor: Option<String>,
    /// The since_receipt_id of the next page; null on the last.
    pub next_cursor: Option<String>,
}

operation!(
    /// Lists the ledger.
    Tasks, ListLedger: ListLedgerInput => ReceiptPage,
    name: "list_ledger",
    method: Method::Get,
    path: "/v1/receipts/ledger",
    tool: Some("asyncgate.list_ledger"),
    access: Access::Needs(&[Scope::ReceiptsRead]),
    effect: Effect::Read,
    pages: true,
    summary: "List the receipts of a task, a lease or a type.",
    doc: "Give exactly one of task_id, lease_id and receipt_type. Those of a task tell its whole story in order. \
          Follow next_cursor until it is null.",
);

/// A filter and a page of the ledger.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListLedgerInput {
    /// Receipts about this task.
    #[serde(default)]
    pub task_id: Option<String>,
    /// Receipts under this lease.
    #[serde(default)]
    pub lease_id: Option<String>,
    /// Receipts of this type, e.g. `system.anomaly`.
    #[serde(default)]
    #[schemars(with = "Option<forms::ReceiptType>")]
    pub receipt_type: Option<String>,
    /// Only receipts after this one.
    #[serde(default)]
    pub since_receipt_id: Option<String>,
    /// The most to return, 1 to 200. Default 50.
    #[serde(default)]
    pub limit: Option<u32>,
    /// Its kind. Default `agent`.
    #[serde(default)]
    #[schemars(extend("not" = forms::NOBODY))]
    pub principal_kind: Option<PrincipalKind>,
    /// The principal that asks, if you may act for others.
    #[serde(default)]
    pub principal_id: Option<String>,
}

operation!(
    /// Reads the whole ledger.
    Tasks, ReadLedger: ReadLedgerInput => ReceiptPage,
    name: "read_ledger",
    method: Method::Get,
    path: "/v1/ledger",
    tool: Some("asyncgate.read_ledger"),
    access: Access::Needs(&[Scope::AdminRead]),
    effect: Effect::Read,
    pages: true,
    summary: "Read every receipt of the tenant, in order.",
    doc: "For copies and audits. Follow next_cursor until it is null; each receipt's link can \
          be computed from the one before, so a copy can be verified without trusting the \
          server.",
);

/// A page of the ledger.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadLedgerInput {
    /// Only receipts after this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_receipt_id: Option<String>,
    /// The most to return, 1 to 200. Default 50.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

operation!(
    /// Reads the head of the ledger.
    Tasks, GetLedgerHead: NoInput => LedgerHead,
    name: "get_ledger_head",
    method: Method::Get,
    path: "/v1/ledger/head",
    tool: Some("asyncgate.get_ledger_head"),
    access: Access::Needs(&[Scope::ReceiptsRead]),
    effect: Effect::Read,
    upkeep: true,
    summary: "Read where the ledger ends, signed.",
    doc: "Keep the answer: its link is a hash over every receipt so far, so that nobody, the \
          server's operator included, can later change the ledger without your noticing.",
);

/// The end of a tenant's ledger, signed by the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LedgerHead {
    /// The tenant.
    pub tenant_id: String,
    /// The place of the last receipt, 0 when there is none.
    pub seq: u64,
    /// The hash of the ledger up to and including it.
    pub link: String,
    /// The number of open obligations.
    pub open_obligations: u64,
    /// The time of the signature.
    pub signed_at: String,
    /// The same in milliseconds since 1970, as in the signed statement.
    pub signed_at_millis: i64,
    /// The Ed25519 key that verifies the signature, in hexadecimal digits; null when the server
    /// has none.
    pub public_key: Option<String>,
    /// The signature, in hexadecimal digits; null when the server has no key.
    pub signature: Option<String>,
}

operation!(
    /// Reads a receipt.
    Tasks, GetReceipt: GetReceiptInput => ReceiptRecord,
    name: "get_receipt",
    method: Method::Get,
    path: "/v1/receipts/{receipt_id}",
    tool: Some("asyncgate.get_receipt"),
    access: Access::Needs(&[Scope::ReceiptsRead]),
    effect: Effect::Read,
    summary: "Read one receipt.",
    doc: "Receipts never change.",
    refusals: &[Code::ReceiptNotFound],
);

/// The receipt to read.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetReceiptInput {
    /// The receipt's id.
    pub receipt_id: String,
    /// Its kind. Default `agent`.
    #[serde(default)]
    #[schemars(extend("not" = forms::NOBODY))]
    pub principal_kind: Option<PrincipalKind>,
    /// The principal that asks, if you may act for others.
    #[serde(default)]
    pub principal_id: Option<String>,
}

operation!(
    /// Acknowledges a receipt.
    Tasks, AckReceipt: AckReceiptInput => Done,
    name: "ack_receipt",
    method: Method::Post,
    path: "/v1/receipts/{receipt_id}/ack",
    tool: Some("asyncgate.ack_receipt"),
    access: Access::Needs(&[Scope::ReceiptsAck, Scope::TasksLease]),
    effect: Effect::Add,
    summary: "Record that you took note of a receipt.",
    doc: "Repeating the call changes nothing. It closes no obligation: only the outcome of the work does.",
    refusals: &[Code::ReceiptNotFound],
);

/// The receipt to acknowledge.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AckReceiptInput {
    /// The receipt's id.
    pub receipt_id: String,
    /// Its kind. Default `agent`.
    #[serde(default)]
    pub principal_kind: Option<PrincipalKind>,
    /// The principal that acknowledges, if you may act for others.
    #[serde(default)]
    pub principal_id: Option<String>,
    /// Its instance.
    #[serde(default)]
    pub principal_instance_id: Option<String>,
}
