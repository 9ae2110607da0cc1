//! The engine: a store, a clock, and the ways to them that all operations share.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use asyncgate_admission::{Guard, Host, Tiers};
use asyncgate_api::Code;
use asyncgate_core::{Env, Ids, Rejection, Stamp, TenantId, Timestamp, identity, mailbox};
use asyncgate_store::{
    Decided, Declared, Dispatches, Health, Messages, Plane, Store, Tasks, identity::Records,
};
use tokio::sync::watch;

use crate::{
    Budget, Caller, Clock, Courier, CryptoMetrics, Entropy, Events, Fault, Keyring, Settings,
    Signer, audit::AuditQueue, mailbox::DrainMeter, metrics::Metrics, refusals::Refusals,
    refused_rights::Deeds, tenant_turns::TenantTurns, tenants::Tenants, used_up::UsedUpQuotas,
};

/// How late a round of the watch over messages may be.
const OVERDUE_MS: i64 = 30_000;
/// The most pages that are put together at the same time. More would not be quicker: they wait for the same readers.
const MAX_PAGES: usize = 4;
/// The most of them for one tenant, so that others find one.
const MAX_PAGES_EACH: usize = 2;
/// The most large inputs that are read at the same time: each holds up what else its thread has to do.
const MAX_LARGE_INPUTS: usize = 1;
/// The most large bodies of one tenant that are under way, from their first byte to the answer. The others are not read
/// meanwhile: a body that is read only to be turned away costs as much as one that is served.
const MAX_LARGE_BODIES_EACH: usize = 8;

/// The canonical operations over one store. Facades reach it through the registry.
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    settings: RwLock<Arc<Settings>>,
    started_at: Timestamp,
    /// The stamp of the ids that were given out last.
    last_stamp: AtomicU64,
    draining: watch::Sender<bool>,
    pub(crate) signer: Option<Arc<dyn Signer>>,
    /// Tenants whose ledgers have grown.
    grown: Mutex<Grown>,
    pub(crate) courier: Option<Arc<dyn Courier>>,
    /// The speed at which messages leave the mailbox.
    pub(crate) drain_meter: DrainMeter,
    pub(crate) events: Events,
    /// False while new work is turned away and everything else goes on.
    accepting: AtomicBool,
    /// The time at which the watch over messages last began a round.
    scanned_at: AtomicI64,
    /// The host that decides about nonces, limits and revocations.
    pub(crate) host: Guard,
    /// True if that host is not the store.
    pub(crate) own_host: bool,
    pub(crate) tiers: Tiers,
    /// What counts for each tenant.
    pub(crate) tenants: Tenants,
    pub(crate) metrics: Metrics,
    pub(crate) refusals: Refusals,
    pub(crate) used_up: UsedUpQuotas,
    /// What callers did in the last minute, so that the audit log says it once.
    pub(crate) deeds: Deeds,
    pub(crate) audit_queue: AuditQueue,
    keyring: Option<Arc<dyn Keyring>>,
    /// The memory for bodies and answers under way.
    budget: Budget,
    /// The pages that may be put together at the same time.
    pub(crate) pages: TenantTurns,
    /// The turns at reading large inputs.
    pub(crate) large_inputs: TenantTurns,
    /// The turns at sending large bodies.
    large_bodies: TenantTurns,
}

