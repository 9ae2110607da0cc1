//! People who may enter a tenant.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{PrincipalName, READERS, Secret, WRITERS};
use crate::{
    Access, Code, Effect, Method, Principal, Scope, bounds,
    forms::{self, way},
    operation::operation,
};

operation!(
    /// Lets a person in.
    Identity, AddIdentity: AddIdentityInput => IdentityRecord,
    name: "add_identity",
    method: Method::Post,
    path: "/v1/admin/identities",
    access: Access::Needs(WRITERS),
    effect: Effect::Add,
    creates: true,
    summary: "Let a person in by a provider of identities (admin).",
    doc: "Whoever the provider names so may enter the tenant as this principal. An email counts only if the provider \
          has verified it. A person of the provider `local` has a password here.",
    refusals: &[Code::NotFound, Code::Conflict],
);

/// A person to let in.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [
    way("AddBySubject", &["subject"], &["email"], &Value::Null),
    way("AddByEmail", &["email"], &["subject"], &Value::Null),
]))]
pub struct AddIdentityInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// The provider's name in the settings, or `local`.
    #[schemars(length(min = 1, max = bounds::MAX_NAME_BYTES), regex(pattern = forms::VISIBLE))]
    pub provider: String,
    /// The provider's own name for the person.
    #[serde(default)]
    #[schemars(length(min = 1, max = bounds::MAX_NAME_BYTES), regex(pattern = forms::VISIBLE))]
    pub subject: Option<String>,
    /// The person's address instead.
    #[serde(default)]
    #[schemars(length(min = 3, max = bounds::MAX_NAME_BYTES), regex(pattern = forms::EMAIL))]
    pub email: Option<String>,
    /// The principal that the person acts as.
    pub principal: PrincipalName,
    /// `agent`, `worker` or `admin`.
    #[schemars(with = "forms::RoleName")]
    pub role: String,
    /// The scopes that the person is given. Default: those of the role.
    #[serde(default)]
    pub scopes: Option<Vec<Scope>>,
    /// The password of a person of the provider `local`.
    #[serde(default)]
    #[schemars(length(min = bounds::MIN_PASSWORD_BYTES, max = bounds::MAX_PASSWORD_BYTES))]
    pub password: Option<Secret>,
}

/// The leave of a person to enter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Identity")]
pub struct IdentityRecord {
    /// Its id.
    pub identity_id: String,
    /// The tenant.
    pub tenant_id: String,
    /// The provider.
    pub provider: String,
    /// The provider's own name for the person.
    pub subject: Option<String>,
    /// The person's address, if the person is known by it.
    pub email: Option<String>,
    /// The principal that the person acts as.
    pub principal: Principal,
    /// The role of the person.
    pub role: String,
    /// The scopes that count.
    pub scopes: Vec<Scope>,
    /// The time at which it was added.
    pub created_at: String,
}

operation!(
    /// Lists the people of a tenant.
    Identity, ListIdentities: ListIdentitiesInput => ListIdentitiesOutput,
    name: "list_identities",
    method: Method::Get,
    path: "/v1/admin/identities",
    access: Access::Needs(READERS),
    effect: Effect::Read,
    summary: "List the people who may enter a tenant (admin).",
    doc: "Lists them in the order in which they were added.",
    refusals: &[Code::NotFound],
);

/// A page of people.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListIdentitiesInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// The most to return. Default 50, at most 200.
    #[serde(default)]
    pub limit: Option<u32>,
    /// The next_cursor of the page before.
    #[serde(default)]
    #[schemars(extend("format" = "uuid"))]
    pub cursor: Option<String>,
}

/// People of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListIdentitiesOutput {
    /// The people, the first who was added first.
    pub identities: Vec<IdentityRecord>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

operation!(
    /// Reads the leave of one person.
    Identity, GetIdentity: IdentityInput => IdentityRecord,
    name: "get_identity",
    method: Method::Get,
    path: "/v1/admin/identities/{identity_id}",
    access: Access::Needs(READERS),
    effect: Effect::Read,
    summary: "Read what one person may do (admin).",
    doc: "The provider and its name for the person, the principal, the role and the scopes.",
    refusals: &[Code::NotFound],
);

operation!(
    /// Takes a person's leave away.
    Identity, RemoveIdentity: IdentityInput => RemovedIdentity,
    name: "remove_identity",
    method: Method::Delete,
    path: "/v1/admin/identities/{identity_id}",
    access: Access::Needs(WRITERS),
    effect: Effect::End,
    summary: "Take a person's leave to enter away (admin).",
    doc: "The person cannot log in any more, and tokens for the person's principal end: at once on this server, \
          within 30 seconds on others.",
    refusals: &[Code::NotFound],
);

/// A person's leave to enter.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IdentityInput {
    /// Its id.
    pub identity_id: String,
    /// The tenant. Default: the caller's own; for a platform admin any.
    #[serde(default)]
    pub tenant_id: Option<String>,
}

/// A leave that was taken away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedIdentity {
    /// Its id.
    pub identity_id: String,
    /// The number of logins whose tokens ended with it.
    pub tokens_revoked: u64,
}
