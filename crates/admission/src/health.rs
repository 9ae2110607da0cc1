//! The health of a host, by the outcome of its last calls.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{Backend, Circuit, FailureMode};

/// The number of last calls that count.
const CALLS: usize = 256;

/// The health of the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Health {
    /// The summary.
    pub status: Status,
    /// Nonces.
    pub nonces: ComponentHealth,
    /// Counters and limits.
    pub counters: ComponentHealth,
    /// Revocations.
    pub revocations: ComponentHealth,
}

/// The summary of the health of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// All parts answer.
    Healthy,
    /// Some parts answer.
    Degraded,
    /// No part answers.
    Unavailable,
}

impl Status {
    /// Returns the name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Degraded => "degraded",
            Self::Unavailable => "unavailable",
        }
    }
}

/// The health of one part of a host.
#[derive(Debug, Clone, PartialEq)]
pub struct ComponentHealth {
    /// True if it answers.
    pub available: bool,
    /// The 99th percentile of the time of the last calls.
    pub latency_p99: Option<Duration>,
    /// The share of the last calls that failed, from 0 to 1.
    pub error_rate: Option<f64>,
    /// The backend.
    pub backend: Backend,
    /// The failure mode that applies when it does not answer.
    pub failure_mode: FailureMode,
    /// The state of its circuit breaker.
    pub circuit: Circuit,
}

/// The last calls.
#[derive(Debug, Default)]
pub(crate) struct Record(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// The time of each call in microseconds; none for a call that failed.
    calls: Vec<Option<u32>>,
    next: usize,
}

impl Record {
    /// Records a call with its time, or a failed call.
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

    /// Returns the 99th percentile of the answered calls, and the share of the failed ones.
    pub(crate) fn figures(&self) -> (Option<Duration>, Option<f64>) {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let total = ring.calls.len();
        let mut answered: Vec<u32> = ring.calls.iter().copied().flatten().collect();
        // The copy is sorted without the lock, so that calls do not wait for a health check.
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
