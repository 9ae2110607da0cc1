//! Sequential delays: attempts in stages, each stage with a delay of its own.

use super::{Cell, FOR_EVER, Flaw, Limited, Name, Row, Standing, name::Sort, seconds};
use crate::{TenantId, Timestamp};

/// The largest number in a stage: every JSON reader holds it exactly.
const MAX_NUMBER: u64 = (1 << 53) - 1;
const MAX_STAGES: usize = 1_000;

/// One stage: `repetitions` times, `batch_size` attempts at once after `delay` seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stage {
    /// Seconds before each batch.
    pub delay: u64,
    /// True if the next delay counts from the attempt; false if it counts from the time at which the
    /// attempt was allowed.
    pub reset_timer: bool,
    /// The number of attempts after one delay.
    pub batch_size: u64,
    /// The number of batches.
    pub repetitions: u64,
}

impl Stage {
    /// Builds a stage of one attempt after `delay` seconds.
    pub const fn after(delay: u64) -> Self {
        Self {
            delay,
            reset_timer: true,
            batch_size: 1,
            repetitions: 1,
        }
    }

    const fn attempts(&self) -> u64 {
        self.batch_size.saturating_mul(self.repetitions)
    }
}

/// The progress through a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The number of accepted attempts.
    pub counter: u64,
    /// The start of the next delay, in seconds since 1970.
    pub timer: i64,
}

/// The answer to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attempt {
    /// True if it was accepted.
    pub accepted: bool,
    /// The time from which it is allowed, in seconds since 1970; absent after the last stage.
    pub not_before: Option<i64>,
    /// The progress after the attempt.
    pub progress: Progress,
}

/// Makes an attempt at a time in seconds since 1970. It accepts any stages: a stage without attempts
/// is skipped, a stage with more attempts than can be counted never ends, and a delay beyond the end
/// of time is never over.
pub fn attempt(stages: &[Stage], progress: Progress, now: i64) -> Attempt {
    let Some((stage, start)) = stage_of(stages, progress.counter) else {
        return Attempt {
            accepted: false,
            not_before: None,
            progress,
        };
    };
    // Only the first attempt of a batch waits. The stage has attempts, so the batch is not empty.
    let first = (progress.counter - start).is_multiple_of(stage.batch_size);
    let delay = if first { stage.delay } else { 0 };
    let not_before = progress.timer.saturating_add_unsigned(delay);
    let accepted = now >= not_before;
    let timer = if stage.reset_timer { now } else { not_before };
    // Without a reset the next delay counts from the allowed time, so a late attempt loses nothing.
    let further = Progress {
        counter: progress.counter.saturating_add(1),
        timer,
    };
    Attempt {
        accepted,
        not_before: Some(not_before),
        progress: if accepted { further } else { progress },
    }
}

/// Returns the stage that an attempt belongs to, and the number of the stage's first attempt.
fn stage_of(stages: &[Stage], counter: u64) -> Option<(Stage, u64)> {
    let mut start: u64 = 0;
    for stage in stages {
        // An end that overflows is never reached.
        match start.checked_add(stage.attempts()) {
            Some(end) if counter >= end => start = end,
            _ => return Some((*stage, start)),
        }
    }
    None
}

/// Stages, one after the other. After the last stage no attempt is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    stages: Vec<Stage>,
}

impl Delay {
    /// Builds a sequence of stages.
    pub fn new(stages: Vec<Stage>) -> Result<Self, Flaw> {
        if stages.is_empty() || stages.len() > MAX_STAGES {
            return Err(Flaw::Stages { max: MAX_STAGES });
        }
        for (index, stage) in stages.iter().enumerate() {
            let numbers = [stage.delay, stage.batch_size, stage.repetitions];
            let empty = stage.batch_size == 0 || stage.repetitions == 0;
            if empty || numbers.iter().any(|number| *number > MAX_NUMBER) {
                return Err(Flaw::Stage { index });
            }
        }
        Ok(Self { stages })
    }

    /// The stages.
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// Makes an attempt at a time in seconds since 1970.
    pub fn attempt(&self, progress: Progress, now: i64) -> Attempt {
        attempt(&self.stages, progress, now)
    }

    fn total(&self) -> u64 {
        let attempts = self.stages.iter().map(Stage::attempts);
        attempts.fold(0, u64::saturating_add)
    }

    pub(super) fn name(tenant: TenantId, policy: &str, key: &str) -> Name {
        Name::new(tenant, Sort::Delay, &[policy.as_bytes(), key.as_bytes()])
    }

    /// Runs [`Delay::attempt`] on a row. A cost of zero only looks.
    pub(super) fn decide(
        &self,
        now: Timestamp,
        cost: i64,
        stored: Option<Row>,
    ) -> (Limited, Option<Row>) {
        let before = match stored {
            Some(Row {
                cell: Cell::Delay { counter, timer },
                ..
            }) => Progress { counter, timer },
            _ => Progress::default(),
        };
        let now = seconds(now);
        let attempt = self.attempt(before, now);
        // A look must not use up the attempt.
        let after = if cost == 0 { before } else { attempt.progress };
        // The time of the next allowed attempt: an attempt at the beginning of time is refused and
        // names it.
        let next = self.attempt(after, i64::MIN).not_before;
        let retry = attempt.not_before.map(|at| at.saturating_sub(now).max(1));
        let limited = Limited {
            allowed: attempt.accepted,
            shadowed: false,
            limit: self.total(),
            remaining: self.total().saturating_sub(after.counter),
            reset_at: next.unwrap_or(after.timer).max(now),
            retry_after_secs: retry.filter(|_| !attempt.accepted).map(i64::unsigned_abs),
            standing: Standing::Delay(after),
        };
        let Progress { counter, timer } = after;
        let row = Row {
            cell: Cell::Delay { counter, timer },
            // A forgotten row would start the sequence again and give its attempts back.
            until: FOR_EVER,
        };
        (limited, (after != before).then_some(row))
    }
}
