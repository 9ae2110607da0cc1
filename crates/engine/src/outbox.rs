//! Sends what is in the outbox, and tries again until it arrives.
//!
//! Invariants: what is in the outbox is tried at least once, and again after a crash at any point, so a receiver must
//! know what it has got before; of dispatches with one order key only the first is under way; a destination that does
//! not answer is left alone for a while, so that others are not held up behind it.

use std::{collections::HashMap, future::pending, time::Duration};

use asyncgate_core::{
    Decision, TenantId, Timestamp,
    admission::SERVER_TENANT,
    outbox::{self, Changes, Dispatch, RetryPolicy, State},
};
use asyncgate_store::outbox::{Reads, Snapshot};
use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};

use crate::{Engine, Fault};

/// The most dispatches that are under way at a time.
const MAX_UNDER_WAY: usize = 16;
/// The time after the longest try at which a dispatch is due again of which nobody says what became of it.
const MARGIN: Duration = Duration::from_secs(5);
/// The longest sleep between two looks, as a safety net.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);
/// The pause after a failure of the store.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// How often and for how long a dispatch is tried, unless the operator says otherwise.
pub const RETRIES: RetryPolicy = RetryPolicy {
    first_ms: 1_000,
    longest_ms: 900_000,
    give_up_after_ms: 3 * 24 * 3_600_000,
};

/// Brings dispatches to their destinations.
pub trait Courier: Send + Sync {
    /// Hands a dispatch over. It answers within [`Courier::longest_try`], whatever the destination does.
    ///
    /// # Errors
    /// If the destination does not say that it has the dispatch, which it may have all the same.
    fn deliver<'a>(&'a self, dispatch: &'a Dispatch) -> BoxFuture<'a, Result<(), Undelivered>>;

    /// Returns the longest time that handing a dispatch over takes.
    fn longest_try(&self) -> Duration;
}

/// Why a dispatch did not arrive. The texts are kept and shown to operators, so they hold no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// The destination is not well, or cannot be reached.
    #[error("{0}")]
    Failed(String),
    /// The destination does not want this dispatch, but may want others.
    #[error("{0}")]
    Refused(String),
}

/// A destination that is left alone.
#[derive(Debug, Clone, Copy)]
struct Rest {
    until: Timestamp,
    failures: u32,
}

/// The destinations that did not answer.
#[derive(Debug, Default)]
struct Resting(HashMap<String, Rest>);

impl Resting {
    /// Returns the time until which a destination is left alone.
    fn until(&self, destination: &str, now: Timestamp) -> Option<Timestamp> {
        let rest = self.0.get(destination)?;
        (now < rest.until).then_some(rest.until)
    }

    /// Notes what became of a try.
    fn note(&mut self, tried: &Tried, now: Timestamp, policy: &RetryPolicy, random: u64) {
        if tried.is_well {
            self.0.remove(&tried.destination);
            return;
        }
        let failures = self
            .0
            .get(&tried.destination)
            .map_or(0, |rest| rest.failures);
        let failures = failures.saturating_add(1);
        let wait_ms = i64::try_from(policy.wait_ms(failures, random)).unwrap_or(i64::MAX);
        let rest = Rest {
            until: now.plus_millis(wait_ms),
            failures,
        };
        self.0.insert(tried.destination.clone(), rest);
    }
}

/// The end of a try.
struct Tried {
    destination: String,
    /// True if the destination answered, whatever it said of the dispatch.
    is_well: bool,
}

impl Engine {
    /// Sends what is in the outbox until the engine drains. Without a courier nothing is sent, and all of it waits.
    pub async fn send_dispatches(&self) {
        let Some(courier) = &self.courier else {
            return;
        };
        let (mut under_way, mut resting) = (FuturesUnordered::new(), Resting::default());
        loop {
            let room = MAX_UNDER_WAY - under_way.len();
            let patience = courier.longest_try() + MARGIN;
            let sleep = match self.take_due(room, &resting, patience).await {
                Ok(due) => {
                    // Those that were postponed left room: others may stand behind them.
                    let is_more = due.found == room && due.to_try.len() < room;
                    for dispatch in due.to_try {
                        under_way.push(self.try_one(courier.as_ref(), dispatch));
                    }
                    match is_more {
                        true => Duration::ZERO,
                        false => self.until_next_try().await,
                    }
                }
                Err(fault) => {
                    tracing::error!(cause = fault.cause, "could not look into the outbox");
                    TRY_AGAIN
                }
            };
            let is_full = under_way.len() == MAX_UNDER_WAY;
            let look = async {
                match is_full {
                    true => pending().await,
                    false => tokio::select! {
                        () = self.store.signals().new_dispatch() => {}
                        () = tokio::time::sleep(sleep) => {}
                    },
                }
            };
            tokio::select! {
                biased;
                () = self.drained() => return,
                Some(tried) = under_way.next() => {
                    let retries = self.settings().retries;
                    resting.note(&tried, self.now(), &retries, self.random());
                }
                () = look => {}
            }
        }
    }

