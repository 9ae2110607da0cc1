//! API keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PrincipalName, READERS, Secret, WRITERS};
use crate::{Access, Code, Effect, Method, Principal, Scope, bounds, forms, operation::operation};

operation!(
    /// Makes an API key.
    Identity, CreateKey: CreateKeyInput => CreatedKey,
    name: "create_key",
    method: Method::Post,
    path: "/v1/admin/keys",
    access: Access::Needs(WRITERS),
    effect: Effect::Add,
    creates: true,
    summary: "Make an API key (admin).",
    doc: "The key is shown in this answer only. Without scopes it has those of its role; a scope that the role \
          cannot have gives nothing, and the answer shows those that count.",
    refusals: &[Code::NotFound],
);

/// The wish for a key.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = { "required": ["expires_at", "expires_in_secs"] }))]
pub struct CreateKeyInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// The principal that the bearer acts as.
    pub principal: PrincipalName,
    /// `agent`, `worker` or `admin`.
    #[schemars(with = "forms::RoleName")]
    pub role: String,
    /// The scopes that it is narrowed to. Default: those of the role.
    #[serde(default)]
    pub scopes: Option<Vec<Scope>>,
    /// The end in RFC 3339. Default: none.
    #[serde(default)]
    pub expires_at: Option<String>,
    /// The end, in seconds from now. Not together with expires_at.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub expires_in_secs: Option<u64>,
    /// A word for people, at most 256 bytes.
    #[serde(default)]
    #[schemars(length(min = 1, max = bounds::MAX_NAME_BYTES), regex(pattern = forms::VISIBLE))]
    pub label: Option<String>,
}

/// A new key. The key itself is not shown again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedKey {
    /// Its id.
    pub key_id: String,
    /// The key, to be sent as `Authorization: Bearer`.
    pub key: Secret,
    /// The tenant.
    pub tenant_id: String,
    /// The principal that its bearer acts as.
    pub principal: Principal,
    /// The role of its bearer.
    pub role: String,
    /// The scopes that count.
    pub scopes: Vec<Scope>,
    /// A word for people.
    pub label: Option<String>,
    /// The time at which it was made.
    pub created_at: String,
    /// Its end; null if it has none.
    pub expires_at: Option<String>,
}

operation!(
    /// Lists API keys.
    Identity, ListKeys: ListKeysInput => ListKeysOutput,
    name: "list_keys",
    method: Method::Get,
    path: "/v1/admin/keys",
    access: Access::Needs(READERS),
    effect: Effect::Read,
    summary: "List the API keys of a tenant (admin).",
    doc: "Lists keys in the order in which they were made, those that have ended too. Neither a key nor a hash is \
          shown.",
    refusals: &[Code::NotFound],
);

/// A page of keys.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListKeysInput {
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

/// Keys of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListKeysOutput {
    /// The keys, the oldest first.
    pub keys: Vec<KeyRecord>,
    /// The cursor of the next page; null on the last.
    pub next_cursor: Option<String>,
}

/// A key, as far as it is shown after it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Key")]
pub struct KeyRecord {
    /// Its id.
    pub key_id: String,
    /// The tenant.
    pub tenant_id: String,
    /// The principal that its bearer acts as.
    pub principal: Principal,
    /// The role of its bearer.
    pub role: String,
    /// The scopes that count.
    pub scopes: Vec<Scope>,
    /// A word for people.
    pub label: Option<String>,
    /// The time at which it was made.
    pub created_at: String,
    /// Its end; null if it has none.
    pub expires_at: Option<String>,
    /// About the time of its last use.
    pub last_used_at: Option<String>,
    /// The time at which it was revoked.
    pub revoked_at: Option<String>,
    /// The key that took its place.
    pub replaced_by: Option<String>,
}

operation!(
    /// Replaces an API key by a new one.
    Identity, RotateKey: RotateKeyInput => RotatedKey,
    name: "rotate_key",
    method: Method::Post,
    path: "/v1/admin/keys/{key_id}/rotate",
    access: Access::Needs(WRITERS),
    effect: Effect::Add,
    creates: true,
    summary: "Replace an API key by a new one (admin).",
    doc: "The new key has the rights of the old one and is shown in this answer only. Both work until \
          old_expires_at; with an overlap of 0 the old one ends now.",
    refusals: &[Code::NotFound, Code::Conflict],
);

/// The key to replace.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateKeyInput {
    /// The key's id.
    pub key_id: String,
    /// The tenant. Default: the caller's own; for a platform admin any.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// How long both keys work, in seconds. Default: a day.
    #[serde(default)]
    pub overlap_secs: Option<u64>,
}

/// A new key, and the one that it replaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RotatedKey {
    /// The id of the new key.
    pub key_id: String,
    /// The new key.
    pub key: Secret,
    /// The tenant.
    pub tenant_id: String,
    /// The principal that its bearer acts as.
    pub principal: Principal,
    /// The role of its bearer.
    pub role: String,
    /// The scopes that count.
    pub scopes: Vec<Scope>,
    /// A word for people.
    pub label: Option<String>,
    /// The time at which it was made.
    pub created_at: String,
    /// Its end; null if it has none.
    pub expires_at: Option<String>,
    /// The id of the old key.
    pub replaces: String,
    /// The end of the old key.
    pub old_expires_at: String,
}

operation!(
    /// Revokes an API key.
    Identity, RevokeKey: KeyInput => RevokedKey,
    name: "revoke_key",
    method: Method::Delete,
    path: "/v1/admin/keys/{key_id}",
    access: Access::Needs(WRITERS),
    effect: Effect::End,
    summary: "Revoke an API key (admin).",
    doc: "Counts at once on this server and within 30 seconds on others. The last key of a platform admin cannot be \
          revoked.",
    refusals: &[Code::NotFound, Code::Conflict],
);

/// A key.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KeyInput {
    /// The key's id.
    pub key_id: String,
    /// The tenant. Default: the caller's own; for a platform admin any.
    #[serde(default)]
    pub tenant_id: Option<String>,
}

/// A key that was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokedKey {
    /// Its id.
    pub key_id: String,
    /// The time at which it was first revoked.
    pub revoked_at: String,
}
