//! Operations of identity: who a caller is, and the keys, tenants, macaroons and people that admins look after.
//!
//! Where an input has `tenant_id`, a platform admin may name any tenant; everybody else only its own. A thing of
//! another tenant is answered like one that does not exist.

mod audit;
mod incident;
mod keys;
mod macaroons;
mod people;
mod tenants;
mod token_key;
mod whoami;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use audit::*;
pub use incident::*;
pub use keys::*;
pub use macaroons::*;
pub use people::*;
pub use tenants::*;
pub use token_key::*;
pub use whoami::*;

use crate::{PrincipalKind, Scope};

/// Those who may read what admins look after.
const READERS: &[Scope] = &[Scope::AdminRead, Scope::PlatformAdmin];
/// Those who may change it.
const WRITERS: &[Scope] = &[Scope::AdminWrite, Scope::PlatformAdmin];
/// Those who may manage tenants.
const PLATFORM: &[Scope] = &[Scope::PlatformAdmin];

/// A principal by its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrincipalName {
    /// Its sort. Nobody can be the server itself.
    #[schemars(extend("not" = { "const": "system" }))]
    pub kind: PrincipalKind,
    /// Its stable name within its kind, 1 to 256 bytes.
    #[schemars(length(min = 1, max = crate::bounds::MAX_NAME_BYTES), regex(pattern = crate::forms::VISIBLE))]
    pub id: String,
}

/// A text that is shown once and must not be logged.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
