//! The memory for bodies and answers under way.
//!
//! A body that is still coming and an answer that is not read yet hold memory for as long as a client likes. All of
//! them share one budget. It is divided by who holds it: a tenant, or the address of a client that is not known yet.
//!
//! Invariant: no number of holders fills the budget so that the next finds nothing. Each may hold a multiple of what
//! is free, so the share of each shrinks as there are more of them.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::TenantId;

/// A holder may have so many times what is free. One alone gets three quarters of the budget.
const SHARE_OF_FREE: usize = 3;
/// Bodies and answers up to this size are not counted: what a connection costs by itself is more.
const FREE_BYTES: usize = 1_024;

/// The one for whom memory is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A caller of this tenant.
    Tenant(TenantId),
    /// A client whose credential was not looked at yet, by its address; absent on a local socket.
    Client(Option<IpAddr>),
}

/// The budget. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    limit: usize,
    taken: usize,
    taken_by: HashMap<Holder, usize>,
}

impl Budget {
    /// Returns a budget of so many bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            limit,
            taken: 0,
            taken_by: HashMap::new(),
        })))
    }

    /// Puts another limit in force. What is held already stays.
    pub fn set_limit(&self, limit: usize) {
        self.lock().limit = limit;
    }

    /// Returns the bytes that are held.
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Takes memory for a holder, or returns nothing if its share is used up.
    pub fn take(&self, holder: Holder, bytes: usize) -> Option<Grant> {
        let mut grant = Grant {
            budget: self.clone(),
            holder,
            bytes: 0,
        };
        grant.grow(bytes).then_some(grant)
    }

    /// Takes memory that is in use already, whatever the share.
    pub fn take_always(&self, holder: Holder, bytes: usize) -> Grant {
        let bytes = counted(bytes);
        self.lock().add(holder, bytes);
        Grant {
            budget: self.clone(),
            holder,
            bytes,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No step leaves the state half-changed, so a poisoned lock is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const fn counted(bytes: usize) -> usize {
    if bytes > FREE_BYTES { bytes } else { 0 }
}

impl State {
    fn admits(&self, holder: Holder, more: usize) -> bool {
        let free = self.limit.saturating_sub(self.taken);
        let held = self.taken_by.get(&holder).copied().unwrap_or(0);
        // A holder of nothing may have one thing as long as there is room for it.
        more <= free && (held == 0 || held < free.saturating_mul(SHARE_OF_FREE))
    }

    fn add(&mut self, holder: Holder, bytes: usize) {
        if bytes > 0 {
            self.taken = self.taken.saturating_add(bytes);
            *self.taken_by.entry(holder).or_default() += bytes;
        }
    }

    fn remove(&mut self, holder: Holder, bytes: usize) {
        self.taken = self.taken.saturating_sub(bytes);
        if let Some(held) = self.taken_by.get_mut(&holder) {
            *held = held.saturating_sub(bytes);
            if *held == 0 {
                self.taken_by.remove(&holder);
            }
        }
    }
}

/// Memory that a holder was given. It is given back when this is dropped.
#[derive(Debug)]
pub struct Grant {
    budget: Budget,
    holder: Holder,
    bytes: usize,
}

impl Grant {
    /// Makes the grant cover `bytes`. Returns false, and changes nothing, if the holder's share is used up.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let more = counted(bytes).saturating_sub(self.bytes);
        if more > 0 {
            let mut state = self.budget.lock();
            if !state.admits(self.holder, more) {
                return false;
            }
            state.add(self.holder, more);
            self.bytes += more;
        }
        true
    }

    /// Returns true if it covers nothing.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.lock().remove(self.holder, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(n: u8) -> Holder {
        Holder::Tenant(TenantId::from_bytes([n; 16]))
    }

    /// Takes pieces until one is refused, and returns them.
    fn fill(budget: &Budget, holder: Holder, piece: usize) -> Vec<Grant> {
        std::iter::from_fn(|| budget.take(holder, piece)).collect()
    }

    #[test]
    fn the_share_of_each_shrinks_with_their_number_and_room_stays_for_the_next() {
        let budget = Budget::new(1_000_000);
        let first = fill(&budget, holder(1), 10_000);
        assert_eq!(first.len(), 75);
        let second = fill(&budget, holder(2), 10_000);
        assert_eq!(second.len(), 19);
        assert!(budget.take(holder(1), 10_000).is_none());
        assert!(budget.take(holder(3), 10_000).is_some());
        drop(first);
        assert!(budget.take(holder(2), 10_000).is_some());
        drop(second);
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn what_is_larger_than_the_budget_is_refused_and_small_things_are_free() {
        let budget = Budget::new(100_000);
        assert!(budget.take(holder(1), 100_001).is_none());
        let small: Vec<_> = (0..1_000).map(|_| budget.take(holder(1), 1_000)).collect();
        assert!(small.iter().all(Option::is_some));
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn a_grant_grows_until_the_share_is_used_up_and_gives_all_back() {
        let budget = Budget::new(100_000);
        let mut grant = budget.take(holder(1), 10_000).unwrap();
        assert!(grant.grow(50_000));
        assert!(grant.grow(20_000), "it never shrinks");
        assert_eq!(budget.taken(), 50_000);
        assert!(!grant.grow(200_000));
        drop(budget.take_always(holder(1), 200_000));
        drop(grant);
        assert_eq!(budget.taken(), 0);
    }
}
