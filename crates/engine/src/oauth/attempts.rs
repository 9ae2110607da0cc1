//! Limits of what clients may try without a credential.

use std::sync::{Mutex, PoisonError};

use asyncgate_api::Code;
use asyncgate_core::{TenantId, Timestamp};

use crate::{Client, Fault, Remote, Windows};

/// The most wrong passwords of one client in a minute.
const MAX_PASSWORDS: u64 = 5;
/// The most registrations of one client in a minute.
const MAX_REGISTRATIONS: u64 = 10;
/// The most registrations of all clients together in a minute. Each writes a record that lives for a day.
const MAX_ALL_REGISTRATIONS: u64 = 120;
/// The most documents of clients that are fetched for one client in a minute.
const MAX_DOCUMENTS: u64 = 10;
/// The most documents that are fetched for all clients together in a minute.
const MAX_ALL_DOCUMENTS: u64 = 120;
/// The most clients that are counted apart.
const MAX_COUNTED: usize = 8_192;
/// The most clients whose refusals the logs tell apart in a minute.
const MAX_TOLD_APART: usize = 1_024;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Counted {
    /// The passwords that a client tried, the right ones left out.
    Passwords(Client),
    /// The registrations of a client.
    Registrations(Client),
    /// The registrations of all clients.
    AllRegistrations,
    /// The documents that were fetched for a client.
    Documents(Client),
    /// The documents that were fetched for all clients.
    AllDocuments,
}

/// The attempts of the last minute, by client.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    counted: Mutex<Windows<Counted>>,
    /// Refusals by client and tenant.
    refused: Mutex<Windows<(Client, Option<TenantId>)>>,
}

impl Attempts {
    /// Counts a password that is tried, and refuses it if its client tried too many.
    pub(super) fn count_password(&self, now: Timestamp) -> Result<(), Fault> {
        let client = Client::from(Remote::current());
        self.count(now, Counted::Passwords(client), MAX_PASSWORDS)
            .map_err(|wait| too_many("too many wrong passwords came from this address", wait))
    }

    /// Forgets the wrong passwords of a client that has shown a right one.
    pub(super) fn forgive(&self) {
        let client = Client::from(Remote::current());
        let mut windows = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        windows.forget(&Counted::Passwords(client));
    }

    /// Counts a registration, and refuses it if there were too many.
    pub(super) fn count_registration(&self, now: Timestamp) -> Result<(), Fault> {
        let client = Client::from(Remote::current());
        let refused = |wait| too_many("too many clients were registered", wait);
        self.count(now, Counted::Registrations(client), MAX_REGISTRATIONS)
            .map_err(refused)?;
        self.count(now, Counted::AllRegistrations, MAX_ALL_REGISTRATIONS)
            .map_err(refused)
    }

    /// Counts that a document is fetched, and refuses that if there were too many.
    pub(super) fn count_document(&self, now: Timestamp) -> Result<(), Fault> {
        let client = Client::from(Remote::current());
        let refused = |wait| too_many("too many documents of clients were asked for", wait);
        self.count(now, Counted::Documents(client), MAX_DOCUMENTS)
            .map_err(refused)?;
        self.count(now, Counted::AllDocuments, MAX_ALL_DOCUMENTS)
            .map_err(refused)
    }

    /// Counts a refusal. Returns how many of the same client had no entry in a log, if this one is to have one.
    pub(super) fn untold_refusals(&self, now: Timestamp, tenant: Option<TenantId>) -> Option<u64> {
        let now_ms = now.as_millis();
        let mut windows = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let over = windows.take_over(now_ms);
        let key = (Client::from(Remote::current()), tenant);
        // Clients that are too many to be told apart are counted as one.
        let key = match windows.has_room(&key, MAX_TOLD_APART) {
            true => key,
            false => (Client::Other, None),
        };
        let window = windows.of(key, now_ms);
        window.count += 1;
        let before = over.iter().find(|(other, _)| *other == key);
        let untold = before.map_or(0, |(_, window)| window.count.saturating_sub(1));
        (window.count == 1).then_some(untold)
    }

