//! Schedules: a setup and numbered steps, as text that people can read and tests can replay.

use std::fmt::{self, Write};

use asyncgate_core::{
    Locatability, Policy,
    identity::{Quota, QuotaName, Quotas},
    mailbox,
};

use crate::{rng::Rng, step::Step};

macro_rules! setup {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)+) => {
        /// The properties of a simulated server.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Setup {
            $($(#[$doc])* pub $field: $type,)+
        }

        impl Setup {
            fn set(&mut self, name: &str, value: &str) -> Option<()> {
                match name {
                    $(stringify!($field) => self.$field = value.parse().ok()?,)+
                    _ => return None,
                }
                Some(())
            }
        }

        impl fmt::Display for Setup {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $(writeln!(f, "{} {}", stringify!($field), self.$field)?;)+
                Ok(())
            }
        }
    };
}

setup! {
    /// The seed of ids and jitter.
    seed: u64,
    /// The number of transactions that may wait for the writer.
    queue: usize,
    /// True if the server watches its deadlines by itself; otherwise sweeps are steps.
    watch: bool,
    /// One in this many transactions is first decided on other snapshots, and then again.
    repeat: u64,
    /// True if successes without proof are refused.
    strict: bool,
    /// The time for which an expired lease still counts.
    grace_ms: i64,
    /// The longest delay after an expiry.
    jitter_ms: i64,
    /// The largest payload.
    payload_bytes: usize,
    /// The number of renewals and expiries before an anomaly.
    patience: u32,
    /// True if calls hand over typed values, like gRPC, and not JSON.
    typed: bool,
    /// The percentage of calls that are about messages. At 0, the server does not watch messages.
    mail: u32,
    /// The number of shards for messages.
    shards: u16,
    /// The number of messages that may wait in a topic.
    topic_capacity: u32,
    /// The number of messages that all receivers together may hold.
    inflight: u32,
    /// The number of sends that are remembered.
    remembered: u32,
    /// The time for which a send is remembered.
    replay_ms: i64,
    /// The number of deliveries that a message gets.
    attempts: u32,
    /// The longest time that a message may wait.
    ready_ms: i64,
    /// The time for which dead letters are kept.
    dead_ms: i64,
    /// The most bytes of content that one call hands over.
    given_bytes: usize,
    /// True if an acknowledgement must name its lease.
    wants_lease: bool,
    /// The number of classes that tasks may have.
    classes: usize,
    /// The number of tasks of a tenant that may be active; 0 means any number.
    active: u64,
    /// The number of leases that a tenant may hold; 0 means any number.
    leases: u64,
    /// The number of receipts that a task may have before no more progress is taken; 0 means any number.
    receipts: u64,
    /// True if callers show credentials, which end, and operators suspend tenants.
    ends: bool,
}

/// The percentages of calls about messages. Half of the worlds have no messages and most others nothing
/// else: a world with both takes longer than two worlds of half the length.
const MAIL: [u32; 8] = [50, 0, 100, 0, 100, 0, 100, 0];

/// One in this many worlds of a kind calls with JSON. JSON adds the same to every call, so it need not be
/// tested as often, and it takes a third of the world's time.
const JSON_EVERY: u64 = 4;

/// One in this many worlds checks credentials. It shares no factor with the other kinds of worlds, so that all meet.
const ENDS_EVERY: u64 = 3;

