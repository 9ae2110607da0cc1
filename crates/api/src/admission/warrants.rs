//! Warrants: verifying that a chain of them allows a call.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Provenance;
use crate::{Access, Effect, Method, Scope, forms, operation::operation};

operation!(
    /// Verifies a call by its warrants.
    Admission, VerifyWarrant: VerifyWarrantInput => VerifyWarrantOutput,
    name: "host_verify",
    method: Method::Post,
    path: "/v1/host/verify",
    tool: Some("host.verify"),
    access: Access::Needs(&[Scope::HostUse]),
    effect: Effect::Add,
    summary: "Ask whether a chain of warrants allows a call.",
    doc: "Checks signatures, the chain from a trusted root, times, the tool, its arguments and the \
          holder's proof; then, if a warrant of the chain asks for it, revocation, rates and nonces. The \
          decision is accept or reject, with every check that was made, in order. A nonce is used only if \
          all else passed; every attempt that gets to the rates counts.",
);

/// A call, and the warrants that shall allow it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifyWarrantInput {
    /// One warrant or a whole stack of them, or a list from the root to the leaf; in base64url without
    /// padding.
    pub warrant: Warrants,
    /// The tool to be called.
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub args: Option<Map<String, Value>>,
    /// The holder's proof of this call: 64 bytes in base64url without padding.
    #[serde(default)]
    #[schemars(regex(pattern = forms::BASE64URL_64_BYTES))]
    pub pop: Option<String>,
}

/// One warrant, or a list from the root to the leaf.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Warrants {
    /// A warrant, or a stack.
    One(#[schemars(regex(pattern = forms::BASE64URL))] String),
    /// A chain.
    Chain(#[schemars(inner(regex(pattern = forms::BASE64URL)))] Vec<String>),
}

/// The decision about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyWarrantOutput {
    /// `accept` or `reject`.
    pub decision: String,
    /// `slow` if the host was asked, else `fast`.
    pub path: String,
    /// The reason of a rejection, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason of a rejection, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The wait before another try, if waiting helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_secs: Option<u64>,
    /// The last warrant; absent if the chain could not be read.
    pub warrant_id: Option<String>,
    /// The ids of the chain, root first.
    pub chain: Vec<String>,
    /// The key that the last warrant is bound to.
    pub holder: Option<String>,
    /// The end of the last warrant.
    pub expires_at: Option<u64>,
    /// `verified` if the holder proved that it makes the call, else `absent`.
    pub pop: String,
    /// All checks in order.
    pub checks: Vec<WarrantCheck>,
}

/// One check of a verification.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WarrantCheck {
    /// `signature`, `chain`, `time`, `tool`, `constraints`, `pop`, `revocation`, `rate_limit` or `nonce`.
    pub check: String,
    /// The warrant that was checked.
    pub warrant_id: String,
    /// `pass` or `fail`.
    pub result: String,
    /// The defect, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The origin of the host's answer, if it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}
