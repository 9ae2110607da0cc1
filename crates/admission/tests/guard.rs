//! The guard in front of a host that answers, fails, or does not answer at all.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use asyncgate_admission::{
    Backend, Circuit, FailureMode, Guard, Host, Minimal, Registered, Reply, Settings, Source,
    Status,
};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, Increment, LimitCheck, Limits, NonceCheck, NonceResult, Revocation, Subject, Tier,
        Verdicts,
    },
};
use asyncgate_store::{Error, memory::MemoryStore};

const TENANT: TenantId = TenantId::from_bytes([7; 16]);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mood {
    Well,
    Failing,
    Silent,
    /// It turns [`TENANT`] away and serves all others.
    Busy,
}

/// A memory store that can be made to fail.
struct Moody {
    store: MemoryStore,
    mood: Mutex<Mood>,
    calls: AtomicUsize,
}

impl Moody {
    fn reply<'a, T: Send + 'a>(&'a self, reply: Reply<'a, T>) -> Reply<'a, T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        match *self.mood.lock().unwrap() {
            Mood::Well | Mood::Busy => reply,
            Mood::Failing => Reply::failed(Error::Unavailable("gone".to_owned())),
            Mood::Silent => Reply::later(std::future::pending()),
        }
    }
}

impl Host for Moody {
    fn backend(&self) -> Backend {
        "memory"
    }

    fn admit(&self, tenant: TenantId, now: Timestamp, asks: Asks) -> Reply<'_, Verdicts> {
        if *self.mood.lock().unwrap() == Mood::Busy && tenant == TENANT {
            return Reply::failed(Error::Busy);
        }
        self.reply(self.store.admit(tenant, now, asks))
    }

    fn revoked(
        &self,
        tenant: TenantId,
        subjects: Vec<Subject>,
    ) -> Reply<'_, Vec<Option<Revocation>>> {
        self.reply(self.store.revoked(tenant, subjects))
    }

    fn revoke(&self, tenant: TenantId, revocation: Revocation) -> Reply<'_, (Revocation, bool)> {
        self.reply(self.store.revoke(tenant, revocation))
    }

    fn unrevoke(&self, tenant: TenantId, now: Timestamp, subject: Subject) -> Reply<'_, bool> {
        self.reply(self.store.unrevoke(tenant, now, subject))
    }

    fn revocations(
        &self,
        tenant: TenantId,
        after: Option<Subject>,
        limit: usize,
    ) -> Reply<'_, Vec<Revocation>> {
        self.reply(self.store.revocations(tenant, after, limit))
    }

    fn ping(&self) -> Reply<'_, ()> {
        self.reply(Reply::now(()))
    }
}

struct World {
    host: Arc<Moody>,
    guard: Guard,
    now: Timestamp,
}

impl World {
    fn new(settings: Settings) -> Self {
        let host = Arc::new(Moody {
            store: MemoryStore::new(),
            mood: Mutex::new(Mood::Well),
            calls: AtomicUsize::new(0),
        });
        Self {
            guard: Guard::new(Arc::clone(&host) as Arc<dyn Host>, settings),
            host,
            now: Timestamp::from_millis(1_731_690_000_000),
        }
    }

    fn becomes(&self, mood: Mood) {
        *self.host.mood.lock().unwrap() = mood;
    }

    fn wait(&mut self, secs: i64) {
        self.now = self.now.plus_millis(secs * 1_000);
    }

    fn calls(&self) -> usize {
        self.host.calls.swap(0, Ordering::Relaxed)
    }

    async fn nonce(&self, text: &str) -> Result<(NonceResult, Source), u64> {
        let nonces = vec![NonceCheck {
            namespace: [1; 32],
            nonce: text.into(),
            ttl_secs: 600,
        }];
        let asks = Asks {
            nonces,
            ..Asks::default()
        };
        let answered = self.guard.admit(TENANT, self.now, asks).await;
        let answered = answered.map_err(|failure| failure.retry_after_secs)?;
        Ok((answered.answer.nonces[0], answered.provenance.source))
    }

    async fn revoked(&self, n: u8) -> Option<(Registered, Source, Option<u64>)> {
        let subjects = [Subject::warrant(&[n; 16])];
        let answered = self.guard.is_revoked(TENANT, self.now, &subjects).await;
        let answered = answered.ok()?.remove(0);
        let provenance = answered.provenance;
        Some((
            answered.answer,
            provenance.source,
            provenance.cache_age_secs,
        ))
    }

    async fn revoke(&self, n: u8) -> Revocation {
        let revocation = Revocation {
            subject: Subject::warrant(&[n; 16]),
            reason: None,
            revoked_at: self.now,
        };
        self.guard.revoke(TENANT, revocation).await.unwrap().0
    }
}

