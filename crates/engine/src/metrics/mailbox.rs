//! The metrics of the mailbox, and its lines in the log. Labels and log fields are classes, shards and
//! reasons: no topic, id or key of a message, and no content.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use asyncgate_api::{Code, Plane, Spec};
use asyncgate_core::{
    MessageId, TenantId,
    mailbox::{
        Damage, Death, Flaw, Full, Kind, Message, Policy, Rejection, Sent, Settlement, Trace,
    },
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

use super::{Latencies, reorder::Reorder, span};
use crate::{Fault, Settings, events::Tally, mailbox::corr_id};

/// The most reasons of receivers that are told apart. The others become `other`.
const MAX_REASONS: usize = 32;
const MAX_REASON_BYTES: usize = 64;
/// The reasons that the server itself gives.
const SERVER_REASONS: [&str; 4] = ["visibility_timeout", "expired", "integrity", "nack"];

/// The reasons why calls are refused.
const REJECTED: [&str; 6] = [
    "unauth",
    "oversize",
    "ratio_cap",
    "saturated",
    "schema",
    "integrity",
];
/// The scopes of credentials in the mailbox.
const SCOPES: [&str; 5] = ["send", "recv", "ack", "nack", "admin"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfClass {
    topic_class: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DiedOf {
    topic_class: String,
    reason: String,
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
struct InQueue {
    queue: &'static str,
    shard: u16,
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
    dead: Family<DiedOf, Counter>,
    reprocessed: Family<OfClass, Counter>,
    rejected: Family<ForReason, Counter>,
    busy: Family<AtEndpoint, Counter>,
    auth_failures: Family<InScope, Counter>,
    depths: Family<InQueue, Gauge>,
    saturation: Family<InQueue, Gauge<f64, AtomicU64>>,
    inflight: Family<InShard, Gauge>,
    dlq_depths: Family<InShard, Gauge>,
    remembered: Gauge,
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
            rejected: Family::default(),
            busy: Family::default(),
            auth_failures: Family::default(),
            depths: Family::default(),
            saturation: Family::default(),
            inflight: Family::default(),
            dlq_depths: Family::default(),
            remembered: Gauge::default(),
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
                let shard = match full {
                    Full::Shard { shard } => Some(*shard),
                    Full::Inflight | Full::Dedup { .. } => None,
                };
                span::note_shard(shard);
                tracing::debug!(
                    event = "send.rejected",
                    reason = "saturated",
                    queue = "work",
                    saturation = 1.0,
                    topic_class,
                    shard,
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
    pub(crate) fn timed_out(&self, settings: &Settings, messages: &[Trace]) {
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
            self.tally.requeued(trace.shard);
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
    pub(crate) fn died(&self, settings: &Settings, death: &Death) {
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
        self.tally.died(&class.topic_class, &reason);
        let attempts = self.attempts.get_or_create(&class);
        attempts.observe(f64::from(death.attempt));
        drop(attempts);
        let died_of = DiedOf {
            topic_class: class.topic_class,
            reason,
        };
        self.dead.get_or_create(&died_of).inc();
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
        let counter = self.reprocessed.get_or_create(&class);
        counter.inc_by(messages as u64);
    }

    /// Counts a refusal by its reason, and returns the reason.
    pub(crate) fn rejected(&self, fault: &Fault) -> Option<&'static str> {
        let reason = reason(fault)?;
        self.rejected.get_or_create(&ForReason { reason }).inc();
        Some(reason)
    }

    /// Counts and logs a call that was refused. Operators know the reasons from other services.
    pub(crate) fn refused(&self, spec: &Spec, fault: &Fault) {
        let reason = self.rejected(fault);
        let status = fault.code.http_status();
        // A full mailbox has logged this already, with the shard.
        if spec.plane == Plane::Mailbox && scope(spec) == "send" && status != 429 {
            tracing::debug!(event = "send.rejected", reason, code = fault.code.as_str());
        }
        if status == 429 {
            let endpoint = spec.name;
            self.busy.get_or_create(&AtEndpoint { endpoint }).inc();
        }
        if spec.plane == Plane::Mailbox && matches!(status, 401 | 403) {
            let scope = scope(spec);
            // Operators look for this, so it is logged above `debug`.
            tracing::info!(
                event = "auth.denied",
                reason,
                scope,
                code = fault.code.as_str()
            );
            self.auth_failures.get_or_create(&InScope { scope }).inc();
            self.tally.denied(scope);
        }
    }

    /// Brings the gauges up to date.
    pub(crate) fn refresh(&self, policy: &Policy, load: &Load) {
        let whole = f64::from(policy.shard_capacity.max(1));
        for (shard, counts) in &load.shards {
            let shard = *shard;
            // Ready and delayed messages share the capacity of a shard.
            let (ready, delayed) = (counts.of(Kind::Ready), counts.of(Kind::Delayed));
            for (queue, depth, filling) in [
                ("work", ready, counts.waiting()),
                ("requeue", delayed, delayed),
            ] {
                let queue = InQueue { queue, shard };
                self.depths.get_or_create(&queue).set(gauge(depth));
                let filling = filling as f64 / whole;
                self.saturation.get_or_create(&queue).set(filling);
            }
            let shard = InShard { shard };
            let leased = gauge(counts.of(Kind::Leased));
            self.inflight.get_or_create(&shard).set(leased);
            let dead = gauge(counts.of(Kind::Dead));
            self.dlq_depths.get_or_create(&shard).set(dead);
        }
        self.remembered.set(gauge(load.remembered));
    }

    /// Returns the label for a reason. Reasons come from receivers, so only a few short, plain ones are
    /// kept.
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
            "mailbox_dlq_depth", "Dead letters", dlq_depths;
            "mailbox_dedup_entries", "Sends that are remembered", remembered;
            "enqueue_latency_seconds", "From a send to its commit", enqueue_seconds;
            "dequeue_latency_seconds", "From a look to the messages it found", dequeue_seconds;
            "ack_commit_latency_seconds", "From an acknowledgement to its commit", ack_seconds;
            "integrity_fail", "Messages that do not agree with their hashes", integrity;
            "rejected", "Calls refused", rejected;
            "busy_rejections", "Calls refused because of a limit", busy;
            "auth_failures", "Mailbox calls with a wrong credential", auth_failures;
            "queue_depth", "Messages that wait", depths;
            "saturation", "How full a shard is, 0 to 1", saturation;
            "inflight", "Messages with receivers", inflight;
            "scanner_wake", "Times that the watch over messages woke up", wakes;
            "scanner_wake_jitter_ms", "How late the watch over messages woke up", jitter;
            "requeue_backoff", "Messages that wait for a backoff", backoffs;
            "reorder_depth_max", "The most messages that were delivered before an older one",
                reorder_depths;
        );
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

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
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
        429 => Some("saturated"),
        _ => None,
    }
}

/// Returns the scope that an operation of the mailbox asks of a credential.
pub(crate) fn scope(spec: &Spec) -> &'static str {
    match spec.name {
        "mailbox_send" | "mailbox_send_batch" => "send",
        "mailbox_ack" | "mailbox_ack_batch" | "mailbox_extend" => "ack",
        "mailbox_nack" => "nack",
        "mailbox_purge" | "mailbox_dlq_reprocess" => "admin",
        _ => "recv",
    }
}
