//! A bounded queue that is fair: a tenant that asks for much waits behind itself, and delays no other.
//!
//! Deficit round robin on two levels, tenants and then their lanes (a topic is a lane). Each in turn
//! may spend what it has saved up; a job may overdraw, and the debt is paid off in later rounds. A job is
//! charged by an estimate when its turn comes, and by what it really took once it has run.
//!
//! Invariants: jobs of one lane leave in the order in which they came; nothing waits longer than one
//! round of the others' shares; a tenant cannot leave a debt behind by pausing while others wait; no
//! number of tenants fills the queue so that the next finds no room.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    hash::Hash,
    time::Duration,
};

use asyncgate_core::TenantId;

use crate::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The cost that a share of weight 1 may spend in a round.
const QUANTUM: i64 = 32;
/// The time that costs one. It is about the work of a row.
const COST_TIME: Duration = Duration::from_micros(10);
/// A tenant may hold so many times what is free. One tenant alone gets three quarters of the room, two get
/// three sevenths each, and so on: a part always stays free for the next.
const SHARE_OF_FREE: usize = 3;

/// The owner and the cost of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    /// The tenant.
    pub tenant: TenantId,
    /// The lane within the tenant.
    pub lane: Lane,
    /// The amount of work, as an estimate. One is about the work of a row.
    pub cost: u32,
    /// The memory that the job holds while it waits.
    pub bytes: usize,
}

/// The room of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// The most jobs that wait.
    pub jobs: usize,
    /// The most bytes that they hold together.
    pub bytes: usize,
}

/// A job whose turn has come.
#[derive(Debug, PartialEq, Eq)]
pub struct Turn<T> {
    /// The job.
    pub job: T,
    /// The charge for it.
    pub charge: Charge,
}

/// The charge for a job: whose share paid for it, and how much.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    tenant: TenantId,
    lane: Lane,
    cost: u32,
}

/// The outcome of asking a queue for a job.
#[derive(Debug, PartialEq, Eq)]
pub enum Popped<T> {
    /// The next job.
    Job(Turn<T>),
    /// No job came in time.
    Nothing,
    /// The queue is closed, and every job has left it.
    Closed,
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
    /// Work on records of identity and audit logs.
    Records,
    /// Work on what is on its way to other systems.
    Dispatches,
    /// Reads, which have a queue of their own.
    Reads,
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
pub struct FairQueue<T> {
    state: Mutex<State<T>>,
    filled: Condvar,
    room: Room,
}

struct State<T> {
    tenants: Round<TenantId, Round<Lane, VecDeque<(Flow, T)>>>,
    /// The room that is taken, by all and by each tenant.
    taken: Room,
    taken_by: foldhash::HashMap<TenantId, Room>,
    /// The number of threads that wait for a job.
    sleeping: usize,
    weights: Weights,
    closed: bool,
}

impl<T> fmt::Debug for FairQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FairQueue")
            .field("room", &self.room)
            .finish_non_exhaustive()
    }
}

impl<T> FairQueue<T> {
    /// Returns an empty queue.
    pub fn new(room: Room) -> Self {
        Self {
            state: Mutex::new(State {
                tenants: Round::default(),
                taken: Room::NONE,
                taken_by: foldhash::HashMap::default(),
                sleeping: 0,
                weights: Weights::default(),
                closed: false,
            }),
            filled: Condvar::new(),
            room,
        }
    }

    /// Puts other weights in force.
    pub fn set_weights(&self, weights: Weights) {
        self.lock().weights = weights;
    }

