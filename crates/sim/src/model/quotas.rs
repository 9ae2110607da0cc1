//! The quotas of a tenant: those that count, and those that this instance may still count with.
//!
//! A call reads its tenant when it begins, unless that was read lately, and a decision takes what was read last. So a
//! call counts with the quotas that it began with, or with any that came since.

use asyncgate_core::{Timestamp, identity::Quotas};

use super::credentials::TRUSTED_MS;
use crate::deed::Place;

/// All quotas that a tenant has had, the oldest first.
#[derive(Debug)]
pub struct Eras {
    all: Vec<Quotas>,
    /// The end of the time for which this instance may count with those before, for each but the first.
    unsure_until: Vec<Timestamp>,
    /// The quotas that stood when the process started.
    first: usize,
}

impl Eras {
    /// Begins with some quotas.
    pub fn new(quotas: Quotas) -> Self {
        Self {
            all: vec![quotas],
            unsure_until: Vec::new(),
            first: 0,
        }
    }

    /// Learns of other quotas.
    pub fn put(&mut self, quotas: Quotas, place: Place, now: Timestamp) {
        if self.all.last() == Some(&quotas) {
            return;
        }
        self.all.push(quotas);
        self.unsure_until.push(match place {
            Place::Here => now,
            Place::Elsewhere => now.plus_millis(TRUSTED_MS),
        });
    }

    /// Notes that the process started anew.
    pub fn restart(&mut self) {
        self.first = self.all.len() - 1;
    }

    /// Returns the place of the oldest quotas that a call may count with that begins now.
    pub fn oldest(&self, now: Timestamp) -> usize {
        let sure = self.unsure_until.iter().rposition(|until| *until <= now);
        sure.map_or(0, |n| n + 1).max(self.first)
    }

    /// Returns the quotas that stand.
    pub fn newest(&self) -> &Quotas {
        &self.all[self.all.len() - 1]
    }

    /// Returns the quotas that stand, and the older ones that a call may count with that began at a place.
    pub fn split(&self, oldest: usize) -> (&Quotas, &[Quotas]) {
        let older = &self.all[..self.all.len() - 1];
        (self.newest(), older.get(oldest..).unwrap_or_default())
    }

    /// Returns the quotas that a call may count with that began at a place.
    pub fn since(&self, oldest: usize) -> &[Quotas] {
        &self.all[oldest.min(self.all.len() - 1)..]
    }
}
