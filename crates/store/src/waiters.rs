//! Queues of waiters for something that only one of them can have, and the loop by which each waits.
//!
//! Invariants: a waiter that registers before it looks misses nothing; an offer wakes the first waiter
//! that accepts it, and if that waiter goes away before it has looked, the wake-up passes to the next.
//! An offer is compared with the waiters that have something in common with it, not with all.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
    hash::Hash,
    pin::pin,
};

use asyncgate_core::{Class, Reach};
use tokio::sync::oneshot;

use crate::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// Takes something, and waits for it if there is nothing to take. Returns nothing once `stop` ends.
///
/// `register` puts the caller into the queue. `take` is the look: it returns what it took, or nothing
/// if nothing is left that this caller could take. If this future is dropped at any point, a wake-up
/// that it holds passes to the next waiter.
///
/// # Errors
/// The error of `take`. Whatever woke this caller then wakes the next.
pub async fn take_or_wait<'a, K, I, F, T, E>(
    register: impl Fn() -> Waiter<'a, K, I>,
    mut take: impl FnMut() -> F,
    stop: impl Future,
) -> Result<Option<T>, E>
where
    K: Hash + Eq + Clone + 'a,
    I: Interest + 'a,
    F: Future<Output = Result<Option<T>, E>>,
{
    let mut stop = pin!(stop);
    let mut woken: Option<Waiter<'a, K, I>> = None;
    loop {
        // Registering comes before the look: what becomes ready after the look wakes this waiter.
        let mut waiter = register();
        // The wake-up is held during the look, so that it is not lost if the look fails or is dropped.
        let taken = take().await?;
        if taken.is_some() {
            // What was taken may be something else than what the wake-up was for, which then is still
            // there: dropping `woken` passes the wake-up on.
            return Ok(taken);
        }
        // Nothing is left, so nobody else needs to look. Passed on, the wake-up would go round among
        // the waiters for ever.
        if let Some(woken) = woken.take() {
            woken.consume();
        }
        tokio::select! {
            // The stop comes first: a waiter that loses every race for what wakes it would not end.
            biased;
            _ = &mut stop => return Ok(None),
            () = waiter.woken() => {}
        }
        woken = Some(waiter);
    }
}

/// The things that a waiter can use.
pub trait Interest: Debug {
    /// A description of something that became ready.
    type Offer: Clone + Debug;
    /// A property by which waiters are found.
    type Mark: Hash + Eq + Debug;

    /// Returns true if the waiter can use what is offered.
    fn accepts(&self, offer: &Self::Offer) -> bool;

    /// Returns the marks of the waiter.
    fn marks(&self) -> Vec<Self::Mark>;

    /// Returns ways to find the waiters that may accept an offer. Each way is complete: whoever accepts the offer
    /// has one of its marks.
    fn searches(offer: &Self::Offer) -> Vec<Vec<Self::Mark>>;
}

/// A mark of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum WorkerMark {
    /// It accepts tasks of any type.
    AnyType,
    /// It accepts tasks of this type.
    Type(String),
    /// It offers this capability.
    Capability(String),
}

impl Interest for Reach {
    type Offer = Class;
    type Mark = WorkerMark;

    fn accepts(&self, class: &Class) -> bool {
        self.serves(class)
    }

    fn marks(&self) -> Vec<WorkerMark> {
        let offered = self.capabilities.iter().cloned();
        let mut marks: Vec<_> = offered.map(WorkerMark::Capability).collect();
        match &self.accept_types {
            None => marks.push(WorkerMark::AnyType),
            Some(types) => marks.extend(types.iter().cloned().map(WorkerMark::Type)),
        }
        marks
    }

    fn searches(class: &Class) -> Vec<Vec<WorkerMark>> {
        let required = class.capabilities.iter().cloned();
        let mut searches: Vec<_> = required
            .map(|name| vec![WorkerMark::Capability(name)])
            .collect();
        let task_type = WorkerMark::Type(class.task_type.clone());
        searches.push(vec![task_type, WorkerMark::AnyType]);
        searches
    }
}

/// The interest of a waiter that can use whatever its queue is offered.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnyOffer;

impl Interest for AnyOffer {
    type Offer = ();
    type Mark = ();

    fn accepts(&self, (): &()) -> bool {
        true
    }

    fn marks(&self) -> Vec<()> {
        vec![()]
    }

    fn searches((): &()) -> Vec<Vec<()>> {
        vec![vec![()]]
    }
}

/// Waiters, in one queue for each key.
#[derive(Debug)]
pub(crate) struct Waiters<K, I: Interest> {
    /// The number of waiters that exist, woken ones included.
    count: AtomicUsize,
    next_id: AtomicU64,
    queues: Mutex<HashMap<K, Queue<I>>>,
}

/// Waiters in the order in which they came, which is the order of their ids.
#[derive(Debug)]
struct Queue<I: Interest> {
    waiting: BTreeMap<u64, Queued<I>>,
    marked: HashMap<I::Mark, BTreeSet<u64>>,
}

