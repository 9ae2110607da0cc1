//! Operations of admission: decide if something may happen now.
//!
//! A decision is a success, even if the decision is "no". Times are seconds since 1970 where their
//! name ends in `_at`; bytes are base64url without padding; hashes and keys are lower-case
//! hexadecimal digits.

mod host;
mod limits;
mod tiers;
mod warrants;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use host::*;
pub use limits::*;
pub use tiers::*;
pub use warrants::*;

/// The origin of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// `store`: the backend decided. `cache`: a kept answer. `failure_mode`: no answer.
    pub source: String,
    /// The backend: `sqlite`, `memory`, `redis`, `dynamodb`, ...
    pub backend: String,
    /// The rule applied because the backend did not answer: `open`, `closed` or `stale_cache`.
    pub failure_mode: Option<String>,
    /// The age of a kept answer.
    pub cache_age_secs: Option<u64>,
}
