//! Metrics of admission, beside those of its host. The labels are policies: few, and named by the operator.

use asyncgate_core::admission::Limited;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    policy: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Came {
    ingress: String,
    result: &'static str,
}

/// Admission's counters.
#[derive(Debug, Default)]
pub(crate) struct AdmissionMetrics {
    messages: Family<Came, Counter>,
    limits: Family<Decided, Counter>,
    pub(crate) protected_keys: Counter,
    pub(crate) rows: Gauge,
}

impl AdmissionMetrics {
    /// Counts the decision of a limit.
    pub(crate) fn limited(&self, policy: &str, limited: &Limited) {
        let result = match (limited.shadowed, limited.allowed) {
            (true, _) => "shadowed",
            (false, true) => "allowed",
            (false, false) => "refused",
        };
        let policy = policy.to_owned();
        self.limits.get_or_create(&Decided { policy, result }).inc();
    }

    /// Counts a message that an ingress took.
    pub(crate) fn received(&self, ingress: &str) {
        self.came(ingress, "OK");
    }

    /// Counts a message that an ingress refused, by the code of the refusal.
    pub(crate) fn refused(&self, ingress: &str, code: &'static str) {
        self.came(ingress, code);
    }

    fn came(&self, ingress: &str, result: &'static str) {
        let ingress = ingress.to_owned();
        self.messages.get_or_create(&Came { ingress, result }).inc();
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "limit_decisions",
            "Decisions of limits by policy; shadowed ones would have been refused",
            self.limits.clone(),
        );
        registry.register(
            "ingress_messages",
            "Signed messages by ingress and result: OK, or the code of the refusal",
            self.messages.clone(),
        );
        registry.register(
            "protected_key_refused",
            "Attempts to revoke a key that cannot be revoked",
            self.protected_keys.clone(),
        );
        registry.register(
            "admission_rows",
            "Nonces, windows, buckets and delays that are kept",
            self.rows.clone(),
        );
    }
}
