//! The outbox: what must reach another system is written in the commit that causes it, and tried until it arrives.
//!
//! Invariants: what is committed is tried at least once; of dispatches with one destination and one order key only the
//! oldest is tried, so that they arrive in order; one that is given up on is kept as dead and lets the next one pass.

use bytes::Bytes;

use crate::{TenantId, Timestamp, line::one_line};

/// Something to be sent. The store gives it its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDispatch {
    /// The tenant that it tells of, if it is one.
    pub tenant: Option<TenantId>,
    /// The name of the place that it goes to.
    pub destination: String,
    /// Dispatches to one destination with one key arrive in the order in which they were written.
    pub order_key: Option<String>,
    /// The content.
    pub body: Bytes,
    /// The time at which it was written.
    pub created_at: Timestamp,
}

/// Something that is being sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// Its number. Later ones have higher numbers.
    pub id: u64,
    /// What is sent.
    pub sent: NewDispatch,
    /// The number of tries that failed.
    pub attempts: u32,
    /// The reason of the last failure.
    pub last_error: Option<String>,
    /// Its state.
    pub state: State,
}

/// The state of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It is tried at this time, or when those before it with its order key are settled, whichever is later.
    Pending {
        /// The time of the next try.
        next_try_at: Timestamp,
    },
    /// Nobody tries it any more.
    Dead {
        /// The time at which it was given up.
        at: Timestamp,
    },
}

/// Rows to write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Changes {
    /// Dispatches to add.
    pub new: Vec<NewDispatch>,
    /// Dispatches that stand otherwise than before.
    pub changed: Vec<Dispatch>,
    /// Dispatches that have arrived.
    pub gone: Vec<u64>,
}

impl Changes {
    /// Returns true if there is nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// When to try again, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The wait after the first failure; it doubles with each.
    pub first_ms: u64,
    /// The longest wait.
    pub longest_ms: u64,
    /// The age at which a dispatch is given up.
    pub give_up_after_ms: u64,
}

impl RetryPolicy {
    /// Returns the wait after so many failures. Half of it is drawn, so that what failed together is not tried together.
    pub fn wait_ms(&self, failures: u32, random: u64) -> u64 {
        let doublings = failures.saturating_sub(1).min(63);
        let whole = self.first_ms.saturating_mul(1 << doublings);
        let whole = whole.min(self.longest_ms).max(1);
        let half = whole / 2;
        whole - half + random % (half + 1)
    }
}

/// Takes dispatches that are due. If nobody says what became of them, they are due again after `patience_ms`.
pub fn take(due: &[Dispatch], now: Timestamp, patience_ms: u64) -> Changes {
    postpone(due, later(now, patience_ms))
}

/// Leaves dispatches untried until a time, because their destination is not well. That is no failure of theirs.
pub fn postpone(dispatches: &[Dispatch], next_try_at: Timestamp) -> Changes {
    let postponed = dispatches.iter().map(|dispatch| Dispatch {
        state: State::Pending { next_try_at },
        ..dispatch.clone()
    });
    Changes {
        changed: postponed.collect(),
        ..Changes::default()
    }
}

/// Notes that a dispatch has arrived.
pub fn delivered(dispatch: &Dispatch) -> Changes {
    Changes {
        gone: vec![dispatch.id],
        ..Changes::default()
    }
}

/// Notes that a try has failed: it is tried again later, unless it is too old for that.
pub fn failed(
    dispatch: Dispatch,
    now: Timestamp,
    error: &str,
    policy: &RetryPolicy,
    random: u64,
) -> Changes {
    let attempts = dispatch.attempts.saturating_add(1);
    let next_try_at = later(now, policy.wait_ms(attempts, random));
    let gives_up_at = later(dispatch.sent.created_at, policy.give_up_after_ms);
    let state = if next_try_at < gives_up_at {
        State::Pending { next_try_at }
    } else {
        State::Dead { at: now }
    };
    Changes {
        changed: vec![Dispatch {
            attempts,
            last_error: Some(one_line(error)),
            state,
            ..dispatch
        }],
        ..Changes::default()
    }
}

/// Tries a dead dispatch again, behind those of its order key that still wait.
pub fn revive(dispatch: &Dispatch, now: Timestamp) -> Changes {
    Changes {
        new: vec![NewDispatch {
            created_at: now,
            ..dispatch.sent.clone()
        }],
        gone: vec![dispatch.id],
        ..Changes::default()
    }
}

fn later(time: Timestamp, millis: u64) -> Timestamp {
    time.plus_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: RetryPolicy = RetryPolicy {
        first_ms: 1_000,
        longest_ms: 60_000,
        give_up_after_ms: 3_600_000,
    };

    #[test]
    fn waits_double_up_to_the_longest_and_half_of_each_is_drawn() {
        for (failures, whole) in [
            (1, 1_000),
            (2, 2_000),
            (6, 32_000),
            (7, 60_000),
            (u32::MAX, 60_000),
        ] {
            assert_eq!(POLICY.wait_ms(failures, 0), whole / 2);
            assert_eq!(POLICY.wait_ms(failures, whole / 2), whole);
            assert!(POLICY.wait_ms(failures, u64::MAX) <= whole);
        }
        let none = RetryPolicy {
            first_ms: 0,
            ..POLICY
        };
        assert_eq!(none.wait_ms(1, 7), 1, "never at once");
    }

    #[test]
    fn it_is_given_up_when_the_next_try_would_come_too_late() {
        let begin = Timestamp::from_millis(1_000_000);
        let dispatch = |attempts| Dispatch {
            id: 1,
            sent: NewDispatch {
                tenant: None,
                destination: "a".to_owned(),
                order_key: None,
                body: Bytes::new(),
                created_at: begin,
            },
            attempts,
            last_error: None,
            state: State::Pending { next_try_at: begin },
        };
        let state = |attempts, age| {
            let now = begin.plus_millis(age);
            let changes = failed(
                dispatch(attempts),
                now,
                "é".repeat(300).as_str(),
                &POLICY,
                0,
            );
            let changed = &changes.changed[0];
            assert_eq!(changed.attempts, attempts + 1);
            let said = changed.last_error.as_deref().unwrap();
            assert!(said.len() <= 512 && said.ends_with('…'));
            (now, changed.state)
        };
        let (now, next) = state(9, 3_569_999);
        let next_try_at = now.plus_millis(30_000);
        assert_eq!(next, State::Pending { next_try_at });
        let (now, next) = state(9, 3_570_000);
        assert_eq!(next, State::Dead { at: now });
    }
}
