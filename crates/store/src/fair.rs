//! A bounded queue that is fair: who asks for much waits behind itself, not in front of others.
//!
//! Deficit round robin on two levels, tenants and then their lanes (a topic is a lane). Each in turn
//! may spend what it has saved up; a job may overdraw, and the debt is paid off in later rounds.
//!
//! Invariants: jobs of one lane leave in the order in which they came; nothing waits longer than one
//! round of the others' shares; no tenant fills the queue alone.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use asyncgate_core::TenantId;

/// What a share of weight 1 may spend in a round.
const QUANTUM: i64 = 32;

/// Whose job it is, and what it costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The tenant.
    pub tenant: TenantId,
    /// The lane within the tenant.
    pub lane: Lane,
    /// How much work the job is, in rows or so.
    pub cost: u32,
}

/// A lane within a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Work on tasks.
    Tasks,
    /// Work on one topic's messages.
    Topic(String),
    /// Work on messages whose topic is not known beforehand.
    Messages,
}

/// How much of the work tenants and topics get when there is more than can be done. What is not
/// named has weight 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weights {
    /// By tenant.
    pub tenants: HashMap<TenantId, u32>,
    /// By prefix of the topic's name; the longest that fits counts.
    pub topics: Vec<(String, u32)>,
}

impl Weights {
    fn of_tenant(&self, tenant: TenantId) -> u32 {
        self.tenants.get(&tenant).copied().unwrap_or(1).max(1)
    }

    fn of_lane(&self, lane: &Lane) -> u32 {
        let Lane::Topic(topic) = lane else {
            return 1;
        };
        let fitting = self
            .topics
            .iter()
            .filter(|(prefix, _)| topic.starts_with(prefix.as_str()));
        let longest = fitting.max_by_key(|(prefix, _)| prefix.len());
        longest.map_or(1, |(_, weight)| (*weight).max(1))
    }
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many are waiting.
    Full,
    /// The queue was closed.
    Closed,
}

/// The queue.
#[derive(Debug)]
pub struct FairQueue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    capacity: usize,
}

#[derive(Debug)]
struct State<T> {
    tenants: Round<TenantId, Round<Lane, VecDeque<(u32, T)>>>,
    /// How many jobs wait, in all and by tenant.
    len: usize,
    held: HashMap<TenantId, usize>,
    weights: Weights,
    closed: bool,
}

impl<T> FairQueue<T> {
    /// A queue that holds at most `capacity` jobs.
    pub fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::new(State {
                tenants: Round::default(),
                len: 0,
                held: HashMap::new(),
                weights: Weights::default(),
                closed: false,
            }),
            filled: Condvar::new(),
            capacity: capacity.max(1),
        }
    }

    /// Puts other weights in force.
    pub fn set_weights(&self, weights: Weights) {
        self.lock().weights = weights;
    }

    /// Takes a job in. A quarter of the queue is kept for others than the tenant that fills it.
    pub fn push(&self, flow: Flow, job: T) -> Result<(), Refused> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closed {
            return Err(Refused::Closed);
        }
        let held = state.held.entry(flow.tenant).or_default();
        let share = self.capacity - self.capacity / 4;
        if state.len >= self.capacity || *held >= share {
            return Err(Refused::Full);
        }
        *held += 1;
        state.len += 1;
        let lanes = state.tenants.of(flow.tenant);
        lanes.of(flow.lane).push_back((flow.cost, job));
        let first = state.len == 1;
        drop(guard);
        if first {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Gives out at most `limit` jobs, waiting up to `patience` for the first. Absent when the queue
    /// is closed and empty.
    pub fn pop(&self, limit: usize, patience: Duration) -> Option<Vec<T>> {
        let idle = |state: &mut State<T>| state.len == 0 && !state.closed;
        let (mut guard, _) = self
            .filled
            .wait_timeout_while(self.lock(), patience, idle)
            .unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        if state.len == 0 && state.closed {
            return None;
        }
        let mut jobs = Vec::with_capacity(limit.min(state.len));
        while jobs.len() < limit {
            let Some((tenant, job)) = state.next() else {
                break;
            };
            state.len -= 1;
            if let Some(held) = state.held.get_mut(&tenant) {
                *held -= 1;
                if *held == 0 {
                    state.held.remove(&tenant);
                }
            }
            jobs.push(job);
        }
        Some(jobs)
    }

    /// Takes no more in. What waits can still be popped.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // No step leaves the state half-changed, so a poisoned lock is as good as any.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn next(&mut self) -> Option<(TenantId, T)> {
        let (tenant, (_, job)) = self.tenants.next(&self.weights)?;
        Some((tenant, job))
    }
}

/// Something that jobs can be taken from, each with its cost.
trait Source: Default {
    type Job;

    fn take(&mut self, weights: &Weights) -> Option<(u32, Self::Job)>;
    fn is_empty(&self) -> bool;
}

impl<T> Source for VecDeque<(u32, T)> {
    type Job = T;