    /// Counts an attempt. The error is the wait in seconds.
    fn count(&self, now: Timestamp, key: Counted, max: u64) -> Result<(), u32> {
        let now_ms = now.as_millis();
        let mut windows = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        windows.take_over(now_ms);
        if !windows.has_room(&key, MAX_COUNTED) {
            return Err(1);
        }
        let window = windows.of(key, now_ms);
        if window.count >= max {
            return Err(window.left_secs(now_ms));
        }
        window.count += 1;
        Ok(())
    }
}

fn too_many(what: &'static str, wait: u32) -> Fault {
    let message = format!("{what}; try again later");
    Fault::new(Code::RateLimit, message).retry_after(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1_000)
    }

    async fn from(address: [u8; 4], work: impl FnOnce() -> Result<(), Fault>) -> bool {
        let remote = Remote::Network((address, 1).into());
        remote.scope(async { work().is_ok() }).await
    }

    #[tokio::test]
    async fn a_client_has_few_wrong_passwords_a_minute_and_others_have_their_own() {
        let attempts = Attempts::default();
        let (one, two) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        for _ in 0..MAX_PASSWORDS {
            assert!(from(one, || attempts.count_password(at(0))).await);
        }
        let fault = attempts.count_password(at(0));
        assert!(fault.is_ok(), "nobody has tried from nowhere");
        assert!(!from(one, || attempts.count_password(at(59))).await);
        assert!(from(two, || attempts.count_password(at(59))).await);
        assert!(from(one, || attempts.count_password(at(60))).await);
    }

    #[tokio::test]
    async fn a_right_password_makes_up_for_wrong_ones() {
        let attempts = Attempts::default();
        let one = [10, 0, 0, 1];
        for _ in 0..3 * MAX_PASSWORDS {
            assert!(from(one, || attempts.count_password(at(0))).await);
            let forgiven = from(one, || {
                attempts.forgive();
                Ok(())
            });
            assert!(forgiven.await);
        }
    }

    #[tokio::test]
    async fn registrations_are_few_for_a_client_and_bounded_for_all() {
        let attempts = Attempts::default();
        let mut registered = 0;
        for n in 0..30 {
            for _ in 0..2 * MAX_REGISTRATIONS {
                let count = || attempts.count_registration(at(0));
                registered += u64::from(from([10, 0, 0, n], count).await);
            }
            assert!(registered <= MAX_REGISTRATIONS * (u64::from(n) + 1));
        }
        assert_eq!(registered, MAX_ALL_REGISTRATIONS);
        let count = || attempts.count_registration(at(61));
        assert!(from([10, 0, 0, 1], count).await);
    }

    #[tokio::test]
    async fn a_client_has_one_entry_a_minute_with_its_count() {
        let attempts = Attempts::default();
        let tenant = Some(TenantId::from_bytes([7; 16]));
        assert_eq!(attempts.untold_refusals(at(0), None), Some(0));
        for _ in 0..99 {
            assert_eq!(attempts.untold_refusals(at(1), None), None);
        }
        assert_eq!(attempts.untold_refusals(at(1), tenant), Some(0));
        let other = Remote::Network(([10, 0, 0, 1], 1).into());
        let told = other.scope(async { attempts.untold_refusals(at(1), None) });
        assert_eq!(told.await, Some(0));
        assert_eq!(attempts.untold_refusals(at(60), None), Some(99));
    }

    #[test]
    fn many_clients_take_bounded_memory() {
        let attempts = Attempts::default();
        for n in 0..20_000_u32 {
            let client = Client::Network(std::net::Ipv4Addr::from(n).into());
            let counted = attempts.count(at(0), Counted::Passwords(client), 5);
            assert_eq!(counted.is_ok(), (n as usize) < MAX_COUNTED, "{n}");
        }
    }
}
