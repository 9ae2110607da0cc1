//! The gauges of the mailbox: what it holds and how full it is, as of the last look.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use asyncgate_core::{
    Timestamp,
    mailbox::{Kind, Policy},
};
use asyncgate_store::mailbox::{Load, Topic};
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{family::Family, gauge::Gauge},
    registry::Registry,
};

use super::{InShard, OfClass};
use crate::Settings;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InQueue {
    queue: &'static str,
    shard: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Filled {
    queue: &'static str,
    /// Absent for what has no topic.
    topic_class: Option<String>,
}

type Ratio = Gauge<f64, AtomicU64>;

#[derive(Debug, Default)]
pub(super) struct Gauges {
    depths: Family<InQueue, Gauge>,
    inflight: Family<InShard, Gauge>,
    dlq_depths: Family<InShard, Gauge>,
    depths_of_class: Family<OfClass, Gauge>,
    inflight_of_class: Family<OfClass, Gauge>,
    oldest_of_class: Family<OfClass, Ratio>,
    saturation: Family<Filled, Ratio>,
    remembered: Gauge,
}

/// The topics of all tenants, summed up by their classes.
#[derive(Debug)]
pub(crate) struct Classes<'a> {
    settings: &'a Settings,
    now: Timestamp,
    sums: BTreeMap<&'a str, Sum>,
}

#[derive(Debug, Default)]
struct Sum {
    depth: u64,
    inflight: u64,
    oldest_ms: i64,
    /// The most messages that wait in one topic.
    fullest: u64,
    /// The most messages that wait for a time or a turn in one topic.
    most_delayed: u64,
}

impl<'a> Classes<'a> {
    /// Begins with all classes, so that one without messages falls to zero.
    pub(crate) fn new(settings: &'a Settings, now: Timestamp) -> Self {
        let sums = settings.classes().map(|class| (class, Sum::default()));
        Self {
            settings,
            now,
            sums: sums.collect(),
        }
    }

    /// Adds a topic.
    pub(crate) fn add(&mut self, topic: &Topic) {
        let class = self.settings.topic_class(&topic.name);
        let sum = self.sums.entry(class).or_default();
        let counts = topic.counts;
        sum.depth += counts.waiting();
        sum.inflight += counts.of(Kind::Leased);
        sum.fullest = sum.fullest.max(counts.waiting());
        sum.most_delayed = sum.most_delayed.max(counts.of(Kind::Delayed));
        let age = topic.oldest.map(|since| self.now.millis_since(since));
        sum.oldest_ms = sum.oldest_ms.max(age.unwrap_or_default());
    }
}

impl Gauges {
    pub(super) fn set_load(&self, policy: &Policy, load: &Load) {
        for (shard, counts) in &load.shards {
            let shard = *shard;
            for (queue, kind) in [("work", Kind::Ready), ("requeue", Kind::Delayed)] {
                let queue = InQueue { queue, shard };
                let depth = gauge(counts.of(kind));
                self.depths.get_or_create(&queue).set(depth);
            }
            let shard = InShard { shard };
            let leased = gauge(counts.of(Kind::Leased));
            self.inflight.get_or_create(&shard).set(leased);
            let dead = gauge(counts.of(Kind::Dead));
            self.dlq_depths.get_or_create(&shard).set(dead);
        }
        self.remembered.set(gauge(load.remembered()));
        let (inflight, dedup) = (policy.global_inflight, policy.dedup_capacity);
        self.fill("inflight", None, load.inflight(), inflight);
        self.fill("dedup", None, load.remembered(), dedup);
    }

    pub(super) fn set_classes(&self, policy: &Policy, classes: &Classes<'_>) {
        for (class, sum) in &classes.sums {
            let topic_class = (*class).to_owned();
            let of_class = OfClass { topic_class };
            let depth = self.depths_of_class.get_or_create(&of_class);
            depth.set(gauge(sum.depth));
            drop(depth);
            let inflight = self.inflight_of_class.get_or_create(&of_class);
            inflight.set(gauge(sum.inflight));
            drop(inflight);
            let oldest = self.oldest_of_class.get_or_create(&of_class);
            oldest.set(sum.oldest_ms as f64 / 1_000.0);
            drop(oldest);
            let capacity = policy.topic_capacity;
            self.fill("work", Some(class), sum.fullest, capacity);
            self.fill("requeue", Some(class), sum.most_delayed, capacity);
        }
    }

    fn fill(&self, queue: &'static str, class: Option<&str>, used: u64, capacity: u32) {
        let filled = Filled {
            queue,
            topic_class: class.map(str::to_owned),
        };
        let ratio = used as f64 / f64::from(capacity.max(1));
        self.saturation.get_or_create(&filled).set(ratio);
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        macro_rules! register {
            ($($name:literal, $help:literal, $metric:ident;)+) => {
                $(registry.register($name, $help, self.$metric.clone());)+
            };
        }
        register!(
            "queue_depth", "Messages that wait", depths;
            "inflight", "Messages with receivers", inflight;
            "mailbox_dlq_depth", "Dead letters", dlq_depths;
            "mailbox_depth", "Messages that wait, ready and delayed", depths_of_class;
            "mailbox_inflight", "Messages with receivers", inflight_of_class;
            "mailbox_oldest_age_seconds", "How long the first in line of a topic has waited, at most",
                oldest_of_class;
            "saturation", "How full the fullest topic of a class is, the memory of sends \
                           (dedup), and what receivers may hold (inflight), 0 to 1", saturation;
            "mailbox_dedup_entries", "Sends that are remembered", remembered;
        );
    }
}

fn gauge(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
