//! Who may come in: what was committed about tenants and credentials, and what this instance may still believe.
//!
//! A change that was made on this instance counts at once. One that was made elsewhere counts when the instance has
//! read the record again, [`TRUSTED_MS`] later at the latest; until then it may go by what stood before, but never by
//! something older than it has gone by already. Whoever knows of an expiry keeps it to the millisecond.

use asyncgate_api::Code;
use asyncgate_core::{
    RecordId, Timestamp,
    identity::{self, Record},
};
use asyncgate_engine::Fault;

use crate::{
    cast::{TENANTS, number_of},
    deed::Place,
    hash::Map,
    violation::{Checked, broken},
};

/// The time for which an instance may go by what it has read.
pub(super) const TRUSTED_MS: i64 = 30_000;

/// The outcome of showing a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// The bearer is let in.
    LetIn,
    /// The credential is not valid, or not any more.
    NotValid,
    /// The tenant is suspended.
    Suspended,
}

impl Reception {
    /// Returns what the answer to a call tells of its credential. No operation answers with these codes.
    pub fn of<T>(result: Result<T, &Fault>) -> Self {
        match result.map_err(|fault| fault.code) {
            Err(Code::Unauthorized) => Self::NotValid,
            Err(Code::TenantSuspended) => Self::Suspended,
            Ok(_) | Err(_) => Self::LetIn,
        }
    }
}

/// The tenants and credentials that were committed.
#[derive(Debug, Default)]
pub struct Credentials {
    /// Whether each tenant is suspended.
    suspended: [Versions<bool>; TENANTS],
    keys: Map<RecordId, Key>,
}

#[derive(Debug)]
struct Key {
    tenant: usize,
    life: Versions<Life>,
}

/// The times that decide if a credential is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Life {
    expires_at: Option<Timestamp>,
    revoked: bool,
}

impl Life {
    fn receives(self, suspended: bool, now: Timestamp) -> Reception {
        // Whoever has no good credential is not told how its tenant stands.
        if self.revoked || self.expires_at.is_some_and(|end| now >= end) {
            Reception::NotValid
        } else if suspended {
            Reception::Suspended
        } else {
            Reception::LetIn
        }
    }
}

impl Credentials {
    /// Learns what was committed.
    pub fn learn(&mut self, changes: &identity::Changes, place: Place, now: Timestamp) {
        for record in &changes.put {
            if let Record::Tenant(tenant) = record
                && let Some(number) = number_of(tenant.id)
            {
                self.suspended[number].put(tenant.suspended_at.is_some(), place, now);
            }
            if let Record::ApiKey(key) = record
                && let Some(tenant) = number_of(key.tenant)
            {
                let life = Life {
                    expires_at: key.expires_at,
                    revoked: key.revoked_at.is_some(),
                };
                let known = self.keys.entry(key.id).or_insert_with(|| Key {
                    tenant,
                    life: Versions::new(life),
                });
                known.life.put(life, place, now);
            }
        }
    }

    /// Notes that the process started anew: it believes nothing that it has not read since.
    pub fn restart(&mut self) {
        let keys = self.keys.values_mut();
        keys.for_each(|key| key.life.before.clear());
        self.suspended
            .iter_mut()
            .for_each(|tenant| tenant.before.clear());
    }

    /// Checks the outcome of showing a credential, and learns from it what the instance knows.
    pub fn check(&mut self, id: RecordId, now: Timestamp, seen: Reception) -> Checked {
        let told = || format!("{id} at {now}: {seen:?}");
        let Some(key) = self.keys.get_mut(&id) else {
            return broken("nobody has this credential", told());
        };
        let suspended = &mut self.suspended[key.tenant];
        let fits = |life: Life, suspended| life.receives(suspended, now) == seen;
        let by_life = |life: Life| suspended.at(now).any(|suspended| fits(life, suspended));
        if !key.life.at(now).any(by_life) {
            let rule = key.rule(suspended.now, now, seen);
            return broken(rule, told());
        }
        let lives: Vec<Life> = key.life.at(now).collect();
        key.life.saw(now, |life| {
            suspended.at(now).any(|suspended| fits(life, suspended))
        });
        suspended.saw(now, |suspended| {
            lives.iter().any(|life| fits(*life, suspended))
        });
        Ok(())
    }

    /// Returns true if nobody may be let in by a credential, whatever the instance still believes.
    pub fn is_over(&self, id: RecordId, now: Timestamp) -> bool {
        let Some(key) = self.keys.get(&id) else {
            return true;
        };
        let suspended = &self.suspended[key.tenant];
        let lets_in = |life: Life| {
            let mut tenants = suspended.at(now);
            tenants.any(|suspended| life.receives(suspended, now) == Reception::LetIn)
        };
        !key.life.at(now).any(lets_in)
    }

    /// Returns the next time at which a credential expires, or at which the instance must have learnt of a change.
    pub fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        let keys = self.keys.values();
        let of_keys = keys.flat_map(|key| {
            let learnt = key.life.before.iter().map(|(_, until)| *until);
            learnt.chain(key.life.now.expires_at)
        });
        let tenants = self.suspended.iter().flat_map(|tenant| &tenant.before);
        let of_tenants = tenants.map(|(_, until)| *until);
        of_keys.chain(of_tenants).filter(|end| *end > now).min()
    }
}

impl Key {
    /// Returns the rule that an outcome breaks.
    fn rule(&self, suspended: bool, now: Timestamp, seen: Reception) -> &'static str {
        let life = self.life.now;
        match (seen, life.receives(suspended, now)) {
            // Who learns that the tenant is suspended has passed as the bearer of a good credential.
            (Reception::LetIn | Reception::Suspended, Reception::NotValid) => match life.revoked {
                true => "a revoked credential is refused",
                false => "expiry is exact",
            },
            (Reception::LetIn, Reception::LetIn | Reception::Suspended) => {
                "a suspended tenant is shut out"
            }
            (Reception::NotValid | Reception::Suspended, Reception::LetIn)
            | (Reception::NotValid, Reception::Suspended) => "a good credential is let in",
            (Reception::NotValid, Reception::NotValid)
            | (Reception::Suspended, Reception::Suspended) => "refused for what is wrong",
        }
    }
}

/// A value, and what it was before as long as somebody may still go by that.
#[derive(Debug, Default)]
struct Versions<T> {
    now: T,
    /// The former values, the oldest first, each with the first moment at which nobody goes by it any more.
    before: Vec<(T, Timestamp)>,
}

impl<T: Copy + PartialEq> Versions<T> {
    const fn new(now: T) -> Self {
        Self {
            now,
            before: Vec::new(),
        }
    }

    fn put(&mut self, next: T, place: Place, at: Timestamp) {
        match place {
            Place::Here => self.before.clear(),
            Place::Elsewhere if next == self.now => {}
            Place::Elsewhere => self.before.push((self.now, at.plus_millis(TRUSTED_MS))),
        }
        self.now = next;
    }

    /// Returns the values that somebody may go by.
    fn at(&self, now: Timestamp) -> impl Iterator<Item = T> + '_ {
        let before = self.before.iter().filter(move |(_, until)| now < *until);
        before.map(|(value, _)| *value).chain([self.now])
    }

    /// Learns that somebody goes by a value that `fits`, and thus not by older ones that do not.
    fn saw(&mut self, now: Timestamp, fits: impl Fn(T) -> bool) {
        let gone_by = |(value, until): &(T, Timestamp)| now < *until && fits(*value);
        let oldest = self.before.iter().position(gone_by);
        self.before.drain(..oldest.unwrap_or(self.before.len()));
    }
}
