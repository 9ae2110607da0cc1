//! Metering: what a tenant used since it was metered last.
//!
//! Invariants: the total of an event is the total of the event before it and what was used since, so that nothing is
//! counted twice and nothing is left out, whenever the server ends in between; the last event of a tenant is never
//! forgotten, because the next one goes on from it.

use crate::{Decision, Env, Seq, Timestamp, Usage, UsageEventId};

/// The time after which a tenant that does nothing is metered all the same, if it has receipts: keeping them counts.
const IDLE_MS: i64 = 24 * 3_600_000;

/// Amounts of what a tenant uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// The number of tasks that were created.
    pub tasks_created: u64,
    /// The time for which leases were held.
    pub lease_seconds: u64,
    /// The bytes of receipts, each times the seconds for which it was kept.
    pub receipt_byte_seconds: u64,
    /// The number of calls.
    pub api_calls: u64,
}

impl Used {
    /// Returns the sum of both.
    #[must_use]
    pub const fn plus(&self, more: &Self) -> Self {
        Self {
            tasks_created: self.tasks_created.saturating_add(more.tasks_created),
            lease_seconds: self.lease_seconds.saturating_add(more.lease_seconds),
            receipt_byte_seconds: self
                .receipt_byte_seconds
                .saturating_add(more.receipt_byte_seconds),
            api_calls: self.api_calls.saturating_add(more.api_calls),
        }
    }
}

/// What a tenant used in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageEvent {
    /// Its id, by which a receiver knows one that it has got before.
    pub id: UsageEventId,
    /// Its place among the tenant's events, counted from 1.
    pub seq: Seq,
    /// The end of the event before it; absent for the first, which counts from the tenant's beginning.
    pub since: Option<Timestamp>,
    /// The end of its time.
    pub until: Timestamp,
    /// What was used in its time.
    pub used: Used,
    /// What was used up to its end.
    pub total: Used,
    /// The bytes of all receipts at its end.
    pub receipt_bytes: u64,
}

/// Rows to write: an event, and what is forgotten with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metering {
    /// The event, which follows the last one.
    pub event: UsageEvent,
    /// The last of the oldest events, to be forgotten with all before it; 0 if all are kept.
    pub forget_through: Seq,
}

/// The events of a tenant that a decision looks at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metered {
    /// The last event.
    pub last: Option<UsageEvent>,
    /// Some of the oldest, the oldest first.
    pub oldest: Vec<UsageEvent>,
}

/// Meters a tenant that uses so much now and made so many calls since. Writes nothing if nothing was used.
/// Events that ended before `keep_since` are forgotten.
pub fn meter(
    mut env: Env,
    metered: &Metered,
    usage: &Usage,
    api_calls: u64,
    keep_since: Timestamp,
) -> Decision<Option<UsageEvent>> {
    let mut changes = crate::Changes::default();
    let output = next(&mut env, metered.last.as_ref(), usage, api_calls);
    if let Some(event) = output {
        let forget_through = forget_through(metered, keep_since);
        changes.metering = Some(Box::new(Metering {
            event,
            forget_through,
        }));
    }
    Decision { changes, output }
}

fn next(
    env: &mut Env,
    last: Option<&UsageEvent>,
    usage: &Usage,
    api_calls: u64,
) -> Option<UsageEvent> {
    let total = last.map(|last| last.total).unwrap_or_default();
    let until = last.map_or(env.now, |last| env.now.max(last.until));
    let used = Used {
        tasks_created: usage.tasks_created.saturating_sub(total.tasks_created),
        lease_seconds: usage.lease_seconds.saturating_sub(total.lease_seconds),
        receipt_byte_seconds: last.map_or(0, |last| byte_seconds(last, usage, until)),
        api_calls,
    };
    let kept_bytes = last.map_or(0, |last| last.receipt_bytes);
    let is_active = used.tasks_created > 0
        || used.lease_seconds > 0
        || api_calls > 0
        || usage.receipt_storage_bytes != kept_bytes;
    let is_long_ago = last.is_some_and(|last| until.millis_since(last.until) >= IDLE_MS);
    let is_due = is_active || (used.receipt_byte_seconds > 0 && is_long_ago);
    is_due.then(|| UsageEvent {
        id: env.ids.usage_event(),
        seq: last.map_or(0, |last| last.seq) + 1,
        since: last.map(|last| last.until),
        until,
        used,
        total: total.plus(&used),
        receipt_bytes: usage.receipt_storage_bytes,
    })
}

/// Returns the bytes times the seconds since the last event: receipts come little by little, so the mean of what was
/// there then and what is there now is taken for all of that time.
fn byte_seconds(last: &UsageEvent, usage: &Usage, until: Timestamp) -> u64 {
    let millis = u128::from(until.millis_since(last.until).unsigned_abs());
    let twice = u128::from(last.receipt_bytes) + u128::from(usage.receipt_storage_bytes);
    u64::try_from(twice * millis / 2_000).unwrap_or(u64::MAX)
}

