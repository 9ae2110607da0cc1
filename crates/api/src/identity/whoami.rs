//! Who the caller is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Access, Effect, Method, NoInput, Principal, Scope, operation::operation};

operation!(
    /// Says who the caller is.
    Identity, WhoAmI: NoInput => WhoAmIOutput,
    name: "whoami",
    method: Method::Get,
    path: "/v1/whoami",
    tool: Some("asyncgate.whoami"),
    access: Access::Any,
    effect: Effect::Read,
    summary: "Say who you are.",
    doc: "The tenant, principal, role and scopes of the credential, its kind, its end and its caveats.",
);

/// The caller as the server knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "WhoAmI")]
pub struct WhoAmIOutput {
    /// The tenant.
    pub tenant_id: String,
    /// The principal that the credential belongs to.
    pub principal: Principal,
    /// `agent`, `worker` or `admin`.
    pub role: String,
    /// The scopes that count.
    pub scopes: Vec<Scope>,
    /// `api_key`, `jwt`, `macaroon`, `shared_key` or `dev`.
    pub credential: String,
    /// The end of the credential; null if it has none.
    pub expires_at: Option<String>,
    /// The conditions of a macaroon.
    pub caveats: Vec<String>,
}
