//! The connections that a listener may have open, and who gives way when there are too many.
//!
//! Invariants: at most [`Bounds::all`] connections have a seat, and one address has at most [`Bounds::per_address`] of
//! them. A newcomer is not kept out by connections without a request under way: the one that has been idle for the
//! longest time is told to leave.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::progress::Progress;

/// The time until the next look for an idle connection, when every connection had a request under way.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The most connections.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// On the listener; more wait to be accepted.
    pub all: usize,
    /// From one address; more are closed.
    pub per_address: usize,
}

/// The seats of a listener.
#[derive(Debug)]
pub(super) struct Seats {
    bounds: Bounds,
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The number of the next connection.
    next: u64,
    seats: HashMap<u64, Place>,
    by_address: HashMap<IpAddr, usize>,
}

/// A connection as the others see it.
#[derive(Debug)]
struct Place {
    address: Option<IpAddr>,
    progress: Arc<Progress>,
    leave: Arc<Notify>,
}

impl Seats {
    pub fn new(bounds: Bounds) -> Arc<Self> {
        // A semaphore counts to a bound of its own, far beyond what a process can open.
        let all = bounds.all.min(u32::MAX as usize >> 4);
        Arc::new(Self {
            bounds: Bounds { all, ..bounds },
            free: Arc::new(Semaphore::new(all)),
            taken: Mutex::default(),
        })
    }

    /// Waits for a seat. An address counts if it is given. Returns nothing if that address has too many connections
    /// already, all of them with a request under way.
    pub async fn take(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Seat> {
        let address = address.map(counted);
        if let Some(address) = address
            && !self.make_room_for(address)
        {
            return None;
        }
        let permit = loop {
            if let Ok(permit) = self.free.clone().try_acquire_owned() {
                break permit;
            }
            let permit = self.free.clone().acquire_owned();
            if self.lock().send_away(|_| true) {
                // Its task ends now, and its permit comes back.
                break permit.await.ok()?;
            }
            tokio::select! {
                biased;
                permit = permit => break permit.ok()?,
                () = sleep(LOOK_AGAIN) => {}
            }
        };
        Some(self.seat(address, permit))
    }

    /// Waits until nobody has a seat.
    pub async fn wait_until_empty(&self) {
        let all = u32::try_from(self.bounds.all).unwrap_or(u32::MAX);
        // Every connection holds a permit: who holds all of them knows that none is left.
        let _ = self.free.acquire_many(all).await;
    }

    fn make_room_for(&self, address: IpAddr) -> bool {
        let mut taken = self.lock();
        let open = taken.by_address.get(&address).copied().unwrap_or(0);
        open < self.bounds.per_address || taken.send_away(|place| place.address == Some(address))
    }

    fn seat(self: &Arc<Self>, address: Option<IpAddr>, permit: OwnedSemaphorePermit) -> Seat {
        let progress = Arc::new(Progress::default());
        let leave = Arc::new(Notify::new());
        let mut taken = self.lock();
        let number = taken.next;
        taken.next += 1;
        if let Some(address) = address {
            *taken.by_address.entry(address).or_default() += 1;
        }
        let place = Place {
            address,
            progress: progress.clone(),
            leave: leave.clone(),
        };
        taken.seats.insert(number, place);
        Seat {
            number,
            seats: self.clone(),
            progress,
            leave,
            _permit: permit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        // No step leaves the state half-changed, so a poisoned lock is as good as any.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// Tells the connection that has been idle for the longest time to leave, among those that may be chosen. It counts
    /// no more. Returns false if all of them have a request under way.
    fn send_away(&mut self, may: impl Fn(&Place) -> bool) -> bool {
        let idle = self.seats.iter().filter(|(_, place)| may(place));
        let oldest = idle
            .filter_map(|(number, place)| Some((place.progress.idle_since()?, *number)))
            .min();
        let Some(place) = oldest.and_then(|(_, number)| self.remove(number)) else {
            return false;
        };
        place.leave.notify_one();
        true
    }

    fn remove(&mut self, number: u64) -> Option<Place> {
        let place = self.seats.remove(&number)?;
        if let Some(address) = place.address
            && let Some(open) = self.by_address.get_mut(&address)
        {
            *open -= 1;
            if *open == 0 {
                self.by_address.remove(&address);
            }
        }
        Some(place)
    }
}

/// Returns what counts as one address: of IPv6 a network, because everybody who has one has all its addresses.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}

/// A connection's seat. It is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    number: u64,
    seats: Arc<Seats>,
    progress: Arc<Progress>,
    leave: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    /// Returns the progress of the connection, by which others see whether it is idle.
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Waits until the connection is to leave.
    pub async fn told_to_leave(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // It may have been removed when it was told to leave.
        let _ = self.seats.lock().remove(self.number);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::progress::Turn;

    fn address(last: u8) -> Option<IpAddr> {
        Some(IpAddr::from([192, 0, 2, last]))
    }

    fn seats(all: usize, per_address: usize) -> Arc<Seats> {
        Seats::new(Bounds { all, per_address })
    }

    fn is_told(seat: &Seat) -> bool {
        seat.told_to_leave().now_or_never().is_some()
    }

    #[tokio::test]
    async fn the_oldest_idle_connection_makes_room() {
        let seats = seats(3, 9);
        let busy = seats.take(address(1)).await.unwrap();
        let _turn = Turn::begin(busy.progress());
        let older = seats.take(address(2)).await.unwrap();
        let younger = seats.take(address(3)).await.unwrap();
        drop(Turn::begin(older.progress()));
        drop(Turn::begin(younger.progress()));
        // Who had a request last has been idle for the shortest time.
        let waits = tokio::spawn({
            let seats = seats.clone();
            async move { seats.take(address(4)).await }
        });
        older.told_to_leave().await;
        assert!(!is_told(&busy) && !is_told(&younger));
        drop(older);
        assert!(waits.await.unwrap().is_some());
    }

    #[tokio::test]
    async fn a_newcomer_waits_for_the_first_request_that_ends() {
        let seats = seats(1, 9);
        let busy = seats.take(None).await.unwrap();
        let turn = Turn::begin(busy.progress());
        let mut waits = Box::pin(seats.take(None));
        let soon = tokio::time::timeout(3 * LOOK_AGAIN, waits.as_mut());
        assert!(soon.await.is_err());
        drop(turn);
        tokio::select! {
            () = busy.told_to_leave() => {}
            _ = waits.as_mut() => panic!("there are two"),
        }
        drop(busy);
        assert!(waits.await.is_some());
    }

    #[tokio::test]
    async fn an_address_has_its_own_bound_and_its_own_idle_connections() {
        let seats = seats(100, 2);
        let other = seats.take(address(9)).await.unwrap();
        let first = seats.take(address(1)).await.unwrap();
        let second = seats.take(address(1)).await.unwrap();
        let turn = Turn::begin(first.progress());
        let third = seats.take(address(1)).await.unwrap();
        assert!(is_told(&second) && !is_told(&first) && !is_told(&other));
        let _other_turn = Turn::begin(third.progress());
        assert!(seats.take(address(1)).await.is_none(), "both are busy");
        assert!(seats.take(address(2)).await.is_some());
        for _ in 0..3 {
            assert!(seats.take(None).await.is_some(), "nobody counts these");
        }
        drop(turn);
        drop((first, second, third, other));
        let taken = seats.lock();
        assert!(taken.seats.is_empty() && taken.by_address.is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |text: &str| counted(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1:2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.2"), of("192.0.2.1"));
    }
}
