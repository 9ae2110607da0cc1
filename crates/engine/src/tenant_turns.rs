//! Turns at work of which only little is done at the same time: pages that are put together, large inputs that are read.
//!
//! Invariants: tenants take turns. However many calls of one tenant wait, that of another comes after at most one of them.
//! And no tenant has more turns at a time than it may have, so that one whose calls are slow does not keep all of them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::TenantId;
use foldhash::HashMap;
use tokio::sync::oneshot;

/// The turns. Cloning shares them.
#[derive(Debug, Clone)]
pub struct TenantTurns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    /// The most turns that a tenant may have at the same time.
    most_each: usize,
    taken: HashMap<TenantId, usize>,
    waiting: HashMap<TenantId, VecDeque<oneshot::Sender<Turn>>>,
    /// Tenants with calls that wait and that may have one more turn, in the order of their turns.
    ring: VecDeque<TenantId>,
}

/// The turn of one call. Dropping it passes it on.
#[derive(Debug)]
pub struct Turn {
    /// Absent once it was passed on.
    of: Option<(TenantTurns, TenantId)>,
}

impl TenantTurns {
    /// Lets `most` calls have a turn at the same time, and `most_each` of each tenant.
    pub(crate) fn new(most: usize, most_each: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: most,
            most_each,
            taken: HashMap::default(),
            waiting: HashMap::default(),
            ring: VecDeque::new(),
        })))
    }

    /// Lets so many calls of each tenant have a turn at the same time.
    pub fn of_each(most_each: usize) -> Self {
        Self::new(usize::MAX, most_each)
    }

    /// Waits for a tenant's turn.
    pub async fn take(&self, tenant: TenantId) -> Turn {
        let given = {
            let mut state = self.lock();
            // Whoever waits got its turn as soon as there was one, so nobody is overtaken here.
            if state.free > 0 && state.may_have_more(tenant) {
                state.give(tenant);
                return self.turn(tenant);
            }
            let (give, given) = oneshot::channel();
            let line = state.waiting.entry(tenant).or_default();
            let is_first = line.is_empty();
            // Callers that have gone are forgotten now and then, so that the line does not grow with them.
            if line.len() == line.capacity() {
                line.retain(|waiter| !waiter.is_closed());
            }
            line.push_back(give);
            if is_first && state.may_have_more(tenant) {
                state.ring.push_back(tenant);
            }
            given
        };
        // Whoever has a turn passes it on, so the line is never dropped while somebody stands in it.
        given.await.unwrap_or(Turn { of: None })
    }

    fn turn(&self, tenant: TenantId) -> Turn {
        Turn {
            of: Some((self.clone(), tenant)),
        }
    }

    /// Takes a turn back, and gives it to the next who waits.
    fn pass_on(&self, mut tenant: TenantId) {
        loop {
            let next = {
                let mut state = self.lock();
                state.take_back(tenant);
                state.next()
            };
            let Some((next_tenant, next)) = next else {
                return;
            };
            match next.send(self.turn(next_tenant)) {
                Ok(()) => return,
                // That caller has gone. Its turn must not pass itself on: this loop does.
                Err(mut turn) => turn.of = None,
            }
            tenant = next_tenant;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No step leaves the state half-changed, so a poisoned lock is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn may_have_more(&self, tenant: TenantId) -> bool {
        self.taken.get(&tenant).copied().unwrap_or(0) < self.most_each
    }

    fn give(&mut self, tenant: TenantId) {
        self.free -= 1;
        *self.taken.entry(tenant).or_default() += 1;
    }

    /// Takes a turn of a tenant back. If the tenant had all that it may have, it gets back into the ring.
    fn take_back(&mut self, tenant: TenantId) {
        let could_have_more = self.may_have_more(tenant);
        self.free += 1;
        if let Some(taken) = self.taken.get_mut(&tenant) {
            *taken -= 1;
            if *taken == 0 {
                self.taken.remove(&tenant);
            }
        }
        if !could_have_more && self.waiting.contains_key(&tenant) {
            self.ring.push_back(tenant);
        }
    }

    /// Gives a turn to the next who waits, and takes that one out of the line.
    fn next(&mut self) -> Option<(TenantId, oneshot::Sender<Turn>)> {
        let tenant = self.ring.pop_front()?;
        let line = self.waiting.get_mut(&tenant)?;
        let next = line.pop_front()?;
        let is_last = line.is_empty();
        if is_last {
            self.waiting.remove(&tenant);
        }
        self.give(tenant);
        if !is_last && self.may_have_more(tenant) {
            self.ring.push_back(tenant);
        }
        Some((tenant, next))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some((turns, tenant)) = self.of.take() {
            turns.pass_on(tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use futures_util::future::{BoxFuture, FutureExt as _};

    use super::*;

    const LOUD: TenantId = TenantId::from_bytes([1; 16]);
    const QUIET: TenantId = TenantId::from_bytes([2; 16]);

    /// A caller that waits, or has its turn.
    struct Caller {
        tenant: TenantId,
        waits: BoxFuture<'static, Turn>,
        turn: Option<Turn>,
    }

    fn caller(turns: &TenantTurns, tenant: TenantId) -> Caller {
        let turns = turns.clone();
        let mut caller = Caller {
            tenant,
            waits: async move { turns.take(tenant).await }.boxed(),
            turn: None,
        };
        caller.look();
        caller
    }

    impl Caller {
        fn look(&mut self) -> bool {
            if self.turn.is_none()
                && let Poll::Ready(turn) = self
                    .waits
                    .poll_unpin(&mut Context::from_waker(Waker::noop()))
            {
                self.turn = Some(turn);
            }
            self.turn.is_some()
        }
    }

    /// Lets those who have turns finish one after the other. Returns the tenants in the order of their turns.
    fn serve(mut callers: Vec<Caller>) -> Vec<TenantId> {
        let mut served = Vec::new();
        while let Some(at) = callers.iter_mut().position(Caller::look) {
            served.push(callers.remove(at).tenant);
        }
        assert!(callers.is_empty(), "{} wait for ever", callers.len());
        served
    }

    #[test]
    fn one_tenant_waits_for_at_most_one_call_of_another() {
        let turns = TenantTurns::new(1, 1);
        let mut callers: Vec<Caller> = (0..100).map(|_| caller(&turns, LOUD)).collect();
        callers.extend((0..3).map(|_| caller(&turns, QUIET)));
        let served = serve(callers);
        let places = served.iter().enumerate();
        let quiet: Vec<usize> = places
            .filter(|(_, it)| **it == QUIET)
            .map(|(at, _)| at)
            .collect();
        // One of the loud tenant had its turn before anybody else came.
        assert!(
            quiet.iter().zip([2, 4, 6]).all(|(at, most)| *at <= most),
            "{quiet:?}"
        );
        assert_eq!(turns.lock().free, 1);
    }

    #[test]
    fn callers_that_go_away_pass_their_turns_on() {
        let turns = TenantTurns::new(1, 2);
        let first = caller(&turns, LOUD);
        let mut gone: Vec<Caller> = (0..5).map(|_| caller(&turns, LOUD)).collect();
        let mut last = caller(&turns, QUIET);
        // One goes away with a turn that it has not seen yet, the others before their turn.
        let unseen = gone.remove(0);
        drop(gone);
        drop(first);
        assert!(!last.look());
        drop(unseen);
        assert!(last.look());
        drop(last);
        let state = turns.lock();
        assert_eq!(
            (state.free, state.ring.len(), state.waiting.len()),
            (1, 0, 0)
        );
        assert!(state.taken.is_empty());
    }

    #[test]
    fn a_tenant_has_no_more_turns_than_it_may_have() {
        let turns = TenantTurns::new(4, 2);
        let mut loud: Vec<Caller> = (0..10).map(|_| caller(&turns, LOUD)).collect();
        let served = |callers: &mut Vec<Caller>| {
            let served = callers.iter_mut().filter_map(|it| it.look().then_some(()));
            served.count()
        };
        assert_eq!(served(&mut loud), 2);
        let mut quiet: Vec<Caller> = (0..3).map(|_| caller(&turns, QUIET)).collect();
        assert_eq!(served(&mut quiet), 2, "turns are left for another tenant");
        // A turn that is free goes to a tenant that may have it, and not to one that has all of its own.
        loud.remove(0);
        assert_eq!((served(&mut loud), served(&mut quiet)), (2, 2));
        let tenants = serve(loud.into_iter().chain(quiet).collect());
        assert_eq!(tenants.len(), 12);
        let state = turns.lock();
        assert!(state.ring.is_empty() && state.waiting.is_empty() && state.taken.is_empty());
        assert_eq!(state.free, 4);
    }
}
