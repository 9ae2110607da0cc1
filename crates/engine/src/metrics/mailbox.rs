//! The metrics of the mailbox, and its lines in the log. Labels and log fields are classes, shards and
//! reasons: no topic, id or key of a message, and no content. A receiver's own words are in the log and
//! in events, but not in metrics, which everybody may read.

mod gauges;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use asyncgate_api::{Code, Plane, Spec};
use asyncgate_core::{
    MessageId, TenantId,
    mailbox::{Cause, Damage, Death, Flaw, Message, Policy, Rejection, Sent, Settlement, Trace},
};
use asyncgate_store::{Stopwatch, mailbox::Load};
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

pub(crate) use self::gauges::Classes;
use self::gauges::Gauges;
use super::{Latencies, reorder::Reorder, span};
use crate::{Engine, Fault, Settings, events::Tally, mailbox::corr_id, registry};

/// The most reasons of receivers that are told apart. The others become `other`.
const MAX_REASONS: usize = 32;
const MAX_REASON_BYTES: usize = 64;
/// The reasons that the server itself gives. In metrics, `nack` stands for all reasons of receivers.
const SERVER_REASONS: [&str; 4] = ["visibility_timeout", "expired", "integrity", "nack"];

/// The reasons why calls are refused.
const REJECTED: [&str; 9] = [
    "unauth",
    "oversize",
    "ratio_cap",
    "saturated",
    "quota",
    "storage",
    "degraded",
    "schema",
    "integrity",
];
/// The ways in which dead letters are thrown away.
const THROWN_AWAY: [&str; 2] = ["manual", "expiry"];
/// The scopes of credentials in the mailbox.
const SCOPES: [&str; 5] = ["send", "recv", "ack", "nack", "admin"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    topic_class: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClassFor {
    topic_class: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ForReason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AtEndpoint {
    endpoint: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InScope {
    scope: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InShard {
    shard: u16,
}

#[derive(Debug, Clone)]
struct Attempts;

impl MetricConstructor<Histogram> for Attempts {
    fn new_metric(&self) -> Histogram {
        Histogram::new([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0])
    }
}

/// The mailbox's counters.
#[derive(Debug)]
pub(crate) struct MailboxMetrics {
    enqueued: Family<OfClass, Counter>,
    delivered: Family<OfClass, Counter>,
    redelivered: Family<OfClass, Counter>,
    timeouts: Family<OfClass, Counter>,
    attempts: Family<OfClass, Histogram, Attempts>,
    enqueue_seconds: Histogram,
    dequeue_seconds: Histogram,
    ack_seconds: Histogram,
    integrity: Family<ForReason, Counter>,
    dead: Family<OfClassFor, Counter>,
    reprocessed: Family<OfClass, Counter>,
    purged: Family<OfClass, Counter>,
    dead_purged: Family<OfClassFor, Counter>,
    rejected: Family<ForReason, Counter>,
    busy: Family<AtEndpoint, Counter>,
    auth_failures: Family<InScope, Counter>,
    gauges: Gauges,
    wakes: Counter,
    jitter: Histogram,
    backoffs: Counter,
    reorder_depths: Family<InShard, Gauge>,
    reorder: Reorder,
    reasons: Mutex<BTreeSet<String>>,
    /// The counts that become events once a second.
    pub(crate) tally: Tally,
}

impl Default for MailboxMetrics {
    fn default() -> Self {
        let metrics = Self {
            enqueued: Family::default(),
            delivered: Family::default(),
            redelivered: Family::default(),
            timeouts: Family::default(),
            attempts: Family::new_with_constructor(Attempts),
            enqueue_seconds: Latencies.new_metric(),
            dequeue_seconds: Latencies.new_metric(),
            ack_seconds: Latencies.new_metric(),
            integrity: Family::default(),
            dead: Family::default(),
            reprocessed: Family::default(),
            purged: Family::default(),
            dead_purged: Family::default(),
            rejected: Family::default(),
            busy: Family::default(),
            auth_failures: Family::default(),
            gauges: Gauges::default(),
            wakes: Counter::default(),
            jitter: Histogram::new([1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1_000.0]),
            backoffs: Counter::default(),
            reorder_depths: Family::default(),
            reorder: Reorder::default(),
            reasons: Mutex::default(),
            tally: Tally::default(),
        };
        metrics.begin();
        metrics
    }
}

impl MailboxMetrics {
    /// Starts the known labels at zero, so that the first count shows as a step.
    fn begin(&self) {
        for flaw in [Flaw::PayloadHash, Flaw::HashChain] {
            let reason = flaw.as_str();
            drop(self.integrity.get_or_create(&ForReason { reason }));
        }
        for reason in REJECTED {
            drop(self.rejected.get_or_create(&ForReason { reason }));
        }
        for scope in SCOPES {
            drop(self.auth_failures.get_or_create(&InScope { scope }));
        }
        for entry in registry() {
            let endpoint = entry.spec.name;
            drop(self.busy.get_or_create(&AtEndpoint { endpoint }));
        }
    }

    /// Does the same for the classes of topics, which are settings.
    pub(crate) fn begin_classes(&self, settings: &Settings) {
        for topic_class in settings.classes() {
            let class = OfClass {
                topic_class: topic_class.to_owned(),
            };
            for counter in [
                &self.enqueued,
                &self.delivered,
                &self.redelivered,
                &self.timeouts,
                &self.reprocessed,
                &self.purged,
            ] {
                drop(counter.get_or_create(&class));
            }
            drop(self.attempts.get_or_create(&class));
            let reasons = |family: &Family<OfClassFor, Counter>, reasons: &[&'static str]| {
                for reason in reasons {
                    let topic_class = topic_class.to_owned();
                    drop(family.get_or_create(&OfClassFor {
                        topic_class,
                        reason,
                    }));
                }
            };
            reasons(&self.dead, &SERVER_REASONS);
            reasons(&self.dead_purged, &THROWN_AWAY);
        }
    }

    /// Counts one send of perhaps many. `watch` runs since the call began, here and below.
    pub(crate) fn sent(
        &self,
        settings: &Settings,
        topic: &str,
        sent: &Result<Sent, Rejection>,
        watch: Stopwatch,
    ) {
        let class = of_class(settings, topic);
        match sent {
            Ok(sent) => {
                let topic_class = class.topic_class.as_str();
                span::note_shard(Some(sent.shard));
                tracing::debug!(
                    event = "send.accepted",
                    topic_class,
                    shard = sent.shard,
                    corr_id = %corr_id(sent.corr_id),
                    duplicate = sent.duplicate,
                    latency_ms = millis(watch),
                );
                if !sent.duplicate {
                    self.enqueued.get_or_create(&class).inc();
                }
            }
            Err(Rejection::Saturated(full)) => {
                let topic_class = class.topic_class.as_str();
                tracing::debug!(
                    event = "send.rejected",
                    reason = "saturated",
                    queue = full.as_str(),
                    saturation = 1.0,
                    topic_class,
                    latency_ms = millis(watch),
                );
            }
            Err(_) => {}
        }
    }

    /// Measures the time from a send to its commit.
    pub(crate) fn enqueued(&self, watch: Stopwatch) {
        self.enqueue_seconds.observe(watch.elapsed().as_secs_f64());
    }

    /// Measures the time from a look for messages to their delivery.
    pub(crate) fn dequeued(&self, watch: Stopwatch) {
        self.dequeue_seconds.observe(watch.elapsed().as_secs_f64());
    }

    /// Measures the time from an acknowledgement to its commit.
    pub(crate) fn ack_committed(&self, watch: Stopwatch) {
        self.ack_seconds.observe(watch.elapsed().as_secs_f64());
    }

    /// Counts a message that a receiver got.
    pub(crate) fn handed_over(
        &self,
        settings: &Settings,
        tenant: TenantId,
        message: &Message,
        watch: Stopwatch,
    ) {
        let shard = message.shard;
        let class = of_class(settings, &message.topic);
        let topic_class = class.topic_class.as_str();
        span::note(topic_class, Some(shard), Some(message.attempt));
        tracing::debug!(
            event = "recv.batch",
            topic_class,
            shard,
            attempt = message.attempt,
            corr_id = %corr_id(message.corr_id),
            latency_ms = millis(watch),
        );
        if message.attempt > 1 {
            self.redelivered.get_or_create(&class).inc();
        } else if message.priority == 0
            && let Some(depth) = self.reorder.depth(tenant, message)
        {
            let deepest = self.reorder_depths.get_or_create(&InShard { shard });
            deepest.inner().fetch_max(depth, Ordering::Relaxed);
        }
    }

    /// Counts a message that does not agree with its hashes.
    pub(crate) fn damaged(&self, settings: &Settings, damage: &Damage) {
        let reason = damage.flaw.as_str();
        let trace = &damage.trace;
        tracing::error!(
            event = "integrity.fail",
            reason,
            topic_class = settings.topic_class(&trace.topic),
            shard = trace.shard,
            corr_id = %corr_id(trace.corr_id),
        );
        self.integrity.get_or_create(&ForReason { reason }).inc();
    }

    /// Counts messages whose receivers let the deadline pass.
    pub(crate) fn timed_out(&self, settings: &Settings, tenant: TenantId, messages: &[Trace]) {
        // One line for all of them: a receiver that stops may leave thousands behind.
        if !messages.is_empty() {
            tracing::info!(event = "scanner.requeue", count = messages.len());
        }
        for trace in messages {
            let class = of_class(settings, &trace.topic);
            tracing::debug!(
                event = "scanner.requeue",
                topic_class = class.topic_class.as_str(),
                shard = trace.shard,
                corr_id = %corr_id(trace.corr_id),
            );
            self.timeouts.get_or_create(&class).inc();
            self.tally.requeued(tenant, trace.shard);
        }
    }

    /// Notes messages whose senders delayed them, when the delay is over.
    pub(crate) fn held_back(&self, tenant: TenantId, ids: &[MessageId]) {
        for id in ids {
            self.reorder.held_back(tenant, *id);
        }
    }

    /// Counts a wake-up of the watch over messages, and measures how late it was.
    pub(crate) fn woke(&self, late: Duration) {
        self.wakes.inc();
        self.jitter.observe(late.as_secs_f64() * 1_000.0);
    }

    /// Counts a message that became a dead letter.
    pub(crate) fn died(&self, settings: &Settings, tenant: TenantId, death: &Death) {
        let trace = &death.trace;
        let class = of_class(settings, &trace.topic);
        let reason = self.known_reason(death);
        tracing::warn!(
            event = "dlq.move",
            cause = death.cause.as_str(),
            reason,
            topic_class = class.topic_class.as_str(),
            shard = trace.shard,
            attempt = death.attempt,
            corr_id = %corr_id(trace.corr_id),
        );
        self.tally.died(tenant, &class.topic_class, &reason);
        let attempts = self.attempts.get_or_create(&class);
        attempts.observe(f64::from(death.attempt));
        drop(attempts);
        let reason = match death.cause {
            Cause::Expired => "expired",
            Cause::Integrity => "integrity",
            Cause::MaxAttempts if death.reason == "visibility_timeout" => "visibility_timeout",
            Cause::MaxAttempts => "nack",
        };
        let topic_class = class.topic_class;
        let died_of = OfClassFor {
            topic_class,
            reason,
        };
        self.dead.get_or_create(&died_of).inc();
    }

    /// Counts messages that an operator threw away: those that waited, and dead letters.
    pub(crate) fn purged(&self, settings: &Settings, topic: &str, waiting: u64, dead: u64) {
        let class = of_class(settings, topic);
        let topic_class = class.topic_class.as_str();
        tracing::info!(event = "mailbox.purge", topic_class, waiting, dead);
        self.purged.get_or_create(&class).inc_by(waiting);
        let topic_class = class.topic_class;
        let reason = "manual";
        let purged = OfClassFor {
            topic_class,
            reason,
        };
        self.dead_purged.get_or_create(&purged).inc_by(dead);
    }

    /// Counts dead letters that were forgotten because they had been kept long enough.
    pub(crate) fn buried(&self, settings: &Settings, tenant: TenantId, letters: &[Trace]) {
        let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
        for trace in letters {
            *classes
                .entry(settings.topic_class(&trace.topic))
                .or_default() += 1;
        }
        for (topic_class, count) in classes {
            tracing::info!(event = "dlq.forget", topic_class, count);
            self.tally.buried(tenant, topic_class, count);
            let topic_class = topic_class.to_owned();
            let reason = "expiry";
            let buried = OfClassFor {
                topic_class,
                reason,
            };
            self.dead_purged.get_or_create(&buried).inc_by(count);
        }
    }

    /// Counts a message that was acknowledged. A repeated acknowledgement is not counted.
    pub(crate) fn acked(&self, settings: &Settings, settlement: &Settlement, watch: Stopwatch) {
        let trace = &settlement.trace;
        let class = of_class(settings, &trace.topic);
        let topic_class = class.topic_class.as_str();
        span::note(topic_class, Some(trace.shard), Some(settlement.attempt));
        tracing::debug!(
            event = "ack.ok",
            topic_class,
            shard = trace.shard,
            attempt = settlement.attempt,
            repeated = settlement.repeated,
            corr_id = %corr_id(trace.corr_id),
            latency_ms = millis(watch),
        );
        if settlement.repeated {
            return;
        }
        self.delivered.get_or_create(&class).inc();
        let attempts = self.attempts.get_or_create(&class);
        attempts.observe(f64::from(settlement.attempt));
    }

    /// Logs the acknowledgement of a message that is not there: it never was, or was forgotten.
    pub(crate) fn ack_unknown(&self, watch: Stopwatch) {
        tracing::debug!(event = "ack.unknown", latency_ms = millis(watch));
    }

    /// Logs a message that a receiver gave back.
    pub(crate) fn nacked(&self, settings: &Settings, settlement: &Settlement, watch: Stopwatch) {
        let trace = &settlement.trace;
        let topic_class = settings.topic_class(&trace.topic);
        span::note(topic_class, Some(trace.shard), Some(settlement.attempt));
        tracing::debug!(
            event = "nack.ok",
            topic_class,
            shard = trace.shard,
            attempt = settlement.attempt,
            repeated = settlement.repeated,
            corr_id = %corr_id(trace.corr_id),
            latency_ms = millis(watch),
        );
    }

    /// Counts a message that waits for its backoff.
    pub(crate) fn backed_off(&self) {
        self.backoffs.inc();
    }

    /// Counts dead letters that came back.
    pub(crate) fn reprocessed(&self, settings: &Settings, topic: &str, messages: usize) {
        let class = of_class(settings, topic);
        let topic_class = class.topic_class.as_str();
        tracing::info!(event = "dlq.reprocess", topic_class, moved = messages);
        let counter = self.reprocessed.get_or_create(&class);
        counter.inc_by(messages as u64);
    }

    /// Counts a refusal by its reason, and returns the reason.
    pub(crate) fn rejected(&self, fault: &Fault) -> Option<&'static str> {
        let reason = reason(fault)?;
        self.rejected.get_or_create(&ForReason { reason }).inc();
        Some(reason)
    }

    /// Counts and logs a call that was refused. Operators know the reasons from other services. The fault
    /// still has the code that tells a full mailbox from a limit that was used up.
    pub(crate) fn refused(&self, spec: &Spec, fault: &Fault) {
        let reason = self.rejected(fault);
        let code = spec.plane.code(fault.code).as_str();
        let status = fault.code.http_status();
        // A full mailbox has logged this already, with what is full.
        if spec.plane == Plane::Mailbox && scope(spec) == "send" && status != 429 {
            tracing::debug!(event = "send.rejected", reason, code);
        }
        if status == 429 {
            let endpoint = spec.name;
            self.busy.get_or_create(&AtEndpoint { endpoint }).inc();
        }
        if spec.plane == Plane::Mailbox && matches!(status, 401 | 403) {
            let scope = scope(spec);
            self.auth_failures.get_or_create(&InScope { scope }).inc();
            self.tally.denied(scope);
        }
    }

    /// Brings the gauges of shards and of shared bounds up to date.
    pub(crate) fn set_load(&self, policy: &Policy, load: &Load) {
        self.gauges.set_load(policy, load);
    }

    /// Brings the gauges of classes up to date.
    pub(crate) fn set_classes(&self, policy: &Policy, classes: &Classes<'_>) {
        self.gauges.set_classes(policy, classes);
    }

    /// Returns the reason of a death as the log and events tell it. Reasons come from receivers, so only a
    /// few short, plain ones are kept.
    fn known_reason(&self, death: &Death) -> String {
        let reason = &death.reason;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
        if !SERVER_REASONS.contains(&reason.as_str()) {
            let mut known = self.reasons.lock().unwrap_or_else(PoisonError::into_inner);
            let fit = reason.len() <= MAX_REASON_BYTES && reason.bytes().all(plain);
            if !known.contains(reason) && (!fit || known.len() >= MAX_REASONS) {
                return "other".to_owned();
            }
            known.insert(reason.clone());
        }
        reason.clone()
    }

    /// Adds the metrics to `registry`.
    pub(crate) fn register(&self, registry: &mut Registry) {
        macro_rules! register {
            ($($name:literal, $help:literal, $metric:ident;)+) => {
                $(registry.register($name, $help, self.$metric.clone());)+
            };
        }
        register!(
            "mailbox_enqueued", "Messages sent", enqueued;
            "mailbox_delivered", "Messages acknowledged", delivered;
            "mailbox_redelivered", "Deliveries after the first", redelivered;
            "mailbox_visibility_timeout", "Deliveries that timed out", timeouts;
            "mailbox_attempts_histogram", "Deliveries until a message ended", attempts;
            "mailbox_dlq", "Messages that became dead letters", dead;
            "mailbox_dlq_reprocess", "Dead letters brought back", reprocessed;
            "mailbox_purged", "Waiting messages that an operator threw away", purged;
            "dlq_purges", "Dead letters that an operator threw away (manual) or that were kept \
                           long enough (expiry)", dead_purged;
            "enqueue_latency_seconds", "From a send to its commit", enqueue_seconds;
            "dequeue_latency_seconds", "From a look to the messages it found", dequeue_seconds;
            "ack_commit_latency_seconds", "From an acknowledgement to its commit", ack_seconds;
            "integrity_fail", "Messages that do not agree with their hashes", integrity;
            "rejected", "Calls refused", rejected;
            "busy_rejections", "Calls refused because of a limit", busy;
            "auth_failures", "Mailbox calls with a wrong credential", auth_failures;
            "scanner_wake", "Times that the watch over messages woke up", wakes;
            "scanner_wake_jitter_ms", "How late the watch over messages woke up", jitter;
            "requeue_backoff", "Messages that wait for a backoff", backoffs;
            "reorder_depth_max", "The most messages that were delivered before an older one",
                reorder_depths;
        );
        self.gauges.register(registry);
    }
}

fn of_class(settings: &Settings, topic: &str) -> OfClass {
    OfClass {
        topic_class: settings.topic_class(topic).to_owned(),
    }
}

/// Returns milliseconds for the log, to the microsecond.
fn millis(watch: Stopwatch) -> f64 {
    watch.elapsed().as_micros() as f64 / 1_000.0
}

impl Engine {
    /// Logs a credential that was refused, or that does not allow the call. Operators look for this, so it is
    /// logged above `debug`. The cause tells what the caller must not learn; it never holds the credential.
    pub(super) fn log_denied(&self, spec: Option<&Spec>, fault: &Fault) {
        let code = spec.map_or(fault.code, |spec| spec.plane.code(fault.code));
        let refused = match fault.code.http_status() {
            // Anybody can be refused as often as they like, so not each has a line.
            401 => self.untold_refusals(code.as_str()),
            403 => Some(1),
            _ => None,
        };
        let Some(refused) = refused else { return };
        let of_mailbox = spec.filter(|spec| spec.plane == Plane::Mailbox);
        tracing::info!(
            event = "auth.denied",
            reason = reason(fault),
            operation = spec.map(|spec| spec.name),
            scope = of_mailbox.map(scope),
            code = code.as_str(),
            cause = fault.cause,
            refused,
        );
    }
}

/// Returns the reason of a refusal, as a label.
fn reason(fault: &Fault) -> Option<&'static str> {
    let code = fault.code;
    match code.http_status() {
        400 if fault.is_bomb() => Some("ratio_cap"),
        400 => Some("schema"),
        401 | 403 => Some("unauth"),
        413 => Some("oversize"),
        422 if code == Code::EIntegrity => Some("integrity"),
        429 if code == Code::ESaturated => Some("saturated"),
        429 => Some("quota"),
        503 => Some(fault.outage()),
        500 if fault.outage() == "storage" => Some("storage"),
        _ => None,
    }
}

/// Returns the scope that an operation of the mailbox asks of a credential.
pub(crate) fn scope(spec: &Spec) -> &'static str {
    match spec.name {
        "mailbox_send" | "mailbox_send_batch" => "send",
        "mailbox_ack" | "mailbox_ack_batch" | "mailbox_extend" => "ack",
        "mailbox_nack" => "nack",
        "mailbox_purge"
        | "mailbox_dlq_reprocess"
        | "mailbox_delete_message"
        | "mailbox_redrive_message" => "admin",
        _ => "recv",
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_store::Error;

    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let disk = || "the disk is full".to_owned();
        for (fault, expected) in [
            (Fault::new(Code::ESaturated, ""), Some("saturated")),
            (Fault::new(Code::RateLimit, ""), Some("quota")),
            (Fault::new(Code::QuotaExceeded, ""), Some("quota")),
            (Error::Unavailable(disk()).into(), Some("storage")),
            (Error::Corrupt(disk()).into(), Some("storage")),
            (Error::Busy.into(), Some("saturated")),
            (Fault::new(Code::Unavailable, ""), Some("degraded")),
            (Fault::new(Code::HostUnavailable, ""), Some("degraded")),
            (Fault::new(Code::Internal, ""), None),
            (Fault::new(Code::TooLarge, ""), Some("oversize")),
            (Fault::bomb(9), Some("ratio_cap")),
            (Fault::bad_request(""), Some("schema")),
            (Fault::new(Code::ENotFound, ""), None),
        ] {
            assert_eq!(reason(&fault), expected, "{fault:?}");
        }
    }
}
