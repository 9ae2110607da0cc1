//! Audit entries about tenants that used up a quota or a limit.
//!
//! Invariant: a tenant leaves one entry for each quota and minute, and one more that says how often it met it again.
//! Neither memory nor the log grows with a caller that does not stop.

use std::sync::{Mutex, PoisonError};

use asyncgate_api::Spec;
use asyncgate_core::{
    TenantId,
    identity::{
        QuotaName,
        audit::{Draft, Event},
    },
};
use serde_json::Value;

use crate::{Caller, Engine, Fault, Windows};

/// The most quotas of tenants that are told apart in a minute.
const TOLD_APART: usize = 4_096;

/// A quota or a limit of a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct UsedUp {
    tenant: TenantId,
    event: Event,
    /// The quota, or the scope of an operator's limit.
    what: String,
}

/// What tenants used up in the last minute.
#[derive(Debug, Default)]
pub(crate) struct UsedUpQuotas(Mutex<Windows<UsedUp>>);

impl UsedUpQuotas {
    /// Counts a refusal. Returns true if it is the first of its minute, and those whose minute is over with how often
    /// each was repeated.
    fn count(&self, now_ms: i64, used_up: UsedUp) -> (bool, Vec<(UsedUp, u64)>) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = windows.take_over(now_ms);
        let is_first = windows.has_room(&used_up, TOLD_APART) && {
            let window = windows.of(used_up, now_ms);
            window.count += 1;
            window.count == 1
        };
        drop(windows);
        let repeated = over.into_iter().map(|(of, window)| (of, window.count - 1));
        (is_first, repeated.filter(|(_, times)| *times > 0).collect())
    }
}

impl Engine {
    /// Records that a call was refused because something is used up, if that is why.
    pub(crate) fn note_used_up(&self, caller: &Caller, spec: &Spec, fault: &Fault) {
        let detail = |name: &str| fault.details.get(name).and_then(Value::as_str);
        let (event, what) = match (detail("error"), detail("quota"), detail("bucket")) {
            (Some("rate_limit_exceeded"), Some(quota), _) => (Event::RateLimitExceeded, quota),
            // What stands behind the last colon is the sort of things that the bucket counts.
            (Some("rate_limit_exceeded"), None, Some(bucket)) => (
                Event::RateLimitExceeded,
                bucket.rsplit(':').next().unwrap_or(bucket),
            ),
            (None, Some(quota), _) => (Event::QuotaExceeded, quota),
            _ => return,
        };
        let limit = fault.details.get("limit").map(Value::to_string);
        self.record_used_up(caller, spec, event, what, limit.as_deref());
    }

    /// Records that a caller was given less than it asked for, because its tenant may hold no more leases.
    pub(crate) fn note_lack_of_room(&self, caller: &Caller, spec: &Spec) {
        let quota = QuotaName::ConcurrentLeases.as_str();
        self.record_used_up(caller, spec, Event::QuotaExceeded, quota, None);
    }

    fn record_used_up(
        &self,
        caller: &Caller,
        spec: &Spec,
        event: Event,
        what: &str,
        limit: Option<&str>,
    ) {
        let used_up = UsedUp {
            tenant: caller.tenant,
            event,
            what: what.to_owned(),
        };
        let (is_first, repeated) = self.used_up.count(self.now().as_millis(), used_up);
        for (of, times) in repeated {
            let times = times.to_string();
            let draft = self.draft_of(Some(of.tenant), of.event);
            // The request that is being answered now is not one of those.
            let draft = draft.from_request(None, None, None);
            self.audit(told(draft, &of.what, &[("repeated", &times)]));
        }
        if is_first {
            let mut details = vec![("operation", spec.name)];
            details.extend(limit.map(|limit| ("limit", limit)));
            self.audit(told(self.draft(caller, event), what, &details));
        }
    }
}

fn told(draft: Draft, what: &str, details: &[(&str, &str)]) -> Draft {
    let mut all = vec![("quota", what)];
    all.extend(details);
    draft.with(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used_up(tenant: u32) -> UsedUp {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&tenant.to_be_bytes());
        UsedUp {
            tenant: TenantId::from_bytes(bytes),
            event: Event::QuotaExceeded,
            what: "active_tasks".to_owned(),
        }
    }

    #[test]
    fn a_tenant_that_does_not_stop_leaves_two_entries_a_minute() {
        let counts = UsedUpQuotas::default();
        assert_eq!(counts.count(0, used_up(1)), (true, vec![]));
        for ms in 1..500 {
            assert_eq!(counts.count(ms, used_up(1)), (false, vec![]));
        }
        assert_eq!(counts.count(500, used_up(2)), (true, vec![]));
        let next = counts.count(61_000, used_up(1));
        assert_eq!(next, (true, vec![(used_up(1), 499)]));
    }

    #[test]
    fn many_tenants_take_bounded_memory() {
        let counts = UsedUpQuotas::default();
        let tenants = 0..3 * TOLD_APART as u32;
        let told = tenants.filter(|tenant| counts.count(0, used_up(*tenant)).0);
        assert_eq!(told.count(), TOLD_APART);
    }
}
