//! Waiting callers: no wake-up is lost and none goes round for ever, whoever leaves and whenever.
//!
//! The waiting is [`take_or_wait`] itself; only the time limit is another one than the product's.

use std::{
    convert::Infallible,
    future::{pending, poll_fn},
    mem,
    task::Poll,
};

use futures_util::FutureExt;
use loom::{
    future::block_on,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};
use tokio::sync::oneshot;

use crate::{
    explore,
    waiters::{AnyOffer, Interest, Waiters, take_or_wait},
};

/// Ready things, and the callers that wait for them.
#[derive(Debug, Default)]
struct Shop<I: Interest> {
    ready: Mutex<Vec<u8>>,
    waiters: Waiters<(), I>,
}

/// The things that a caller can use, the best first.
#[derive(Debug, Clone, Copy, Default)]
struct Kinds(&'static [u8]);

impl Interest for Kinds {
    type Offer = u8;
    type Mark = u8;

    fn accepts(&self, thing: &u8) -> bool {
        self.0.contains(thing)
    }

    fn marks(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    fn searches(thing: &u8) -> Vec<Vec<u8>> {
        vec![vec![*thing]]
    }
}

impl<I: Interest> Shop<I> {
    /// Makes a thing ready and wakes a waiter, as a commit and its signals do.
    fn put(&self, thing: u8, offer: I::Offer) {
        self.ready.lock().unwrap().push(thing);
        if !self.waiters.is_empty() {
            self.waiters.wake_one(&(), &offer);
        }
    }

    fn take(&self, best: impl Fn(&[u8]) -> Option<usize>) -> Option<u8> {
        let mut ready = self.ready.lock().unwrap();
        best(&ready).map(|n| ready.remove(n))
    }
}

/// Messages of a topic: every receiver can use every one.
type Topic = Shop<AnyOffer>;

impl Topic {
    fn send(&self, message: u8) {
        self.put(message, ());
    }

    fn take_last(&self) -> Option<u8> {
        self.take(|ready| ready.len().checked_sub(1))
    }

    /// Receives as the product does. The look pauses once, as one that waits for a commit does, so that
    /// it can be given up halfway.
    async fn receive(&self, stop: impl Future) -> Option<u8> {
        let register = || self.waiters.register((), AnyOffer);
        let look = || async {
            pause().await;
            Ok::<_, Infallible>(self.take_last())
        };
        take_or_wait(register, look, stop).await.unwrap()
    }

    /// Sends a message again that a caller took and cannot use any more, as a released task or a
    /// message that is given back.
    fn give_back(&self, taken: Option<u8>) {
        if let Some(message) = taken {
            self.send(message);
        }
    }
}

/// Starts a receiver that waits for as long as it takes. One that is never woken sleeps for ever, which
/// loom finds.
fn receiver(topic: &Arc<Topic>) -> JoinHandle<u8> {
    let topic = Arc::clone(topic);
    thread::spawn(move || block_on(topic.receive(pending::<()>())).unwrap())
}

const PLAIN: u8 = 1;
const BETTER: u8 = 9;

impl Shop<Kinds> {
    /// Waits for a task for as long as it takes.
    fn work(&self, kinds: Kinds) -> u8 {
        let best = |ready: &[u8]| {
            let mut wanted = kinds.0.iter();
            wanted.find_map(|kind| ready.iter().position(|thing| thing == kind))
        };
        let register = || self.waiters.register((), kinds);
        let look = || async { Ok::<_, Infallible>(self.take(best)) };
        let taken = take_or_wait(register, look, pending::<()>());
        block_on(taken).unwrap().unwrap()
    }
}

/// Is pending once and wakes its task at once.
async fn pause() {
    let mut paused = false;
    poll_fn(|cx| {
        if mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn every_message_finds_a_receiver_under_contention() {
    explore(|| {
        let topic = Arc::new(Topic::default());
        let receiving = [(); 2].map(|()| receiver(&topic));
        let sending = thread::spawn({
            let topic = Arc::clone(&topic);
            move || topic.send(1)
        });
        topic.send(2);
        sending.join().unwrap();
        let mut received = receiving.map(|received| received.join().unwrap());
        received.sort_unstable();
        assert_eq!(received, [1, 2], "each message once");
        assert!(topic.waiters.is_empty(), "nobody is left in the queue");
    });
}

/// One receiver is dropped in its first look, while it waits, or in the look after its wake-up, which
/// comes from the same thread; the other one is anywhere.
#[test]
fn a_wake_up_that_is_held_in_a_look_passes_on_when_the_look_is_dropped() {
    for (polls_before, polls_after) in [(1, 0), (1, 1), (2, 0), (2, 1), (2, 2)] {
        explore(move || {
            let topic = Arc::new(Topic::default());
            let receiving = receiver(&topic);
            let mut leaving = Box::pin(topic.receive(pending::<()>()));
            let mut poll = |times| (0..times).find_map(|_| (&mut leaving).now_or_never());
            assert_eq!(poll(polls_before), None, "nothing was sent yet");
            topic.send(1);
            let taken = poll(polls_after);
            drop(leaving);
            topic.give_back(taken.flatten());
            assert_eq!(receiving.join().unwrap(), 1);
            assert!(topic.waiters.is_empty(), "nobody is left in the queue");
        });
    }
}

/// A receiver is dropped while another thread sends, perhaps at the very moment at which it is woken.
#[test]
fn a_receiver_that_is_dropped_takes_no_wake_up_along() {
    for polls in 1..=2 {
        explore(move || {
            let topic = Arc::new(Topic::default());
            let receiving = receiver(&topic);
            let leaving = thread::spawn({
                let topic = Arc::clone(&topic);
                move || {
                    let mut receiving = Box::pin(topic.receive(pending::<()>()));
                    let taken = (0..polls).find_map(|_| (&mut receiving).now_or_never());
                    drop(receiving);
                    topic.give_back(taken.flatten());
                }
            });
            topic.send(1);
            assert_eq!(receiving.join().unwrap(), 1);
            leaving.join().unwrap();
            assert!(topic.waiters.is_empty(), "nobody is left in the queue");
        });
    }
}

#[test]
fn a_receiver_that_is_stopped_takes_no_wake_up_along() {
    explore(|| {
        let topic = Arc::new(Topic::default());
        let receiving = receiver(&topic);
        let (stop, stopped) = oneshot::channel::<()>();
        let leaving = thread::spawn({
            let topic = Arc::clone(&topic);
            move || {
                let taken = block_on(topic.receive(stopped));
                topic.give_back(taken);
            }
        });
        topic.send(1);
        drop(stop);
        assert_eq!(receiving.join().unwrap(), 1);
        leaving.join().unwrap();
        assert!(topic.waiters.is_empty(), "nobody is left in the queue");
    });
}

/// Somebody takes the message before the woken receiver looks. If receivers that find nothing passed
/// the wake-up on, these two would wake each other for ever.
#[test]
fn a_wake_up_for_nothing_ends_with_the_receiver_that_looked() {
    explore(|| {
        let topic = Arc::new(Topic::default());
        let receiving = [(); 2].map(|()| {
            let topic = Arc::clone(&topic);
            let (stop, stopped) = oneshot::channel::<()>();
            let received = thread::spawn(move || block_on(topic.receive(stopped)));
            (stop, received)
        });
        topic.send(1);
        let mine = topic.take_last();
        let mut received = mine.into_iter().count();
        for (stop, receiving) in receiving {
            drop(stop);
            received += receiving.join().unwrap().into_iter().count();
        }
        assert!(received <= 1, "a message is not received twice");
        assert!(topic.waiters.is_empty(), "nobody is left in the queue");
    });
}

/// A worker that was woken for one task takes a better one: the wake-up belongs to the next worker.
#[test]
fn a_worker_that_takes_something_else_passes_the_wake_up_on() {
    explore(|| {
        let shop = Arc::new(Shop::<Kinds>::default());
        let choosy = thread::spawn({
            let shop = Arc::clone(&shop);
            move || {
                // Only one of the workers can have the plain task, so this one gives it back.
                if shop.work(Kinds(&[BETTER, PLAIN])) == PLAIN {
                    shop.put(PLAIN, PLAIN);
                }
            }
        });
        let plain = thread::spawn({
            let shop = Arc::clone(&shop);
            move || shop.work(Kinds(&[PLAIN]))
        });
        for task in [PLAIN, BETTER] {
            shop.put(task, task);
        }
        assert_eq!(plain.join().unwrap(), PLAIN);
        choosy.join().unwrap();
        assert!(shop.waiters.is_empty(), "nobody is left in the queue");
    });
}