    /// Takes what is due, up to a number, so that nobody else tries it. What goes to a destination that is left alone
    /// is put off.
    async fn take_due(
        &self,
        room: usize,
        resting: &Resting,
        patience: Duration,
    ) -> Result<Due, Fault> {
        if room == 0 {
            return Ok(Due::default());
        }
        let resting = resting.0.clone();
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let reads = Reads {
            due: room,
            dispatches: Vec::new(),
        };
        self.transact(SERVER_TENANT, 0, reads, move |env, snapshot: Snapshot| {
            let resting = Resting(resting.clone());
            let mut due = Due {
                found: snapshot.due.len(),
                to_try: Vec::new(),
            };
            let mut changes = Changes::default();
            for dispatch in snapshot.due {
                let put = match resting.until(&dispatch.sent.destination, env.now) {
                    Some(until) => outbox::postpone(&[dispatch], until),
                    None => {
                        let taken =
                            outbox::take(std::slice::from_ref(&dispatch), env.now, patience_ms);
                        due.to_try.push(dispatch);
                        taken
                    }
                };
                changes.changed.extend(put.changed);
            }
            Ok(Decision {
                changes,
                output: due,
            })
        })
        .await
    }

    /// Returns how long nothing is to be tried.
    async fn until_next_try(&self) -> Duration {
        match self.store.outbox().next_try().await {
            Ok(Some(next)) => {
                let millis = next.millis_since(self.now());
                Duration::from_millis(u64::try_from(millis).unwrap_or(0)).min(LONGEST_SLEEP)
            }
            Ok(None) => LONGEST_SLEEP,
            Err(_) => TRY_AGAIN,
        }
    }

    /// Tries a dispatch, and writes down what became of it.
    async fn try_one(&self, courier: &dyn Courier, dispatch: Dispatch) -> Tried {
        let outcome = courier.deliver(&dispatch).await;
        let Dispatch { id, sent, .. } = dispatch;
        let destination = sent.destination;
        self.metrics.outbox.tried(&destination, outcome.is_ok());
        let is_well = !matches!(outcome, Err(Undelivered::Failed(_)));
        let tenant = sent.tenant.unwrap_or(SERVER_TENANT);
        if let Err(fault) = self.settle(tenant, id, outcome.err()).await {
            // It is due again when the patience is over.
            let cause = fault.cause;
            tracing::warn!(
                cause,
                "what became of a dispatch could not be written down; it is sent again"
            );
        }
        Tried {
            destination,
            is_well,
        }
    }

    async fn settle(
        &self,
        tenant: TenantId,
        id: u64,
        error: Option<Undelivered>,
    ) -> Result<(), Fault> {
        let (retries, random) = (self.settings().retries, self.random());
        let reads = Reads {
            due: 0,
            dispatches: vec![id],
        };
        let error = error.map(|error| error.to_string());
        let given_up = self.transact(tenant, 0, reads, move |env, mut snapshot: Snapshot| {
            let Some(dispatch) = snapshot.dispatches.pop() else {
                return Ok(Decision {
                    changes: Changes::default(),
                    output: None,
                });
            };
            let changes = match &error {
                None => outbox::delivered(&dispatch),
                Some(error) => outbox::failed(dispatch, env.now, error, &retries, random),
            };
            let is_dead = |dispatch: &&Dispatch| matches!(dispatch.state, State::Dead { .. });
            let output = changes.changed.iter().find(is_dead).cloned();
            Ok(Decision { changes, output })
        });
        if let Some(Dispatch {
            id,
            attempts,
            last_error,
            sent,
            ..
        }) = given_up.await?
        {
            let destination = sent.destination;
            tracing::error!(
                event = "outbox.given_up",
                dispatch = id,
                destination,
                attempts,
                last_error,
                "a dispatch was given up; it is kept"
            );
        }
        Ok(())
    }
}

/// The dispatches that were due.
#[derive(Debug, Default)]
struct Due {
    /// The number of them.
    found: usize,
    /// Those that are to be tried now.
    to_try: Vec<Dispatch>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_fails_rests_longer_each_time_until_it_is_well_again() {
        let mut resting = Resting::default();
        let tried = |is_well| Tried {
            destination: "billing".to_owned(),
            is_well,
        };
        let at = Timestamp::from_millis;
        resting.note(&tried(false), at(0), &RETRIES, 0);
        assert_eq!(resting.until("billing", at(0)), Some(at(500)));
        assert_eq!(resting.until("billing", at(500)), None, "it is tried again");
        assert_eq!(resting.until("other", at(0)), None);
        resting.note(&tried(false), at(500), &RETRIES, 0);
        assert_eq!(resting.until("billing", at(501)), Some(at(1_500)));
        resting.note(&tried(true), at(1_500), &RETRIES, 0);
        assert_eq!(resting.until("billing", at(1_500)), None);
        resting.note(&tried(false), at(2_000), &RETRIES, 0);
        assert_eq!(resting.until("billing", at(2_000)), Some(at(2_500)));
    }
}
