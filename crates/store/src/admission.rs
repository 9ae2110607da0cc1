//! Admission's side of storage: a [`Host`] says whether something may happen now.
//!
//! A store is a host, and so may be anything else that keeps the same promises. To write one: answer [`Host::admit`] in
//! one atomic step as [`decide`](asyncgate_core::admission::decide) would, over rows that you may forget from their
//! `until` on and not before; keep revocations until they are taken back; fail with an [`Error`] rather than guess.
//! Deadlines, failure modes, caches and metrics stand in front of a host, in the crate `asyncgate-admission`, and are not
//! its business. The conformance suite tells whether a host is right.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, ClientTier, DomainState, LimitCheck, Limited, Revocation, Subject, Verdicts,
    },
};

use crate::{Answer, Error, Job, Tasks};

/// The name of a host in answers.
pub type Backend = &'static str;

/// Decisions about nonces, counters, limits and revocations.
///
/// Contract:
/// - [`admit`](Host::admit) is atomic and linearizable within a tenant: of two calls that use one nonce, one is told that
///   it is a replay. It answers as the pure rule does. On `Err` nothing is known to have been written.
/// - `now` is the caller's time. A host whose rows are shared by many callers uses one clock of its own instead, and
///   returns that time in [`Verdicts::now`].
/// - What was decided is on disk before the answer, on hosts that have a disk. The exception is a question about
///   nothing but fleeting limits ([`Asks::is_fleeting`]): a crash may forget the last second of such consumption. A host that could not write
///   it for longer refuses as before, and lets nobody pass: it answers with an error.
/// - Rows are forgotten a few at a time, never all at once, and none while it still matters. A host that has no room for
///   more rows answers with an error.
pub trait Host: Send + Sync {
    /// Returns the name of the host.
    fn backend(&self) -> Backend;

    /// Decides everything that is asked, in one step.
    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts>;

    /// Decides about one limit: the same as [`admit`](Host::admit), for the many calls that ask for nothing else.
    fn check_limit<'a>(
        &'a self,
        tenant: TenantId,
        now: Timestamp,
        check: &LimitCheck,
    ) -> Reply<'a, Limited> {
        check_by_admit(self, tenant, now, check)
    }

    /// Returns the revocations of subjects, in the order asked.
    fn revoked(
        &self,
        tenant: TenantId,
        subjects: Vec<Subject>,
    ) -> Reply<'_, Vec<Option<Revocation>>>;

    /// Revokes. Returns the revocation that stands, which is the first one, and true if it is new.
    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)>;

    /// Takes a revocation back. Returns true if there was one.
    fn unrevoke(&self, tenant: TenantId, now: Timestamp, subject: Subject) -> Reply<'_, bool>;

    /// Returns revocations in the order of their subjects, after `after`.
    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>>;

    /// Returns `Ok` if the host would answer now.
    fn ping(&self) -> Reply<'_, ()>;
}

/// Decides about one limit by [`Host::admit`], for hosts whose short way does not lead to every limit.
pub fn check_by_admit<'a>(
    host: &'a (impl Host + ?Sized),
    tenant: TenantId,
    now: Timestamp,
    check: &LimitCheck,
) -> Reply<'a, Limited> {
    let asks = Asks {
        limits: vec![check.clone()],
        ..Asks::default()
    };
    let only = |mut verdicts: Verdicts| {
        let limited = verdicts.limits.pop();
        limited.ok_or_else(|| Error::Corrupt("the host left out an answer".to_owned()))
    };
    match host.admit(tenant, now, asks) {
        Reply::Now(answer) => Reply::Now(answer.map(|answer| answer.and_then(only))),
        Reply::Later(answer) => Reply::later(async move { only(answer.await?) }),
    }
}

/// A decision about a domain: it returns the new state, or `None` to leave the domain as it is. It may be called more than
/// once; the last call counts.
pub type DecideDomain = Box<dyn FnMut(Option<DomainState>) -> Option<DomainState> + Send>;

/// A host that is part of a store. It also keeps the tiers of clients and the state of domains.
pub trait Admission: Host {
    /// Runs a job over tasks if what is asked passes, both in one commit: a nonce is used and a limit charged only if the
    /// job wrote. A refusal costs what it costs with [`admit`](Host::admit), and then the decision about tasks is not
    /// called.
    fn transact_admitted(&self, asks: Asks, job: Job<Tasks>) -> Answer<'_, Verdicts>;

    /// Returns the state of a domain, by its hash. Domains are the server's: they have no tenant.
    fn domain(&self, hash: [u8; 32]) -> Answer<'_, Option<DomainState>>;

    /// Decides about a domain in one step. Its state is kept for ever: a domain that is forgotten could be used again from
    /// its first stage.
    fn decide_domain(&self, now: Timestamp, hash: [u8; 32], decide: DecideDomain)
    -> Answer<'_, ()>;

    /// Sets a client's tier.
    fn set_tier(&self, tenant: TenantId, now: Timestamp, tier: ClientTier) -> Answer<'_, ()>;

    /// Takes a client's tier back. Returns true if it had one.
    fn clear_tier(&self, tenant: TenantId, now: Timestamp, client: String) -> Answer<'_, bool>;

    /// Returns a client's tier, also one whose time is over.
    fn tier(&self, tenant: TenantId, client: String) -> Answer<'_, Option<ClientTier>>;

    /// Returns clients by name, after `after`.
    fn tiers(
        &self,
        tenant: TenantId,
        after: Option<String>,
        limit: usize,
    ) -> Answer<'_, Vec<ClientTier>>;

    /// Returns how many rows are kept, over all tenants.
    fn rows(&self) -> Answer<'_, u64>;
}

/// The answer of a host, at once or later. An answer that is there at once costs no allocation.
#[must_use = "a reply does nothing unless it is awaited"]
pub enum Reply<'a, T> {
    /// The answer is there, until it is taken.
    Now(Option<Result<T, Error>>),
    /// The answer will come.
    Later(Answer<'a, T>),
}

impl<'a, T> Reply<'a, T> {
    /// Returns an answer that is there.
    pub const fn now(answer: T) -> Self {
        Self::Now(Some(Ok(answer)))
    }

    /// Returns a failure that is known.
    pub const fn failed(error: Error) -> Self {
        Self::Now(Some(Err(error)))
    }

    /// Returns an answer that will come.
    pub fn later(answer: impl Future<Output = Result<T, Error>> + Send + 'a) -> Self {
        Self::Later(Box::pin(answer))
    }
}

impl<T: Unpin> Future for Reply<'_, T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(answer) => Poll::Ready(answer.take().unwrap_or_else(|| {
                let twice = "the answer was taken before".to_owned();
                Err(Error::Unavailable(twice))
            })),
            Self::Later(answer) => answer.as_mut().poll(context),
        }
    }
}

impl<T> std::fmt::Debug for Reply<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Now(_) => "Reply::Now",
            Self::Later(_) => "Reply::Later",
        })
    }
}
