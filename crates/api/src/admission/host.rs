//! Nonces, counters, revocations, and the health of the host.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Provenance;
use crate::{
    Access, Code, Effect, Method, NoInput, Scope, bounds,
    forms::{self, way},
    operation::operation,
};

operation!(
    /// Uses nonces.
    Admission, CheckNonces: CheckNoncesInput => CheckNoncesOutput,
    name: "host_check_nonces",
    method: Method::Post,
    path: "/v1/host/nonces/check",
    tool: Some("host.check_nonces"),
    access: Access::Needs(&[Scope::HostUse]),
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
#[schemars(extend("oneOf" = [
    way("CheckNonce", &["namespace", "nonce", "ttl_secs"], &["checks"], &Value::Null),
    way("CheckNonces", &["checks"], &["namespace", "nonce", "ttl_secs"], &Value::Null),
]))]
pub struct CheckNoncesInput {
    /// The nonce's namespace: 64 hexadecimal digits.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The nonce: 1 to 64 bytes in base64url without padding.
    #[serde(default)]
    #[schemars(length(min = 2, max = forms::MAX_NONCE_CHARS), regex(pattern = forms::BASE64URL))]
    pub nonce: Option<String>,
    /// Seconds for which it counts as used, 1 to 7,776,000.
    #[serde(default)]
    pub ttl_secs: Option<u64>,
    /// Many nonces instead, at most 1,000.
    #[serde(default)]
    #[schemars(length(min = 1, max = bounds::MAX_BATCH))]
    pub checks: Option<Vec<NonceCheck>>,
}

/// A nonce to use.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NonceCheck {
    /// The nonce's namespace: 64 hexadecimal digits.
    pub namespace: String,
    /// The nonce: 1 to 64 bytes in base64url without padding.
    #[schemars(length(min = 2, max = forms::MAX_NONCE_CHARS), regex(pattern = forms::BASE64URL))]
    pub nonce: String,
    /// Seconds for which it counts as used, 1 to 7,776,000.
    pub ttl_secs: u64,
}

/// The answer about one nonce.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NonceVerdict {
    /// `accepted` or `replay`.
    pub result: String,
    /// The time of its first use, on a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<i64>,
    /// The origin of the decision.
    pub provenance: Provenance,
}

/// The answers about nonces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckNoncesOutput {
    /// One nonce: `accepted` or `replay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// One nonce: the time of its first use, on a replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen: Option<i64>,
    /// One nonce: the origin of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Many nonces: the answers, in the order asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<NonceVerdict>>,
}

operation!(
    /// Counts a call.
    Admission, IncrementCounter: IncrementCounterInput => IncrementCounterOutput,
    name: "host_increment_counter",
    method: Method::Post,
    path: "/v1/host/counters/increment",
    tool: Some("host.increment_counter"),
    access: Access::Needs(&[Scope::HostUse]),
    effect: Effect::Add,
    summary: "Count a call in a window of time, and compare with a limit.",
    doc: "Windows begin at multiples of window_secs since 1970. Every call counts, also one that \
          exceeds the limit. The answer says how many are left, or after how many seconds the next \
          window begins.",
);

/// A call to count.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IncrementCounterInput {
    /// The counter: 64 hexadecimal digits.
    pub namespace: String,
    /// The length of a window, 1 to 7,776,000 seconds.
    pub window_secs: u64,
    /// The calls that a window may have.
    pub limit: u64,
    /// The calls to add. Default 1.
    #[serde(default)]
    pub by: Option<u64>,
}

/// The state of the counter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IncrementCounterOutput {
    /// `allowed` or `exceeded`.
    pub result: String,
    /// The count, this call included.
    pub count: u64,
    /// The calls left, if this one was allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// Seconds to the next window, if this call was not allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u64>,
    /// The number of the window since 1970.
    pub bucket: u64,
    /// The end of the window.
    pub reset_at: i64,
    /// The origin of the decision.
    pub provenance: Provenance,
}