    fn take(&mut self, _: &Weights) -> Option<(u32, T)> {
        self.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// Somebody who has a share.
trait Sharer: Clone + Eq + Hash {
    fn weight(&self, weights: &Weights) -> u32;
}

impl Sharer for TenantId {
    fn weight(&self, weights: &Weights) -> u32 {
        weights.of_tenant(*self)
    }
}

impl Sharer for Lane {
    fn weight(&self, weights: &Weights) -> u32 {
        weights.of_lane(self)
    }
}

/// Those who take turns: only who has jobs stands in the ring.
#[derive(Debug)]
struct Round<K, S> {
    shares: HashMap<K, (i64, S)>,
    ring: VecDeque<K>,
}

impl<K, S> Default for Round<K, S> {
    fn default() -> Self {
        Self {
            shares: HashMap::new(),
            ring: VecDeque::new(),
        }
    }
}

impl<K: Sharer, S: Source> Round<K, S> {
    /// The source of one of them, who joins the ring if it had no jobs.
    fn of(&mut self, key: K) -> &mut S {
        let ring = &mut self.ring;
        let (_, source) = self.shares.entry(key).or_insert_with_key(|key| {
            ring.push_back(key.clone());
            (0, S::default())
        });
        source
    }

    /// The next job, its cost and whose it is.
    fn next(&mut self, weights: &Weights) -> Option<(K, (u32, S::Job))> {
        loop {
            let key = self.ring.front()?.clone();
            let (saved, source) = self.shares.get_mut(&key)?;
            if *saved <= 0 {
                *saved += QUANTUM * i64::from(key.weight(weights));
                self.ring.rotate_left(1);
                continue;
            }
            let (cost, job) = source.take(weights)?;
            *saved -= i64::from(cost.max(1));
            if source.is_empty() {
                self.shares.remove(&key);
                self.ring.pop_front();
            }
            return Some((key, (cost, job)));
        }
    }
}

impl<K: Sharer, S: Source> Source for Round<K, S> {
    type Job = S::Job;

    fn take(&mut self, weights: &Weights) -> Option<(u32, S::Job)> {
        let (_, taken) = self.next(weights)?;
        Some(taken)
    }

    fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(number: u8) -> TenantId {
        TenantId::from_bytes([number; 16])
    }

    fn flow(number: u8, topic: &str, cost: u32) -> Flow {
        Flow {
            tenant: tenant(number),
            lane: Lane::Topic(topic.to_owned()),
            cost,
        }
    }

    fn all<T>(queue: &FairQueue<T>) -> Vec<T> {
        queue.pop(usize::MAX, Duration::ZERO).unwrap()
    }

    #[test]
    fn a_lane_keeps_its_order() {
        let queue = FairQueue::new(1_000);
        for n in 0..500 {
            queue.push(flow(1, "a", 1 + n % 7), n).unwrap();
        }
        assert_eq!(all(&queue), (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn a_hot_tenant_does_not_delay_another_beyond_its_share() {
        let queue = FairQueue::new(10_000);
        for n in 0..5_000 {
            queue.push(flow(1, "hot", 1), (1, n)).unwrap();
        }
        for n in 0..100 {
            queue.push(flow(2, "cold", 1), (2, n)).unwrap();
        }
        let order = all(&queue);
        let last = order.iter().rposition(|(tenant, _)| *tenant == 2).unwrap();
        // A hundred of its own, as many of the other, and one round.
        assert!(last <= 200 + 2 * QUANTUM as usize, "{last}");
    }

    #[test]
    fn what_costs_more_gets_fewer_turns() {
        let queue = FairQueue::new(10_000);
        for n in 0..200 {
            queue.push(flow(1, "batches", 100), (1, n)).unwrap();
            queue.push(flow(2, "singles", 1), (2, n)).unwrap();
        }
        let order = all(&queue);
        let last = order.iter().rposition(|(tenant, _)| *tenant == 2).unwrap();
        assert!(last < 200 + 10, "{last}");
    }

    #[test]
    fn weights_divide_what_there_is() {
        let queue = FairQueue::new(10_000);
        queue.set_weights(Weights {
            topics: vec![("gold".to_owned(), 1), ("gold:big".to_owned(), 4)],
            ..Weights::default()
        });
        for n in 0..2_000 {
            queue.push(flow(1, "gold:big:1", 1), ("big", n)).unwrap();
            queue.push(flow(1, "plain", 1), ("plain", n)).unwrap();
        }
        let first = queue.pop(1_000, Duration::ZERO).unwrap();
        let big = first.iter().filter(|(name, _)| *name == "big").count();
        assert!((760..=840).contains(&big), "{big}");
    }

    #[test]
    fn many_topics_do_not_make_a_tenant_larger() {
        let queue = FairQueue::new(10_000);
        for n in 0..2_000 {
            let topic = format!("t{}", n % 100);
            queue.push(flow(1, &topic, 1), 1).unwrap();
            queue.push(flow(2, "only", 1), 2).unwrap();
        }
        let first = queue.pop(1_000, Duration::ZERO).unwrap();
        let many = first.iter().filter(|tenant| **tenant == 1).count();
        assert!((450..=550).contains(&many), "{many}");
    }

    #[test]
    fn one_tenant_cannot_fill_the_queue() {
        let queue = FairQueue::new(100);
        let taken = (0..100).take_while(|_| queue.push(flow(1, "a", 1), ()).is_ok());
        assert_eq!(taken.count(), 75);
        for _ in 0..25 {
            queue.push(flow(2, "a", 1), ()).unwrap();
        }
        assert_eq!(queue.push(flow(3, "a", 1), ()), Err(Refused::Full));
        assert_eq!(all(&queue).len(), 100);
        queue.push(flow(1, "a", 1), ()).unwrap();
    }

    #[test]
    fn a_closed_queue_gives_out_what_it_has() {
        let queue = FairQueue::new(10);
        queue.push(flow(1, "a", 1), 7).unwrap();
        queue.close();
        assert_eq!(queue.push(flow(1, "a", 1), 8), Err(Refused::Closed));
        assert_eq!(queue.pop(9, Duration::from_secs(9)), Some(vec![7]));
        assert_eq!(queue.pop(9, Duration::from_secs(9)), None);
    }
}
