//! The guard in front of a host.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, Freshness, LimitCheck, Limited, NonceResult, Revocation, Subject, Verdicts},
};
use asyncgate_store::{Error, Stopwatch};
use prometheus_client::registry::Registry;

use crate::{
    Backend, Circuit, Component, ComponentHealth, FailureMode, Health, Host, Reply, Settings,
    Status,
    breaker::Breaker,
    cache::{Cache, Kept},
    health::Record,
    metrics::{Metrics, Operation, Outcome},
    minimal,
};

/// The source of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The host answered now.
    Store,
    /// An earlier answer of the host was kept.
    Cache,
    /// No answer: the failure mode decided.
    FailureMode,
}

impl Source {
    /// The source's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Cache => "cache",
            Self::FailureMode => "failure_mode",
        }
    }
}

/// The origin of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Provenance {
    /// Its source.
    pub source: Source,
    /// The backend of the host.
    pub backend: Backend,
    /// The failure mode that was applied, if one was.
    pub failure_mode: Option<FailureMode>,
    /// Its age, if it was kept.
    pub cache_age_secs: Option<u64>,
}

/// An answer with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered<T> {
    /// The answer.
    pub answer: T,
    /// Its origin.
    pub provenance: Provenance,
}

/// The registry's answer about a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// It is not revoked.
    Valid,
    /// It was not revoked at the time of the last answer of the registry.
    ValidCached,
    /// It is revoked.
    Revoked(Revocation),
}

/// The error when there is no answer and the failure mode allows nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{cause}")]
pub struct Unavailable {
    /// The seconds after which to try again.
    pub retry_after_secs: u64,
    /// The cause, for the log.
    pub cause: String,
    /// True if the host is well and turned this caller away. No failure mode counts then: whoever fills its share of the
    /// host must not get past its limits by that.
    pub turned_away: bool,
}

impl Unavailable {
    /// Returns the refusal for a cause that may be over in a second.
    pub fn of(cause: &str) -> Self {
        unavailable(1, cause.to_owned())
    }
}

/// A part of the host, with the record of its calls.
#[derive(Debug, Default)]
struct Part {
    breaker: Breaker,
    record: Record,
}

/// Asks a host, and applies the failure mode when it does not answer.
pub struct Guard {
    host: Arc<dyn Host>,
    settings: RwLock<Arc<Settings>>,
    parts: [Part; Component::ALL.len()],
    cache: Mutex<Cache>,
    metrics: Metrics,
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard")
            .field("backend", &self.host.backend())
            .finish_non_exhaustive()
    }
}

