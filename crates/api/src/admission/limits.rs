//! Limits by policy.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

use super::{Provenance, operation};
use crate::{Access, Effect, Method};

operation!(
    /// Asks limits.
    CheckLimits, CheckLimitsInput => CheckLimitsOutput,
    name: "limits_check",
    method: Method::Post,
    path: "/v1/limits/check",
    tool: Some("limits.check"),
    access: Access::Host,
    effect: Effect::Add,
    summary: "Ask whether a limit allows something, and charge it.",
    doc: "Takes tokens from the policy's bucket for the key (or counts in its window, or takes the next \
          attempt of its delays) and says whether the call may happen, what is left, and when to try \
          again. cost 0 or peek only looks; a negative cost gives tokens back. Several limits in checks \
          are charged all together or not at all. With enforce a refusal is the error RATE_LIMIT.",
);

/// One limit, or several.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckLimitsInput {
    /// The name of the policy, such as `client`.
    #[serde(default)]
    pub policy: Option<String>,
    /// Whose limit it is, 1 to 256 bytes.
    #[serde(default)]
    pub key: Option<String>,
    /// How much is wanted. Default 1.
    #[serde(default)]
    pub cost: Option<i64>,
    /// Several limits instead, at most 32.
    #[serde(default)]
    pub checks: Option<Vec<LimitCheck>>,
    /// Only say what would happen.
    #[serde(default)]
    pub peek: Option<Flag>,
    /// Answer a refusal with the error RATE_LIMIT.
    #[serde(default)]
    pub enforce: Option<Flag>,
}

/// A limit to ask.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitCheck {
    /// The name of the policy.
    pub policy: String,
    /// Whose limit it is, 1 to 256 bytes.
    pub key: String,
    /// How much is wanted. Default 1.
    #[serde(default)]
    pub cost: Option<i64>,
}

/// Yes or no. Also read from the text `true` or `false`, as it stands in a query string.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let written = match value.as_str() {
            Some("true") => Some(true),
            Some("false") => Some(false),
            _ => value.as_bool(),
        };
        let wrong = || D::Error::custom("must be true or false");
        written.map(Self).ok_or_else(wrong)
    }
}

impl JsonSchema for Flag {
    fn schema_name() -> Cow<'static, str> {
        "Flag".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        bool::json_schema(generator)
    }
}

/// What a limit says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitVerdict {
    /// Whether the call may happen.
    pub allowed: bool,
    /// The policy as it was named.
    pub policy: String,
    /// Whose limit it is.
    pub key: String,
    /// The most that can be had at once.
    pub limit: u64,
    /// How much is left.
    pub remaining: u64,
    /// When all is there again; for delays, when the next attempt is allowed.
    pub reset_at: i64,
    /// After how many seconds the same call would be allowed; null when it is, or never will be.
    pub retry_after_secs: Option<u64>,
    /// What a token bucket holds; negative when it is overdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// The key's tier, if the policy asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// How many attempts a sequence of delays has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<u64>,
    /// From when its next delay counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<i64>,
    /// True when the policy is only tried out and would have refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadowed: bool,
    /// How the decision came about.
    pub provenance: Provenance,
    /// In how many seconds all is there again, for protocols that tell it so.
    #[serde(skip)]
    pub reset_in_secs: u64,
    /// How long that takes when nothing is left; absent for delays.
    #[serde(skip)]
    pub window_secs: Option<u64>,
}

/// What limits say.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckLimitsOutput {
    /// Whether the call may happen: only if each limit allows it.
    pub allowed: bool,
    /// Of one limit: the policy as it was named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Of one limit: whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Of one limit: the most that can be had at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// Of one limit: how much is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// Of one limit: when all is there again; for delays, when the next attempt is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<i64>,
    /// Of one limit: after how many seconds the same call would be allowed; null when it is, or never
    /// will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<Option<u64>>,
    /// Of one token bucket: what it holds; negative when it is overdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// Of one limit: the key's tier, if the policy asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Of one sequence of delays: how many attempts it has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<u64>,
    /// Of one sequence of delays: from when its next delay counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<i64>,
    /// True when the policy is only tried out and would have refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadowed: bool,
    /// Of one limit: how the decision came about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Of several, in the order asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<LimitVerdict>>,
    /// What HTTP tells beside the body.
    #[serde(skip)]
    pub rate_headers: Vec<(&'static str, String)>,
}

impl CheckLimitsOutput {
    /// The answer about one limit.
    pub fn one(verdict: LimitVerdict, rate_headers: Vec<(&'static str, String)>) -> Self {
        Self {
            allowed: verdict.allowed,
            policy: Some(verdict.policy),
            key: Some(verdict.key),
            limit: Some(verdict.limit),
            remaining: Some(verdict.remaining),
            reset_at: Some(verdict.reset_at),
            retry_after_secs: Some(verdict.retry_after_secs),
            tokens: verdict.tokens,
            tier: verdict.tier,
            counter: verdict.counter,
            timer: verdict.timer,
            shadowed: verdict.shadowed,
            provenance: Some(verdict.provenance),
            results: None,
            rate_headers,
        }
    }

    /// The answer about several.
    pub fn many(results: Vec<LimitVerdict>) -> Self {
        Self {
            allowed: results.iter().all(|verdict| verdict.allowed),
            results: Some(results),
            ..Self::default()
        }
    }
}

operation!(
    /// Lists policies.
    ListPolicies, crate::NoInput => ListPoliciesOutput,
    name: "limits_policies",
    method: Method::Get,
    path: "/v1/limits/policies",
    tool: None,
    access: Access::Host,
    effect: Effect::Read,
    summary: "List the policies that limits can be asked by.",
    doc: "Lists the built-in policies and those of the settings.",
);

/// Policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListPoliciesOutput {
    /// The policies by name.
    pub policies: Vec<PolicyRecord>,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyRecord {
    /// Its name.
    pub policy: String,
    /// `token_bucket`, `fixed_window`, `sequential_delay` or `tiered`.
    pub kind: String,
    /// The most that can be had at once; null when it depends on the tier.
    pub limit: Option<u64>,
    /// After how many seconds all is there again; null when it depends on the tier or the stage.
    pub window_secs: Option<u64>,
    /// Whether it is only tried out.
    pub shadow: bool,
}
