//! Everything a decision receives from outside: the time, ids, the instance and the settings.

use std::sync::Arc;

use crate::{Ids, Policy, Timestamp};

/// The surroundings of one decision. Cloning gives the same ids again, so that a decision that a
/// store must repeat comes out the same.
#[derive(Debug, Clone)]
pub struct Env {
    /// The time of the decision.
    pub now: Timestamp,
    /// Ids and random numbers.
    pub ids: Ids,
    /// The server instance that decides; receipts and tasks carry it.
    pub instance: Arc<str>,
    /// The settings that rules read.
    pub policy: Arc<Policy>,
}
