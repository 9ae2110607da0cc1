//! The server's readiness for new work: the facts behind `/readyz`, looked at once a second and whenever
//! somebody asks, and published when they change.
//!
//! When something is wrong, new work is turned away first; work that is there can still be done.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use asyncgate_core::mailbox::{Policy, Share};
use asyncgate_engine::{Clock, Durability, Engine, Event};
use asyncgate_store::mailbox::{Load, Used};
use asyncgate_store::{Health, Store};
use futures_util::future::BoxFuture;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use crate::clock;
use crate::ops::{Notice, Readiness, Vitals};

/// The time between two looks at the facts.
const EVERY: Duration = Duration::from_secs(1);
/// The number of looks after which the facts are published although they have not changed.
const PUBLISH_EVERY: u32 = 30;
/// The largest distance between the machine's clock and the engine's that is not worth a notice.
const MAX_SKEW_MS: u64 = 120_000;
/// The smallest change of that distance that counts as a step of the machine's clock. Both clocks run
/// equally fast, so only a step changes it, or a machine that slept.
const STEP_MS: u64 = 1_000;
/// The share from which on a tenant's part of a bound counts as full.
const FULL: f64 = 0.9;

/// The keys without which new work is turned away. The store is not among them: it turns writes away
/// itself, and only a write can show that it has recovered.
const NEEDED_FOR_WORK: [&str; 3] = ["draining", "profile_ok", "scanner_ok"];

/// The facts about the process at one moment.
#[derive(Debug, Clone)]
struct Facts {
    bound: bool,
    draining: bool,
    store: Health,
    profile_ok: bool,
    scanning: bool,
    /// How far the machine's clock is ahead of the engine's.
    skew_ms: i64,
    saturated: Option<Bound>,
}

/// A bound that tenants share, and beyond which they are turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// The sends that are remembered.
    Dedup,
    /// The messages that receivers hold.
    Inflight,
}

impl Bound {
    const fn reason(self) -> &'static str {
        match self {
            Self::Dedup => {
                "the memory of recent sends is full (mailbox.dedup_capacity): new messages are turned away"
            }
            Self::Inflight => {
                "receivers hold as many messages as they may (mailbox.global_inflight): nobody is given more"
            }
        }
    }
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
            ("shards_ready", self.store != Health::Ready),
            ("saturated", self.saturated.is_some()),
        ];
        let missing = keys.into_iter().filter(|(_, missing)| *missing);
        missing.map(|(key, _)| key).collect()
    }

    /// Returns the keys of what is missing, and those of the notices.
    fn keys(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let notices = self.notices();
        let notices = notices.iter().map(|notice| notice.key);
        (self.missing(), notices.collect())
    }

    fn readiness(&self) -> Readiness {
        let missing = self.missing();
        let reason = match (&self.store, missing.first()) {
            _ if self.draining => Some("the server is stopping".to_owned()),
            (Health::Failing(reason), _) => Some(reason.clone()),
            (Health::Ready, Some(&"saturated")) => {
                self.saturated.map(|bound| bound.reason().to_owned())
            }
            (Health::Ready, Some(key)) => Some(format!("{key} does not hold")),
            (Health::Ready, None) => None,
        };
        Readiness {
            missing,
            reason,
            notices: self.notices(),
        }
    }

    /// Returns what operators should know although the server is as ready as it can be.
    fn notices(&self) -> Vec<Notice> {
        let off = self.skew_ms.unsigned_abs() / 1_000;
        let text = match self.skew_ms {
            skew if skew.unsigned_abs() <= MAX_SKEW_MS => return Vec::new(),
            ahead if ahead > 0 => format!(
                "the machine's clock is {off} s ahead of the server's, because it was set forward or the \
                 machine slept; deadlines go by elapsed time; a restart takes the machine's time over"
            ),
            _ => format!(
                "the machine's clock is {off} s behind the server's, because it was set back or the last \
                 commit is of a later time; the server's time never runs back and goes on from there"
            ),
        };
        let key = "clock_skew";
        vec![Notice { key, text }]
    }
}

/// Returns the bound that most tenants have reached, or nearly.
///
/// A full topic concerns only its senders, and a tenant that has used up its part only itself: both get
/// 429, and taking the whole server out of rotation would stop everybody else, and those who could make
/// room.
fn saturated(policy: &Policy, load: &Load) -> Option<Bound> {
    let is_full = |share: &Share, capacity: u32| {
        let most = share.own + share.room(capacity);
        share.own as f64 > most as f64 * FULL
    };
    let concerns_most = |used: fn(&Used) -> u64, capacity: u32| {
        let full = load.shares(used).filter(|share| is_full(share, capacity));
        2 * full.count() > load.tenants.len()
    };
    if concerns_most(|used| used.remembered, policy.dedup_capacity) {
        Some(Bound::Dedup)
    } else if concerns_most(|used| used.inflight, policy.global_inflight) {
        Some(Bound::Inflight)
    } else {
        None
    }
}

