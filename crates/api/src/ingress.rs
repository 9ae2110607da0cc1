//! The answer to a signed message.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::TaskStatus;

/// The task that a signed message became.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IngressOutput {
    /// Always true.
    pub ok: bool,
    /// The task's id.
    pub task_id: String,
    /// The task's state.
    pub status: TaskStatus,
    /// The correlation id, also in `X-Corr-Id` and in the server's log.
    pub corr_id: String,
}
