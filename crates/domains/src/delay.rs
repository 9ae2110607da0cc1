//! The state of a domain, and the attempts that its stages allow. Stages follow the same rule as all
//! sequential delays.

pub use asyncgate_core::admission::Stage;
use asyncgate_core::admission::{Progress, attempt};

/// The state of a domain. A domain without a stored state has the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// The start of the next delay, in seconds since 1970.
    pub timer: i64,
    /// Attempts accepted so far.
    pub counter: u64,
    /// True if it was disabled, which is for ever.
    pub disabled: bool,
}

/// The answer to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The stages allow the attempt; this is the new state.
    Accepted(State),
    /// The stages do not allow it; nothing changes.
    Refused {
        /// The time from which it will be allowed; `None` if never.
        not_before: Option<i64>,
    },
}

/// Decides about an attempt at `now`, in seconds since 1970.
pub fn check(stages: &[Stage], state: State, now: i64) -> Verdict {
    if state.disabled {
        return Verdict::Refused { not_before: None };
    }
    let State { timer, counter, .. } = state;
    let attempt = attempt(stages, Progress { counter, timer }, now);
    if !attempt.accepted {
        let not_before = attempt.not_before;
        return Verdict::Refused { not_before };
    }
    let Progress { counter, timer } = attempt.progress;
    Verdict::Accepted(State {
        timer,
        counter,
        disabled: false,
    })
}
