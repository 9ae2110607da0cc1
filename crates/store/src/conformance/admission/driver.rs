//! A driver asks a host, with a clock that only the test moves.

use std::sync::Arc;

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, Bucket, Counted, Delay, Increment, LimitCheck, Limited, MILLIONTHS, NonceCheck,
        NonceResult, Revocation, Rule, Stage, Subject, Verdicts, Window,
    },
};

use crate::admission::Host;

/// A driver of one tenant of a host, with a clock.
#[derive(Clone)]
pub struct HostDriver {
    /// The host.
    pub host: Arc<dyn Host>,
    /// The tenant whose rows are asked about.
    pub tenant: TenantId,
    /// The time of the next question.
    pub now: Timestamp,
}

impl std::fmt::Debug for HostDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostDriver")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl HostDriver {
    /// Makes a driver of the first tenant.
    pub fn new(host: Arc<dyn Host>) -> Self {
        Self::of_tenants(host, 0)
    }

    /// Makes a driver of the tenant with a number, at a time after that of drivers with lower ones.
    pub fn of_tenants(host: Arc<dyn Host>, number: u8) -> Self {
        let start = Timestamp::from_millis(1_731_690_000_000);
        Self {
            host,
            tenant: TenantId::from_bytes([number.wrapping_mul(2); 16]),
            now: start.plus_millis(i64::from(number) * 8_640_000_000),
        }
    }

    /// Makes a driver of a tenant that no other case uses.
    #[must_use]
    pub fn neighbour(&self) -> Self {
        let number = self.tenant.as_bytes()[0] + 1;
        Self {
            tenant: TenantId::from_bytes([number; 16]),
            ..self.clone()
        }
    }

    /// Lets time pass.
    pub fn wait_ms(&mut self, millis: i64) {
        self.now = self.now.plus_millis(millis);
    }

    /// Asks the host.
    pub async fn ask(&self, asks: Asks) -> Verdicts {
        let verdicts = self.host.admit(self.tenant, self.now, asks).await.unwrap();
        assert_eq!(verdicts.now, self.now, "the test's clock is used");
        verdicts
    }

    /// Uses nonces, each for itself.
    pub async fn use_nonces(&self, nonces: Vec<NonceCheck>) -> Vec<NonceResult> {
        let asks = Asks {
            nonces,
            ..Asks::default()
        };
        self.ask(asks).await.nonces
    }

    /// Uses one nonce. Returns true if it was new.
    pub async fn use_nonce(&self, nonce: NonceCheck) -> bool {
        self.use_nonces(vec![nonce]).await == [NonceResult::Accepted]
    }

    /// Increments counters.
    pub async fn count(&self, increment: Increment) -> Counted {
        let counters = vec![increment];
        let asks = Asks {
            counters,
            ..Asks::default()
        };
        self.ask(asks).await.counters[0]
    }

    /// Asks about limits, all or nothing.
    pub async fn limits(&self, limits: Vec<LimitCheck>) -> Vec<Limited> {
        let asks = Asks {
            limits,
            ..Asks::default()
        };
        self.ask(asks).await.limits
    }

    /// Asks about one limit by the short way.
    pub async fn limit(&self, check: &LimitCheck) -> Limited {
        let limited = self.host.check_limit(self.tenant, self.now, check);
        limited.await.unwrap()
    }

    /// Asks which subjects are revoked.
    pub async fn revoked(&self, subjects: Vec<Subject>) -> Vec<Option<Revocation>> {
        self.host.revoked(self.tenant, subjects).await.unwrap()
    }

    /// Revokes a subject.
    pub async fn revoke(&self, subject: Subject, reason: Option<&str>) -> (Revocation, bool) {
        let revocation = Revocation {
            subject,
            reason: reason.map(str::to_owned),
            revoked_at: self.now,
        };
        self.host.revoke(self.tenant, revocation).await.unwrap()
    }
}

/// Makes a nonce that is remembered for so long.
pub fn nonce(text: &str, ttl_secs: u64) -> NonceCheck {
    NonceCheck {
        namespace: [1; 32],
        nonce: text.into(),
        ttl_secs,
    }
}

/// Makes a count of one call in a window of a minute.
pub fn increment(limit: u64) -> Increment {
    Increment {
        namespace: [2; 32],
        window_secs: 60,
        limit,
        by: 1,
    }
}

/// Makes a bucket.
pub fn bucket(capacity: u64, per_minute: u64, overdraw: bool) -> Rule {
    let bucket = Bucket::per_minute(capacity, per_minute * MILLIONTHS).unwrap();
    Rule::Bucket(bucket.with_overdraw(overdraw))
}

/// Makes a window of a minute.
pub fn window(limit: u64) -> Rule {
    Rule::Window(Window::new(limit, 60).unwrap())
}

/// Makes a delay: one attempt at once and one after so many seconds.
pub fn delay(secs: u64) -> Rule {
    let stages = vec![Stage::after(0), Stage::after(secs)];
    Rule::Delay(Arc::new(Delay::new(stages).unwrap()))
}

/// Makes a limit of some key. Its policy is named by the rule's kind.
pub fn limit(rule: &Rule, key: &str, cost: i64) -> LimitCheck {
    LimitCheck {
        policy: rule.kind().into(),
        key: key.to_owned(),
        rule: rule.clone(),
        cost,
        shadow: false,
    }
}

/// Makes the subject of a warrant.
pub fn subject(number: u8) -> Subject {
    Subject::warrant(&[number; 16])
}
