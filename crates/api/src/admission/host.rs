//! Nonces, counters, revocations, and how the host is doing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Provenance, operation};
use crate::{Access, Effect, Method, NoInput};

operation!(
    /// Uses nonces.
    CheckNonces, CheckNoncesInput => CheckNoncesOutput,
    name: "host_check_nonces",
    method: Method::Post,
    path: "/v1/host/nonces/check",
    tool: Some("host.check_nonces"),
    access: Access::Host,
    effect: Effect::Add,
    summary: "Use a nonce, or up to 1,000, once.",
    doc: "Records a nonce within a namespace and says whether it was new (accepted) or used before \
          (replay). Give one with namespace, nonce and ttl_secs, or many in checks: they are answered \
          in order, in one commit, each for itself. After ttl_secs the nonce is new again; a replay \
          does not prolong it.",
);

/// One nonce, or many.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckNoncesInput {
    /// What the nonce is unique within: 64 hexadecimal digits.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The nonce: 1 to 64 bytes in base64url without padding.
    #[serde(default)]
    pub nonce: Option<String>,
    /// For how many seconds it counts as used, 1 to 7,776,000.
    #[serde(default)]
    pub ttl_secs: Option<u64>,
    /// Many nonces instead, at most 1,000.
    #[serde(default)]
    pub checks: Option<Vec<NonceCheck>>,
}

/// A nonce to use.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NonceCheck {
    /// What the nonce is unique within: 64 hexadecimal digits.
    pub namespace: String,
    /// The nonce: 1 to 64 bytes in base64url without padding.
    pub nonce: String,
    /// For how many seconds it counts as used, 1 to 7,776,000.
    pub ttl_secs: u64,
}

/// Whether a nonce was new.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NonceVerdict {
    /// `accepted` or `replay`.
    pub result: String,
    /// When it was used first, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<i64>,
    /// How the decision came about.
    pub provenance: Provenance,
}

/// Whether nonces were new.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckNoncesOutput {
    /// Of one nonce: `accepted` or `replay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Of one nonce: when it was used first, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<i64>,
    /// Of one nonce: how the decision came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Of many, in the order asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<NonceVerdict>>,
}

operation!(
    /// Counts a call.
    IncrementCounter, IncrementCounterInput => IncrementCounterOutput,
    name: "host_increment_counter",
    method: Method::Post,
    path: "/v1/host/counters/increment",
    tool: Some("host.increment_counter"),
    access: Access::Host,
    effect: Effect::Add,
    summary: "Count a call in a window of time, and compare with a limit.",
    doc: "Windows begin at multiples of window_secs since 1970. Every call counts, also one that \
          exceeds the limit. The answer says how many are left, or after how many seconds the next \
          window begins.",
);

/// What to count.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncrementCounterInput {
    /// What is counted: 64 hexadecimal digits.
    pub namespace: String,
    /// How long a window is, 1 to 7,776,000 seconds.
    pub window_secs: u64,
    /// How many calls a window may have.
    pub limit: u64,
    /// How many calls this is. Default 1.
    #[serde(default)]
    pub by: Option<u64>,
}

/// What the count came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncrementCounterOutput {
    /// `allowed` or `exceeded`.
    pub result: String,
    /// The count, this call included.
    pub count: u64,
    /// How many calls are left, if this one was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// Seconds to the next window, if this call was not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u64>,
    /// The number of the window since 1970.
    pub bucket: u64,
    /// When the window ends.
    pub reset_at: i64,
    /// How the decision came about.
    pub provenance: Provenance,
}

/// What a revocation is about. Give the hash, or what it is the hash of.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SubjectInput {
    /// `warrant_id`, `issuer_key` or `holder_key`.
    pub kind: String,
    /// The SHA-256 of the 16 id bytes or the 32 key bytes: 64 hexadecimal digits.
    #[serde(default)]
    pub hash: Option<String>,
    /// A warrant's id instead: a UUID, 32 hexadecimal digits, or tnu_wrt_ and those.
    #[serde(default)]
    pub id: Option<String>,
    /// A key instead: 64 hexadecimal digits.
    #[serde(default)]
    pub key: Option<String>,
}

/// What a revocation is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// `warrant_id`, `issuer_key` or `holder_key`.
    pub kind: String,
    /// The SHA-256 of the id or key.
    pub hash: String,
}

operation!(
    /// Asks what is revoked.
    CheckRevocations, CheckRevocationsInput => CheckRevocationsOutput,
    name: "host_check_revocations",
    method: Method::Post,
    path: "/v1/host/revocations/check",
    tool: Some("host.check_revocations"),
    access: Access::Host,
    effect: Effect::Read,
    summary: "Ask whether a warrant or key, or up to 1,000, is revoked.",
    doc: "Answers valid, revoked, or valid_cached: not revoked when the registry could last be asked. \
          Answers may be up to cache_ttl_secs old, except on the server that took the revocation.",
);

/// One subject, or many.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckRevocationsInput {
    /// What to ask about.
    #[serde(default)]
    pub subject: Option<SubjectInput>,
    /// Many instead, at most 1,000.
    #[serde(default)]
    pub subjects: Option<Vec<SubjectInput>>,
}

