//! Sends that are remembered to recognise repetitions, by tenant.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use asyncgate_core::{Timestamp, mailbox::Share};

/// The most entries of one piece of a queue. A long queue grows and shrinks by pieces, so that it is
/// never copied as a whole.
const PIECE: usize = 8_192;

/// Remembered sends. `K` names a tenant, `S` a send.
#[derive(Debug)]
pub struct Remembered<K, S> {
    tenants: BTreeMap<K, Queue<S>>,
    /// The tenants by the time of their oldest send, so that forgetting looks at nobody else.
    oldest: BTreeSet<(Timestamp, K)>,
    total: u64,
    /// The tenants whose number of sends has changed since somebody asked.
    changed: BTreeSet<K>,
}

impl<K: Copy + Ord, S> Default for Remembered<K, S> {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            oldest: BTreeSet::new(),
            total: 0,
            changed: BTreeSet::new(),
        }
    }
}

impl<K: Copy + Ord, S> Remembered<K, S> {
    /// Remembers a send. A tenant's sends come in the order of their times.
    pub fn add(&mut self, tenant: K, at: Timestamp, send: S) {
        let queue = self.tenants.entry(tenant).or_default();
        if queue.len == 0 {
            self.oldest.insert((at, tenant));
        }
        queue.push(at, send);
        self.total += 1;
        self.changed.insert(tenant);
    }

    /// Takes back the send that was added last.
    pub fn take_back(&mut self, tenant: K) {
        let Some(queue) = self.tenants.get_mut(&tenant) else {
            return;
        };
        if let Some((at, _)) = queue.pop_last() {
            self.total -= 1;
            if queue.len == 0 {
                self.oldest.remove(&(at, tenant));
                self.tenants.remove(&tenant);
            }
        }
        self.changed.insert(tenant);
    }

    /// Forgets the sends that were made at or before `since`, and gives them to `told`.
    pub fn forget(&mut self, since: Timestamp, mut told: impl FnMut(K, S)) {
        while let Some((at, tenant)) = self.oldest.first().copied()
            && at <= since
        {
            self.oldest.remove(&(at, tenant));
            let Some(queue) = self.tenants.get_mut(&tenant) else {
                continue;
            };
            while let Some((_, send)) = queue.pop_first_if(|at| at <= since) {
                self.total -= 1;
                told(tenant, send);
            }
            self.changed.insert(tenant);
            match queue.oldest() {
                Some(at) => drop(self.oldest.insert((at, tenant))),
                None => drop(self.tenants.remove(&tenant)),
            }
        }
    }

    /// Returns the part of all sends that a tenant has.
    pub fn share(&self, tenant: K) -> Share {
        Share {
            total: self.total,
            own: self.of(tenant),
            tenants: self.tenants.len() as u64,
        }
    }

    /// Returns how many sends of a tenant are remembered.
    pub fn of(&self, tenant: K) -> u64 {
        let queue = self.tenants.get(&tenant);
        queue.map_or(0, |queue| queue.len as u64)
    }

    /// Returns the time of a tenant's oldest send.
    pub fn oldest(&self, tenant: K) -> Option<Timestamp> {
        self.tenants.get(&tenant)?.oldest()
    }

    /// Returns the tenants whose numbers have changed since the last call, with their numbers.
    pub fn take_changed(&mut self) -> Vec<(K, u64)> {
        let changed = std::mem::take(&mut self.changed);
        let numbers = changed.into_iter();
        numbers.map(|tenant| (tenant, self.of(tenant))).collect()
    }
}

/// The sends of one tenant, oldest first, in pieces.
#[derive(Debug)]
struct Queue<S> {
    pieces: VecDeque<VecDeque<(Timestamp, S)>>,
    len: usize,
}

impl<S> Default for Queue<S> {
    fn default() -> Self {
        Self {
            pieces: VecDeque::new(),
            len: 0,
        }
    }
}

impl<S> Queue<S> {
    fn push(&mut self, at: Timestamp, send: S) {
        let last = self.pieces.back_mut().filter(|last| last.len() < PIECE);
        match last {
            Some(last) => last.push_back((at, send)),
            None => self.pieces.push_back(VecDeque::from([(at, send)])),
        }
        self.len += 1;
    }

    fn pop_last(&mut self) -> Option<(Timestamp, S)> {
        let last = self.pieces.back_mut()?;
        let popped = last.pop_back();
        if last.is_empty() {
            self.pieces.pop_back();
        }
        self.len -= usize::from(popped.is_some());
        popped
    }

    fn pop_first_if(&mut self, is_over: impl Fn(Timestamp) -> bool) -> Option<(Timestamp, S)> {
        self.oldest().filter(|at| is_over(*at))?;
        let first = self.pieces.front_mut()?;
        let popped = first.pop_front();
        if first.is_empty() {
            self.pieces.pop_front();
        }
        self.len -= usize::from(popped.is_some());
        popped
    }

    fn oldest(&self) -> Option<Timestamp> {
        let (at, _) = self.pieces.front()?.front()?;
        Some(*at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn sends_are_forgotten_in_time_whoever_sent_them() {
        let mut sends = Remembered::default();
        for n in 0..3 * PIECE as i64 {
            sends.add(n % 3, at(n), n);
        }
        assert_eq!(sends.take_changed().len(), 3);
        let mut forgotten = Vec::new();
        sends.forget(at(-1), |_, n| forgotten.push(n));
        assert!(forgotten.is_empty() && sends.take_changed().is_empty());
        sends.forget(at(9_999), |tenant, n| {
            assert_eq!(n % 3, tenant);
            forgotten.push(n);
        });
        forgotten.sort_unstable();
        assert_eq!(forgotten, (0..10_000).collect::<Vec<_>>());
        let share = sends.share(0);
        assert_eq!((share.total, share.tenants), (3 * PIECE as u64 - 10_000, 3));
        assert_eq!(share.own, PIECE as u64 - 3_334);
        assert_eq!(sends.oldest(1), Some(at(10_000)));
        sends.forget(at(i64::MAX), |_, _| {});
        assert_eq!(sends.share(0), Share::default());
        assert_eq!(sends.take_changed(), [(0, 0), (1, 0), (2, 0)]);
    }

    #[test]
    fn what_is_taken_back_was_never_there() {
        let mut sends = Remembered::default();
        sends.add('a', at(1), ());
        sends.add('b', at(2), ());
        sends.add('b', at(3), ());
        for _ in 0..2 {
            sends.take_back('b');
        }
        assert_eq!((sends.of('b'), sends.oldest('b')), (0, None));
        assert_eq!((sends.share('b').total, sends.share('b').tenants), (1, 1));
        sends.add('b', at(4), ());
        assert_eq!(sends.oldest('b'), Some(at(4)));
        sends.take_back('c');
        assert_eq!(sends.share('a').total, 2);
    }
}
