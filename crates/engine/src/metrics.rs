//! The engine's metrics. Labels are operation names and codes: few and fixed.

mod admission;
mod crypto;
mod mailbox;
mod outbox;
mod reorder;
pub(crate) mod span;

use std::sync::OnceLock;

use asyncgate_api::Spec;
use asyncgate_core::{TenantId, task::Status};
use asyncgate_store::{Error, Stopwatch};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::{Family, MetricConstructor},
        gauge::Gauge,
        histogram::Histogram,
    },
    registry::Registry,
};

use crate::{Durability, Engine, Fault, Settings, registry};
use admission::AdmissionMetrics;
pub use crypto::{
    CryptoMetrics, CryptoWork, Downgrade, HandshakeResult, KeyExchange, Signature, Surface,
};
use mailbox::{Classes, MailboxMetrics};
use outbox::OutboxMetrics;

/// The number of topics that are read at a time.
const TOPICS_PER_LOOK: usize = 1_000;

/// The code of a success.
pub(crate) const OK: &str = "OK";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    operation: &'static str,
    code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    operation: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InStatus {
    status: &'static str,
}

#[derive(Debug, Clone)]
struct Latencies;

impl MetricConstructor<Histogram> for Latencies {
    fn new_metric(&self) -> Histogram {
        Histogram::new([
            0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 10.0, 60.0,
        ])
    }
}

/// The metrics that nearly every call counts, kept at hand: to find them among all labels costs more than
/// to count.
#[derive(Debug)]
struct Usual {
    ok: Counter,
    seconds: Histogram,
}

/// The engine's counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// One for each operation, by its index in the registry, made at its first call.
    usual: Box<[OnceLock<Usual>]>,
    requests: Family<Outcome, Counter>,
    seconds: Family<Named, Histogram, Latencies>,
    depths: Family<InStatus, Gauge>,
    pub(crate) created: Counter,
    pub(crate) claims: Counter,
    pub(crate) leases: Counter,
    pub(crate) expiries: Counter,
    pub(crate) unproven: Counter,
    waiting: Gauge,
    pub(crate) mailbox: MailboxMetrics,
    pub(crate) admission: AdmissionMetrics,
    pub(crate) outbox: OutboxMetrics,
    pub(crate) crypto: CryptoMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let usual = registry().iter().map(|_| OnceLock::new());
        Self {
            usual: usual.collect(),
            requests: Family::default(),
            seconds: Family::new_with_constructor(Latencies),
            depths: Family::default(),
            created: Counter::default(),
            claims: Counter::default(),
            leases: Counter::default(),
            expiries: Counter::default(),
            unproven: Counter::default(),
            waiting: Gauge::default(),
            mailbox: MailboxMetrics::default(),
            admission: AdmissionMetrics::default(),
            outbox: OutboxMetrics::default(),
            crypto: CryptoMetrics::default(),
        }
    }
}

/// A guard that counts a waiting call until it is dropped.
#[derive(Debug)]
pub(crate) struct Waiting(Gauge);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Metrics {
    /// Counts a waiting call until the guard is dropped.
    pub(crate) fn waiting(&self) -> Waiting {
        self.waiting.inc();
        Waiting(self.waiting.clone())
    }

    /// Counts a call that ended with `code`. `place` is the operation's index in the registry, `watch`
    /// runs since the call began.
    pub(crate) fn observe(&self, place: usize, code: &'static str, watch: Stopwatch) {
        let operation = registry()[place].spec.name;
        let usual = self.usual[place].get_or_init(|| self.usual(operation));
        usual.seconds.observe(watch.elapsed().as_secs_f64());
        if code == OK {
            usual.ok.inc();
        } else {
            let outcome = Outcome { operation, code };
            self.requests.get_or_create(&outcome).inc();
        }
    }

    fn usual(&self, operation: &'static str) -> Usual {
        let ok = Outcome {
            operation,
            code: OK,
        };
        Usual {
            ok: self.requests.get_or_create(&ok).clone(),
            seconds: self.seconds.get_or_create(&Named { operation }).clone(),
        }
    }
}

