//! Quotas: how much of the server a tenant may use.

use std::{fmt, str::FromStr};

use super::TenantTier;
use crate::admission::Bucket;

/// One thing that is counted for a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuotaName {
    /// Tasks that have not ended.
    ActiveTasks,
    /// Bytes of one payload.
    PayloadBytes,
    /// Leases that are held at one time.
    ConcurrentLeases,
    /// The length of a lease.
    LeaseTtlSecs,
    /// Tasks created in an hour.
    TasksPerHour,
    /// Calls in an hour.
    ApiCallsPerHour,
    /// Calls of one principal in an hour.
    PrincipalApiCallsPerHour,
    /// Bytes of all receipts.
    ReceiptStorageBytes,
    /// Receipts of one task.
    ReceiptsPerTask,
}

/// The largest number that every reader of JSON holds exactly.
const MAX_QUOTA: u64 = (1 << 53) - 1;

/// The most that can be allowed in an hour. A bucket of this size is still exact.
const MAX_HOURLY: u64 = 1_000_000_000;

const HOUR_MS: u64 = 3_600_000;

impl QuotaName {
    /// Every quota.
    pub const ALL: [Self; 9] = [
        Self::ActiveTasks,
        Self::PayloadBytes,
        Self::ConcurrentLeases,
        Self::LeaseTtlSecs,
        Self::TasksPerHour,
        Self::ApiCallsPerHour,
        Self::PrincipalApiCallsPerHour,
        Self::ReceiptStorageBytes,
        Self::ReceiptsPerTask,
    ];

    /// Returns the quota's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ActiveTasks => "active_tasks",
            Self::PayloadBytes => "payload_bytes",
            Self::ConcurrentLeases => "concurrent_leases",
            Self::LeaseTtlSecs => "lease_ttl_secs",
            Self::TasksPerHour => "tasks_per_hour",
            Self::ApiCallsPerHour => "api_calls_per_hour",
            Self::PrincipalApiCallsPerHour => "principal_api_calls_per_hour",
            Self::ReceiptStorageBytes => "receipt_storage_bytes",
            Self::ReceiptsPerTask => "receipts_per_task",
        }
    }

    /// Returns true if the quota is a number of things in an hour.
    pub const fn is_hourly(self) -> bool {
        matches!(
            self,
            Self::TasksPerHour | Self::ApiCallsPerHour | Self::PrincipalApiCallsPerHour
        )
    }

    /// Reads a value from the wire, where -1 means that there is no quota.
    pub const fn read(self, value: i64) -> Result<Quota, BadQuota> {
        if value == -1 {
            return Ok(Quota::None);
        }
        let number = value.unsigned_abs();
        // A bucket without room never lets anything through, and a lease or a payload needs some.
        let may_be_zero = matches!(
            self,
            Self::ActiveTasks | Self::ConcurrentLeases | Self::ReceiptStorageBytes
        );
        let least = if may_be_zero { 0 } else { 1 };
        let most = if self.is_hourly() {
            MAX_HOURLY
        } else {
            MAX_QUOTA
        };
        if value < 0 || number < least || number > most {
            return Err(BadQuota {
                name: self,
                least,
                most,
            });
        }
        Ok(Quota::AtMost(number))
    }
}

impl FromStr for QuotaName {
    type Err = UnknownQuota;

    fn from_str(text: &str) -> Result<Self, UnknownQuota> {
        let mut all = Self::ALL.into_iter();
        all.find(|name| name.as_str() == text).ok_or(UnknownQuota)
    }
}

/// The error for a text that names no quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown quota")]
pub struct UnknownQuota;

/// The error for a value that a quota cannot have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{} must be -1 or from {least} to {most}", name.as_str())]
pub struct BadQuota {
    /// The quota.
    pub name: QuotaName,
    /// The least value besides -1.
    pub least: u64,
    /// The largest value.
    pub most: u64,
}

/// A bound, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// There is no bound.
    None,
    /// Not more than this.
    AtMost(u64),
}

impl Quota {
    /// Returns the number on the wire, where -1 stands for no bound.
    pub fn as_number(self) -> i64 {
        match self {
            Self::None => -1,
            Self::AtMost(most) => i64::try_from(most).unwrap_or(i64::MAX),
        }
    }

