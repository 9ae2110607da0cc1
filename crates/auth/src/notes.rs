//! What the audit log is told of credentials: each that was proved, and refusals, counted by client and minute.
//!
//! Invariants: no entry holds a credential or a part of one; the number of entries and the memory for counting are
//! bounded, whoever asks and from how many addresses.

use std::sync::{Mutex, PoisonError};

use asyncgate_core::TenantId;
use asyncgate_core::identity::audit::{Draft, Event};
use asyncgate_engine::{Caller, Client, Engine, Remote, RequestContext, Windows};

use crate::denied::Denied;

/// The most clients, each with the tenants whose credentials it showed, that are told apart in a minute.
const TOLD_APART: usize = 1_024;

/// A client, and the tenant whose credential it showed, if that is known.
type Refused = (Client, Option<TenantId>);

/// The refusals of the last minute.
#[derive(Default)]
pub(crate) struct Notes(Mutex<Windows<Refused>>);

impl Notes {
    /// Records that a credential was proved.
    pub(crate) fn succeeded(&self, engine: &Engine, request: &RequestContext<'_>, caller: &Caller) {
        let credential = &caller.credential;
        let id = credential.id.map(|id| id.to_string());
        let mut details = vec![("credential", credential.kind.as_str())];
        details.extend(id.as_deref().map(|id| ("credential_id", id)));
        let draft = engine.draft(caller, Event::AuthSuccess).with(&details);
        engine.audit(from(draft, request));
    }

    /// Records that somebody was refused. A client has one entry a minute, with the number of refusals before it that
    /// had none.
    pub(crate) fn failed(&self, engine: &Engine, request: &RequestContext<'_>, denied: &Denied) {
        let Some(cause) = denied.cause() else {
            return;
        };
        let draft = engine.draft_of(denied.tenant, Event::AuthFailure);
        let Some(untold) = self.count(draft.at.as_millis(), request.remote, denied.tenant) else {
            return;
        };
        let draft = match &denied.principal {
            Some(principal) => draft.by(principal),
            None => draft,
        };
        let count = untold.to_string();
        let draft = match untold {
            0 => draft,
            _ => draft.with(&[("more_since_the_last_entry", &count)]),
        };
        engine.audit(from(draft.because(cause), request));
    }

    /// Counts a refusal. Returns how many of the same client had no entry, if this one is to have one.
    fn count(&self, now_ms: i64, remote: Option<Remote>, tenant: Option<TenantId>) -> Option<u64> {
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = windows.take_over(now_ms);
        let key = (Client::from(remote), tenant);
        // Clients that are too many to be told apart are counted as one.
        let key = match windows.has_room(&key, TOLD_APART) {
            true => key,
            false => (Client::Other, None),
        };
        let window = windows.of(key, now_ms);
        window.count += 1;
        let before = over.iter().find(|(other, _)| *other == key);
        let untold = before.map_or(0, |(_, window)| window.count.saturating_sub(1));
        (window.count == 1).then_some(untold)
    }
}

fn from(draft: Draft, request: &RequestContext<'_>) -> Draft {
    let ip = request.remote.and_then(Remote::ip);
    let corr_id = request.corr_id.as_ref().map(|id| &*id.text);
    draft.from_request(ip, request.user_agent, corr_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(n: u8) -> Option<Remote> {
        Some(Remote::Network(([10, 0, 0, n], 9).into()))
    }

    #[test]
    fn a_client_has_one_entry_a_minute_for_each_tenant_and_is_told_how_many_there_were() {
        let notes = Notes::default();
        let tenant = Some(TenantId::from_bytes([7; 16]));
        assert_eq!(notes.count(0, remote(1), None), Some(0));
        for _ in 0..99 {
            assert_eq!(notes.count(1_000, remote(1), None), None);
        }
        assert_eq!(notes.count(1_000, remote(1), tenant), Some(0));
        assert_eq!(notes.count(1_000, remote(2), None), Some(0));
        assert_eq!(notes.count(60_000, remote(1), None), Some(99));
    }

    #[test]
    fn many_clients_have_few_entries() {
        let notes = Notes::default();
        let mut entries = 0;
        for n in 0..10_000_u32 {
            let address = std::net::Ipv4Addr::from(n);
            let remote = Some(Remote::Forwarded(address.into()));
            entries += u32::from(notes.count(0, remote, None).is_some());
        }
        assert_eq!(entries, 1_025);
    }
}
