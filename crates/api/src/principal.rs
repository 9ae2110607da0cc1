//! Principals: those who act and those who are addressed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The sort of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrincipalKind {
    /// Hands out work.
    Agent,
    /// Does work.
    Worker,
    /// A program that may do both.
    Service,
    /// A person.
    Human,
    /// The server itself.
    System,
}

/// A principal that acts or is addressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Principal {
    /// Its sort.
    pub kind: PrincipalKind,
    /// Its stable name within its kind.
    pub id: String,
    /// The device, process or session that acted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
}
