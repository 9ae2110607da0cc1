//! Operations about the server itself.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Access, Code, Effect, Method, operation::operation};

/// The server's identity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServerInfo {
    /// `AsyncGate`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// This server's name among several.
    pub instance_id: String,
    /// Seconds since it started.
    pub uptime: u64,
    /// The operator's name for where it runs.
    pub environment: String,
}

operation!(
    /// Reads the server's settings that callers may know.
    Server, GetConfig: NoInput => ConfigRecord,
    name: "get_config",
    method: Method::Get,
    path: "/v1/config",
    tool: Some("asyncgate.get_config"),
    access: Access::Any,
    effect: Effect::Read,
    summary: "Read the server's settings that matter to callers.",
    doc: "Defaults and limits of leases, retries and lists, and whether answers are durable.",
);

/// An empty input.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoInput {}

/// The settings that matter to callers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Config")]
pub struct ConfigRecord {
    /// The place where receipts are kept: `standalone`.
    pub receipt_mode: String,
    /// This server's name among several.
    pub instance_id: String,
    /// The server's version.
    pub version: String,
    /// The features of this server.
    pub capabilities: Vec<String>,
    /// `fsync`: a success answer is on disk. `none`: everything is lost at the end of the process.
    pub durability: String,
    /// The deployment: a `micronode` keeps everything in memory, a `macronode` is durable.
    pub profile: String,
    /// `durable`: dead letters outlive the process. `ephemeral`: they do not.
    pub dlq_profile: String,
    /// A success without proof is accepted (`lenient`) or refused (`strict`).
    pub locatability: String,
    /// The lease time of a claim that names none.
    pub default_lease_ttl_seconds: u64,
    /// The longest lease time.
    pub max_lease_ttl_seconds: u64,
    /// Reported failures that end a task that names no limit.
    pub default_max_attempts: u32,
    /// The first retry delay of a task that names none.
    pub default_retry_backoff_seconds: u32,
    /// The longest retry delay.
    pub max_retry_backoff_seconds: u32,
    /// The page size of a list that names none.
    pub default_list_limit: u32,
    /// The largest page.
    pub max_list_limit: u32,
    /// The largest payload or result in bytes.
    pub max_payload_bytes: u64,
}

operation!(
    /// Says that the server is alive.
    Server, GetHealth: NoInput => HealthRecord,
    name: "health",
    method: Method::Get,
    path: "/v1/health",
    tool: None,
    access: Access::Open,
    effect: Effect::Read,
    summary: "Say that the server is alive.",
    doc: "Needs no credential. Whether it accepts writes is told by /readyz.",
);

/// The state of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Health")]
pub struct HealthRecord {
    /// `healthy`, or `failing` when writes are not accepted.
    pub status: String,
    /// `AsyncGate`.
    pub service: String,
    /// Its version.
    pub version: String,
    /// This server's name among several.
    pub instance_id: String,
}

/// The answer of `/healthz`: the process is alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Liveness {
    /// Always `ok`.
    pub status: String,
}

/// The answer of `/readyz`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Readiness {
    /// `ready` or `not_ready`.
    pub status: String,
    /// Not ready: `UNAVAILABLE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// Not ready: the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Not ready: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub degraded: Option<bool>,
    /// Not ready: the conditions that do not hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<Vec<String>>,
    /// Not ready: seconds after which to ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// Remarks for operators that keep nobody from anything.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
}

/// A remark of `/readyz`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Notice {
    /// The name of its subject, such as `clock_skew`.
    pub key: String,
    /// The remark, in words.
    pub text: String,
}
