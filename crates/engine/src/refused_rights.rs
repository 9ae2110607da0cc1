//! Audit entries about callers that were refused for lack of rights, and about what is done so often that an entry
//! for each time would drown the rest.
//!
//! Invariant: a caller leaves one entry for each operation and minute, and one more that says how often it was
//! repeated; neither memory nor the log grows with a caller that does not stop.

use std::sync::{Mutex, PoisonError};

use asyncgate_api::{Code, Spec};
use asyncgate_core::{
    PrincipalKey, TenantId,
    identity::audit::{Draft, Event, Severity},
};
use serde_json::Value;

use crate::{Caller, Engine, Fault, Windows};

/// The most callers, each with its operations, that are told apart in a minute.
const TOLD_APART: usize = 4_096;

/// The details of a refusal that its entry repeats.
const TOLD: [&str; 3] = ["required_role", "required_scope", "caveat"];

/// Something that a caller does, perhaps often.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Deed {
    tenant: TenantId,
    principal: PrincipalKey,
    operation: &'static str,
    event: Event,
    is_alarm: bool,
}

/// What callers did in the last minute.
#[derive(Debug, Default)]
pub(crate) struct Deeds(Mutex<Windows<Deed>>);

impl Deeds {
    /// Counts a deed. Returns true if it is the first of its minute, and the deeds whose minute is over with how
    /// often each was repeated.
    fn count(&self, now_ms: i64, deed: Deed) -> (bool, Vec<(Deed, u64)>) {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = windows.take_over(now_ms);
        let is_first = windows.has_room(&deed, TOLD_APART) && {
            let window = windows.of(deed, now_ms);
            window.count += 1;
            window.count == 1
        };
        drop(windows);
        let repeated = over.into_iter().map(|(deed, it)| (deed, it.count - 1));
        (is_first, repeated.filter(|(_, times)| *times > 0).collect())
    }
}

impl Engine {
    /// Records that a caller was refused for lack of rights.
    pub(crate) fn note_refused(&self, caller: &Caller, spec: &Spec, fault: &Fault) {
        if !matches!(fault.code, Code::Forbidden | Code::ECapScope) {
            return;
        }
        let (event, is_alarm) = (Event::AuthzFailure, fault.is_alarm);
        if !self.is_first(caller, spec, event, is_alarm) {
            return;
        }
        let told = TOLD.iter().filter_map(|name| {
            let value = fault.details.get(*name).and_then(Value::as_str);
            value.map(|value| (*name, value))
        });
        let tenant = caller.tenant.to_string();
        let mut details: Vec<(&str, &str)> = vec![
            ("operation", spec.name),
            ("role", caller.role.as_str()),
            ("credential", caller.credential.kind.as_str()),
        ];
        details.extend(told);
        let entry = |draft: Draft, details: &[(&str, &str)]| {
            let severity = match is_alarm {
                true => Severity::Critical,
                false => event.severity(),
            };
            draft
                .of_severity(severity)
                .because(&fault.message)
                .with(details)
        };
        self.audit(entry(self.draft(caller, event), &details));
        if is_alarm {
            // Whoever runs the server must see it too, since it concerns more than one tenant.
            details.push(("tenant_id", &tenant));
            let draft = self.draft_of(None, event).by(&caller.principal.key());
            self.audit(entry(draft, &details));
        }
    }

    /// Records that a caller took many things of its tenant out of the server.
    pub(crate) fn note_exported(&self, caller: &Caller, spec: &Spec) {
        let event = Event::DataExported;
        if self.is_first(caller, spec, event, false) {
            let draft = self.draft(caller, event);
            self.audit(draft.with(&[("operation", spec.name)]));
        }
    }

    /// Returns true if a caller does something for the first time in a minute. What it and others repeated in minutes
    /// that are over is recorded.
    fn is_first(&self, caller: &Caller, spec: &Spec, event: Event, is_alarm: bool) -> bool {
        let deed = Deed {
            tenant: caller.tenant,
            principal: caller.principal.key(),
            operation: spec.name,
            event,
            is_alarm,
        };
        let (is_first, repeated) = self.deeds.count(self.now().as_millis(), deed);
        for (deed, times) in repeated {
            let times = times.to_string();
            let draft = self.draft_of(Some(deed.tenant), deed.event);
            // The request that is being answered now is not one of those.
            let draft = draft.from_request(None, None, None).by(&deed.principal);
            let details = [("operation", deed.operation), ("repeated", times.as_str())];
            self.audit(draft.with(&details));
        }
        is_first
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_core::PrincipalKind;

    use super::*;

    fn deed(principal: u32) -> Deed {
        Deed {
            tenant: TenantId::from_bytes([7; 16]),
            principal: PrincipalKey {
                kind: PrincipalKind::Agent,
                id: principal.to_string().into(),
            },
            operation: "create_key",
            event: Event::AuthzFailure,
            is_alarm: false,
        }
    }

    #[test]
    fn a_caller_that_does_not_stop_leaves_two_entries_a_minute() {
        let deeds = Deeds::default();
        assert_eq!(deeds.count(0, deed(1)), (true, vec![]));
        for ms in 1..500 {
            assert_eq!(deeds.count(ms, deed(1)), (false, vec![]));
        }
        assert_eq!(deeds.count(500, deed(2)), (true, vec![]));
        let next = deeds.count(61_000, deed(1));
        assert_eq!(next, (true, vec![(deed(1), 499)]));
    }

    #[test]
    fn many_callers_take_bounded_memory() {
        let deeds = Deeds::default();
        let callers = 0..3 * TOLD_APART as u32;
        let told = callers.filter(|caller| deeds.count(0, deed(*caller)).0);
        assert_eq!(told.count(), TOLD_APART);
    }
}
