//! The memory for bodies and answers under way.
//!
//! A body that is still coming and an answer that is not read yet hold memory for as long as a client likes. All of
//! them share one budget. It is divided by who holds it, a tenant or the address of a stranger, and then by connection.
//! Strangers, who have shown no credential that was checked, share a small part of it.
//!
//! Invariant: no number of holders fills the budget so that the next finds nothing. Each may hold a multiple of what
//! is free, so the share of each shrinks as there are more of them; and so do the shares of its connections.

use std::{
    hash::Hash,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::TenantId;
use foldhash::HashMap;

use crate::Remote;

/// A holder may have so many times what is free. One alone gets three quarters of the budget.
const SHARE_OF_FREE: usize = 3;
/// The part of the budget that strangers share.
const STRANGERS_PART: usize = 16;
/// Bodies and answers up to this size are not counted: what a connection costs by itself is more.
const FREE_BYTES: usize = 1_024;

/// The one for whom memory is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder {
    owner: Owner,
    /// The connection that the memory is held on, where it is known.
    connection: Option<Remote>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    /// A caller of this tenant.
    Tenant(TenantId),
    /// A client whose credential was not looked at yet, by its address; absent on a local socket.
    Stranger(Option<IpAddr>),
}

impl Holder {
    /// Returns a caller of this tenant, on the connection of the current request.
    pub fn tenant(tenant: TenantId) -> Self {
        Self {
            owner: Owner::Tenant(tenant),
            connection: Remote::current(),
        }
    }

    /// Returns the client of the current request, whose credential was not looked at.
    pub fn stranger() -> Self {
        let connection = Remote::current();
        Self {
            owner: Owner::Stranger(connection.and_then(Remote::ip)),
            connection,
        }
    }

    const fn is_stranger(self) -> bool {
        matches!(self.owner, Owner::Stranger(_))
    }
}

/// The budget. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    limit: usize,
    taken: usize,
    taken_by_strangers: usize,
    taken_by: HashMap<Owner, usize>,
    taken_on: HashMap<Holder, usize>,
}

impl Budget {
    /// Returns a budget of so many bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            limit,
            taken: 0,
            taken_by_strangers: 0,
            taken_by: HashMap::default(),
            taken_on: HashMap::default(),
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
        if bytes > 0 {
            self.lock().add(holder, bytes);
        }
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
        let free = self.free(holder);
        let share = free.saturating_mul(SHARE_OF_FREE);
        let held = held(&self.taken_by, &holder.owner);
        // The same rule divides what an owner may still hold among its connections.
        let share_on = share.saturating_sub(held).saturating_mul(SHARE_OF_FREE);
        let held_on = held_on_connection(&self.taken_on, holder);
        // A holder of nothing may have one thing as long as there is room for it.
        let fits = |held, share| held == 0 || held < share;
        more <= free && fits(held, share) && fits(held_on, share_on)
    }

    /// Returns what is free for holders of this kind.
    fn free(&self, holder: Holder) -> usize {
        let free = self.limit.saturating_sub(self.taken);
        if holder.is_stranger() {
            let part = self.limit / STRANGERS_PART;
            free.min(part.saturating_sub(self.taken_by_strangers))
        } else {
            free
        }
    }

    fn add(&mut self, holder: Holder, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes);
        if holder.is_stranger() {
            self.taken_by_strangers = self.taken_by_strangers.saturating_add(bytes);
        }
        *self.taken_by.entry(holder.owner).or_default() += bytes;
        *self.taken_on.entry(holder).or_default() += bytes;
    }

    fn remove(&mut self, holder: Holder, bytes: usize) {
        self.taken = self.taken.saturating_sub(bytes);
        if holder.is_stranger() {
            self.taken_by_strangers = self.taken_by_strangers.saturating_sub(bytes);
        }
        lessen(&mut self.taken_by, holder.owner, bytes);
        lessen(&mut self.taken_on, holder, bytes);
    }
}

fn held<K: Eq + Hash>(by: &HashMap<K, usize>, key: &K) -> usize {
    by.get(key).copied().unwrap_or(0)
}

/// Returns what is held on a holder's connection; nothing if that is not known, so that its owner's share alone counts.
fn held_on_connection(on: &HashMap<Holder, usize>, holder: Holder) -> usize {
    holder.connection.map_or(0, |_| held(on, &holder))
}

fn lessen<K: Eq + Hash>(by: &mut HashMap<K, usize>, key: K, bytes: usize) {
    if let Some(held) = by.get_mut(&key) {
        *held = held.saturating_sub(bytes);
        if *held == 0 {
            by.remove(&key);
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
        Holder::tenant(TenantId::from_bytes([n; 16]))
    }

    /// The connection with this port of the address with this last number.
    fn on(address: u8, port: u16, owner: impl Fn(IpAddr) -> Owner) -> Holder {
        let ip = IpAddr::from([192, 0, 2, address]);
        Holder {
            owner: owner(ip),
            connection: Some(Remote::Network((ip, port).into())),
        }
    }

    fn stranger(address: u8, port: u16) -> Holder {
        on(address, port, |ip| Owner::Stranger(Some(ip)))
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
    fn strangers_share_a_small_part_and_take_nothing_from_others() {
        let budget = Budget::new(16_000_000);
        let crowd = |address: u8| {
            let ports = (0..20).map(move |port| stranger(address, port));
            ports.flat_map(|holder| fill(&budget, holder, 10_000))
        };
        let mut held: Vec<_> = crowd(0).collect();
        assert!(budget.taken() < 800_000, "{}", budget.taken());
        assert!(budget.take(stranger(1, 1), 100_000).is_some());
        held.extend((1..50).flat_map(crowd));
        assert!(budget.taken() > 900_000, "{}", budget.taken());
        assert!(budget.taken() <= 1_000_000, "{}", budget.taken());
        assert!(budget.take(holder(1), 10_000_000).is_some());
        held.clear();
        let state = budget.lock();
        assert_eq!((state.taken, state.taken_by_strangers), (0, 0));
        assert!(state.taken_by.is_empty() && state.taken_on.is_empty());
    }

    #[test]
    fn one_connection_leaves_room_for_the_others_of_its_tenant() {
        let tenant = |_| Owner::Tenant(TenantId::from_bytes([1; 16]));
        let budget = Budget::new(1_000_000);
        let greedy = fill(&budget, on(1, 1, tenant), 5_000);
        assert!((130..145).contains(&greedy.len()), "{}", greedy.len());
        for port in 2..6 {
            let next = budget.take(on(1, port, tenant), 5_000);
            assert!(next.is_some(), "{port}");
        }
        assert!(budget.take(on(1, 1, tenant), 5_000).is_none());
        assert!(budget.take(holder(2), 5_000).is_some());
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
