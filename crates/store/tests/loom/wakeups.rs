//! Waiting receivers: no wake-up is lost, whoever goes away and whenever.

use futures_util::FutureExt;
use loom::{
    future::block_on,
    sync::{Arc, Mutex},
    thread,
};

use crate::{
    explore,
    lines::{Anything, Lines, Wait},
};

/// A topic: its messages, and who waits for them.
#[derive(Debug, Default)]
struct Topic {
    messages: Mutex<Vec<u8>>,
    line: Lines<(), Anything>,
}

impl Topic {
    /// As a commit and its signals do.
    fn send(&self, message: u8) {
        self.messages.lock().unwrap().push(message);
        if !self.line.is_empty() {
            self.line.offer(&(), &());
        }
    }

    fn take(&self) -> Option<u8> {
        self.messages.lock().unwrap().pop()
    }

    /// As a receiver does that waits for as long as it takes. One that is never woken sleeps for
    /// ever, and is found.
    fn receive(&self) -> u8 {
        let mut woken: Option<Wait<'_, (), Anything>> = None;
        loop {
            let mut wait = self.line.join((), Anything);
            let taken = self.take();
            if let Some(woken) = woken.take().filter(|_| taken.is_none()) {
                woken.looked();
            }
            match taken {
                Some(message) => return message,
                None => block_on(wait.woken()),
            }
            woken = Some(wait);
        }
    }

    /// As a receiver does that gives up, perhaps at the very moment at which it is woken.
    fn give_up(&self) {
        let mut wait = self.line.join((), Anything);
        // It may have been woken by now, or be woken after this look.
        let _ = wait.woken().now_or_never();
    }
}

#[test]
fn every_message_finds_a_receiver_under_contention() {
    explore(|| {
        let topic = Arc::new(Topic::default());
        let receiving = [(); 2].map(|()| {
            let topic = Arc::clone(&topic);
            thread::spawn(move || topic.receive())
        });
        let sending = thread::spawn({
            let topic = Arc::clone(&topic);
            move || topic.send(1)
        });
        topic.send(2);
        sending.join().unwrap();
        let mut received = receiving.map(|received| received.join().unwrap());
        received.sort_unstable();
        assert_eq!(received, [1, 2], "each message once");
        assert!(topic.line.is_empty(), "nobody is left in line");
    });
}

#[test]
fn who_goes_away_takes_no_wake_up_along() {
    explore(|| {
        let topic = Arc::new(Topic::default());
        let receiving = thread::spawn({
            let topic = Arc::clone(&topic);
            move || topic.receive()
        });
        let leaving = thread::spawn({
            let topic = Arc::clone(&topic);
            move || topic.give_up()
        });
        topic.send(1);
        assert_eq!(receiving.join().unwrap(), 1);
        leaving.join().unwrap();
        assert!(topic.line.is_empty(), "nobody is left in line");
    });
}

/// A receiver that was woken takes another message and leaves: its wake-up belongs to the next.
#[test]
fn who_finds_something_passes_the_wake_up_on() {
    explore(|| {
        let topic = Arc::new(Topic::default());
        let receiving = [(); 2].map(|()| {
            let topic = Arc::clone(&topic);
            thread::spawn(move || topic.receive())
        });
        for message in [1, 2] {
            topic.send(message);
        }
        let received = receiving.map(|received| received.join().unwrap());
        assert_eq!(received.iter().sum::<u8>(), 3, "each message once");
    });
}
