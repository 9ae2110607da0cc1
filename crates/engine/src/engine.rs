//! The engine: a store, a clock, and what every operation needs of them.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use asyncgate_admission::{Guard, Host, OfStore, Tiers};
use asyncgate_core::{
    Decision, Env, Ids, Rejection, Stamp, TenantId, Timestamp, mailbox as rules,
    task::{self, Created, NewTask},
};
use asyncgate_store::{Health, ReadSet, Snapshot, Store, mailbox};
use tokio::sync::watch;

use crate::{
    Clock, Entropy, Events, Fault, Settings, Signer, mailbox::DrainMeter, metrics::Metrics,
};

/// How late a round of the watch over messages may be.
const OVERDUE_MS: i64 = 30_000;

/// The canonical operations over one store. Facades reach it through the registry.
pub struct Engine {
    pub(crate) store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    settings: RwLock<Arc<Settings>>,
    started_at: Timestamp,
    last_stamp: AtomicU64,
    draining: watch::Sender<bool>,
    pub(crate) signer: Option<Arc<dyn Signer>>,
    /// Tenants whose ledgers have grown since they were signed last.
    grown: Mutex<HashSet<TenantId>>,
    /// How fast messages leave the mailbox.
    pub(crate) drain_meter: DrainMeter,
    pub(crate) events: Events,
    /// False while new work is turned away and everything else goes on.
    accepting: AtomicBool,
    /// When the watch over messages last began a round.
    scanned_at: AtomicI64,
    /// Who decides about nonces, limits and revocations.
    pub(crate) host: Guard,
    /// Whether that is somebody else than the store.
    pub(crate) own_host: bool,
    pub(crate) tiers: Tiers,
    pub(crate) metrics: Metrics,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine")
            .field("settings", &self.settings())
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine over `store`. `clock` must not be behind the store's last time.
    pub fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        entropy: Arc<dyn Entropy>,
        settings: Settings,
    ) -> Self {
        store
            .mailbox()
            .set_replay_window(settings.policy.mailbox.t_replay_ms);
        let now = clock.now();
        let host = Arc::new(OfStore::new(Arc::clone(&store)));
        Self {
            host: Guard::new(host, settings.admission.clone()),
            own_host: false,
            tiers: Tiers::new(Arc::clone(&store)),
            started_at: now,
            store,
            clock,
            entropy,
            settings: RwLock::new(Arc::new(settings)),
            last_stamp: AtomicU64::new(0),
            draining: watch::Sender::new(false),
            signer: None,
            grown: Mutex::default(),
            drain_meter: DrainMeter::default(),
            events: Events::default(),
            accepting: AtomicBool::new(true),
            scanned_at: AtomicI64::new(now.as_millis()),
            metrics: Metrics::default(),
        }
    }

    /// Gives the engine a key to sign ledgers with.
    #[must_use]
    pub fn with_signer(mut self, signer: Arc<dyn Signer>) -> Self {
        self.signer = Some(signer);
        self
    }

    /// Lets another host than the store decide about nonces, limits and revocations.
    #[must_use]
    pub fn with_host(mut self, host: Arc<dyn Host>) -> Self {
        self.host = Guard::new(host, self.settings().admission.clone());
        self.own_host = true;
        self
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other settings in force, for requests that begin after this.
    pub fn reload(&self, settings: Settings) {
        let window = settings.policy.mailbox.t_replay_ms;
        self.store.mailbox().set_replay_window(window);
        self.host.reload(settings.admission.clone());
        *self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    /// Whether writes are being accepted.
    pub fn health(&self) -> Health {
        self.store.health()
    }

    /// Says whether new work is welcome. While it is not, sends and new tasks are turned away;
    /// receivers and workers go on.
    pub fn set_accepting(&self, accepting: bool) {
        self.accepting.store(accepting, Ordering::Relaxed);
    }

    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.load(Ordering::Relaxed)
    }

    /// The watch over messages begins a round.
    pub(crate) fn note_scan(&self) {
        let now = self.now().as_millis();
        self.scanned_at.store(now, Ordering::Relaxed);
    }

    /// Whether the watch over messages is alive: no round is overdue by much.
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

    /// Lets those who wait go at once, so that the process can end.
    pub fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Waits until [`Engine::drain`] is called.
    pub async fn drained(&self) {
        let mut draining = self.draining.subscribe();
        // The sender lives as long as the engine, so this cannot fail before it is true.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Notes that a tenant's ledger has grown since it was signed.
    pub(crate) fn mark_grown(&self, tenant: TenantId) {
        let mut grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        grown.insert(tenant);
    }

    /// The tenants whose ledgers have grown since this was asked last.
    pub(crate) fn take_grown(&self) -> HashSet<TenantId> {
        std::mem::take(&mut *self.grown.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn uptime_seconds(&self) -> u64 {
        let millis = self.now().millis_since(self.started_at);
        u64::try_from(millis / 1_000).unwrap_or(0)
    }

    /// Waits for `event`, at most `seconds`, and not beyond the start of draining. Answers whether
    /// the event came.
    pub(crate) async fn wait_for(&self, event: impl Future<Output = ()>, limit: Duration) -> bool {
        tokio::select! {
            biased;
            () = event => true,
            () = self.drained() => false,
            () = tokio::time::sleep(limit) => false,
        }
    }

    /// Runs a decision in a transaction of `tenant`. `weight` is how much memory its input holds.
    pub(crate) fn transact<T: Send + 'static>(
        &self,
        tenant: TenantId,
        weight: usize,
        reads: ReadSet,
        mut decide: impl FnMut(Env, Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send {
        let decide = move |env, snapshot| {
            let Decision { changes, output } = decide(env, snapshot)?;
            let grows = !changes.receipts.is_empty();
            Ok(Decision {
                changes,
                output: (output, grows),
            })
        };
        let decided = self.run(tenant, weight, reads, decide);
        async move {
            let (output, grew) = decided.await?;
            if grew {
                self.mark_grown(tenant);
            }
            Ok(output)
        }
    }

    /// As [`Engine::transact`], for what the engine does of its own accord.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        tenant: TenantId,
        weight: usize,
        reads: ReadSet,
        mut decide: impl FnMut(Env, Snapshot) -> Result<Decision<T>, Rejection> + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send {
        let env = self.env();
        let now = env.now;
        let decide = move |snapshot: Snapshot| {
            let mut env = env.clone();
            env.now = env.now.max(snapshot.last_time);
            decide(env, snapshot)
        };
        let store = self.store.as_ref();
        let decided = asyncgate_store::transact(store, tenant, now, weight, reads, decide);
        async move { Ok(decided.await??) }
    }

    /// A decision that creates a task.
    pub(crate) fn creating(
        &self,
        new: NewTask,
    ) -> impl FnMut(Snapshot) -> Result<Decision<Created>, Rejection> + Send + 'static {
        let env = self.env();
        move |snapshot| {
            let mut env = env.clone();
            env.now = env.now.max(snapshot.last_time);
            task::create(env, snapshot.head, new.clone(), snapshot.keyed)
        }
    }

    /// Runs a decision over messages in a transaction of `tenant`.
    pub(crate) fn transact_mailbox<T: Send + 'static>(
        &self,
        tenant: TenantId,
        weight: usize,
        reads: mailbox::Reads,
        mut decide: impl FnMut(Env, mailbox::Snapshot) -> Result<rules::Decision<T>, rules::Rejection>
        + Send
        + 'static,
    ) -> impl Future<Output = Result<T, Fault>> + Send {
        let env = self.env();
        let now = env.now;
        let decide = move |snapshot: mailbox::Snapshot| {
            let mut env = env.clone();
            env.now = env.now.max(snapshot.last_time);
            decide(env, snapshot)
        };
        let store = self.store.mailbox();
        let decided = mailbox::transact(store, tenant, now, weight, reads, decide);
        async move {
            let decided = decided.await?;
            decided.map_err(|rejection| self.mailbox_fault(rejection))
        }
    }

    /// What a rule may know of the world.
    fn env(&self) -> Env {
        let now = self.now();
        let settings = self.settings();
        Env {
            now,
            ids: self.ids(now),
            instance: Arc::clone(&settings.instance_id),
            policy: Arc::clone(&settings.policy),
        }
    }

    /// A source of ids whose stamp was never given out before by this engine.
    fn ids(&self, now: Timestamp) -> Ids {
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
