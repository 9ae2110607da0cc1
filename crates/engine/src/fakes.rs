//! The fixtures of every test that runs an engine inside its own process: a clock and random numbers
//! that the test decides, callers with keys, and an engine on a store in memory.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test fails by panicking"
)]

mod keyring;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use asyncgate_api::Code;
use asyncgate_core::{Principal, PrincipalKind, Receipt, TenantId, Timestamp};
use asyncgate_store::{ReceiptFilter, SeqPage, Store as _, memory::MemoryStore};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

pub use keyring::FakeKeyring;

use crate::{
    Answer, Authenticator, Caller, Clock, Engine, Entropy, Fault, RequestContext, Role, Settings,
    Source, registry,
};

/// The time at which tests begin, in milliseconds since 1970.
pub const START_MS: i64 = 1_767_610_800_000;

/// A clock that only the test moves.
#[derive(Debug)]
pub struct FakeClock {
    millis: AtomicI64,
    /// Set if the clock also moves with the runtime's clock.
    started: Option<Instant>,
}

impl FakeClock {
    /// Makes a clock that stands still at so many milliseconds since 1970.
    pub const fn at(millis: i64) -> Self {
        Self {
            millis: AtomicI64::new(millis),
            started: None,
        }
    }

    /// Makes a clock that also moves with the runtime's clock, which a test can pause.
    pub fn running_from(millis: i64) -> Self {
        Self {
            millis: AtomicI64::new(millis),
            started: Some(Instant::now()),
        }
    }

    /// Sets the clock to so many milliseconds since 1970.
    pub fn set(&self, millis: i64) {
        self.millis.store(millis, Ordering::Relaxed);
    }

    /// Moves the clock forward.
    pub fn advance(&self, millis: i64) {
        self.millis.fetch_add(millis, Ordering::Relaxed);
    }
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let run = self.started.map_or(0, |started| {
            i64::try_from(started.elapsed().as_millis()).unwrap()
        });
        Timestamp::from_millis(self.millis.load(Ordering::Relaxed) + run)
    }
}

/// The numbers from one on. Tests that draw them in the same order get the same ids.
#[derive(Debug)]
pub struct Counter(AtomicU64);

impl Default for Counter {
    fn default() -> Self {
        Self(AtomicU64::new(1))
    }
}

impl Entropy for Counter {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

/// The tenant of every fake caller.
pub const TENANT: TenantId = TenantId::from_bytes([7; 16]);

/// Returns a service with a role.
pub fn caller(role: Role) -> Caller {
    let admin = Principal::new(PrincipalKind::Service, "admin");
    Caller::new(TENANT, admin, role)
}

/// The key of an admin in [`FakeKeys`].
pub const ADMIN_KEY: &str = "admin";

/// An authenticator with a key for a platform admin ([`ADMIN_KEY`]), one for an agent (`agent`), and one for an admin
/// that ends soon after it was accepted (`brief`). With the key `down` it answers that the stored keys cannot
/// be read.
#[derive(Debug)]
pub struct FakeKeys;

impl Authenticator for FakeKeys {
    fn authenticate<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<Caller, Fault>> {
        let answer = match request.credential {
            Some(ADMIN_KEY | "brief") => Ok(caller(Role::Admin).with_platform()),
            Some("agent") => Ok(caller(Role::Agent)),
            Some("down") => Err(Fault::new(Code::Unavailable, "no keys").retry_after(3)),
            _ => Err(Fault::new(Code::Unauthorized, "no such key")),
        };
        Box::pin(std::future::ready(answer))
    }

    fn until_ended(&self, request: &RequestContext<'_>) -> BoxFuture<'static, ()> {
        match request.credential {
            Some("brief") => Box::pin(tokio::time::sleep(Duration::from_millis(100))),
            _ => Box::pin(std::future::pending()),
        }
    }
}

/// An engine on a store in memory, with a clock that the test moves.
#[derive(Debug, Clone)]
pub struct TestEngine {
    /// The engine.
    pub engine: Arc<Engine>,
    /// Its store.
    pub store: Arc<MemoryStore>,
    /// Its clock.
    pub clock: Arc<FakeClock>,
    /// Its keyring.
    pub keyring: Arc<FakeKeyring>,
}

impl Default for TestEngine {
    fn default() -> Self {
        Self::new(Settings::default(), FakeClock::at(START_MS))
    }
}

impl TestEngine {
    /// Makes an engine on an empty store.
    pub fn new(settings: Settings, clock: FakeClock) -> Self {
        Self::over(Arc::default(), Arc::new(clock), settings)
    }

    /// Makes an engine on a store that may have a past.
    pub fn over(store: Arc<MemoryStore>, clock: Arc<FakeClock>, settings: Settings) -> Self {
        Self::prepared(store, clock, settings, |engine| engine)
    }

    /// Makes an engine on a store that may have a past, and gives it what else it needs.
    pub fn prepared(
        store: Arc<MemoryStore>,
        clock: Arc<FakeClock>,
        settings: Settings,
        prepare: impl FnOnce(Engine) -> Engine,
    ) -> Self {
        let entropy = Arc::new(Counter::default());
        let keyring = Arc::new(FakeKeyring::default());
        let engine = Engine::new(
            Arc::<MemoryStore>::clone(&store),
            Arc::<FakeClock>::clone(&clock),
            entropy,
            settings,
        );
        let engine = engine.with_keyring(Arc::<FakeKeyring>::clone(&keyring));
        Self {
            engine: Arc::new(prepare(engine)),
            store,
            clock,
            keyring,
        }
    }

    /// Lets time pass, and acts on the deadlines that came.
    pub async fn advance(&self, millis: i64) {
        self.clock.advance(millis);
        self.engine.act_on_deadlines().await.unwrap();
        self.engine.act_on_messages().await.unwrap();
    }

    /// Calls an operation by its name.
    pub async fn call(&self, role: Role, operation: &str, input: &Value) -> Result<Value, Fault> {
        self.call_as(&caller(role), operation, input).await
    }

    /// Calls an operation by its name, as anybody.
    pub async fn call_as(
        &self,
        caller: &Caller,
        operation: &str,
        input: &Value,
    ) -> Result<Value, Fault> {
        let answer = self.answer_to(caller, operation, input).await?;
        Ok(serde_json::from_slice(&answer.json).unwrap())
    }

    /// Calls an operation by its name, as anybody. Returns the whole answer.
    pub async fn answer_to(
        &self,
        caller: &Caller,
        operation: &str,
        input: &Value,
    ) -> Result<Answer, Fault> {
        let found = registry().iter().find(|it| it.spec.name == operation);
        let entry = found.unwrap_or_else(|| panic!("no operation {operation}"));
        let input = input.to_string();
        (entry.call)(&self.engine, caller, Source::Json(input.as_bytes())).await
    }

    /// Returns the ledger of [`TENANT`], up to ten thousand receipts.
    pub async fn ledger(&self) -> Vec<Receipt> {
        let page = SeqPage {
            after: 0,
            limit: 10_000,
        };
        let found = self.store.receipts(TENANT, ReceiptFilter::All, page).await;
        let found = found.unwrap().into_iter();
        found.map(|found| found.receipt).collect()
    }
}
