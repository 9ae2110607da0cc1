//! A bounded queue that is fair: a tenant that asks for much waits behind itself, and delays no other.
//!
//! Deficit round robin on two levels, tenants and then their lanes (a topic is a lane). Each in turn
//! may spend what it has saved up; a job may overdraw, and the debt is paid off in later rounds.
//!
//! Invariants: jobs of one lane leave in the order in which they came; nothing waits longer than one
//! round of the others' shares; no tenant fills the queue alone.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    time::Duration,
};

use asyncgate_core::TenantId;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The cost that a share of weight 1 may spend in a round.
const QUANTUM: i64 = 32;

/// The owner and the cost of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The tenant.
    pub tenant: TenantId,
    /// The lane within the tenant.
    pub lane: Lane,
    /// The amount of work, roughly in rows.
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
    /// Decisions about nonces, limits and revocations.
    Admission,
}

/// The shares of tenants and topics when there is more work than can be done. Whatever is not named
/// has weight 1.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Weights {
    /// The weights of tenants.
    pub tenants: HashMap<TenantId, u32>,
    /// The weights of topics by prefix of the name; the longest prefix that fits counts.
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

/// The reason why a job was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Too many jobs are waiting.
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
    /// The number of jobs that wait.
    len: usize,
    /// The number of jobs that wait, by tenant.
    held: HashMap<TenantId, usize>,
    weights: Weights,
    closed: bool,
}

impl<T> FairQueue<T> {
    /// Returns an empty queue that holds at most `capacity` jobs.
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

    /// Takes a job in. A tenant may fill three quarters of the queue; the rest is kept for others.
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
        // There is one thread that pops, and it sleeps only on an empty queue.
        if first {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Gives out at most `limit` jobs, waiting up to `patience` for the first. Returns nothing when the
    /// queue is closed and empty.
    pub fn pop(&self, limit: usize, patience: Duration) -> Option<Vec<T>> {
        let mut guard = self.lock();
        while guard.len == 0 && !guard.closed {
            let waited = self.filled.wait_timeout(guard, patience);
            let (after, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            guard = after;
            if waited.timed_out() {
                break;
            }
        }
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

    /// Closes the queue: it takes no more in, and jobs that wait can still be popped.
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

/// A source of jobs, each with its cost.
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

/// A tenant or a lane, which has a share of the work.
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

/// Sharers that take turns. Only those that have jobs stand in the ring.
#[derive(Debug)]
struct Round<K, S> {
    /// The savings, which may be a debt, and the jobs of each sharer.
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
    /// Returns the jobs of a sharer, which joins the ring if it had none.
    fn of(&mut self, key: K) -> &mut S {
        let ring = &mut self.ring;
        let (_, source) = self.shares.entry(key).or_insert_with_key(|key| {
            ring.push_back(key.clone());
            (0, S::default())
        });
        source
    }

    /// Takes the next job, and tells its sharer and its cost.
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
            // Whoever leaves the ring loses its savings and its debt: idle time is not saved up.
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
