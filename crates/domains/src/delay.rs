//! How a domain stands, and what its stages allow. The rule of stages is that of all sequential delays.

pub use asyncgate_core::admission::Stage;
use asyncgate_core::admission::{Progress, attempt};

/// How a domain stands. What was never stored is the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct State {
    /// What delays are counted from, in seconds since 1970.
    pub timer: i64,
    /// Attempts accepted so far.
    pub counter: u64,
    /// Whether it was disabled. That is for ever.
    pub disabled: bool,
}

/// What becomes of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is one of those that the stages allow; the domain stands so now.
    Accepted(State),
    /// It is not; nothing changes.
    Refused {
        /// When it will be. `None` if never.
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