/// Looks at the facts and publishes them.
pub struct Monitor {
    engine: Arc<Engine>,
    clock: Arc<dyn Clock>,
    store: Arc<dyn Store>,
    profile_ok: bool,
    bound: AtomicBool,
    draining: AtomicBool,
    saturated: Mutex<Option<Bound>>,
    /// How far the machine's clock was ahead of the engine's at the last look.
    skew_ms: AtomicI64,
    clock_skew: Gauge<f64, AtomicU64>,
    clock_steps: Counter,
    /// The keys of what is missing, and of notices, as they were published last.
    published: Mutex<Option<(Vec<&'static str>, Vec<&'static str>)>>,
}

impl Monitor {
    pub fn new(engine: Arc<Engine>, clock: Arc<dyn Clock>, store: Arc<dyn Store>) -> Self {
        let settings = engine.settings();
        let skew_ms = clock::wall().millis_since(clock.now());
        Self {
            // A micronode promises to leave nothing behind. A macronode's operator may choose memory.
            profile_ok: settings.profile != "micronode" || settings.durability == Durability::None,
            engine,
            clock,
            store,
            bound: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            saturated: Mutex::default(),
            skew_ms: AtomicI64::new(skew_ms),
            clock_skew: Gauge::default(),
            clock_steps: Counter::default(),
            published: Mutex::default(),
        }
    }

    /// Notes that all listeners listen.
    pub fn bound(&self) {
        self.bound.store(true, Ordering::Relaxed);
    }