    /// Returns the one that allows less.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::None, other) => other,
            (one, Self::None) => one,
            (Self::AtMost(one), Self::AtMost(other)) => Self::AtMost(one.min(other)),
        }
    }

    /// Returns how many more there may be beside `current`; nothing if there is no bound.
    pub const fn room(self, current: u64) -> Option<u64> {
        match self {
            Self::None => None,
            Self::AtMost(most) => Some(most.saturating_sub(current)),
        }
    }

    /// Returns the value, or the bound if the value is more.
    pub fn clamp(self, value: u64) -> u64 {
        match self {
            Self::None => value,
            Self::AtMost(most) => value.min(most),
        }
    }

    /// Returns true if little is left of it beside `current`: a tenth or less.
    pub fn is_nearly_used(self, current: u64) -> bool {
        match self {
            Self::None => false,
            Self::AtMost(most) => u128::from(current) * 10 >= u128::from(most) * 9,
        }
    }

    /// Returns the bucket of an hourly quota: a burst of all of it, which comes back in an hour.
    pub fn hourly_bucket(self) -> Option<Bucket> {
        match self {
            Self::None => None,
            // Every value that `QuotaName::read` accepts for an hourly quota makes a bucket.
            Self::AtMost(most) => Bucket::new(most, most, HOUR_MS).ok(),
        }
    }
}

/// A refusal: with what was asked for there would be more than the quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the tenant's quota of {} is {limit}, and {current} are in use", quota.as_str())]
pub struct QuotaExceeded {
    /// The quota.
    pub quota: QuotaName,
    /// Its bound.
    pub limit: u64,
    /// The number that is in use already.
    pub current: u64,
}

/// The values of some or all quotas.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Quotas([Option<Quota>; QuotaName::ALL.len()]);

impl Quotas {
    /// Returns the built-in quotas of a tier. What is not among them has no bound.
    pub fn of_tier(tier: TenantTier) -> Self {
        // Tasks in an hour, leases, calls in an hour, gigabytes of receipts, bytes of a payload.
        let (tasks, leases, calls, gigabytes, payload) = match tier {
            TenantTier::Free => (100, 10, 1_000, 1, 1 << 20),
            TenantTier::Paid => (10_000, 100, 100_000, 10, 1 << 20),
            TenantTier::Enterprise => return Self::default(),
        };
        let bounds = [
            (QuotaName::TasksPerHour, tasks),
            (QuotaName::ConcurrentLeases, leases),
            (QuotaName::ApiCallsPerHour, calls),
            (QuotaName::ReceiptStorageBytes, gigabytes << 30),
            (QuotaName::PayloadBytes, payload),
        ];
        let quotas = bounds.into_iter();
        quotas.fold(Self::default(), |quotas, (name, most)| {
            quotas.with(name, Quota::AtMost(most))
        })
    }

    /// Returns these values with one of them set.
    #[must_use]
    pub const fn with(mut self, name: QuotaName, quota: Quota) -> Self {
        self.0[name as usize] = Some(quota);
        self
    }

    /// Returns these values with one of them taken out.
    #[must_use]
    pub const fn without(mut self, name: QuotaName) -> Self {
        self.0[name as usize] = None;
        self
    }

    /// Returns these values, and those of `fallback` where there are none here.
    #[must_use]
    pub fn or(self, fallback: Self) -> Self {
        let mut quotas = self.0;
        for (quota, other) in quotas.iter_mut().zip(fallback.0) {
            *quota = quota.or(other);
        }
        Self(quotas)
    }

    /// Returns one value. What is not set has no bound.
    pub fn get(&self, name: QuotaName) -> Quota {
        self.0[name as usize].unwrap_or(Quota::None)
    }

    /// Returns true if nothing has a bound.
    pub fn is_unlimited(&self) -> bool {
        self.iter().all(|(_, quota)| quota == Quota::None)
    }

    /// Returns true if something has a bound in an hour.
    pub fn has_hourly(&self) -> bool {
        let is_bounded =
            |(name, quota): (QuotaName, Quota)| name.is_hourly() && quota != Quota::None;
        self.iter().any(is_bounded)
    }

    /// Returns one value if it is set.
    pub const fn set_value(&self, name: QuotaName) -> Option<Quota> {
        self.0[name as usize]
    }

    /// Returns the values that are set.
    pub fn iter(&self) -> impl Iterator<Item = (QuotaName, Quota)> {
        let all = QuotaName::ALL.into_iter().zip(self.0);
        all.filter_map(|(name, quota)| Some((name, quota?)))
    }

    /// Refuses to add one to what is counted under `name`, if that would be too many.
    pub fn check(&self, name: QuotaName, current: u64) -> Result<(), QuotaExceeded> {
        match self.get(name) {
            Quota::AtMost(limit) if current >= limit => Err(QuotaExceeded {
                quota: name,
                limit,
                current,
            }),
            Quota::AtMost(_) | Quota::None => Ok(()),
        }
    }
}

impl fmt::Debug for Quotas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.iter();
        let values = values.map(|(name, quota)| (name.as_str(), quota.as_number()));
        f.debug_map().entries(values).finish()
    }
}
