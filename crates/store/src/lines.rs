//! Lines of those who wait for something that only one of them can have.
//!
//! Invariants: who joins before looking misses nothing; an offer wakes the first in line who can use
//! it, and if that one goes away before it looked, the next.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
};

use asyncgate_core::{Class, Reach};
use tokio::sync::oneshot;

use crate::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// What somebody in a line can use.
pub trait Want: std::fmt::Debug {
    /// What is offered to the line.
    type Offer: Clone + std::fmt::Debug;

    /// Whether the offer is of use.
    fn accepts(&self, offer: &Self::Offer) -> bool;
}

impl Want for Reach {
    type Offer = Class;

    fn accepts(&self, class: &Class) -> bool {
        self.serves(class)
    }
}

/// Wants anything that the line is offered.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anything;

impl Want for Anything {
    type Offer = ();

    fn accepts(&self, (): &()) -> bool {
        true
    }
}

/// Lines by what they are for.
#[derive(Debug)]
pub(crate) struct Lines<K, W: Want> {
    waiting: AtomicUsize,
    next_id: AtomicU64,
    lines: Mutex<HashMap<K, VecDeque<Waiter<W>>>>,
}

#[derive(Debug)]
struct Waiter<W: Want> {
    id: u64,
    want: W,
    wake: oneshot::Sender<W::Offer>,
}

impl<K, W: Want> Default for Lines<K, W> {
    fn default() -> Self {
        Self {
            waiting: AtomicUsize::default(),
            next_id: AtomicU64::default(),
            lines: Mutex::default(),
        }
    }
}

impl<K: Hash + Eq + Clone, W: Want> Lines<K, W> {
    pub(crate) fn join(&self, key: K, want: W) -> Wait<'_, K, W> {
        let (wake, woken) = oneshot::channel();
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        lock(&self.lines)
            .entry(key.clone())
            .or_default()
            .push_back(Waiter { id, want, wake });
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Wait {
            lines: self,
            key,
            id,
            woken,
            baton: None,
        }
    }

    /// Whether nobody waits at all, which is cheap to know.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) == 0
    }

    /// Wakes the first in line who can use the offer.
    pub(crate) fn offer(&self, key: &K, offer: &W::Offer) {
        let mut lines = lock(&self.lines);
        let Some(line) = lines.get_mut(key) else {
            return;
        };
        while let Some(n) = line.iter().position(|waiter| waiter.want.accepts(offer)) {
            let sent = line
                .remove(n)
                .is_some_and(|waiter| waiter.wake.send(offer.clone()).is_ok());
            if sent {
                return;
            }
        }
    }
}

/// A place in a line. Dropping it leaves the line, and passes an unused wake-up on.
#[derive(Debug)]
pub struct Wait<'a, K: Hash + Eq + Clone, W: Want> {
    lines: &'a Lines<K, W>,
    key: K,
    id: u64,
    woken: oneshot::Receiver<W::Offer>,
    baton: Option<W::Offer>,
}

impl<K: Hash + Eq + Clone, W: Want> Wait<'_, K, W> {
    /// Waits until something is there.
    pub async fn woken(&mut self) {
        self.baton = (&mut self.woken).await.ok();
    }

    /// Says that the one who waited looked after the wake-up, so that nobody else needs to.
    pub fn looked(mut self) {
        self.baton = None;
        self.woken.close();
        while self.woken.try_recv().is_ok() {}
    }
}

impl<K: Hash + Eq + Clone, W: Want> Drop for Wait<'_, K, W> {
    fn drop(&mut self) {
        self.lines.waiting.fetch_sub(1, Ordering::SeqCst);
        {
            let mut lines = lock(&self.lines.lines);
            if let Some(line) = lines.get_mut(&self.key) {
                line.retain(|waiter| waiter.id != self.id);
                if line.is_empty() {
                    lines.remove(&self.key);
                }
            }
        }
        self.woken.close();
        let unused = self.baton.take().or_else(|| self.woken.try_recv().ok());
        if let Some(offer) = unused {
            self.lines.offer(&self.key, &offer);
        }
    }
}

/// A panic elsewhere cannot leave these maps half-changed, so a poisoned lock is as good as any.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