    /// Notes that the server drains. From now on new work is turned away.
    pub fn draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
        self.admit_work();
        self.publish(false);
    }

    /// Adds the metrics of the clock to `registry`.
    pub fn register_metrics(&self, registry: &mut Registry) {
        registry.register(
            "clock_skew_seconds",
            "How far the machine's clock is ahead of the server's",
            self.clock_skew.clone(),
        );
        registry.register(
            "clock_steps",
            "Times that the machine's clock was set, or the machine slept",
            self.clock_steps.clone(),
        );
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
        if self.engine.health() == Health::Ready
            && let Ok(load) = self.store.mailbox().load(self.clock.now()).await
        {
            let settings = self.engine.settings();
            *self.saturated() = saturated(&settings.policy.mailbox, &load);
        }
        self.look_at_clock(self.facts().skew_ms);
        self.admit_work();
    }

    /// Takes new work, or turns it away.
    fn admit_work(&self) {
        let missing = self.facts().missing();
        let well = !missing.iter().any(|key| NEEDED_FOR_WORK.contains(key));
        self.engine.set_accepting(well);
    }

    /// Tells operators of a step of the machine's clock. Nothing else follows from it.
    fn look_at_clock(&self, skew_ms: i64) {
        self.clock_skew.set(skew_ms as f64 / 1_000.0);
        let before = self.skew_ms.swap(skew_ms, Ordering::Relaxed);
        let step_ms = skew_ms.saturating_sub(before);
        if step_ms.unsigned_abs() < STEP_MS {
            return;
        }
        self.clock_steps.inc();
        tracing::warn!(
            event = "clock.stepped",
            step_ms,
            skew_ms,
            "the machine's clock was set, or the machine slept; deadlines go on by elapsed time"
        );
        self.engine.publish_event(Event {
            tenant: None,
            topic: "server.clock.stepped",
            body: json!({ "step_ms": step_ms, "skew_ms": skew_ms }),
        });
    }

    fn saturated(&self) -> MutexGuard<'_, Option<Bound>> {
        self.saturated
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn facts(&self) -> Facts {
        let ours = self.clock.now();
        Facts {
            bound: self.bound.load(Ordering::Relaxed),
            draining: self.draining.load(Ordering::Relaxed),
            store: self.engine.health(),
            profile_ok: self.profile_ok,
            scanning: self.engine.is_scanning(),
            skew_ms: clock::wall().millis_since(ours),
            saturated: *self.saturated(),
        }
    }

    /// Publishes the state if it has changed, or anyway.
    fn publish(&self, anyway: bool) {
        let keys = self.facts().keys();
        let published = self.published.lock();
        let mut published = published.unwrap_or_else(PoisonError::into_inner);
        let changed = published.as_ref() != Some(&keys);
        if changed {
            let (missing, notices) = &keys;
            tracing::info!(
                event = "readyz.state",
                ready = missing.is_empty(),
                missing = missing.join(","),
                notices = notices.join(","),
            );
        }
        if changed || anyway {
            for event in self.events() {
                self.engine.publish_event(event);
            }
        }
        *published = Some(keys);
    }

    /// Returns the present state as events.
    pub fn events(&self) -> [Event; 2] {
        let (missing, notices) = self.facts().keys();
        let profile = self.engine.settings().profile;
        let ts = self.clock.now().to_string();
        // Health means that the process lives: one that does not could not say so.
        let health = json!({ "service": "asyncgate", "ok": true, "profile": profile, "ts": ts });
        let ready = json!({
            "ready": missing.is_empty(), "missing": missing, "notices": notices, "ts": ts,
        });
        [("mailbox.health", health), ("mailbox.readyz", ready)].map(|(topic, body)| Event {
            tenant: None,
            topic,
            body,
        })
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
    use asyncgate_core::TenantId;

    use super::*;

    fn good() -> Facts {
        Facts {
            bound: true,
            draining: false,
            store: Health::Ready,
            profile_ok: true,
            scanning: true,
            skew_ms: 0,
            saturated: None,
        }
    }

    #[test]
    fn each_fact_has_its_key() {
        assert!(good().readiness().is_ready());
        type Change = fn(&mut Facts);
        let cases: [(Change, &str); 6] = [
            (|facts| facts.draining = true, "draining"),
            (|facts| facts.bound = false, "listeners_bound"),
            (|facts| facts.profile_ok = false, "profile_ok"),
            (|facts| facts.scanning = false, "scanner_ok"),
            (
                |facts| facts.store = Health::Failing("full".to_owned()),
                "shards_ready",
            ),
            (|facts| facts.saturated = Some(Bound::Dedup), "saturated"),
        ];
        for (change, key) in cases {
            let mut facts = good();
            change(&mut facts);
            let readiness = facts.readiness();
            assert_eq!(readiness.missing, [key]);
            assert!(readiness.reason.is_some(), "{key}");
        }
    }

    #[test]
    fn a_clock_that_is_off_is_worth_a_notice_and_nothing_more() {
        let most = i64::try_from(MAX_SKEW_MS).unwrap();
        for (skew_ms, told) in [
            (0, None),
            (most, None),
            (-most, None),
            (most + 1_000, Some("121 s ahead")),
            (-most - 1_000, Some("121 s behind")),
            (i64::MIN, Some("behind")),
        ] {
            let facts = Facts { skew_ms, ..good() };
            let readiness = facts.readiness();
            assert!(readiness.is_ready() && readiness.reason.is_none());
            let notice = readiness.notices.first().map(|notice| notice.text.as_str());
            match (notice, told) {
                (Some(notice), Some(told)) => assert!(notice.contains(told), "{notice}"),
                (notice, told) => assert_eq!(notice, told, "{skew_ms}"),
            }
        }
    }

    #[test]
    fn a_full_bound_is_named() {
        for (bound, name) in [
            (Bound::Dedup, "mailbox.dedup_capacity"),
            (Bound::Inflight, "mailbox.global_inflight"),
        ] {
            let mut facts = good();
            facts.saturated = Some(bound);
            let reason = facts.readiness().reason.unwrap();
            assert!(reason.contains(name), "{reason}");
        }
    }

    /// Tenants with so many messages with receivers, and so many remembered sends.
    fn load(tenants: &[(u64, u64)]) -> Load {
        let mut load = Load::default();
        for (n, (inflight, remembered)) in (1..).zip(tenants) {
            let used = Used {
                inflight: *inflight,
                remembered: *remembered,
            };
            load.tenants.insert(TenantId::from_bytes([n; 16]), used);
        }
        load
    }

    #[test]
    fn the_server_is_saturated_when_most_tenants_are() {
        let policy = Policy {
            global_inflight: 1_000,
            dedup_capacity: 100,
            ..Policy::default()
        };
        for (tenants, expected) in [
            (&[][..], None),
            (&[(900, 90)], None),
            (&[(901, 0)], Some(Bound::Inflight)),
            (&[(0, 91)], Some(Bound::Dedup)),
            (&[(901, 91)], Some(Bound::Dedup)),
            // One holds all there is; the others have their parts.
            (&[(1_000, 100), (0, 0)], None),
            (&[(1_000, 0), (1, 0), (2, 0)], None),
            (&[(1_000, 0), (500, 0), (2, 0)], Some(Bound::Inflight)),
            (&[(1_000, 0), (499, 0), (0, 0), (0, 0)], None),
        ] {
            assert_eq!(saturated(&policy, &load(tenants)), expected, "{tenants:?}");
        }
    }
}
