//! The limit of a domain: stages of attempts, with delays counted from a timer.
//!
//! All arithmetic saturates. A delay that cannot be added to the timer is never over, and a stage of more
//! attempts than can be counted never ends.

/// A stage with its defaults filled in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// Seconds from the timer to the first attempt of each batch.
    pub delay: u64,
    /// Whether an accepted attempt sets the timer to its own time, or to the earliest it could have had.
    pub reset_timer: bool,
    /// Attempts without a delay between them.
    pub batch_size: u64,
    /// How many batches.
    pub repetitions: u64,
}

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
    let current = (!state.disabled).then(|| current(stages, state.counter));
    let Some((stage, place)) = current.flatten() else {
        return Verdict::Refused { not_before: None };
    };
    let delay = match place % u128::from(stage.batch_size) {
        0 => i64::try_from(stage.delay).unwrap_or(i64::MAX),
        _ => 0,
    };
    let not_before = state.timer.saturating_add(delay);
    if now < not_before {
        let not_before = Some(not_before);
        return Verdict::Refused { not_before };
    }
    Verdict::Accepted(State {
        timer: if stage.reset_timer { now } else { not_before },
        counter: state.counter.saturating_add(1),
        disabled: false,
    })
}

/// The stage of the attempt after `counter` others, and which attempt of that stage it is.
fn current(stages: &[Stage], counter: u64) -> Option<(Stage, u128)> {
    let mut left = u128::from(counter);
    for stage in stages {
        // At most 2^128 - 2^65 + 1: it fits. A stage of no attempts is passed over, so that the batch
        // size of the one found is never 0.
        let attempts = u128::from(stage.batch_size) * u128::from(stage.repetitions);
        if left < attempts {
            return Some((*stage, left));
        }
        left -= attempts;
    }
    None
}
