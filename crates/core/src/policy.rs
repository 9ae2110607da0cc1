//! The settings that rules read. The defaults are the ones the contract promises.

use crate::mailbox;

/// Limits and defaults of the task plane, and those of the mailbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// The lease time when a claim names none.
    pub default_lease_ttl_ms: i64,
    /// The longest lease time and extension; longer requests are shortened.
    pub max_lease_ttl_ms: i64,
    /// The time after its end for which a lease still counts.
    pub lease_grace_ms: i64,
    /// The longest time that an expired task waits before it can be claimed again.
    pub expiry_jitter_ms: i64,
    /// The number of reported failures that ends a task, unless the task names one.
    pub default_max_attempts: u32,
    /// The first retry delay when a task names none.
    pub default_retry_backoff_seconds: u32,
    /// The longest retry delay.
    pub max_retry_backoff_seconds: u32,
    /// The priority of tasks that name none.
    pub default_priority: i32,
    /// The treatment of a success that does not say where its result is.
    pub locatability: Locatability,
    /// The largest payload or result.
    pub max_payload_bytes: usize,
    /// The number of classes that a tenant's tasks may have, as long as they have not ended.
    pub max_task_classes: usize,
    /// The number of leases of a task that may expire before an anomaly is recorded.
    pub expiries_before_anomaly: u32,
    /// The number of leases of a task that may run out before it ends, unless the task names one; 0 means
    /// any number.
    pub max_lease_expiries: u32,
    /// The number of renewals a lease may have before an anomaly is recorded.
    pub renewals_before_anomaly: u32,
    /// The longest silence of a principal within one session.
    pub session_gap_ms: i64,
    /// The settings that the mailbox's rules read.
    pub mailbox: mailbox::Policy,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            default_lease_ttl_ms: 300_000,
            max_lease_ttl_ms: 1_800_000,
            lease_grace_ms: 0,
            expiry_jitter_ms: 5_000,
            default_max_attempts: 3,
            default_retry_backoff_seconds: 30,
            max_retry_backoff_seconds: 900,
            default_priority: 0,
            locatability: Locatability::Lenient,
            max_payload_bytes: 1 << 20,
            max_task_classes: 10_000,
            expiries_before_anomaly: 3,
            max_lease_expiries: 20,
            renewals_before_anomaly: 10,
            session_gap_ms: 1_800_000,
            mailbox: mailbox::Policy::default(),
        }
    }
}

/// The treatment of a success that does not say where its result is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locatability {
    /// The task ends, its obligation stays open until proof arrives.
    Lenient,
    /// The call is refused.
    Strict,
}
