//! Schedules: a setup and numbered steps, as text that people can read and tests can replay.

use std::fmt::{self, Write};

use asyncgate_core::{Locatability, Policy};

use crate::{rng::Rng, step::Step};

/// What a simulated server is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// What ids and jitter follow from.
    pub seed: u64,
    /// How many transactions may wait for the writer.
    pub queue: usize,
    /// Whether the server watches its deadlines by itself; otherwise sweeps are steps.
    pub watch: bool,
    /// Every so many transactions are decided on other snapshots first.
    pub repeat: u64,
    /// Whether successes without proof are refused.
    pub strict: bool,
    /// How long an expired lease still counts.
    pub grace_ms: i64,
    /// The longest delay after an expiry.
    pub jitter_ms: i64,
    /// The largest payload.
    pub payload_bytes: usize,
    /// Renewals and expiries that are not strange yet.
    pub patience: u32,
}

impl Setup {
    /// The setup of a seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x5e70);
        Self {
            seed,
            queue: *rng.pick(&[1, 2, 4, 64]),
            watch: rng.one_in(2),
            repeat: *rng.pick(&[4, 8, 32]),
            strict: rng.one_in(4),
            grace_ms: *rng.pick(&[0, 0, 0, 1_500]),
            jitter_ms: *rng.pick(&[0, 5_000, 5_000]),
            payload_bytes: *rng.pick(&[64, 512, 512, 100_000]),
            patience: *rng.pick(&[0, 1, 3]),
        }
    }

    /// The policy that rules read.
    pub fn policy(&self) -> Policy {
        Policy {
            lease_grace_ms: self.grace_ms,
            expiry_jitter_ms: self.jitter_ms,
            max_payload_bytes: self.payload_bytes,
            expiries_before_anomaly: self.patience,
            renewals_before_anomaly: self.patience,
            max_retry_backoff_seconds: 60,
            locatability: if self.strict {
                Locatability::Strict
            } else {
                Locatability::Lenient
            },
            ..Policy::default()
        }
    }
}

/// A setup and what happens, each step under the number that others name it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// What the server is like.
    pub setup: Setup,
    /// What happens.
    pub steps: Vec<(u32, Step)>,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let setup = &self.setup;
        writeln!(f, "seed {}", setup.seed)?;
        writeln!(f, "queue {}", setup.queue)?;
        writeln!(f, "watch {}", setup.watch)?;
        writeln!(f, "repeat {}", setup.repeat)?;
        writeln!(f, "strict {}", setup.strict)?;
        writeln!(f, "grace_ms {}", setup.grace_ms)?;
        writeln!(f, "jitter_ms {}", setup.jitter_ms)?;
        writeln!(f, "payload_bytes {}", setup.payload_bytes)?;
        writeln!(f, "patience {}", setup.patience)?;
        f.write_char('\n')?;
        for (label, step) in &self.steps {
            writeln!(f, "{label} {step}")?;
        }
        Ok(())
    }
}

impl Schedule {
    /// Reads what `Display` wrote; lines that begin with `#` are for people. An error names the
    /// line that cannot be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut setup = Setup::of_seed(0);
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

impl Setup {
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "seed" => self.seed = value.parse().ok()?,
            "queue" => self.queue = value.parse().ok()?,
            "watch" => self.watch = value.parse().ok()?,
            "repeat" => self.repeat = value.parse().ok()?,
            "strict" => self.strict = value.parse().ok()?,
            "grace_ms" => self.grace_ms = value.parse().ok()?,
            "jitter_ms" => self.jitter_ms = value.parse().ok()?,
            "payload_bytes" => self.payload_bytes = value.parse().ok()?,
            "patience" => self.patience = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }
}