impl Guard {
    /// Creates a guard in front of `host`.
    pub fn new(host: Arc<dyn Host>, settings: Settings) -> Self {
        Self {
            host,
            settings: RwLock::new(Arc::new(settings)),
            parts: Default::default(),
            cache: Mutex::default(),
            metrics: Metrics::default(),
        }
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other settings in force.
    pub fn reload(&self, settings: Settings) {
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Registers the guard's metrics with `registry`, under the names that users of Tenuo hosts know.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    /// Decides several questions in one step. If any part of them fails closed, all of them do.
    pub async fn admit(
        &self,
        tenant: TenantId,
        now: Timestamp,
        asks: Asks,
    ) -> Result<Answered<Verdicts>, Unavailable> {
        let component = match (asks.nonces.is_empty(), self.settings().nonces) {
            (true, _) => Component::Counters,
            // Nonces fail open here, but counters may still fail closed: the stricter mode must decide.
            (false, FailureMode::Open) if !asks.counters.is_empty() || !asks.limits.is_empty() => {
                Component::Counters
            }
            (false, _) => Component::Nonces,
        };
        // Prepared before, because the host takes the questions.
        let permissive = minimal::allowed(&asks, now);
        let (answered, took) = self
            .timed(component, now, || self.host.admit(tenant, now, asks))
            .await;
        let answered = self.or_open(component, answered, || permissive);
        self.count(&answered, took);
        answered
    }

    /// Decides about one limit.
    pub async fn check_limit(
        &self,
        tenant: TenantId,
        now: Timestamp,
        check: &LimitCheck,
    ) -> Result<Answered<Limited>, Unavailable> {
        let part = Component::Counters;
        let (answered, took) = self
            .timed(part, now, || self.host.check_limit(tenant, now, check))
            .await;
        let answered = self.or_open(part, answered, || minimal::unlimited(check, now));
        let outcome = match &answered {
            Ok(answered) if answered.provenance.source == Source::FailureMode => Outcome::Error,
            Ok(answered) if answered.answer.allowed => Outcome::Success,
            Ok(_) => Outcome::Exceeded,
            Err(_) => Outcome::Error,
        };
        self.metrics.ended(Operation::CheckLimit, outcome, 1, took);
        answered
    }

    /// Returns the registry's answers about subjects, in the order asked. Recent answers are not asked again.
    pub async fn is_revoked(
        &self,
        tenant: TenantId,
        now: Timestamp,
        subjects: &[Subject],
    ) -> Result<Vec<Answered<Registered>>, Unavailable> {
        let watch = Stopwatch::start();
        let settings = self.settings();
        let fresh =
            |kept: &Kept| settings.cache.freshness(now.millis_since(kept.at)) == Freshness::Fresh;
        let mut answers: Vec<Option<Answered<Registered>>> = {
            // The lock is held for the whole list: a lookup costs less than taking the lock again.
            let mut cache = self.cache();
            let kept = |subject: &Subject| {
                let kept = cache.get(tenant, *subject).filter(|kept| fresh(kept))?;
                self.metrics.hit("revocation");
                Some(self.by_cache(kept, now, None))
            };
            subjects.iter().map(kept).collect()
        };
        let unknown: Vec<Subject> = subjects
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_none())
            .map(|(subject, _)| *subject)
            .collect();
        let mut asked = if unknown.is_empty() {
            Vec::new()
        } else {
            self.ask_registry(tenant, now, &settings, unknown).await?
        }
        .into_iter();
        // A host that answers fewer questions than asked is broken. To guess would be worse than to refuse.
        let missing = || Unavailable::of("the host left out an answer");
        let answers = answers.iter_mut().map(|answer| {
            let answer = answer.take().or_else(|| asked.next());
            answer.ok_or_else(missing)
        });
        let answers: Vec<Answered<Registered>> = answers.collect::<Result<_, _>>()?;
        let revoked =
            |answered: &&Answered<Registered>| matches!(answered.answer, Registered::Revoked(_));
        let revoked = answers.iter().filter(revoked).count();
        let valid = answers.len() - revoked;
        for (outcome, count) in [(Outcome::Revoked, revoked), (Outcome::Success, valid)] {
            if count > 0 {
                let took = watch.elapsed();
                let operation = Operation::IsRevoked;
                self.metrics.ended(operation, outcome, count, took);
            }
        }
        Ok(answers)
    }

    /// Asks the registry, and uses kept answers when it does not answer.
    async fn ask_registry(
        &self,
        tenant: TenantId,
        now: Timestamp,
        settings: &Settings,
        subjects: Vec<Subject>,
    ) -> Result<Vec<Answered<Registered>>, Unavailable> {
        let part = Component::Revocations;
        let asked = subjects.clone();
        // Read before the question: a revocation made here meanwhile must not be overwritten by an
        // older answer.
        let epoch = self.cache().epoch();
        let found = self
            .call(part, now, || self.host.revoked(tenant, asked))
            .await;
        let failure = match found {
            Ok(found) if found.len() == subjects.len() => {
                let mut cache = self.cache();
                let answers = subjects.into_iter().zip(found);
                let answers = answers.map(|(subject, revocation)| {
                    cache.put_of(epoch, tenant, subject, revocation.clone(), now);
                    self.by_host(registered(revocation, false))
                });
                return Ok(answers.collect());
            }
            Ok(_) => Unavailable::of("the host left out an answer"),
            Err(failure) => failure,
        };
        let mut answers = Vec::with_capacity(subjects.len());
        let mut cache = self.cache();
        for subject in subjects {
            let usable = |kept: &&Kept| {
                let age = now.millis_since(kept.at);
                settings.cache.freshness(age) != Freshness::Expired
            };
            let mode = settings.revocations;
            let kept = cache.get(tenant, subject);
            // A known revocation stays in force, however long the registry cannot be asked.
            let revoked = kept.filter(|kept| kept.revocation.is_some());
            let known = match mode {
                FailureMode::StaleCache => revoked.or(kept.filter(usable)),
                FailureMode::Open | FailureMode::Closed => revoked,
            };
            let answer = match (known, mode) {
                (Some(kept), _) => self.by_cache(kept, now, Some(mode)),
                (None, FailureMode::Open) if !failure.turned_away => {
                    self.by_failure_mode(mode, Registered::Valid)
                }
                (None, FailureMode::Open | FailureMode::Closed | FailureMode::StaleCache) => {
                    let took = Duration::ZERO;
                    self.metrics
                        .ended(Operation::IsRevoked, Outcome::Error, 1, took);
                    return Err(failure);
                }
            };
            answers.push(answer);
        }
        tracing::warn!(
            cause = failure.cause,
            subjects = answers.len(),
            "the revocation registry does not answer; its failure mode counts"
        );
        Ok(answers)
    }

    /// Revokes a subject. There is no failure mode for this: it is done, or it is not. The caller checks for
    /// protected keys.
    pub async fn revoke(
        &self,
        tenant: TenantId,
        revocation: Revocation,
    ) -> Result<(Revocation, bool), Unavailable> {
        let (part, now) = (Component::Revocations, revocation.revoked_at);
        let revoked = self.call(part, now, || self.host.revoke(tenant, revocation));
        let (stands, new) = revoked.await?;
        self.cache().revoke(tenant, stands.clone(), now);
        Ok((stands, new))
    }

    /// Removes a revocation. Returns true if there was one.
    pub async fn unrevoke(
        &self,
        tenant: TenantId,
        now: Timestamp,
        subject: Subject,
    ) -> Result<bool, Unavailable> {
        let part = Component::Revocations;
        let gone = self.call(part, now, || self.host.unrevoke(tenant, now, subject));
        let gone = gone.await?;
        self.cache().remove(tenant, subject);
        Ok(gone)
    }

    /// Lists revocations in the order of their subjects.
    pub async fn revocations(
        &self,
        tenant: TenantId,
        now: Timestamp,
        after: Option<Subject>,
        limit: usize,
    ) -> Result<Vec<Revocation>, Unavailable> {
        let part = Component::Revocations;
        self.call(part, now, || self.host.revocations(tenant, after, limit))
            .await
    }

    /// Returns the health of the host, with a new ping.
    pub async fn health(&self) -> Health {
        let settings = self.settings();
        let ping = tokio::time::timeout(settings.timeout, self.host.ping()).await;
        let alive = matches!(ping, Ok(Ok(())));
        let [nonces, counters, revocations] = Component::ALL.map(|component| {
            let part = &self.parts[component as usize];
            let (latency_p99, error_rate) = part.record.figures();
            let circuit = part.breaker.circuit();
            ComponentHealth {
                // A host that answers a ping but fails calls is not available for that part.
                available: alive && circuit == Circuit::Closed,
                latency_p99,
                error_rate,
                backend: self.host.backend(),
                failure_mode: settings.mode(component),
                circuit,
            }
        });
        let available = [&nonces, &counters, &revocations].map(|part| part.available);
        let status = if available == [true; 3] {
            Status::Healthy
        } else if available.contains(&true) || alive {
            Status::Degraded
        } else {
            Status::Unavailable
        };
        Health {
            status,
            nonces,
            counters,
            revocations,
        }
    }

    /// Does the same as [`Guard::timed`], without the time.
    async fn call<'a, T: Unpin>(
        &'a self,
        component: Component,
        now: Timestamp,
        ask: impl FnOnce() -> Reply<'a, T>,
    ) -> Result<T, Unavailable> {
        self.timed(component, now, ask).await.0
    }

