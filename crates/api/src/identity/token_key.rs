//! The key that signs access tokens.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PLATFORM;
use crate::{Access, Code, Effect, Method, NoInput, operation::operation};

operation!(
    /// Signs access tokens with a new key from now on.
    Identity, RotateTokenKey: NoInput => RotatedTokenKey,
    name: "rotate_token_key",
    method: Method::Post,
    path: "/v1/admin/token-key/rotate",
    access: Access::Needs(PLATFORM),
    effect: Effect::Add,
    summary: "Sign access tokens with a new key (platform admin).",
    doc: "Makes a key and signs with it from now on. The old public key stays published and its tokens stay valid for as \
          long as one of them can live. Refused if security.jwt.private_key_path names the key: then replace that file and \
          let the server read it again (SIGHUP).",
    refusals: &[Code::Conflict],
);

/// The key that signs now, and the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RotatedTokenKey {
    /// The name of the new key, as tokens and the key set have it.
    pub kid: String,
    /// The name of the old key, if there was one.
    pub replaces: Option<String>,
    /// The time until which tokens of the old key are accepted, if they live so long.
    pub old_accepted_until: Option<String>,
}
