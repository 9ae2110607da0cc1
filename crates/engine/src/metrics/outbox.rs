//! Metrics of the outbox. The labels are destinations, which are few and named by the settings.

use asyncgate_store::outbox::OutboxLoad;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Tried {
    destination: String,
    result: &'static str,
}

/// The outbox's counters.
#[derive(Debug, Default)]
pub(crate) struct OutboxMetrics {
    tries: Family<Tried, Counter>,
    pending: Gauge,
    dead: Gauge,
}

impl OutboxMetrics {
    /// Counts a try.
    pub(crate) fn tried(&self, destination: &str, arrived: bool) {
        let tried = Tried {
            destination: destination.to_owned(),
            result: match arrived {
                true => "arrived",
                false => "failed",
            },
        };
        self.tries.get_or_create(&tried).inc();
    }

    /// Tells how full the outbox is.
    pub(crate) fn set_load(&self, load: OutboxLoad) {
        let number = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.pending.set(number(load.pending));
        self.dead.set(number(load.dead));
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "outbox_tries",
            "Tries to bring something to another system",
            self.tries.clone(),
        );
        registry.register(
            "outbox_pending",
            "Things that are on their way to other systems",
            self.pending.clone(),
        );
        registry.register(
            "outbox_dead",
            "Things that were given up on the way to other systems, and are kept",
            self.dead.clone(),
        );
    }
}
