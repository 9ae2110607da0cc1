//! Incidents: all credentials of a tenant or a principal end at once, or soon.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PrincipalName, WRITERS};
use crate::{Access, Code, Effect, Method, operation::operation};

operation!(
    /// Revokes every credential of a tenant or a principal.
    Identity, RevokeAllCredentials: RevokeAllInput => RevokedAll,
    name: "revoke_all_credentials",
    method: Method::Post,
    path: "/v1/admin/credentials/revoke-all",
    access: Access::Needs(WRITERS),
    effect: Effect::End,
    summary: "Revoke every credential of a tenant or a principal (admin).",
    doc: "Ends all keys, macaroons and tokens: at once on this server, within 30 seconds on others. The key of the \
          caller and the last key of a platform admin are kept, and named in the answer.",
    refusals: &[Code::NotFound],
);

/// Whose credentials end.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeAllInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// Only those of this principal. Default: of all.
    #[serde(default)]
    pub principal: Option<PrincipalName>,
}

/// What ended, and what did not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokedAll {
    /// The number of keys that were revoked.
    pub keys: u64,
    /// The number of macaroons that were revoked, those not counted that were derived from them.
    pub macaroons: u64,
    /// The number of logins whose tokens were revoked.
    pub tokens: u64,
    /// The keys that were left alone, at most 100.
    pub kept: Vec<KeptKey>,
}

/// A key that was left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptKey {
    /// Its id.
    pub key_id: String,
    /// `own`, `last_platform_admin` or `beyond_your_rights`.
    pub reason: String,
}

operation!(
    /// Gives every key of a tenant or a principal an end.
    Identity, RotateAllKeys: RotateAllInput => RotatedAll,
    name: "rotate_all_keys",
    method: Method::Post,
    path: "/v1/admin/keys/rotate-all",
    access: Access::Needs(WRITERS),
    effect: Effect::End,
    summary: "Give every key of a tenant or a principal an end (admin).",
    doc: "Forces a rotation: all keys end after the overlap, unless they end sooner. Until then their bearers need \
          new ones. The last key of a platform admin is kept, and named in the answer.",
    refusals: &[Code::NotFound],
);

/// Whose keys end, and when.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RotateAllInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// Only those of this principal. Default: of all.
    #[serde(default)]
    pub principal: Option<PrincipalName>,
    /// How long the keys still work, in seconds. Default: a day.
    #[serde(default)]
    pub overlap_secs: Option<u64>,
}

/// What ends, and what does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RotatedAll {
    /// The number of keys that were given an end.
    pub keys: u64,
    /// Their end, unless they end sooner.
    pub expires_at: String,
    /// The keys that were left alone, at most 100.
    pub kept: Vec<KeptKey>,
}