    /// Makes a call with a deadline, unless the part has failed too often lately. Returns the time it took.
    async fn timed<'a, T: Unpin>(
        &'a self,
        component: Component,
        now: Timestamp,
        ask: impl FnOnce() -> Reply<'a, T>,
    ) -> (Result<T, Unavailable>, Duration) {
        let part = &self.parts[component as usize];
        if let Err(left_ms) = part.breaker.admit(now) {
            let secs = u64::try_from(left_ms).unwrap_or(0).div_ceil(1_000);
            let refused = unavailable(secs, "the circuit is open".to_owned());
            return (Err(refused), Duration::ZERO);
        }
        let watch = Stopwatch::start();
        let (answer, is_local) = match ask() {
            // An answer that is there already needs no deadline, and a timer would cost more than it.
            reply @ Reply::Now(_) => (reply.await, true),
            Reply::Later(answer) => {
                let timeout = self.settings().timeout;
                let answered = tokio::time::timeout(timeout, answer).await;
                let late = |_| Error::Unavailable(format!("no answer within {timeout:?}"));
                (answered.map_err(late).and_then(|answer| answer), false)
            }
        };
        let took = watch.elapsed();
        if let Err(error @ Error::Busy) = &answer {
            part.breaker.learned_nothing();
            let refused = Unavailable {
                turned_away: true,
                ..unavailable(1, error.to_string())
            };
            return (Err(refused), took);
        }
        // Failures are counted without a time: a timeout would only show the deadline.
        part.record.note(answer.is_ok().then_some(took));
        let answer = match answer {
            Ok(answer) => {
                if part.breaker.succeeded() {
                    tracing::info!(component = component.as_str(), "the host answers again");
                    self.metrics.circuit(component, Circuit::Closed);
                }
                Ok(answer)
            }
            // Nobody waited for it, and a host that decides in memory may still know whom to refuse: left alone, it
            // could not say so.
            Err(error) if is_local => Err(unavailable(1, error.to_string())),
            Err(error) => {
                if part.breaker.failed(now) {
                    tracing::error!(component = component.as_str(), %error, "the host is left alone for a while");
                }
                self.metrics.circuit(component, part.breaker.circuit());
                Err(unavailable(1, error.to_string()))
            }
        };
        (answer, took)
    }

    /// Returns the host's answer, or the permissive one if the part fails open.
    fn or_open<T>(
        &self,
        component: Component,
        answer: Result<T, Unavailable>,
        permissive: impl FnOnce() -> T,
    ) -> Result<Answered<T>, Unavailable> {
        let failure = match answer {
            Ok(answer) => return Ok(self.by_host(answer)),
            Err(failure) => failure,
        };
        match self.settings().mode(component) {
            mode @ FailureMode::Open if !failure.turned_away => {
                tracing::debug!(cause = failure.cause, "the host does not answer: allowed");
                Ok(self.by_failure_mode(mode, permissive()))
            }
            FailureMode::Open | FailureMode::Closed | FailureMode::StaleCache => Err(failure),
        }
    }

    fn by_host<T>(&self, answer: T) -> Answered<T> {
        self.answered(answer, Source::Store, None, None)
    }

    fn by_failure_mode<T>(&self, mode: FailureMode, answer: T) -> Answered<T> {
        self.answered(answer, Source::FailureMode, Some(mode), None)
    }

    fn by_cache(
        &self,
        kept: &Kept,
        now: Timestamp,
        mode: Option<FailureMode>,
    ) -> Answered<Registered> {
        let age = now.millis_since(kept.at).max(0).unsigned_abs() / 1_000;
        let answer = registered(kept.revocation.clone(), mode.is_some());
        self.answered(answer, Source::Cache, mode, Some(age))
    }

    fn answered<T>(
        &self,
        answer: T,
        source: Source,
        failure_mode: Option<FailureMode>,
        cache_age_secs: Option<u64>,
    ) -> Answered<T> {
        let provenance = Provenance {
            source,
            backend: self.host.backend(),
            failure_mode,
            cache_age_secs,
        };
        Answered { answer, provenance }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the decisions of an answer.
    fn count(&self, answered: &Result<Answered<Verdicts>, Unavailable>, took: Duration) {
        let Ok(Answered { answer, provenance }) = answered else {
            self.metrics
                .ended(Operation::Admit, Outcome::Error, 1, took);
            return;
        };
        let failed = provenance.source == Source::FailureMode;
        let count = |operation, no: Outcome, total: usize, refused: usize| {
            for (outcome, count) in [(Outcome::Success, total - refused), (no, refused)] {
                let outcome = if failed { Outcome::Error } else { outcome };
                if count > 0 {
                    self.metrics.ended(operation, outcome, count, took);
                }
            }
        };
        let counters = answer.counters.iter().filter(|counted| !counted.allowed);
        let limits = answer.limits.iter().filter(|limited| !limited.allowed);
        let nonces = answer.nonces.iter();
        let replays = nonces.filter(|result| **result != NonceResult::Accepted);
        let total = answer.counters.len();
        count(
            Operation::IncrementCounter,
            Outcome::Exceeded,
            total,
            counters.count(),
        );
        count(
            Operation::CheckLimit,
            Outcome::Exceeded,
            answer.limits.len(),
            limits.count(),
        );
        count(
            Operation::CheckNonce,
            Outcome::Replay,
            answer.nonces.len(),
            replays.count(),
        );
    }
}

const fn unavailable(retry_after_secs: u64, cause: String) -> Unavailable {
    Unavailable {
        retry_after_secs,
        cause,
        turned_away: false,
    }
}

fn registered(revocation: Option<Revocation>, stale: bool) -> Registered {
    match (revocation, stale) {
        (Some(revocation), _) => Registered::Revoked(revocation),
        (None, true) => Registered::ValidCached,
        (None, false) => Registered::Valid,
    }
}
