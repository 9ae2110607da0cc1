//! Macaroons.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PrincipalName, Secret, WRITERS};
use crate::{Access, Code, Effect, Method, bounds, forms, operation::operation};

operation!(
    /// Mints a macaroon.
    Identity, CreateMacaroon: CreateMacaroonInput => CreatedMacaroon,
    name: "create_macaroon",
    method: Method::Post,
    path: "/v1/admin/macaroons",
    access: Access::Needs(WRITERS),
    effect: Effect::Add,
    creates: true,
    summary: "Mint a macaroon (admin).",
    doc: "Its holder can narrow it without asking. It has the scopes of its role, as far as its caveats allow; the \
          server adds its end. It is shown in this answer only.",
    refusals: &[Code::NotFound],
);

/// The wish for a macaroon.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateMacaroonInput {
    /// The tenant. Default: the caller's own.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// The principal that the bearer acts as.
    pub principal: PrincipalName,
    /// `agent`, `worker` or `admin`. Default: agent.
    #[serde(default)]
    #[schemars(with = "Option<forms::RoleName>")]
    pub role: Option<String>,
    /// The conditions, such as `op = send,recv` or `topic = user:42:*`. All must hold.
    #[schemars(length(max = bounds::MAX_CAVEATS), inner(length(min = 1, max = bounds::MAX_CAVEAT_BYTES)))]
    pub caveats: Vec<String>,
    /// The end, in seconds from now. Default: a day; at most thirty days.
    #[serde(default)]
    #[schemars(range(min = 1, max = bounds::MAX_MACAROON_SECS))]
    pub expires_in_secs: Option<u64>,
}

/// A new macaroon. It is not shown again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedMacaroon {
    /// Its id, by which it is revoked.
    pub macaroon_id: String,
    /// The macaroon: version 2, base64url.
    pub macaroon: Secret,
    /// The identifier within it.
    pub identifier: String,
    /// `asyncgate`.
    pub location: String,
    /// All conditions, that of its end too.
    pub caveats: Vec<String>,
    /// Its end.
    pub expires_at: String,
}

operation!(
    /// Revokes a macaroon.
    Identity, RevokeMacaroon: MacaroonInput => RevokedMacaroon,
    name: "revoke_macaroon",
    method: Method::Delete,
    path: "/v1/admin/macaroons/{macaroon_id}",
    access: Access::Needs(WRITERS),
    effect: Effect::End,
    summary: "Revoke a macaroon (admin).",
    doc: "Ends the macaroon and all that were derived from it: at once on this server, within 30 seconds on others.",
    refusals: &[Code::NotFound],
);

/// A macaroon.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MacaroonInput {
    /// The macaroon's id.
    pub macaroon_id: String,
    /// The tenant. Default: the caller's own; for a platform admin any.
    #[serde(default)]
    pub tenant_id: Option<String>,
}

/// A macaroon that was revoked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RevokedMacaroon {
    /// Its id.
    pub macaroon_id: String,
    /// The time at which it was first revoked.
    pub revoked_at: String,
}
