//! The host that stores nothing.

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, Counted, LimitCheck, Limited, NonceResult, Revocation, Standing, Subject, Verdicts,
    },
};
use asyncgate_store::{
    Error,
    admission::{Backend, Host, Reply},
};

/// Allows everything and remembers nothing, for tests and for gates that need no state. Nothing is
/// protected against replay, nothing is limited, and nothing can be revoked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Minimal;

/// Returns the answer of a limit that is not asked.
pub(crate) fn unlimited(check: &LimitCheck, now: Timestamp) -> Limited {
    let limit = check.rule.limit();
    Limited {
        allowed: true,
        shadowed: false,
        limit,
        remaining: limit,
        reset_at: now.as_millis().div_euclid(1_000),
        retry_after_secs: None,
        standing: Standing::Window,
    }
}

/// Returns the answers when no host is asked.
pub(crate) fn allowed(asks: &Asks, now: Timestamp) -> Verdicts {
    let counted = |window_secs: u64, remaining: u64| {
        let window = i64::try_from(window_secs.max(1)).unwrap_or(i64::MAX);
        let now = now.as_millis().max(0) / 1_000;
        let bucket = now / window;
        let reset_at = bucket.saturating_add(1).saturating_mul(window);
        Counted {
            allowed: true,
            count: 0,
            remaining,
            bucket: bucket.unsigned_abs(),
            reset_at,
            retry_after_secs: reset_at.saturating_sub(now).max(1).unsigned_abs(),
        }
    };
    let counters = asks.counters.iter();
    let limits = asks.limits.iter();
    Verdicts {
        now,
        counters: counters
            .map(|increment| counted(increment.window_secs, increment.limit))
            .collect(),
        limits: limits.map(|check| unlimited(check, now)).collect(),
        nonces: vec![NonceResult::Accepted; asks.nonces.len()],
    }
}

impl Host for Minimal {
    fn backend(&self) -> Backend {
        "minimal"
    }

    fn admit(&self, _: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        Reply::now(allowed(&asks, now))
    }

    fn revoked(&self, _: TenantId, subjects: Vec<Subject>) -> Reply<'_, Vec<Option<Revocation>>> {
        Reply::now(vec![None; subjects.len()])
    }

    fn revoke(&self, _: TenantId, _: Revocation) -> Reply<'_, (Revocation, bool)> {
        // To accept a revocation and forget it would be a lie.
        let why = "the minimal host keeps no revocations".to_owned();
        Reply::failed(Error::Unavailable(why))
    }

    fn unrevoke(&self, _: TenantId, _: Timestamp, _: Subject) -> Reply<'_, bool> {
        Reply::now(false)
    }

    fn revocations(&self, _: TenantId, _: Option<Subject>, _: usize) -> Reply<'_, Vec<Revocation>> {
        Reply::now(Vec::new())
    }

    fn ping(&self) -> Reply<'_, ()> {
        Reply::now(())
    }
}