/// A waiter's place in its queue. It leaves the queue when it is woken.
#[derive(Debug)]
struct Queued<I: Interest> {
    interest: I,
    wake: oneshot::Sender<I::Offer>,
}

impl<I: Interest> Default for Queue<I> {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            marked: HashMap::new(),
        }
    }
}

impl<I: Interest> Queue<I> {
    fn insert(&mut self, id: u64, queued: Queued<I>) {
        for mark in queued.interest.marks() {
            self.marked.entry(mark).or_default().insert(id);
        }
        self.waiting.insert(id, queued);
    }

    fn remove(&mut self, id: u64) -> Option<Queued<I>> {
        let queued = self.waiting.remove(&id)?;
        for mark in queued.interest.marks() {
            if let Some(ids) = self.marked.get_mut(&mark) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.marked.remove(&mark);
                }
            }
        }
        Some(queued)
    }

    /// Returns the first waiter that accepts an offer.
    fn first(&self, offer: &I::Offer) -> Option<u64> {
        let found = I::searches(offer).into_iter().map(|marks| {
            let ids = marks.iter().filter_map(|mark| self.marked.get(mark));
            ids.collect::<Vec<_>>()
        });
        // Every search finds all that may accept; the one that finds the fewest is looked through.
        let ids = found.min_by_key(|ids| ids.iter().map(|ids| ids.len()).sum::<usize>())?;
        let mut from = 0;
        loop {
            let next = ids.iter().filter_map(|ids| ids.range(from..).next());
            let id = *next.min()?;
            if self.waiting.get(&id)?.interest.accepts(offer) {
                return Some(id);
            }
            from = id + 1;
        }
    }
}

impl<K, I: Interest> Default for Waiters<K, I> {
    fn default() -> Self {
        Self {
            count: AtomicUsize::default(),
            next_id: AtomicU64::default(),
            queues: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq + Clone, I: Interest> Waiters<K, I> {
    /// Puts a waiter at the end of a queue.
    pub(crate) fn register(&self, key: K, interest: I) -> Waiter<'_, K, I> {
        let (wake, woken) = oneshot::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        lock(&self.queues)
            .entry(key.clone())
            .or_default()
            .insert(id, Queued { interest, wake });
        self.count.fetch_add(1, Ordering::SeqCst);
        Waiter {
            waiters: self,
            key,
            id,
            woken,
            wake_up: None,
        }
    }

    /// Returns true if there is no waiter at all. Takes no lock, so that a commit that nobody waits
    /// for pays one load.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Wakes the first waiter of a queue that accepts the offer.
    pub(crate) fn wake_one(&self, key: &K, offer: &I::Offer) {
        let mut queues = lock(&self.queues);
        let Some(queue) = queues.get_mut(key) else {
            return;
        };
        if let Some(next) = queue.first(offer).and_then(|id| queue.remove(id)) {
            // This cannot fail: a waiter leaves its queue, under this lock, before its receiver goes.
            let _ = next.wake.send(offer.clone());
        }
    }
}

/// A registered waiter. Dropping it takes it out of its queue, and passes a wake-up on that it has not
/// consumed.
#[derive(Debug)]
pub struct Waiter<'a, K: Hash + Eq + Clone, I: Interest> {
    waiters: &'a Waiters<K, I>,
    key: K,
    id: u64,
    woken: oneshot::Receiver<I::Offer>,
    /// The offer that woke this waiter.
    wake_up: Option<I::Offer>,
}

impl<K: Hash + Eq + Clone, I: Interest> Waiter<'_, K, I> {
    /// Waits for the wake-up, of which a waiter gets one at most.
    pub async fn woken(&mut self) {
        self.wake_up = (&mut self.woken).await.ok();
    }

    /// Returns true once for a waiter that was woken.
    #[cfg(test)]
    pub(crate) fn is_woken(&mut self) -> bool {
        self.woken.try_recv().is_ok()
    }

    /// Consumes the wake-up: the waiter has looked since and found nothing, so it is not passed on.
    pub fn consume(mut self) {
        self.wake_up = None;
    }
}

impl<K: Hash + Eq + Clone, I: Interest> Drop for Waiter<'_, K, I> {
    fn drop(&mut self) {
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
        {
            let mut queues = lock(&self.waiters.queues);
            if let Some(queue) = queues.get_mut(&self.key) {
                queue.remove(self.id);
                if queue.waiting.is_empty() {
                    queues.remove(&self.key);
                }
            }
        }
        // Out of the queue it cannot be woken any more, but it may have been woken before without
        // having heard of it.
        let unused = self.wake_up.take().or_else(|| self.woken.try_recv().ok());
        if let Some(offer) = unused {
            self.waiters.wake_one(&self.key, &offer);
        }
    }
}

/// Locks a map. No panic can leave these maps half-changed, so a poisoned lock is as good as any.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