fn forget_through(metered: &Metered, keep_since: Timestamp) -> Seq {
    let is_over = |event: &&UsageEvent| event.until < keep_since;
    // Once the new event is written, even the one that was last may go.
    let over = metered.oldest.iter().take_while(is_over);
    over.last().map_or(0, |event| event.seq)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{Ids, Policy, Stamp};

    fn env(now: i64) -> Env {
        Env {
            now: Timestamp::from_millis(now),
            ids: Ids::new(Stamp::of_millis(now), 1),
            instance: Arc::from("asyncgate-1"),
            policy: Arc::new(Policy::default()),
            quotas: None,
        }
    }

    fn metered(last: Option<UsageEvent>) -> Metered {
        let oldest = last.into_iter().collect();
        Metered { last, oldest }
    }

    fn usage(tasks_created: u64, lease_seconds: u64, receipt_storage_bytes: u64) -> Usage {
        Usage {
            tasks_created,
            lease_seconds,
            receipt_storage_bytes,
            ..Usage::default()
        }
    }

    fn event(last: Option<UsageEvent>, now: i64, usage: &Usage, calls: u64) -> Option<UsageEvent> {
        let keep_since = Timestamp::default();
        let decision = meter(env(now), &metered(last), usage, calls, keep_since);
        let written = decision.changes.metering.map(|metering| metering.event);
        assert_eq!(written, decision.output, "what is told is written");
        decision.output
    }

    #[test]
    fn an_event_says_what_was_used_since_the_one_before() {
        assert_eq!(event(None, 5, &Usage::default(), 0), None, "nothing used");
        let first = event(None, 10_000, &usage(3, 7, 1_000), 5).unwrap();
        let expected = Used {
            tasks_created: 3,
            lease_seconds: 7,
            receipt_byte_seconds: 0,
            api_calls: 5,
        };
        assert_eq!((first.seq, first.since, first.used), (1, None, expected));
        assert_eq!(event(Some(first), 20_000, &usage(3, 7, 1_000), 0), None);
        let second = event(Some(first), 30_000, &usage(4, 9, 3_000), 2).unwrap();
        let expected = Used {
            tasks_created: 1,
            lease_seconds: 2,
            // Twenty seconds with two thousand bytes on average.
            receipt_byte_seconds: 40_000,
            api_calls: 2,
        };
        assert_eq!((second.seq, second.since), (2, Some(first.until)));
        assert_eq!(second.used, expected);
        assert_eq!(second.total, first.used.plus(&expected));
        assert_ne!(second.id, first.id);
    }

    #[test]
    fn receipts_that_are_only_kept_are_metered_once_a_day() {
        let kept = usage(1, 0, 500);
        let first = event(None, 0, &kept, 0).unwrap();
        assert_eq!(event(Some(first), IDLE_MS - 1, &kept, 0), None);
        let daily = event(Some(first), IDLE_MS, &kept, 0).unwrap();
        assert_eq!(daily.used.receipt_byte_seconds, 500 * 86_400);
        let nothing = usage(0, 0, 0);
        let idle = event(None, 0, &nothing, 1).unwrap();
        assert_eq!(event(Some(idle), 9 * IDLE_MS, &nothing, 0), None);
    }

    #[test]
    fn old_events_go_and_what_is_left_out_of_an_event_is_in_the_next() {
        let at = |seq: u64, until: i64| UsageEvent {
            id: UsageEventId::from_bytes([0; 16]),
            seq,
            since: None,
            until: Timestamp::from_millis(until),
            used: Used::default(),
            total: Used::default(),
            receipt_bytes: 0,
        };
        let oldest = vec![at(4, 100), at(5, 200), at(6, 300)];
        for (keep_since, through) in [(0, 0), (100, 0), (101, 4), (250, 5), (9_999, 6)] {
            let metered = Metered {
                last: oldest.last().copied(),
                oldest: oldest.clone(),
            };
            let keep_since = Timestamp::from_millis(keep_since);
            let decision = meter(env(400), &metered, &usage(1, 0, 0), 0, keep_since);
            let metering = decision.changes.metering.unwrap();
            assert_eq!(metering.forget_through, through);
            assert_eq!(metering.event.seq, 7);
        }
    }

    proptest! {
        /// However often and whenever it is metered, the sum of all events is what was used.
        #[test]
        fn nothing_is_counted_twice_or_left_out(
            steps in prop::collection::vec((0_i64..100_000_000, 0_u64..5, 0_u64..50, 0_u64..9_000, 0_u64..9), 1..40),
        ) {
            let (mut now, mut used, mut last) = (0, usage(0, 0, 0), None);
            let (mut sum, mut calls, mut events) = (Used::default(), 0, 0);
            for (wait, tasks, seconds, bytes, called) in steps {
                now += wait;
                used = usage(
                    used.tasks_created + tasks,
                    used.lease_seconds + seconds,
                    used.receipt_storage_bytes + bytes,
                );
                calls += called;
                if let Some(event) = event(last, now, &used, called) {
                    events += 1;
                    prop_assert_eq!(event.seq, events);
                    prop_assert_eq!(event.until.as_millis(), now);
                    sum = sum.plus(&event.used);
                    prop_assert_eq!(event.total, sum);
                    last = Some(event);
                }
                prop_assert_eq!(sum.tasks_created, used.tasks_created);
                prop_assert_eq!(sum.lease_seconds, used.lease_seconds);
                prop_assert_eq!(sum.api_calls, calls);
            }
        }
    }
}