impl Engine {
    /// Adds the engine's and the store's metrics to `registry`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let metrics = &self.metrics;
        self.store.metrics().register(registry);
        registry.register(
            "requests",
            "Operations by outcome",
            metrics.requests.clone(),
        );
        registry.register(
            "request_seconds",
            "Time to answer, waiting included",
            metrics.seconds.clone(),
        );
        let durable = Gauge::<i64>::default();
        durable.set(i64::from(self.settings().durability == Durability::Fsync));
        registry.register(
            "durable",
            "1 when a success answer is on disk, 0 when it lasts as long as the process",
            durable,
        );
        registry.register("tasks", "Tasks by status", metrics.depths.clone());
        registry.register("tasks_created", "Tasks created", metrics.created.clone());
        registry.register("claims", "Calls for work", metrics.claims.clone());
        registry.register("leases_granted", "Leases given out", metrics.leases.clone());
        registry.register(
            "leases_expired",
            "Leases that ran out",
            metrics.expiries.clone(),
        );
        registry.register(
            "unproven_successes",
            "Successes that did not say where their result is",
            metrics.unproven.clone(),
        );
        registry.register(
            "waiting_calls",
            "Calls that wait for an event",
            metrics.waiting.clone(),
        );
        metrics.admission.register(registry);
        metrics.outbox.register(registry);
    }

    /// Adds the metrics of the mailbox, of the host and of cryptography to `registry`. Their names are those that
    /// operators know from elsewhere, so `registry` should put no prefix in front of them.
    pub fn register_mailbox_metrics(&self, registry: &mut Registry) {
        self.metrics.mailbox.register(registry);
        self.metrics.crypto.register(registry);
        self.host.register_metrics(registry);
        registry.register(
            "bus_lagged",
            "Events that readers were too slow for",
            self.events.lagged(),
        );
        // The one queue that sheds is the one before the writer: nothing in it is accepted yet.
        let work = registry.sub_registry_with_label(("queue".into(), "work".into()));
        work.register(
            "queue_dropped",
            "Work turned away because the line before the writer was full; accepted work never is",
            self.store.metrics().turned_away.clone(),
        );
    }

    /// Brings the gauges up to date, before they are reported.
    pub async fn refresh_metrics(&self) {
        if let Ok(depths) = self.store.depths().await {
            for status in Status::ALL {
                let gauge = self.metrics.depths.get_or_create(&InStatus {
                    status: status.as_str(),
                });
                gauge.set(depths.of(status));
            }
        }
        if let Ok(rows) = self.store.admission().rows().await {
            let rows = i64::try_from(rows).unwrap_or(i64::MAX);
            self.metrics.admission.rows.set(rows);
        }
        if let Ok(load) = self.store.outbox().outbox_load().await {
            self.metrics.outbox.set_load(load);
        }
        if let Ok(load) = self.store.mailbox().load(self.now()).await {
            let settings = self.settings();
            let policy = &settings.policy.mailbox;
            self.metrics.mailbox.set_load(policy, &load);
            if let Ok(classes) = self.sum_up_topics(&settings, load.tenants.keys()).await {
                self.metrics.mailbox.set_classes(policy, &classes);
            }
        }
    }

    /// Sums up the topics of tenants by their classes.
    async fn sum_up_topics<'a>(
        &self,
        settings: &'a Settings,
        tenants: impl Iterator<Item = &TenantId>,
    ) -> Result<Classes<'a>, Error> {
        let mut classes = Classes::new(settings, self.now());
        for tenant in tenants {
            let mut after = None;
            loop {
                let page = self.store.mailbox().topics(*tenant, after, TOPICS_PER_LOOK);
                let page = page.await?;
                page.iter().for_each(|topic| classes.add(topic));
                after = page.last().map(|topic| topic.name.clone());
                if page.len() < TOPICS_PER_LOOK {
                    break;
                }
            }
        }
        Ok(classes)
    }

    /// Counts a fault that stopped a call before its operation was known, and logs it if it is about a
    /// credential.
    pub fn note_refusal(&self, fault: &Fault) {
        self.metrics.mailbox.rejected(fault);
        self.log_denied(None, fault);
    }

    /// Counts a fault, logs it if it is about a credential, and gives it the code that the operation's
    /// plane has for it. A facade calls this for a fault that stops a call before it reaches the engine;
    /// every other call passes it anyway.
    #[must_use]
    pub fn refuse(&self, spec: &Spec, mut fault: Fault) -> Fault {
        // Counted by its own code, which tells more than the plane's.
        self.metrics.mailbox.refused(spec, &fault);
        self.log_denied(Some(spec), &fault);
        fault.code = spec.plane.code(fault.code);
        fault
    }
}
