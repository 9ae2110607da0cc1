//! The circuit breaker: a host that fails again and again is not asked for a while.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use asyncgate_core::Timestamp;

/// The number of failures in a row that opens the circuit.
const FAILURES: u32 = 5;
/// The first and the longest time for which it stays open. The time doubles with every failed trial.
const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 30_000;
/// The time after which a trial without an end is forgotten: its caller may have gone away.
const TRIAL_MS: i64 = 5_000;

/// The state of a circuit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Circuit {
    /// The host is asked.
    Closed,
    /// The host is not asked, for a while.
    Open,
    /// One call tries if it answers again.
    HalfOpen,
}

impl Circuit {
    /// The circuit's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Breaker {
    /// False while the last call was answered. It lets calls to a healthy host skip the lock.
    troubled: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    pause_ms: i64,
    /// The time at which the circuit was opened, if it is open.
    opened: Option<Timestamp>,
    /// The time at which a trial began.
    trial: Option<Timestamp>,
}

impl Breaker {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows a call, or returns the milliseconds for which a try is useless.
    pub(crate) fn admit(&self, now: Timestamp) -> Result<(), i64> {
        if !self.troubled.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut state = self.state();
        let Some(opened) = state.opened else {
            return Ok(());
        };
        let left = state.pause_ms - now.millis_since(opened);
        if left > 0 {
            return Err(left);
        }
        match state.trial {
            // One trial at a time: a host that comes back must not be hit by all waiting calls at once.
            Some(begun) if now.millis_since(begun) < TRIAL_MS => Err(FIRST_PAUSE_MS),
            _ => {
                state.trial = Some(now);
                Ok(())
            }
        }
    }

    /// Records an answered call. Returns true if it closed the circuit.
    pub(crate) fn succeeded(&self) -> bool {
        if !self.troubled.load(Ordering::Acquire) {
            return false;
        }
        let mut state = self.state();
        let closes = state.opened.is_some();
        *state = State::default();
        self.troubled.store(false, Ordering::Release);
        closes
    }

    /// Records a failed call. Returns true if it opened the circuit.
    pub(crate) fn failed(&self, now: Timestamp) -> bool {
        let mut state = self.state();
        self.troubled.store(true, Ordering::Release);
        state.failures = state.failures.saturating_add(1);
        let tried = state.trial.take().is_some();
        if state.opened.is_none() && state.failures < FAILURES {
            return false;
        }
        let opens = state.opened.is_none();
        // A late failure of a call from before the circuit opened must not prolong the pause.
        if opens || tried {
            let doubled = state.pause_ms.saturating_mul(2);
            state.pause_ms = doubled.clamp(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
            state.opened = Some(now);
        }
        opens
    }

    /// Records a call that tells nothing about the host. If it was a trial, the next call is one.
    pub(crate) fn learned_nothing(&self) {
        if self.troubled.load(Ordering::Acquire) {
            self.state().trial = None;
        }
    }

    pub(crate) fn circuit(&self) -> Circuit {
        let state = self.state();
        match (state.opened, state.trial) {
            (None, _) => Circuit::Closed,
            (Some(_), None) => Circuit::Open,
            (Some(_), Some(_)) => Circuit::HalfOpen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_after_a_trial() {
        let breaker = Breaker::default();
        for n in 1..FAILURES {
            assert!(!breaker.failed(at(0)), "{n}");
            assert_eq!(breaker.admit(at(0)), Ok(()));
        }
        assert!(!breaker.succeeded());
        for _ in 1..FAILURES {
            assert!(!breaker.failed(at(0)), "a success starts the count again");
        }
        assert!(breaker.failed(at(0)));
        assert_eq!(breaker.circuit(), Circuit::Open);
        assert_eq!(breaker.admit(at(1)), Err(999));
        // One call tries, the others do not.
        assert_eq!(breaker.admit(at(1_000)), Ok(()));
        assert_eq!(breaker.circuit(), Circuit::HalfOpen);
        assert!(breaker.admit(at(1_000)).is_err());
        assert!(breaker.succeeded());
        assert_eq!(breaker.circuit(), Circuit::Closed);
        assert_eq!(breaker.admit(at(1_000)), Ok(()));
    }

    #[test]
    fn the_pause_doubles_up_to_its_bound() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            breaker.failed(at(0));
        }
        let mut now = 0;
        for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000] {
            assert_eq!(breaker.admit(at(now + pause - 1)), Err(1));
            now += pause;
            assert_eq!(breaker.admit(at(now)), Ok(()));
            assert!(!breaker.failed(at(now)));
        }
    }

    #[test]
    fn failures_of_calls_that_were_under_way_do_not_prolong_the_pause() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            breaker.failed(at(0));
        }
        breaker.failed(at(900));
        assert_eq!(breaker.admit(at(1_000)), Ok(()));
    }

    #[test]
    fn a_trial_whose_caller_went_away_is_followed_by_another() {
        let breaker = Breaker::default();
        for _ in 0..FAILURES {
            breaker.failed(at(0));
        }
        assert_eq!(breaker.admit(at(1_000)), Ok(()));
        assert!(breaker.admit(at(5_999)).is_err());
        assert_eq!(breaker.admit(at(6_000)), Ok(()));
    }
}
