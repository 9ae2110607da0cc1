//! The server's memory of a principal: first and last seen, and the number of sessions.

use std::sync::Arc;

use crate::{Policy, Principal, Timestamp};

/// The most instances of a principal that are remembered, the latest ones.
const MAX_INSTANCES: usize = 32;

/// A principal's history with the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relationship {
    /// The principal, with the instance that was seen last.
    pub principal: Principal,
    /// The time of the first sight.
    pub first_seen_at: Timestamp,
    /// The time of the last sight.
    pub last_seen_at: Timestamp,
    /// The number of sessions so far.
    pub sessions_count: u64,
    /// The instances whose sessions may still go on, the one that was seen last at the end.
    pub instances: Vec<InstanceSight>,
}

/// An instance of a principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceSight {
    /// Its name, if it has one.
    pub id: Option<Arc<str>>,
    /// The time of its last sight.
    pub last_seen_at: Timestamp,
}

impl Relationship {
    /// Returns the relationship after the principal is seen at `now`. A session begins with the first
    /// sight of an instance, or after its long silence.
    #[must_use]
    pub fn seen(
        known: Option<Self>,
        principal: Principal,
        now: Timestamp,
        policy: &Policy,
    ) -> Self {
        let id = principal.instance_id.clone();
        let Some(mut known) = known else {
            return Self {
                principal,
                first_seen_at: now,
                last_seen_at: now,
                sessions_count: 1,
                instances: vec![InstanceSight {
                    id,
                    last_seen_at: now,
                }],
            };
        };
        // The difference is negative if this sight is older than the last one: then there was no silence.
        known
            .instances
            .retain(|seen| now.millis_since(seen.last_seen_at) <= policy.session_gap_ms);
        let found = known.instances.iter().position(|seen| seen.id == id);
        let before = found.map(|n| known.instances.remove(n));
        // Concurrent calls can arrive out of order: the time of the last sight never goes back.
        let later = |at: Timestamp| at.max(now);
        let last_seen_at = before.as_ref().map_or(now, |seen| later(seen.last_seen_at));
        known.instances.push(InstanceSight { id, last_seen_at });
        if known.instances.len() > MAX_INSTANCES {
            known.instances.remove(0);
        }
        Self {
            principal,
            first_seen_at: known.first_seen_at,
            last_seen_at: later(known.last_seen_at),
            sessions_count: known.sessions_count + u64::from(before.is_none()),
            instances: known.instances,
        }
    }

    /// Returns true if writing `self` over `known` is worth a commit: always for a new session, and for each
    /// instance at most once a second for a later sight, so that busy principals do not write on every call.
    pub fn is_news(&self, known: &Self) -> bool {
        let Some(seen) = self.instances.last() else {
            return true;
        };
        let before = known.instances.iter().find(|before| before.id == seen.id);
        self.sessions_count != known.sessions_count
            || before
                .is_none_or(|before| seen.last_seen_at.millis_since(before.last_seen_at) >= 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrincipalKind;

    fn alice(instance: Option<&str>) -> Principal {
        Principal {
            instance_id: instance.map(Into::into),
            ..Principal::new(PrincipalKind::Agent, "alice")
        }
    }

    #[test]
    fn sessions_are_counted_by_silence_and_by_instance() {
        let policy = Policy::default();
        let mut known = None;
        for (at, instance, sessions) in [
            (0, None, 1),
            (1_000, None, 1),
            (1_801_000, None, 1),
            (3_601_001, None, 2),
            (3_601_002, Some("laptop"), 3),
            (3_601_003, Some("laptop"), 3),
            (3_601_004, None, 3),
            (3_601_005, Some("laptop"), 3),
            (3_601_006, Some("phone"), 4),
            (3_601_007, None, 4),
            (5_401_006, Some("phone"), 4),
            (5_401_007, Some("laptop"), 5),
        ] {
            let now = Timestamp::from_millis(at);
            let seen = Relationship::seen(known.take(), alice(instance), now, &policy);
            assert_eq!(seen.sessions_count, sessions, "at {at}");
            assert_eq!(seen.first_seen_at, Timestamp::from_millis(0));
            assert_eq!(seen.last_seen_at, now);
            known = Some(seen);
        }
    }

    #[test]
    fn few_instances_are_remembered_and_each_is_news_once_a_second() {
        let policy = Policy::default();
        let mut known = Relationship::seen(None, alice(None), Timestamp::from_millis(0), &policy);
        for n in 0..100 {
            let name = format!("{n}");
            let now = Timestamp::from_millis(n);
            known = Relationship::seen(Some(known), alice(Some(&name)), now, &policy);
        }
        assert_eq!(known.instances.len(), MAX_INSTANCES);
        for (instance, at, news) in [
            ("99", 1_098, false),
            ("99", 1_099, true),
            ("98", 1_098, true),
            ("new", 99, true),
        ] {
            let now = Timestamp::from_millis(at);
            let seen = Relationship::seen(Some(known.clone()), alice(Some(instance)), now, &policy);
            assert_eq!(seen.is_news(&known), news, "{instance} at {at}");
        }
    }
}