/// A warrant or key. Give its hash, its id or the key itself.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    way("SubjectByHash", &["hash"], &["id", "key"], &Value::Null),
    way("SubjectById", &["id"], &["hash", "key"], &json!({ "kind": { "enum": ["warrant_id"] } })),
    way("SubjectByKey", &["key"], &["hash", "id"], &json!({ "kind": { "enum": ["issuer_key", "holder_key"] } })),
]))]
pub struct SubjectInput {
    /// `warrant_id`, `issuer_key` or `holder_key`.
    #[schemars(with = "forms::SubjectKind")]
    pub kind: String,
    /// The SHA-256 of the 16 id bytes or the 32 key bytes: 64 hexadecimal digits.
    #[serde(default)]
    pub hash: Option<String>,
    /// A warrant's id instead: a UUID, 32 hexadecimal digits, or tnu_wrt_ and those.
    #[serde(default)]
    #[schemars(regex(pattern = forms::WARRANT_ID))]
    pub id: Option<String>,
    /// A key instead: 64 hexadecimal digits.
    #[serde(default)]
    #[schemars(regex(pattern = forms::HEX64))]
    pub key: Option<String>,
}

/// A warrant or key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// `warrant_id`, `issuer_key` or `holder_key`.
    pub kind: String,
    /// The SHA-256 of the id or key.
    pub hash: String,
}

operation!(
    /// Asks if subjects are revoked.
    Admission, CheckRevocations: CheckRevocationsInput => CheckRevocationsOutput,
    name: "host_check_revocations",
    method: Method::Post,
    path: "/v1/host/revocations/check",
    tool: Some("host.check_revocations"),
    access: Access::Needs(&[Scope::HostUse]),
    effect: Effect::Read,
    summary: "Ask whether a warrant or key, or up to 1,000, is revoked.",
    doc: "Answers valid, revoked, or valid_cached: not revoked when the registry could last be asked. \
          Answers may be up to cache_ttl_secs old, except on the server that took the revocation.",
);

/// One subject, or many.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    way("CheckRevocation", &["subject"], &["subjects"], &Value::Null),
    way("CheckRevocations", &["subjects"], &["subject"], &Value::Null),
]))]
pub struct CheckRevocationsInput {
    /// The subject.
    #[serde(default)]
    pub subject: Option<SubjectInput>,
    /// Many instead, at most 1,000.
    #[serde(default)]
    #[schemars(length(min = 1, max = bounds::MAX_BATCH))]
    pub subjects: Option<Vec<SubjectInput>>,
}

/// The registry's answer about one subject.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevocationVerdict {
    /// `valid`, `revoked` or `valid_cached`.
    pub result: String,
    /// The reason of the revocation, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time of the revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// The age of a kept answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_age_secs: Option<u64>,
    /// The origin of the answer.
    pub provenance: Provenance,
    /// Seconds for which answers are kept.
    pub cache_ttl_secs: u64,
    /// Seconds for which a kept answer may replace that of the registry.
    pub max_staleness_secs: u64,
}

/// The registry's answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckRevocationsOutput {
    /// One subject: `valid`, `revoked` or `valid_cached`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// One subject: the reason of the revocation, if one was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One subject: the time of the revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<i64>,
    /// One subject: the age of a kept answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_age_secs: Option<u64>,
    /// One subject: the origin of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// One subject: seconds for which answers are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_ttl_secs: Option<u64>,
    /// One subject: seconds for which a kept answer may replace that of the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_staleness_secs: Option<u64>,
    /// Many subjects: the answers, in the order asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<RevocationVerdict>>,
}