/// Tenants whose ledgers have grown since something was done with them last.
#[derive(Debug, Default)]
struct Grown {
    unsigned: HashSet<TenantId>,
    unmetered: HashSet<TenantId>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("settings", &self.settings())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// Makes an engine over `store`. `clock` must not be behind the store's last time.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        settings: Settings,
    ) -> Self {
        store
            .mailbox()
            .set_replay_window(settings.policy.mailbox.t_replay_ms);
        let budget_bytes = settings.bodies.budget_bytes;
        let now = clock.now();
        let host = Arc::clone(&store).host();
        let metrics = Metrics::default();
        metrics.mailbox.begin_classes(&settings);
        Self {
            host: Guard::new(host, settings.admission.clone()),
            own_host: false,
            tiers: Tiers::new(Arc::clone(&store)),
            tenants: Tenants::default(),
            started_at: now,
            store,
            clock,
            entropy,
            settings: RwLock::new(Arc::new(settings)),
            last_stamp: AtomicU64::new(0),
            draining: watch::Sender::new(false),
            signer: None,
            grown: Mutex::default(),
            courier: None,
            drain_meter: DrainMeter::default(),
            events: Events::default(),
            accepting: AtomicBool::new(true),
            scanned_at: AtomicI64::new(now.as_millis()),
            metrics,
            refusals: Refusals::default(),
            used_up: UsedUpQuotas::default(),
            deeds: Deeds::default(),
            audit_queue: AuditQueue::default(),
            keyring: None,
            budget: Budget::new(budget_bytes),
            pages: TenantTurns::new(MAX_PAGES, MAX_PAGES_EACH),
            large_inputs: TenantTurns::new(MAX_LARGE_INPUTS, MAX_LARGE_INPUTS),
            large_bodies: TenantTurns::of_each(MAX_LARGE_BODIES_EACH),
        }
    }

    /// Gives the engine a key to sign ledgers with.
    #[must_use]
    pub fn with_signer(mut self, signer: Arc<dyn Signer>) -> Self {
        self.signer = Some(signer);
        self
    }

    /// Gives the engine the server's secrets. Without them it makes no credentials.
    #[must_use]
    pub fn with_keyring(mut self, keyring: Arc<dyn Keyring>) -> Self {
        self.keyring = Some(keyring);
        self
    }

    /// Returns the server's secrets.
    pub fn keyring(&self) -> Result<&dyn Keyring, Fault> {
        let missing = || Fault::new(Code::Unavailable, "this server makes no credentials");
        self.keyring.as_deref().ok_or_else(missing)
    }

    /// Gives the engine somebody who brings dispatches to other systems. Without one they wait.
    #[must_use]
    pub fn with_courier(mut self, courier: Arc<dyn Courier>) -> Self {
        self.courier = Some(courier);
        self
    }

    /// Lets the engine and others count cryptography together.
    #[must_use]
    pub fn with_crypto_metrics(mut self, metrics: CryptoMetrics) -> Self {
        self.metrics.crypto = metrics;
        self
    }

    /// Returns the counters of cryptography.
    pub fn crypto_metrics(&self) -> &CryptoMetrics {
        &self.metrics.crypto
    }

    /// Lets another host than the store decide about nonces, limits and revocations.
    #[must_use]
    pub fn with_host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Guard::new(host, self.settings().admission.clone());
        self.own_host = true;
        self
    }

    /// Returns the settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other settings in force, for requests that begin after this.
    pub fn reload(&self, settings: Settings) {
        self.budget.set_limit(settings.bodies.budget_bytes);
        let window = settings.policy.mailbox.t_replay_ms;
        self.store.mailbox().set_replay_window(window);
        self.host.reload(settings.admission.clone());
        self.metrics.mailbox.begin_classes(&settings);
        self.tenants.reload(&settings.tenants);
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Returns the turns at sending large bodies.
    pub const fn large_bodies(&self) -> &TenantTurns {
        &self.large_bodies
    }

    /// Returns the memory that bodies and answers share while they are under way.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Tells whether writes are being accepted.
    pub fn health(&self) -> Health {
        self.store.health()
    }

    /// Sets whether new work is accepted. While it is not, sends and new tasks are turned away; receivers and workers go
    /// on.
    pub fn set_accepting(&self, accepting: bool) {
        self.accepting.store(accepting, Ordering::Relaxed);
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    /// Notes that the watch over messages begins a round.
    pub(crate) fn note_scan(&self) {
        let now = self.now().as_millis();
        self.scanned_at.store(now, Ordering::Relaxed);
    }

    /// Returns true if the watch over messages is alive: no round is overdue by much.
    pub fn is_scanning(&self) -> bool {
        let age = self.now().as_millis() - self.scanned_at.load(Ordering::Relaxed);
        let longest = i64::try_from(self.settings().sweep_interval_ms).unwrap_or(i64::MAX);
        age <= longest.saturating_add(OVERDUE_MS)
    }

    /// Makes a correlation id: a UUIDv7 with 74 random bits, so that nobody can guess it and no other
    /// instance makes the same.
    pub fn corr_id(&self) -> Arc<str> {
        let millis = u64::try_from(self.now().as_millis()).unwrap_or_default();
        let mut random = [0; 10];
        random[..2].copy_from_slice(&self.entropy.next_u64().to_be_bytes()[..2]);
        random[2..].copy_from_slice(&self.entropy.next_u64().to_be_bytes());
        let id = uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid();
        let mut text = uuid::Uuid::encode_buffer();
        Arc::from(&*id.hyphenated().encode_lower(&mut text))
    }

    /// Ends all waiting at once, so that the process can end.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Waits until [`Engine::drain`] is called.
    pub async fn drained(&self) {
        let mut draining = self.draining.subscribe();
        // The sender lives as long as the engine, so this cannot fail before the engine drains.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    fn grown(&self) -> MutexGuard<'_, Grown> {
        self.grown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a tenant's ledger has grown.
    pub(crate) fn note_grown(&self, tenant: TenantId) {
        let mut grown = self.grown();
        grown.unsigned.insert(tenant);
        grown.unmetered.insert(tenant);
    }

    /// Notes that a tenant's ledger could not be signed.
    pub(crate) fn mark_unsigned(&self, tenant: TenantId) {
        self.grown().unsigned.insert(tenant);
    }

    /// Notes that a tenant could not be metered.
    pub(crate) fn mark_unmetered(&self, tenant: TenantId) {
        self.grown().unmetered.insert(tenant);
    }

    /// Takes the tenants whose ledgers have grown since the last call.
    pub(crate) fn take_unsigned(&self) -> HashSet<TenantId> {
        std::mem::take(&mut self.grown().unsigned)
    }

    /// Takes the tenants whose ledgers have grown since they were metered last.
    pub(crate) fn take_unmetered(&self) -> HashSet<TenantId> {
        std::mem::take(&mut self.grown().unmetered)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn uptime_seconds(&self) -> u64 {
        let millis = self.now().millis_since(self.started_at);
        u64::try_from(millis / 1_000).unwrap_or(0)
    }

    /// Waits for `event`, at most for `limit`, and not beyond the start of draining. Returns true if the
    /// event came. The limit counts from this call, not from the first poll.
    pub(crate) fn wait_for(
        &self,
        event: impl Future<Output = ()>,
        limit: Duration,
    ) -> impl Future<Output = bool> {
        let limit = tokio::time::sleep(limit);
        async move {
            tokio::select! {
                biased;
                () = event => true,
                () = self.drained() => false,
                () = limit => false,
            }
        }
    }

    /// Waits for something on behalf of a caller, at most for `limit`, and not beyond the start of draining or the end of
    /// the caller's credential. The limit counts from this call, not from the first poll.
    pub(crate) fn wait_as(
        &self,
        caller: &Caller,
        event: impl Future<Output = ()>,
        limit: Duration,
    ) -> impl Future<Output = bool> {
        let keyring = self.keyring.as_deref();
        let ended = keyring.map(|keyring| keyring.until_ended(caller));
        let waiting = self.wait_for(event, limit);
        async move {
            let Some(ended) = ended else {
                return waiting.await;
            };
            tokio::select! {
                biased;
                came = waiting => came,
                () = ended => false,
            }
        }
    }

    /// Runs a decision of any plane in a transaction of `tenant`. `weight` is how much memory its input holds.
    ///
    /// The decision is given the time at which the store decides it; ids and settings are those of this moment.
    pub(crate) fn transact<R, P, T>(
        &self,
        tenant: TenantId,
        weight: usize,
        reads: R,
        decide: impl FnMut(Env, P::Snapshot) -> Decided<P, T> + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send
    where
        R: Declared<Plane = P>,
        P: Refuses + Plane<Reads = R>,
        T: Send + 'static,
    {
        let (store, env) = (self.store.as_ref(), self.env(tenant, self.now()));
        let decided = asyncgate_store::transact(store, tenant, env, weight, reads, decide);
        // An `async` block and no `async fn`, for the reason that the store's `transact` gives.
        async move {
            let decided = decided.await?;
            let committed = decided.map_err(|rejection| P::fault(self, rejection))?;
            if committed.receipts > 0 {
                self.note_grown(tenant);
            }
            Ok(committed.output)
        }
    }

    /// Returns what a rule that decides for a tenant may know of the world at `now`.
    pub(crate) fn env(&self, tenant: TenantId, now: Timestamp) -> Env {
        let settings = self.settings();
        let standing = self.tenants.known(tenant);
        Env {
            quotas: standing.and_then(|standing| standing.at(now).quotas.clone()),
            now,
            ids: self.ids(now),
            instance: Arc::clone(&settings.instance_id),
            policy: Arc::clone(&settings.policy),
        }
    }

    /// Draws a random number.
    pub(crate) fn random(&self) -> u64 {
        self.entropy.next_u64()
    }

    /// Returns a source of ids whose stamp this engine has never given out before.
    pub(crate) fn ids(&self, now: Timestamp) -> Ids {
        let floor = Stamp::of_millis(now.as_millis()).as_u64();
        let next = |last: u64| Some(floor.max(last + 1));
        let last = self
            .last_stamp
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next)
            .unwrap_or_default();
        Ids::new(
            Stamp::from_u64(floor.max(last + 1)),
            self.entropy.next_u64(),
        )
    }
}

/// A plane whose refusals the engine explains to callers.
pub(crate) trait Refuses: Plane {
    /// Returns a refusal as callers are told of it.
    fn fault(engine: &Engine, rejection: Self::Rejection) -> Fault;
}

impl Refuses for Tasks {
    fn fault(_: &Engine, rejection: Rejection) -> Fault {
        rejection.into()
    }
}

impl Refuses for Messages {
    fn fault(engine: &Engine, rejection: mailbox::Rejection) -> Fault {
        engine.mailbox_fault(rejection)
    }
}

impl Refuses for Dispatches {
    fn fault(_: &Engine, rejection: Infallible) -> Fault {
        match rejection {}
    }
}

impl Refuses for Records {
    fn fault(_: &Engine, rejection: identity::Rejection) -> Fault {
        rejection.into()
    }
}
