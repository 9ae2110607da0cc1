//! Tenants: their tier, what they may use, and if they are suspended.

use std::str::FromStr;

use super::{ExceptionEffect, Quotas};
use crate::Timestamp;

/// The sort of contract that a tenant has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TenantTier {
    /// Small quotas.
    Free,
    /// Large quotas.
    Paid,
    /// No quotas but those that it is given by name.
    Enterprise,
}

impl TenantTier {
    /// Every tier.
    pub const ALL: [Self; 3] = [Self::Free, Self::Paid, Self::Enterprise];

    /// Returns the tier's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Paid => "paid",
            Self::Enterprise => "enterprise",
        }
    }
}

/// The error for a text that is no tier of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown tier")]
pub struct UnknownTenantTier;

impl FromStr for TenantTier {
    type Err = UnknownTenantTier;

    fn from_str(text: &str) -> Result<Self, UnknownTenantTier> {
        let mut all = Self::ALL.into_iter();
        all.find(|tier| tier.as_str() == text)
            .ok_or(UnknownTenantTier)
    }
}

/// The refusal of every credential of a suspended tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tenant is suspended")]
pub struct TenantSuspended;

/// What the rules know of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tenant {
    /// Its tier.
    pub tier: TenantTier,
    /// The quotas that it was given by name.
    pub own_quotas: Quotas,
    /// The time since which it is suspended.
    pub suspended_at: Option<Timestamp>,
    /// An exception from its quotas, and the first moment at which it does not count any more.
    pub exception: Option<(ExceptionEffect, Timestamp)>,
}

impl Tenant {
    /// Returns the quotas that count usually: its own, then those that the settings give its tier, then the
    /// built-in ones.
    pub fn quotas(&self, of_tier: Quotas) -> Quotas {
        let built_in = Quotas::of_tier(self.tier);
        self.own_quotas.or(of_tier).or(built_in)
    }

    /// Returns the quotas that count now: the usual ones, unless an exception is made.
    pub fn quotas_at(&self, of_tier: Quotas, now: Timestamp) -> Quotas {
        let usual = self.quotas(of_tier);
        match self.exception {
            Some((effect, until)) if now < until => effect.apply(usual),
            Some(_) | None => usual,
        }
    }

    /// Suspends the tenant, or lets it in again. A second suspension keeps the time of the first.
    #[must_use]
    pub fn suspended(self, suspended: bool, now: Timestamp) -> Self {
        let since = self.suspended_at.unwrap_or(now);
        Self {
            suspended_at: suspended.then_some(since),
            ..self
        }
    }

    /// Refuses the tenant's credentials while it is suspended.
    pub const fn admit(&self) -> Result<(), TenantSuspended> {
        match self.suspended_at {
            Some(_) => Err(TenantSuspended),
            None => Ok(()),
        }
    }
}
