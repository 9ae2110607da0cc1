//! Turns at work of which only little is done at the same time: pages that are put together, large inputs that are read.
//!
//! Invariant: tenants take turns. However many calls of one tenant wait, that of another comes after at most one of them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use asyncgate_core::TenantId;
use foldhash::HashMap;
use tokio::sync::oneshot;

/// The turns. Cloning shares them.
#[derive(Debug, Clone)]
pub(crate) struct TenantTurns(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    free: usize,
    /// Tenants with calls that wait, in the order of their turns.
    ring: VecDeque<TenantId>,
    waiting: HashMap<TenantId, VecDeque<oneshot::Sender<Turn>>>,
}

/// The turn of one call. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Absent once it was passed on.
    turns: Option<TenantTurns>,
}

impl TenantTurns {
    /// Lets so many calls have a turn at the same time.
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(State {
            free: most,
            ring: VecDeque::new(),
            waiting: HashMap::default(),
        })))
    }

    /// Waits for a tenant's turn.
    pub(crate) async fn take(&self, tenant: TenantId) -> Turn {
        let given = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return self.turn();
            }
            let (give, given) = oneshot::channel();
            let line = state.waiting.entry(tenant).or_default();
            let is_first = line.is_empty();
            // Callers that have gone are forgotten now and then, so that the line does not grow with them.
            if line.len() == line.capacity() {
                line.retain(|waiter| !waiter.is_closed());
            }
            line.push_back(give);
            if is_first {
                state.ring.push_back(tenant);
            }
            given
        };
        // Whoever has a turn passes it on, so the line is never dropped while somebody stands in it.
        given.await.unwrap_or(Turn { turns: None })
    }

    fn turn(&self) -> Turn {
        Turn {
            turns: Some(self.clone()),
        }
    }

    /// Gives a turn to the next who waits, or keeps it for whoever comes.
    fn pass_on(&self) {
        loop {
            let Some(next) = self.lock().next() else {
                return;
            };
            match next.send(self.turn()) {
                Ok(()) => return,
                // That caller has gone. Its turn must not pass itself on: this loop does.
                Err(mut turn) => turn.turns = None,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No step leaves the state half-changed, so a poisoned lock is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the next who waits out of the line. If nobody does, a turn becomes free.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let Some(tenant) = self.ring.pop_front() else {
            self.free += 1;
            return None;
        };
        let line = self.waiting.get_mut(&tenant)?;
        let next = line.pop_front();
        if line.is_empty() {
            self.waiting.remove(&tenant);
        } else {
            self.ring.push_back(tenant);
        }
        next
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.turns.take() {
            turns.pass_on();
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
        let turns = TenantTurns::new(1);
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
        let turns = TenantTurns::new(1);
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
    }
}
