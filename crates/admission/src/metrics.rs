//! The metrics of a guard. The names are those that users of Tenuo hosts know.

use std::{sync::OnceLock, time::Duration};

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

use crate::{Circuit, Component};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Ended {
    operation: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfCache {
    cache_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfPart {
    component: &'static str,
}

#[derive(Debug, Clone)]
struct Latencies;

impl MetricConstructor<Histogram> for Latencies {
    fn new_metric(&self) -> Histogram {
        Histogram::new([
            0.000_001, 0.000_01, 0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
            1.0,
        ])
    }
}

/// The questions to a host.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    /// Several questions in one call that was not answered, so that they cannot be told apart.
    Admit,
    CheckLimit,
    CheckNonce,
    IncrementCounter,
    IsRevoked,
}

impl Operation {
    const ALL: [&'static str; 5] = [
        "admit",
        "check_limit",
        "check_nonce",
        "increment_counter",
        "is_revoked",
    ];
}

/// The outcomes of a question.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Outcome {
    Success,
    Exceeded,
    Replay,
    Revoked,
    /// There was no answer, in any failure mode.
    Error,
}

impl Outcome {
    const ALL: [&'static str; 5] = ["success", "exceeded", "replay", "revoked", "error"];
}

/// The number of times that an operation came to one outcome, and how long it took.
type Tally = (Counter, Histogram);

/// A guard's counters.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The used members of `seconds` and `total`, found by index: a search in a family would cost as much
    /// as a decision in memory.
    tallies: [[OnceLock<Tally>; Outcome::ALL.len()]; Operation::ALL.len()],
    seconds: Family<Ended, Histogram, Latencies>,
    total: Family<Ended, Counter>,
    hits: Family<OfCache, Counter>,
    circuits: Family<OfPart, Gauge>,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            tallies: Default::default(),
            seconds: Family::new_with_constructor(Latencies),
            total: Family::default(),
            hits: Family::default(),
            circuits: Family::default(),
        };
        // A gauge that was never set does not show: all circuits are closed from the start.
        for component in Component::ALL {
            metrics.circuit(component, Circuit::Closed);
        }
        metrics
    }
}

impl Metrics {
    /// Counts an operation, or as many as one call asked for.
    pub(crate) fn ended(
        &self,
        operation: Operation,
        outcome: Outcome,
        count: usize,
        took: Duration,
    ) {
        let (operation, outcome) = (operation as usize, outcome as usize);
        let tally = &self.tallies[operation][outcome];
        let (total, seconds) = tally.get_or_init(|| {
            let ended = Ended {
                operation: Operation::ALL[operation],
                result: Outcome::ALL[outcome],
            };
            let seconds = self.seconds.get_or_create_owned(&ended);
            (self.total.get_or_create_owned(&ended), seconds)
        });
        total.inc_by(count as u64);
        seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn hit(&self, cache_type: &'static str) {
        self.hits.get_or_create(&OfCache { cache_type }).inc();
    }

    pub(crate) fn circuit(&self, component: Component, circuit: Circuit) {
        let component = component.as_str();
        let gauge = self.circuits.get_or_create(&OfPart { component });
        gauge.set(match circuit {
            Circuit::Closed => 0,
            Circuit::Open => 1,
            Circuit::HalfOpen => 2,
        });
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        let host = registry.sub_registry_with_prefix("tenuo_host");
        host.register(
            "operation_duration_seconds",
            "Time that the host took to answer",
            self.seconds.clone(),
        );
        host.register(
            "operation",
            "Decisions of the host by result",
            self.total.clone(),
        );
        host.register(
            "cache_hit",
            "Answers that were kept from before",
            self.hits.clone(),
        );
        host.register(
            "circuit_breaker_state",
            "0 when the part is asked, 1 when it is not for a while, 2 while one call tries",
            self.circuits.clone(),
        );
    }
}