/// What the registry says of a subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevocationVerdict {
    /// `valid`, `revoked` or `valid_cached`.
    pub result: String,
    /// Why it was revoked, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// How old a kept answer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_age_secs: Option<u64>,
    /// How the answer came about.
    pub provenance: Provenance,
    /// For how long answers are kept.
    pub cache_ttl_secs: u64,
    /// For how long they may stand in when the registry does not answer.
    pub max_staleness_secs: u64,
}

/// What the registry says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRevocationsOutput {
    /// Of one subject: `valid`, `revoked` or `valid_cached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Of one subject: why it was revoked, if that was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of one subject: since when it is revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// Of one subject: how old a kept answer is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_age_secs: Option<u64>,
    /// Of one subject: how the answer came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Of one subject: for how long answers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_ttl_secs: Option<u64>,
    /// Of one subject: for how long they may stand in when the registry does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_staleness_secs: Option<u64>,
    /// Of many, in the order asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<RevocationVerdict>>,
}

operation!(
    /// Revokes.
    Revoke, RevokeInput => RevokeOutput,
    name: "host_revoke",
    method: Method::Post,
    path: "/v1/host/revocations",
    tool: Some("host.revoke"),
    access: Access::HostAdmin,
    effect: Effect::Advance,
    summary: "Revoke a warrant, or all warrants of an issuer's or holder's key.",
    doc: "From now on the subject is not valid. Revoking it again changes nothing: the first reason and \
          time stand. A key that the settings protect cannot be revoked (PROTECTED_KEY).",
);

/// What to revoke.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeInput {
    /// What to revoke.
    pub subject: SubjectInput,
    /// Why, at most 4,096 bytes.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The revocation that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokeOutput {
    /// What is revoked.
    pub subject: Subject,
    /// Why.
    pub reason: Option<String>,
    /// Since when.
    pub revoked_at: i64,
    /// False when it was revoked before.
    pub created: bool,
}

operation!(
    /// Takes a revocation back.
    Unrevoke, UnrevokeInput => UnrevokeOutput,
    name: "host_unrevoke",
    method: Method::Delete,
    path: "/v1/host/revocations/{kind}/{hash}",
    tool: Some("host.unrevoke"),
    access: Access::HostAdmin,
    effect: Effect::Advance,
    summary: "Take a revocation back.",
    doc: "The subject is valid again, here at once and elsewhere when kept answers have aged.",
);

/// Which revocation to take back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnrevokeInput {
    /// `warrant_id`, `issuer_key` or `holder_key`.
    pub kind: String,
    /// The subject's hash: 64 hexadecimal digits.
    pub hash: String,
}

/// It was taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnrevokeOutput {
    /// Always true.
    pub ok: bool,
}

operation!(
    /// Lists revocations.
    ListRevocations, ListRevocationsInput => ListRevocationsOutput,
    name: "host_revocations",
    method: Method::Get,
    path: "/v1/host/revocations",
    tool: None,
    access: Access::HostAdmin,
    effect: Effect::Read,
    summary: "List what is revoked.",
    doc: "Lists revocations by kind and hash.",
);

/// Which revocations to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRevocationsInput {
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// What the page before gave as next_cursor.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// Revocations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListRevocationsOutput {
    /// The revocations by kind and hash.
    pub revocations: Vec<RevocationRecord>,
    /// What to give as cursor for more; null when there are none.
    pub next_cursor: Option<String>,
}

/// A revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevocationRecord {
    /// What is revoked.
    pub subject: Subject,
    /// Why.
    pub reason: Option<String>,
    /// Since when.
    pub revoked_at: i64,
}

operation!(
    /// Says how the host is doing.
    GetHostHealth, NoInput => HostHealth,
    name: "host_health",
    method: Method::Get,
    path: "/v1/host/health",
    tool: Some("host.health"),
    access: Access::Host,
    effect: Effect::Read,
    summary: "Say how the backend of admission is doing.",
    doc: "Tells for nonces, counters and revocations whether they can be asked, how the last calls went, \
          and what is done when they cannot. HOST_UNAVAILABLE when none of them can.",
);

/// How the host is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostHealth {
    /// `healthy`, `degraded` or `unavailable`.
    pub status: String,
    /// Nonces.
    pub nonce_store: ComponentHealth,
    /// Counters and limits.
    pub counter_store: ComponentHealth,
    /// Revocations.
    pub revocation_registry: ComponentHealth,
}

/// How one part of the host is doing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentHealth {
    /// Whether it can be asked.
    pub available: bool,
    /// How long the slowest but one in a hundred of the last calls took.
    pub latency_p99_ms: Option<f64>,
    /// The share of the last calls that failed.
    pub error_rate: Option<f64>,
    /// Who answers.
    pub backend: String,
    /// What is done when it does not answer.
    pub failure_mode: String,
    /// `closed` when it is asked, `open` when it failed too often and is not, `half_open` while one
    /// call tries.
    pub circuit: String,
}