    /// Takes a job in. A tenant that holds much of the room is refused before it is full.
    pub fn push(&self, flow: Flow, job: T) -> Result<(), Refused> {
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.closed {
            return Err(Refused::Closed);
        }
        let held = state.taken_by.entry(flow.tenant).or_insert(Room::NONE);
        // A tenant's only job is taken however large it is, as long as nobody else waits: else it could never run.
        if state.taken.jobs > 0 && !self.room.admits(state.taken, *held, flow.bytes) {
            if *held == Room::NONE {
                state.taken_by.remove(&flow.tenant);
            }
            return Err(Refused::Full);
        }
        held.add(flow.bytes);
        state.taken.add(flow.bytes);
        let lanes = state.tenants.of(flow.tenant);
        lanes.of(flow.lane.clone()).push_back((flow, job));
        let awaited = state.sleeping > 0;
        drop(guard);
        if awaited {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Gives out the next job, waiting up to `patience` for it.
    pub fn pop(&self, patience: Duration) -> Popped<T> {
        let mut guard = self.lock();
        while guard.taken.jobs == 0 && !guard.closed {
            guard.sleeping += 1;
            let waited = self.filled.wait_timeout(guard, patience);
            let (after, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            guard = after;
            guard.sleeping -= 1;
            if waited.timed_out() {
                break;
            }
        }
        match guard.next() {
            Some(turn) => Popped::Job(turn),
            None if guard.closed => Popped::Closed,
            None => Popped::Nothing,
        }
    }

    /// Settles a job that took so long, and gives out the next one if there is one.
    pub fn settle_and_pop(&self, charge: Charge, took: Duration) -> Option<Turn<T>> {
        let mut guard = self.lock();
        guard.settle(charge, took);
        guard.next()
    }

    /// Settles a job that took so long: what it was charged too little becomes a debt of its tenant and lane.
    pub fn settle(&self, charge: Charge, took: Duration) {
        self.lock().settle(charge, took);
    }

    /// Returns the number of jobs that wait.
    pub fn len(&self) -> usize {
        self.lock().taken.jobs
    }

    /// Returns true if no job waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
    fn next(&mut self) -> Option<Turn<T>> {
        let (flow, job) = self.tenants.take(&self.weights)?;
        self.taken.remove(flow.bytes);
        if let Some(held) = self.taken_by.get_mut(&flow.tenant) {
            held.remove(flow.bytes);
            if held.jobs == 0 {
                self.taken_by.remove(&flow.tenant);
            }
        }
        let Flow {
            tenant, lane, cost, ..
        } = flow;
        let charge = Charge { tenant, lane, cost };
        Some(Turn { job, charge })
    }

    fn settle(&mut self, charge: Charge, took: Duration) {
        let cost = i64::try_from(took.as_micros() / COST_TIME.as_micros()).unwrap_or(i64::MAX);
        let more = cost.max(1) - i64::from(charge.cost.max(1));
        let debtor = self.tenants.charge(charge.tenant, more);
        if let Some(lanes) = debtor {
            lanes.charge(charge.lane, more);
        }
    }
}

impl Room {
    const NONE: Self = Self { jobs: 0, bytes: 0 };

    /// Returns true if there is room for one more job of a tenant that holds `held`, when `taken` is taken.
    fn admits(self, taken: Self, held: Self, bytes: usize) -> bool {
        let fits = |room: usize, taken: usize, held: usize, more: usize| {
            let free = room.saturating_sub(taken);
            more <= free && held < free.saturating_mul(SHARE_OF_FREE)
        };
        fits(self.jobs, taken.jobs, held.jobs, 1)
            && fits(self.bytes, taken.bytes, held.bytes, bytes)
    }

    fn add(&mut self, bytes: usize) {
        self.jobs += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn remove(&mut self, bytes: usize) {
        self.jobs -= 1;
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// A source of jobs.
trait Source: Default {
    type Job;

    fn take(&mut self, weights: &Weights) -> Option<(Flow, Self::Job)>;
    fn is_empty(&self) -> bool;
}

impl<T> Source for VecDeque<(Flow, T)> {
    type Job = T;

    fn take(&mut self, _: &Weights) -> Option<(Flow, T)> {
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
    shares: foldhash::HashMap<K, Share<S>>,
    ring: VecDeque<K>,
    /// The number of times that the turn has passed on.
    passed: u64,
}

#[derive(Debug, Default)]
struct Share<S> {
    /// The savings; a debt if negative.
    saved: i64,
    source: S,
    /// For a sharer outside the ring: the number of turns that had passed when it left with a debt.
    left_at: Option<u64>,
}

impl<K, S> Default for Round<K, S> {
    fn default() -> Self {
        Self {
            shares: foldhash::HashMap::default(),
            ring: VecDeque::new(),
            passed: 0,
        }
    }
}

impl<K: Sharer, S: Source> Round<K, S> {
    /// Returns the jobs of a sharer, which joins the ring if it had none.
    fn of(&mut self, key: K) -> &mut S {
        let share = self.shares.entry(key.clone()).or_default();
        if share.source.is_empty() {
            if let Some(left_at) = share.left_at.take() {
                // While it was away, the others' turns have paid for it as its own would have.
                let turns = i64::try_from(self.passed - left_at).unwrap_or(i64::MAX);
                let rounds = turns / (self.ring.len() as i64 + 1);
                share.saved = share
                    .saved
                    .saturating_add(rounds.saturating_mul(QUANTUM))
                    .min(0);
            }
            self.ring.push_back(key);
        }
        &mut share.source
    }

    /// Changes what a sharer was charged. Returns its jobs if the sharer is still known.
    fn charge(&mut self, key: K, more: i64) -> Option<&mut S> {
        if self.ring.is_empty() {
            // Nobody waits, so nobody is owed anything.
            self.shares.clear();
            return None;
        }
        let passed = self.passed;
        let share = self.shares.entry(key).or_insert_with(|| Share {
            left_at: Some(passed),
            ..Share::default()
        });
        share.saved = share.saved.saturating_sub(more);
        Some(&mut share.source)
    }

    /// Forgets the sharers outside the ring once they are many: their debts are as good as paid.
    fn forget_absent(&mut self) {
        if self.shares.len() > 2 * self.ring.len() + 1_024 {
            self.shares.retain(|_, share| share.left_at.is_none());
        }
    }
}

impl<K: Sharer, S: Source> Source for Round<K, S> {
    type Job = S::Job;

    /// Takes the next job of the sharer whose turn it is.
    fn take(&mut self, weights: &Weights) -> Option<(Flow, S::Job)> {
        loop {
            let key = self.ring.front()?;
            let share = self.shares.get_mut(key)?;
            if share.saved <= 0 {
                if self.ring.len() == 1 {
                    // Nobody else waits, so nobody is owed the debt.
                    share.saved = 0;
                }
                share.saved += QUANTUM * i64::from(key.weight(weights));
                self.ring.rotate_left(1);
                self.passed += 1;
                continue;
            }
            let (flow, job) = share.source.take(weights)?;
            share.saved -= i64::from(flow.cost.max(1));
            if share.source.is_empty() {
                let in_debt = share.saved < 0;
                share.left_at = Some(self.passed);
                // Idle time is not saved up, but a debt stays.
                if let Some(key) = self.ring.pop_front()
                    && !in_debt
                {
                    self.shares.remove(&key);
                }
                self.forget_absent();
            }
            return Some((flow, job));
        }
    }

    fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }
}
