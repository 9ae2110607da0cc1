//! The server's readiness for new work: the facts behind `/readyz`, looked at once a second and whenever
//! somebody asks, and published when they change.
//!
//! When something is wrong, new work is turned away first; work that is there can still be done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use asyncgate_core::mailbox::Policy;
use asyncgate_engine::{Clock, Durability, Engine};
use asyncgate_store::mailbox::Load;
use asyncgate_store::{Health, Store};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::clock;
use crate::ops::{Readiness, Vitals};

/// The time between two looks at the facts.
const EVERY: Duration = Duration::from_secs(1);
/// The number of looks after which the facts are published although they have not changed.
const PUBLISH_EVERY: u32 = 30;
/// The largest distance between the machine's clock and the engine's.
const MAX_SKEW_MS: u64 = 120_000;
/// The share from which on a shard, or the room for messages with receivers, counts as full.
const FULL: f64 = 0.9;

/// The keys without which new work is turned away. The store is not among them: it turns writes away
/// itself, and only a write can show that it has recovered.
const NEEDED_FOR_WORK: [&str; 3] = ["profile_ok", "scanner_ok", "clock_skew_ok"];

/// The facts about the process at one moment.
#[derive(Debug, Clone)]
struct Facts {
    bound: bool,
    draining: bool,
    store: Health,
    profile_ok: bool,
    scanning: bool,
    skew_ms: u64,
    saturated: bool,
}

impl Facts {
    /// Returns the keys of the facts that keep the server from being ready. The keys that are not named
    /// here (`config_loaded`, `metrics_ready`, `cap_authority_ok`) hold whenever the process serves:
    /// without them it does not start.
    fn missing(&self) -> Vec<&'static str> {
        let keys = [
            ("draining", self.draining),
            ("listeners_bound", !self.bound),
            ("profile_ok", !self.profile_ok),
            ("scanner_ok", !self.scanning),
            ("clock_skew_ok", self.skew_ms > MAX_SKEW_MS),
            ("shards_ready", self.store != Health::Ready),
            ("saturated", self.saturated),
        ];
        let missing = keys.into_iter().filter(|(_, missing)| *missing);
        missing.map(|(key, _)| key).collect()
    }

    fn readiness(&self) -> Readiness {
        let missing = self.missing();
        let reason = match (&self.store, missing.first()) {
            _ if self.draining => Some("the server is stopping".to_owned()),
            (Health::Failing(reason), _) => Some(reason.clone()),
            (Health::Ready, Some(key)) => Some(format!("{key} does not hold")),
            (Health::Ready, None) => None,
        };
        Readiness { missing, reason }
    }
}

/// Returns true if most senders or all receivers would be turned away.
///
/// One full shard concerns only the topics in it: their senders get 429, and taking the whole server
/// out of rotation would only stop those who could empty it.
fn is_saturated(policy: &Policy, load: &Load) -> bool {
    let over = |count: u64, whole: u32| count as f64 > f64::from(whole) * FULL;
    let shards = load.shards.values();
    let full = shards
        .filter(|counts| over(counts.waiting(), policy.shard_capacity))
        .count();
    2 * full >= usize::from(policy.shards) || over(load.inflight(), policy.global_inflight)
}

/// Looks at the facts and publishes them.
pub struct Monitor {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    profile_ok: bool,
    bound: AtomicBool,
    draining: AtomicBool,
    saturated: AtomicBool,
    /// The missing keys as they were published last.
    published: Mutex<Option<Vec<&'static str>>>,
}

