//! The server's memory of a principal: first and last seen, and the number of sessions.

use crate::{Policy, Principal, Timestamp};

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
}

impl Relationship {
    /// Returns the relationship after the principal is seen at `now`. A session begins with the first
    /// sight, with another instance, or after a long silence.
    #[must_use]
    pub fn seen(
        known: Option<Self>,
        principal: Principal,
        now: Timestamp,
        policy: &Policy,
    ) -> Self {
        let Some(known) = known else {
            return Self {
                principal,
                first_seen_at: now,
                last_seen_at: now,
                sessions_count: 1,
            };
        };
        // Negative if this sight is older than the last one: then there was no silence.
        let silent = now.millis_since(known.last_seen_at) > policy.session_gap_ms;
        let elsewhere = principal.instance_id != known.principal.instance_id;
        Self {
            principal,
            first_seen_at: known.first_seen_at,
            // Concurrent calls can arrive out of order: the time of the last sight never goes back.
            last_seen_at: now.max(known.last_seen_at),
            sessions_count: known.sessions_count + u64::from(silent || elsewhere),
        }
    }

    /// Returns true if writing `self` over `known` is worth a commit: always for a new session, and at
    /// most once a second for a later sight, so that busy principals do not write on every call.
    pub fn is_news(&self, known: &Self) -> bool {
        self.sessions_count != known.sessions_count
            || self.last_seen_at.millis_since(known.last_seen_at) >= 1_000
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
        ] {
            let now = Timestamp::from_millis(at);
            let seen = Relationship::seen(known.take(), alice(instance), now, &policy);
            assert_eq!(seen.sessions_count, sessions, "at {at}");
            assert_eq!(seen.first_seen_at, Timestamp::from_millis(0));
            assert_eq!(seen.last_seen_at, now);
            known = Some(seen);
        }
    }
}
