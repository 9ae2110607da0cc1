//! How a host is doing, from how its last calls went.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{Backend, Circuit, FailureMode};

/// How many calls count.
const CALLS: usize = 256;

/// How the host is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// In a word.
    pub status: Status,
    /// Nonces.
    pub nonces: ComponentHealth,
    /// Counters and limits.
    pub counters: ComponentHealth,
    /// Revocations.
    pub revocations: ComponentHealth,
}

/// How the host is doing, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// All of it answers.
    Healthy,
    /// Some of it does.
    Degraded,
    /// None of it does.
    Unavailable,
}

impl Status {
    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// How one part of a host is doing.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentHealth {
    /// Whether it answers.
    pub available: bool,
    /// How long the slowest but one in a hundred of the last calls took.
    pub latency_p99: Option<Duration>,
    /// How many of the last calls failed, from 0 to 1.
    pub error_rate: Option<f64>,
    /// Who answers.
    pub backend: Backend,
    /// What is done when it does not.
    pub failure_mode: FailureMode,
    /// Whether it is asked.
    pub circuit: Circuit,
}

/// The last calls.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// In microseconds; a call that failed has none.
    calls: Vec<Option<u32>>,
    next: usize,
}

impl Record {
    /// Notes a call that took so long, or failed.
    pub(crate) fn note(&self, took: Option<Duration>) {
        let micros = took.map(|took| u32::try_from(took.as_micros()).unwrap_or(u32::MAX));
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ring.calls.len() < CALLS {
            ring.calls.push(micros);
            return;
        }
        let next = ring.next;
        ring.calls[next] = micros;
        ring.next = (next + 1) % CALLS;
    }

    /// The 99th percentile of those that were answered, and the share of those that were not.
    pub(crate) fn figures(&self) -> (Option<Duration>, Option<f64>) {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = ring.calls.len();
        let mut answered: Vec<u32> = ring.calls.iter().copied().flatten().collect();
        drop(ring);
        answered.sort_unstable();
        let place = (answered.len() * 99).div_ceil(100).saturating_sub(1);
        let slowest = answered.get(place).copied();
        let p99 = slowest.map(|micros| Duration::from_micros(u64::from(micros)));
        let failed = total - answered.len();
        (p99, (total > 0).then(|| failed as f64 / total as f64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_of_the_last_calls() {
        let record = Record::default();
        assert_eq!(record.figures(), (None, None));
        for micros in 1..=100 {
            record.note(Some(Duration::from_micros(micros)));
        }
        assert_eq!(
            record.figures(),
            (Some(Duration::from_micros(99)), Some(0.0))
        );
        for _ in 0..CALLS {
            record.note(None);
        }
        assert_eq!(record.figures(), (None, Some(1.0)));
    }
}