fn modes(mode: FailureMode) -> Settings {
    Settings {
        nonces: mode,
        counters: mode,
        revocations: mode,
        ..Settings::default()
    }
}

fn client() -> LimitCheck {
    let resolved = Limits::default().resolve("client", Tier::Standard).unwrap();
    LimitCheck {
        policy: resolved.policy,
        key: "k".to_owned(),
        rule: resolved.rule,
        cost: 1,
        shadow: false,
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_answers_is_asked() {
    let world = World::new(Settings::default());
    let accepted = Ok((NonceResult::Accepted, Source::Store));
    assert_eq!(world.nonce("a").await, accepted);
    let replay = world.nonce("a").await.unwrap().0;
    assert_ne!(replay, NonceResult::Accepted);
    let limited = world.guard.check_limit(TENANT, world.now, &client()).await;
    let limited = limited.unwrap();
    assert_eq!(limited.answer.remaining, 99);
    assert_eq!(limited.provenance.backend, "memory");
    assert_eq!(limited.provenance.failure_mode, None);
}

#[tokio::test(start_paused = true)]
async fn each_part_fails_as_its_mode_says_and_within_the_deadline() {
    for mood in [Mood::Failing, Mood::Silent] {
        for mode in FailureMode::ALL {
            let world = World::new(modes(mode));
            world.becomes(mood);
            let begun = tokio::time::Instant::now();
            let open = mode == FailureMode::Open;
            let nonce = world.nonce("a").await;
            let permissive = (NonceResult::Accepted, Source::FailureMode);
            assert_eq!(nonce.ok(), open.then_some(permissive));
            let counters = vec![Increment {
                namespace: [1; 32],
                window_secs: 60,
                limit: 3,
                by: 1,
            }];
            let asks = Asks {
                counters,
                ..Asks::default()
            };
            let counted = world.guard.admit(TENANT, world.now, asks).await;
            let counted = counted.ok().map(|counted| counted.answer.counters[0]);
            let seen = counted.map(|counted| (counted.allowed, counted.count, counted.remaining));
            assert_eq!(seen, open.then_some((true, 0, 3)));
            let limited = world.guard.check_limit(TENANT, world.now, &client()).await;
            let limited = limited.ok().map(|limited| {
                assert_eq!(limited.provenance.failure_mode, Some(FailureMode::Open));
                limited.answer.allowed
            });
            assert_eq!(limited, open.then_some(true));
            let revoked = world.revoked(1).await;
            let permissive = (Registered::Valid, Source::FailureMode, None);
            assert_eq!(revoked, open.then_some(permissive));
            assert!(begun.elapsed() <= Duration::from_millis(4 * 101));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_fails_is_left_alone_and_found_again() {
    let mut world = World::new(Settings::default());
    world.becomes(Mood::Silent);
    for _ in 0..5 {
        assert!(world.nonce("a").await.is_err());
    }
    assert_eq!(world.calls(), 5);
    assert_eq!(world.nonce("a").await, Err(1));
    assert_eq!(world.calls(), 0, "nobody waits for it any more");
    let health = world.guard.health().await;
    assert_eq!(health.nonces.circuit, Circuit::Open);
    assert_eq!(health.counters.circuit, Circuit::Closed, "parts fail apart");
    assert_eq!(health.status, Status::Unavailable);
    assert_eq!(health.nonces.error_rate, Some(1.0));
    world.becomes(Mood::Well);
    assert_eq!(world.guard.health().await.status, Status::Degraded);
    world.wait(1);
    let accepted = Ok((NonceResult::Accepted, Source::Store));
    assert_eq!(world.nonce("b").await, accepted);
    assert_eq!(world.guard.health().await.status, Status::Healthy);
}

/// A host in this process costs nobody any time, and may still refuse some.
#[tokio::test(start_paused = true)]
async fn a_host_that_fails_at_once_is_asked_all_the_same() {
    let world = World::new(modes(FailureMode::Open));
    let ask = || Asks {
        limits: vec![LimitCheck {
            cost: 100,
            ..client()
        }],
        ..Asks::default()
    };
    let first = world.guard.admit(TENANT, world.now, ask()).await.unwrap();
    assert!(first.answer.passed());
    world.becomes(Mood::Failing);
    world.calls();
    for _ in 0..20 {
        let answered = world.guard.admit(TENANT, world.now, ask()).await.unwrap();
        assert_eq!(answered.provenance.source, Source::FailureMode);
    }
    assert_eq!(world.calls(), 20);
    world.becomes(Mood::Well);
    let refused = world.guard.admit(TENANT, world.now, ask()).await.unwrap();
    assert_eq!(refused.provenance.source, Source::Store);
    assert!(!refused.answer.passed());
}

#[tokio::test(start_paused = true)]
async fn answers_about_revocations_are_kept_for_a_while() {
    let mut world = World::new(Settings::default());
    let fresh = |source, age| Some((Registered::Valid, source, age));
    assert_eq!(world.revoked(1).await, fresh(Source::Store, None));
    world.wait(59);
    assert_eq!(world.revoked(1).await, fresh(Source::Cache, Some(59)));
    assert_eq!(world.calls(), 1);
    world.wait(1);
    assert_eq!(world.revoked(1).await, fresh(Source::Store, None));
    // Another instance revokes; this one notices when its kept answer has aged.
    let elsewhere = Revocation {
        subject: Subject::warrant(&[1; 16]),
        reason: None,
        revoked_at: world.now,
    };
    world
        .host
        .store
        .revoke(TENANT, elsewhere.clone())
        .await
        .unwrap();
    world.wait(60);
    let revoked = Registered::Revoked(elsewhere);
    assert_eq!(world.revoked(1).await, Some((revoked, Source::Store, None)));
}

#[tokio::test(start_paused = true)]
async fn what_was_known_stands_in_until_it_is_too_old() {
    let mut world = World::new(Settings::default());
    world.revoked(1).await;
    world.becomes(Mood::Failing);
    world.wait(60);
    let stale = (Registered::ValidCached, Source::Cache, Some(60));
    assert_eq!(world.revoked(1).await, Some(stale));
    assert_eq!(world.revoked(2).await, None, "nothing is known of it");
    world.wait(239);
    let stale = (Registered::ValidCached, Source::Cache, Some(299));
    assert_eq!(world.revoked(1).await, Some(stale));
    world.wait(1);
    assert_eq!(world.revoked(1).await, None);
}

#[tokio::test(start_paused = true)]
async fn what_was_revoked_here_is_so_at_once_and_never_valid_by_cache() {
    for mode in FailureMode::ALL {
        let mut world = World::new(modes(mode));
        world.revoked(1).await;
        let revocation = world.revoke(1).await;
        let revoked = Some(Registered::Revoked(revocation.clone()));
        let seen = |answer: Option<(Registered, _, _)>| answer.map(|(answer, ..)| answer);
        assert_eq!(seen(world.revoked(1).await), revoked);
        world.becomes(Mood::Silent);
        world.wait(1_000_000);
        assert_eq!(seen(world.revoked(1).await), revoked, "{mode:?}");
        world.becomes(Mood::Well);
        world.wait(60);
        let gone = world.guard.unrevoke(TENANT, world.now, revocation.subject);
        assert!(gone.await.unwrap());
        assert_eq!(seen(world.revoked(1).await), Some(Registered::Valid));
    }
}

#[tokio::test(start_paused = true)]
async fn a_revocation_that_was_not_written_is_not_reported_as_done() {
    let world = World::new(modes(FailureMode::Open));
    world.becomes(Mood::Failing);
    let revocation = Revocation {
        subject: Subject::warrant(&[1; 16]),
        reason: None,
        revoked_at: world.now,
    };
    let revoked = world.guard.revoke(TENANT, revocation.clone()).await;
    assert!(revoked.is_err());
    let minimal = Guard::new(Arc::new(Minimal), Settings::default());
    assert!(minimal.revoke(TENANT, revocation).await.is_err());
}

#[tokio::test]
async fn the_minimal_host_allows_everything() {
    let guard = Guard::new(Arc::new(Minimal), Settings::default());
    let now = Timestamp::from_millis(0);
    for _ in 0..200 {
        let limited = guard.check_limit(TENANT, now, &client()).await.unwrap();
        assert!(limited.answer.allowed);
        assert_eq!(limited.provenance.backend, "minimal");
    }
    assert_eq!(guard.health().await.status, Status::Healthy);
}

/// A tenant whose share of the host is used up is refused, and that tells nothing about the host: nobody loses limits over
/// it, neither the tenant itself nor others.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_turned_away_opens_no_circuit_and_passes_no_limit() {
    const OTHER: TenantId = TenantId::from_bytes([8; 16]);
    let mut world = World::new(Settings::default());
    world.becomes(Mood::Busy);
    for _ in 0..10 {
        let own = world.guard.check_limit(TENANT, world.now, &client()).await;
        assert!(own.is_err(), "it must not be let through");
    }
    let other = world.guard.check_limit(OTHER, world.now, &client()).await;
    assert_eq!(other.unwrap().provenance.source, Source::Store);

    // A circuit that is open is tried by the next caller, also if the first trial was turned away.
    world.becomes(Mood::Failing);
    for _ in 0..5 {
        let _ = world.guard.check_limit(OTHER, world.now, &client()).await;
    }
    world.wait(2);
    world.becomes(Mood::Busy);
    let own = world.guard.check_limit(TENANT, world.now, &client()).await;
    assert!(own.is_err());
    let other = world.guard.check_limit(OTHER, world.now, &client()).await;
    assert_eq!(other.unwrap().provenance.source, Source::Store);
}