impl Monitor {
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>, store: Arc<dyn Store>) -> Self {
        let settings = engine.settings();
        Self {
            // A micronode promises to leave nothing behind. A macronode's operator may choose memory.
            profile_ok: settings.profile != "micronode" || settings.durability == Durability::None,
            engine,
            clock,
            store,
            bound: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            saturated: AtomicBool::new(false),
            published: Mutex::default(),
        }
    }

    /// Notes that all listeners listen.
    pub fn bound(&self) {
        self.bound.store(true, Ordering::Relaxed);
    }

    /// Notes that the server drains.
    pub fn draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.publish(false);
    }

    /// Looks once a second, until the engine drains.
    pub async fn watch(&self) {
        let mut tick = interval(EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = 0_u32;
        loop {
            tokio::select! {
                () = self.engine.drained() => return,
                _ = tick.tick() => {}
            }
            self.look().await;
            self.publish(looks.is_multiple_of(PUBLISH_EVERY));
            self.engine.publish_counts();
            looks = looks.wrapping_add(1);
        }
    }

    async fn look(&self) {
        // A store that cannot say how full it is says so in its health.
        if let Ok(load) = self.store.mailbox().load().await {
            let settings = self.engine.settings();
            let saturated = is_saturated(&settings.policy.mailbox, &load);
            self.saturated.store(saturated, Ordering::Relaxed);
        }
        let missing = self.facts().missing();
        let well = !missing.iter().any(|key| NEEDED_FOR_WORK.contains(key));
        self.engine.set_accepting(well);
    }

    fn facts(&self) -> Facts {
        let ours = self.clock.now();
        Facts {
            bound: self.bound.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
            store: self.engine.health(),
            profile_ok: self.profile_ok,
            scanning: self.engine.is_scanning(),
            skew_ms: clock::wall().millis_since(ours).unsigned_abs(),
            saturated: self.saturated.load(Ordering::Relaxed),
        }
    }

    /// Publishes the state if it has changed, or anyway.
    fn publish(&self, anyway: bool) {
        let missing = self.facts().missing();
        let published = self.published.lock();
        let mut published = published.unwrap_or_else(PoisonError::into_inner);
        let changed = published.as_ref() != Some(&missing);
        if changed {
            let ready = missing.is_empty();
            tracing::info!(event = "readyz.state", ready, missing = missing.join(","));
        }
        if changed || anyway {
            for (topic, body) in self.events() {
                self.engine.publish_event(topic, body);
            }
        }
        *published = Some(missing);
    }

    /// Returns the present state as events.
    pub fn events(&self) -> [(&'static str, Value); 2] {
        let missing = self.facts().missing();
        let profile = self.engine.settings().profile;
        let ts = self.clock.now().to_string();
        // Health means that the process lives: one that does not could not say so.
        let health = json!({ "service": "asyncgate", "ok": true, "profile": profile, "ts": ts });
        let ready = json!({ "ready": missing.is_empty(), "missing": missing, "ts": ts });
        [("mailbox.health", health), ("mailbox.readyz", ready)]
    }
}

impl Vitals for Monitor {
    fn readiness(&self) -> Readiness {
        self.facts().readiness()
    }

    fn refresh(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.engine.refresh_metrics())
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_core::mailbox::Kind;
    use asyncgate_store::mailbox::Counts;

    use super::*;

    fn good() -> Facts {
        Facts {
            bound: true,
            draining: false,
            store: Health::Ready,
            profile_ok: true,
            scanning: true,
            skew_ms: MAX_SKEW_MS,
            saturated: false,
        }
    }

    #[test]
    fn each_fact_has_its_key() {
        assert!(good().readiness().is_ready());
        type Change = fn(&mut Facts);
        let cases: [(Change, &str); 7] = [
            (|facts| facts.draining = true, "draining"),
            (|facts| facts.bound = false, "listeners_bound"),
            (|facts| facts.profile_ok = false, "profile_ok"),
            (|facts| facts.scanning = false, "scanner_ok"),
            (|facts| facts.skew_ms += 1, "clock_skew_ok"),
            (
                |facts| facts.store = Health::Failing("full".to_owned()),
                "shards_ready",
            ),
            (|facts| facts.saturated = true, "saturated"),
        ];
        for (change, key) in cases {
            let mut facts = good();
            change(&mut facts);
            let readiness = facts.readiness();
            assert_eq!(readiness.missing, [key]);
            assert!(readiness.reason.is_some(), "{key}");
        }
    }

    /// So many messages wait in each shard; so many are with a receiver.
    fn load(waiting: &[u64], inflight: u64) -> Load {
        let mut load = Load::default();
        for (shard, count) in (0..).zip(waiting) {
            let mut counts = Counts::default();
            counts.set(Kind::Ready, *count);
            load.shards.insert(shard, counts);
        }
        let first = load.shards.entry(0).or_default();
        first.set(Kind::Leased, inflight);
        load
    }

    #[test]
    fn one_full_shard_of_many_does_not_take_the_server_out_of_rotation() {
        let policy = Policy {
            shards: 4,
            shard_capacity: 100,
            global_inflight: 1_000,
            ..Policy::default()
        };
        assert!(!is_saturated(&policy, &load(&[], 0)));
        assert!(!is_saturated(&policy, &load(&[100, 90, 90, 90], 900)));
        assert!(is_saturated(&policy, &load(&[91, 91], 0)));
        assert!(is_saturated(&policy, &load(&[], 901)));
        let single = Policy {
            shards: 1,
            ..policy
        };
        assert!(is_saturated(&single, &load(&[91], 0)));
    }
}