impl Setup {
    /// Returns the setup of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e70);
        Self {
            seed,
            // The small values are reached within a few steps; the large ones are never in the way.
            queue: *rng.pick(&[1, 2, 4, 64]),
            watch: rng.one_in(2),
            repeat: *rng.pick(&[4, 8, 32]),
            strict: rng.one_in(4),
            grace_ms: *rng.pick(&[0, 0, 0, 1_500]),
            jitter_ms: *rng.pick(&[0, 5_000, 5_000]),
            payload_bytes: *rng.pick(&[64, 512, 512, 100_000]),
            patience: *rng.pick(&[0, 1, 3]),
            typed: !(seed / 8).is_multiple_of(JSON_EVERY),
            mail: MAIL[(seed % 8) as usize],
            shards: *rng.pick(&[1, 2, 8]),
            topic_capacity: *rng.pick(&[4, 24, 4_096]),
            inflight: *rng.pick(&[2, 12, 8_192]),
            remembered: *rng.pick(&[24, 4_000_000, 4_000_000]),
            replay_ms: *rng.pick(&[2_000, 60_000, 300_000]),
            attempts: *rng.pick(&[1, 3, 5]),
            ready_ms: *rng.pick(&[20_000, 600_000, 604_800_000]),
            dead_ms: *rng.pick(&[5_000, 600_000, 1_209_600_000]),
            given_bytes: *rng.pick(&[24, 524_288]),
            wants_lease: rng.one_in(4),
            classes: *rng.pick(&[3, 10_000, 10_000]),
            active: *rng.pick(&[0, 0, 8, 30]),
            leases: *rng.pick(&[0, 0, 1, 3]),
            receipts: *rng.pick(&[0, 0, 5]),
            ends: seed % ENDS_EVERY == 1,
        }
    }

    /// Returns the policy that rules read.
    pub fn policy(&self) -> Policy {
        Policy {
            lease_grace_ms: self.grace_ms,
            expiry_jitter_ms: self.jitter_ms,
            max_payload_bytes: self.payload_bytes,
            max_task_classes: self.classes,
            expiries_before_anomaly: self.patience,
            // Above the number that leaves an anomaly, so that both are reached.
            max_lease_expiries: 2 * self.patience + 2,
            renewals_before_anomaly: self.patience,
            max_retry_backoff_seconds: 60,
            locatability: if self.strict {
                Locatability::Strict
            } else {
                Locatability::Lenient
            },
            mailbox: self.mail_policy(),
            ..Policy::default()
        }
    }

    /// Returns the quotas of every tenant.
    pub fn quotas(&self) -> Quotas {
        let bounds = [
            (QuotaName::ActiveTasks, self.active),
            (QuotaName::ConcurrentLeases, self.leases),
            (QuotaName::ReceiptsPerTask, self.receipts),
        ];
        let bounds = bounds.into_iter().filter(|(_, most)| *most > 0);
        bounds.fold(Quotas::default(), |quotas, (name, most)| {
            quotas.with(name, Quota::AtMost(most))
        })
    }

    fn mail_policy(&self) -> mailbox::Policy {
        mailbox::Policy {
            shards: self.shards,
            topic_capacity: self.topic_capacity,
            global_inflight: self.inflight,
            dedup_capacity: self.remembered,
            t_replay_ms: self.replay_ms,
            max_attempts: self.attempts,
            ready_retention_ms: self.ready_ms,
            dlq_retention_ms: self.dead_ms,
            max_bytes: self.given_bytes,
            require_lease: self.wants_lease,
            max_payload_bytes: self.payload_bytes,
            ..mailbox::Policy::default()
        }
    }
}

/// A setup and the steps, each under the number by which others refer to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The properties of the server.
    pub setup: Setup,
    /// The steps.
    pub steps: Vec<(u32, Step)>,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.setup)?;
        f.write_char('\n')?;
        for (label, step) in &self.steps {
            writeln!(f, "{label} {step}")?;
        }
        Ok(())
    }
}

impl Schedule {
    /// Reads the text that `Display` writes; lines that begin with `#` are for people. An error names the
    /// line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        // Older schedules are from before there were messages, two ways to call, quotas, or credentials that end, and do
        // not mention them.
        let mut setup = Setup {
            mail: 0,
            typed: false,
            active: 0,
            leases: 0,
            receipts: 0,
            ends: false,
            ..Setup::of_seed(0)
        };
        let mut steps = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = line.split_once(' ').and_then(|(word, rest)| {
                if let Ok(label) = word.parse::<u32>() {
                    steps.push((label, Step::parse(rest)?));
                    return Some(());
                }
                setup.set(word, rest)
            });
            read.ok_or_else(|| format!("line {}: {line}", number + 1))?;
        }
        Ok(Self { setup, steps })
    }
}