operation!(
    /// Revokes a subject.
    Admission, Revoke: RevokeInput => RevokeOutput,
    name: "host_revoke",
    method: Method::Post,
    path: "/v1/host/revocations",
    tool: Some("host.revoke"),
    access: Access::Needs(&[Scope::HostAdmin]),
    effect: Effect::End,
    summary: "Revoke a warrant, or all warrants of an issuer's or holder's key.",
    doc: "From now on the subject is not valid. Revoking it again changes nothing: the first reason and \
          time stand. A key that the settings protect cannot be revoked (PROTECTED_KEY).",
    creates: true,
    refusals: &[Code::ProtectedKey],
);

/// A revocation to make.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeInput {
    /// The warrant or key to revoke.
    pub subject: SubjectInput,
    /// The reason, at most 4,096 bytes.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The revocation that holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokeOutput {
    /// The revoked warrant or key.
    pub subject: Subject,
    /// The reason.
    pub reason: Option<String>,
    /// The time of the revocation.
    pub revoked_at: i64,
    /// False if it was revoked before.
    pub created: bool,
}

operation!(
    /// Takes a revocation back.
    Admission, Unrevoke: UnrevokeInput => UnrevokeOutput,
    name: "host_unrevoke",
    method: Method::Delete,
    path: "/v1/host/revocations/{kind}/{hash}",
    tool: Some("host.unrevoke"),
    access: Access::Needs(&[Scope::HostAdmin]),
    effect: Effect::End,
    summary: "Take a revocation back.",
    doc: "The subject is valid again, here at once and elsewhere when kept answers have aged.",
    refusals: &[Code::NotFound],
);

/// The revocation to take back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UnrevokeInput {
    /// `warrant_id`, `issuer_key` or `holder_key`.
    #[schemars(with = "forms::SubjectKind")]
    pub kind: String,
    /// The subject's hash: 64 hexadecimal digits.
    pub hash: String,
}

/// The call succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnrevokeOutput {
    /// Always true.
    pub ok: bool,
}

operation!(
    /// Lists revocations.
    Admission, ListRevocations: ListRevocationsInput => ListRevocationsOutput,
    name: "host_revocations",
    method: Method::Get,
    path: "/v1/host/revocations",
    tool: Some("host.revocations"),
    access: Access::Needs(&[Scope::HostAdmin]),
    effect: Effect::Read,
    summary: "List what is revoked.",
    doc: "Lists revocations by kind and hash.",
);

/// A page of revocations.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListRevocationsInput {
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(regex(pattern = forms::REVOCATION))]
    pub cursor: Option<String>,
}

/// A page of revocations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListRevocationsOutput {
    /// The revocations by kind and hash.
    pub revocations: Vec<RevocationRecord>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// A revocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Revocation")]
pub struct RevocationRecord {
    /// The revoked warrant or key.
    pub subject: Subject,
    /// The reason.
    pub reason: Option<String>,
    /// The time of the revocation.
    pub revoked_at: i64,
}

operation!(
    /// Reads the health of the host.
    Admission, GetHostHealth: NoInput => HostHealth,
    name: "host_health",
    method: Method::Get,
    path: "/v1/host/health",
    tool: Some("host.health"),
    access: Access::Needs(&[Scope::HostUse]),
    effect: Effect::Read,
    upkeep: true,
    summary: "Say how the backend of admission is doing.",
    doc: "Tells for nonces, counters and revocations whether they can be asked, how the last calls went, \
          and what is done when they cannot. HOST_UNAVAILABLE when none of them can.",
);

/// The health of the backend of admission.
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

/// The health of one part of the backend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentHealth {
    /// True if it can be asked.
    pub available: bool,
    /// The 99th percentile of the time of the last calls.
    pub latency_p99_ms: Option<f64>,
    /// The share of the last calls that failed.
    pub error_rate: Option<f64>,
    /// The backend.
    pub backend: String,
    /// The rule applied when it does not answer.
    pub failure_mode: String,
    /// `closed`: it is asked. `open`: it failed too often and is not asked. `half_open`: one call tries.
    pub circuit: String,
}
