//! Everything a decision receives from outside: the time, ids, the instance and the settings.

use std::sync::Arc;

use crate::{
    Ids, Policy, Timestamp,
    identity::{Quota, QuotaName, Quotas},
};

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
    /// The quotas of the tenant that it decides for; absent if it has none.
    pub quotas: Option<Arc<Quotas>>,
}

impl Env {
    /// Returns one quota of the tenant.
    pub fn quota(&self, name: QuotaName) -> Quota {
        let quotas = self.quotas.as_ref();
        quotas.map_or(Quota::None, |quotas| quotas.get(name))
    }
}
