//! Limits by policy.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use super::Provenance;
use crate::{
    Access, Code, Effect, Method, Scope, bounds,
    forms::{self, way},
    operation::operation,
};

operation!(
    /// Asks limits and charges them.
    Admission, CheckLimits: CheckLimitsInput => CheckLimitsOutput,
    name: "limits_check",
    method: Method::Post,
    path: "/v1/limits/check",
    tool: Some("limits.check"),
    access: Access::Needs(&[Scope::HostUse]),
    effect: Effect::Add,
    summary: "Ask whether a limit allows something, and charge it.",
    doc: "Takes tokens from the policy's bucket for the key (or counts in its window, or takes the next \
          attempt of its delays) and says whether the call may happen, what is left, and when to try \
          again. cost 0 or peek only looks; a negative cost gives tokens back. Several limits in checks \
          are charged all together or not at all. With enforce a refusal is the error RATE_LIMIT.",
    refusals: &[Code::UnknownPolicy],
);

/// One limit, or several.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    way("CheckLimit", &["policy", "key"], &["checks"], &Value::Null),
    way("CheckLimits", &["checks"], &["policy", "key", "cost"], &Value::Null),
]))]
pub struct CheckLimitsInput {
    /// The name of the policy, such as `client`.
    #[serde(default)]
    pub policy: Option<String>,
    /// The limited client or thing, 1 to 256 bytes.
    #[serde(default)]
    #[schemars(length(min = 1, max = bounds::MAX_LIMIT_KEY_BYTES))]
    pub key: Option<String>,
    /// The amount wanted. Default 1.
    #[serde(default)]
    pub cost: Option<i64>,
    /// Several limits instead, at most 32.
    #[serde(default)]
    #[schemars(length(min = 1, max = bounds::MAX_LIMIT_CHECKS))]
    pub checks: Option<Vec<LimitCheck>>,
    /// Change nothing; only say what would happen.
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
    /// The limited client or thing, 1 to 256 bytes.
    #[schemars(length(min = 1, max = bounds::MAX_LIMIT_KEY_BYTES))]
    pub key: String,
    /// The amount wanted. Default 1.
    #[serde(default)]
    pub cost: Option<i64>,
}

/// A boolean that is also read from the text `true` or `false`, because a query string has only text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Flag(pub bool);

impl<'de> Deserialize<'de> for Flag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
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

/// The answer of one limit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitVerdict {
    /// True if the call may happen.
    pub allowed: bool,
    /// The policy of the question.
    pub policy: String,
    /// The key of the question.
    pub key: String,
    /// The most that can be had at once.
    pub limit: u64,
    /// The amount left.
    pub remaining: u64,
    /// The time at which all is there again; for delays, of the next allowed attempt.
    pub reset_at: i64,
    /// Seconds until the same call would be allowed; null if it is now or never will be.
    pub retry_after_secs: Option<u64>,
    /// The tokens in a bucket; negative when overdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// The key's tier, if the policy depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The attempts that a sequence of delays has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<u64>,
    /// The start of its next delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<i64>,
    /// True if the policy is only on trial and would have refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadowed: bool,
    /// The origin of the decision.
    pub provenance: Provenance,
    /// Seconds until all is there again, for protocols that report a wait and not a time.
    #[serde(skip)]
    pub reset_in_secs: u64,
    /// Seconds in which an exhausted limit recovers fully; absent for delays.
    #[serde(skip)]
    pub window_secs: Option<u64>,
}

/// The answers of limits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckLimitsOutput {
    /// True if every limit allows the call.
    pub allowed: bool,
    /// One limit: the policy of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// One limit: the key of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// One limit: the most that can be had at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// One limit: the amount left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining: Option<u64>,
    /// One limit: the time at which all is there again; for delays, of the next allowed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_at: Option<i64>,
    /// One limit: seconds until the same call would be allowed; null if it is now or never will be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "forms::NumberOrNull")]
    // The outer option leaves the field out for several limits; the inner one is a null in JSON.
    pub retry_after_secs: Option<Option<u64>>,
    /// One token bucket: its tokens; negative when overdrawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<f64>,
    /// One limit: the key's tier, if the policy depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// One sequence of delays: the attempts it has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<u64>,
    /// One sequence of delays: the start of its next delay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timer: Option<i64>,
    /// True if the policy is only on trial and would have refused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shadowed: bool,
    /// One limit: the origin of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Several limits: the answers, in the order asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub results: Option<Vec<LimitVerdict>>,
    /// The headers that HTTP sends beside the body.
    #[serde(skip)]
    pub rate_headers: Vec<(&'static str, String)>,
}

impl CheckLimitsOutput {
    /// Builds the answer about one limit.
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

    /// Builds the answer about several limits.
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
    Admission, ListPolicies: crate::NoInput => ListPoliciesOutput,
    name: "limits_policies",
    method: Method::Get,
    path: "/v1/limits/policies",
    tool: Some("limits.policies"),
    access: Access::Needs(&[Scope::HostUse]),
    effect: Effect::Read,
    summary: "List the policies that limits can be asked by.",
    doc: "Lists the built-in policies and those of the settings.",
);

/// The policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListPoliciesOutput {
    /// The policies by name.
    pub policies: Vec<PolicyRecord>,
}

/// A policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Policy")]
pub struct PolicyRecord {
    /// Its name.
    pub policy: String,
    /// `token_bucket`, `fixed_window`, `sequential_delay` or `tiered`.
    pub kind: String,
    /// The most that can be had at once; null when it depends on the tier.
    pub limit: Option<u64>,
    /// Seconds in which an exhausted limit recovers fully; null if it depends on the tier or stage.
    pub window_secs: Option<u64>,
    /// True if it is only on trial.
    pub shadow: bool,
}
