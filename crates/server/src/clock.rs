//! The only place that reads the clock and the random source of the machine.
//!
//! Invariants: [`GuardedClock`] never runs backwards, not over a wall-clock step and not over a
//! restart; [`Random`] cannot be predicted from what it gave before, since lease ids are fencing tokens.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use asyncgate_core::Timestamp;
use asyncgate_engine::{Clock, Entropy};

/// Reads the machine's wall time, for what is compared with other clocks. Deadlines never use it.
#[expect(
    clippy::disallowed_methods,
    reason = "this is where the wall clock is read"
)]
pub fn wall() -> Timestamp {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    })
}

/// The machine's clock shows a time that HTTP has no date for.
#[derive(Debug, thiserror::Error)]
#[error("the machine's clock shows {0}; set it to a time between 1970 and 9999, and start again")]
pub struct UnusableTime(Timestamp);

/// The first time after the last date of HTTP, 9999-12-31.
const END_OF_DATES_MS: i64 = 253_402_300_800_000;

/// Refuses a machine whose clock HTTP has no date for.
pub fn check_wall() -> Result<(), UnusableTime> {
    let wall = wall();
    match has_date(wall) {
        true => Ok(()),
        false => Err(UnusableTime(wall)),
    }
}

/// Returns true for times that HTTP has a date for.
pub fn has_date(time: Timestamp) -> bool {
    (0..END_OF_DATES_MS).contains(&time.as_millis())
}

/// A clock that shows wall time at the start, and from then on only adds elapsed time.
///
/// A step of the wall clock, by an operator or a time daemon, so neither ends nor revives a lease.
#[derive(Debug)]
pub struct GuardedClock {
    started: Instant,
    /// The time at `started`, in milliseconds. It is never lowered.
    base_ms: AtomicI64,
}

impl GuardedClock {
    /// Starts a clock at the machine's wall time.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the clock that everything else is given"
    )]
    pub fn start() -> Self {
        Self::start_at(Instant::now(), wall().as_millis())
    }

    fn start_at(started: Instant, wall_ms: i64) -> Self {
        Self {
            started,
            base_ms: AtomicI64::new(wall_ms),
        }
    }

    /// Moves the clock forward to `floor`, the last time that was stored before the restart, if the clock
    /// is behind it. If the machine's clock was set back in between, time goes on from the floor.
    pub fn raise_to(&self, floor: Timestamp) {
        self.base_ms.fetch_max(
            floor.as_millis().saturating_sub(self.elapsed_ms()),
            Ordering::AcqRel,
        );
    }

    fn elapsed_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

impl Clock for GuardedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(
            self.base_ms
                .load(Ordering::Acquire)
                .saturating_add(self.elapsed_ms()),
        )
    }
}

/// The machine's random source could not be read; nothing can be given an id.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the machine's random source: {0}")]
pub struct NoRandomness(getrandom::Error);

/// Fills a buffer with bytes from the machine's random source.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the random source that everything else is given"
)]
pub fn fill_random(bytes: &mut [u8]) -> Result<(), NoRandomness> {
    getrandom::fill(bytes).map_err(NoRandomness)
}

/// A source of random numbers: a keyed hash in counter mode. It reads the machine's source once, at the
/// start, and makes no system call after that.
#[derive(Debug)]
pub struct Random {
    pool: Mutex<Pool>,
}

/// The number of random numbers that one run of the hash gives.
const POOL: usize = 64;

struct Pool {
    key: [u8; 32],
    block: u64,
    numbers: [u64; POOL],
    used: usize,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

impl Random {
    /// Makes a source with a seed from the machine.
    pub fn seed() -> Result<Self, NoRandomness> {
        let mut key = [0; 32];
        fill_random(&mut key)?;
        Ok(Self::from_key(key))
    }

    fn from_key(key: [u8; 32]) -> Self {
        let pool = Pool {
            key,
            block: 0,
            numbers: [0; POOL],
            used: POOL,
        };
        Self {
            pool: Mutex::new(pool),
        }
    }
}

impl Entropy for Random {
    fn next_u64(&self) -> u64 {
        // A poisoned lock is harmless: after any panic the pool still gives numbers nobody has seen.
        self.pool
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    }
}

impl Pool {
    fn next(&mut self) -> u64 {
        if self.used >= POOL {
            self.refill();
        }
        let number = self.numbers.get(self.used).copied().unwrap_or_default();
        self.used += 1;
        number
    }

    fn refill(&mut self) {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&self.block.to_le_bytes());
        // All at once: each read of a part would hash a whole block again.
        let mut bytes = [[0; 8]; POOL];
        hasher.finalize_xof().fill(bytes.as_flattened_mut());
        self.numbers = bytes.map(u64::from_le_bytes);
        self.block += 1;
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Arc;

    use asyncgate_engine::fakes::FakeClock;
    use asyncgate_engine::{Engine, Settings};
    use asyncgate_store::memory::MemoryStore;

    use super::*;

    #[expect(
        clippy::disallowed_methods,
        reason = "the clock under test counts from an instant"
    )]
    fn clock(age: Duration, wall_ms: i64) -> GuardedClock {
        GuardedClock::start_at(Instant::now().checked_sub(age).unwrap(), wall_ms)
    }

    #[test]
    fn time_is_the_start_plus_what_elapsed() {
        let now = clock(Duration::from_secs(5), 1_000).now().as_millis();
        assert!((6_000..16_000).contains(&now), "{now}");
    }

    #[test]
    fn a_floor_ahead_moves_the_clock_and_one_behind_does_not() {
        let clock = clock(Duration::from_secs(5), 1_000);
        clock.raise_to(Timestamp::from_millis(500));
        assert!(clock.now().as_millis() < 16_000);
        clock.raise_to(Timestamp::from_millis(1_000_000));
        let now = clock.now().as_millis();
        assert!((1_000_000..1_010_000).contains(&now), "{now}");
        clock.raise_to(Timestamp::from_millis(7));
        assert!(clock.now().as_millis() >= now);
    }

    #[test]
    fn only_times_from_1970_to_9999_have_a_date() {
        for (millis, fine) in [
            (-1, false),
            (0, true),
            (END_OF_DATES_MS - 1, true),
            (END_OF_DATES_MS, false),
        ] {
            assert_eq!(has_date(Timestamp::from_millis(millis)), fine, "{millis}");
        }
        let end = Timestamp::from_millis(END_OF_DATES_MS);
        assert_eq!(end.to_string(), "10000-01-01T00:00:00.000Z");
    }

    #[test]
    fn the_real_clock_is_past_2025() {
        assert!(GuardedClock::start().now().as_millis() > 1_735_689_600_000);
    }

    #[test]
    fn numbers_do_not_repeat_within_or_across_blocks_or_seeds() {
        let (one, two) = (Random::from_key([1; 32]), Random::seed().unwrap());
        let numbers: HashSet<u64> = (0..POOL * 4)
            .flat_map(|_| [one.next_u64(), two.next_u64()])
            .collect();
        assert_eq!(numbers.len(), POOL * 8);
    }

    #[test]
    fn correlation_ids_of_servers_with_equal_clocks_differ_in_74_random_bits() {
        let engine = || {
            let random = Arc::new(Random::seed().unwrap());
            let clock = Arc::new(FakeClock::at(1_767_610_800_000));
            Engine::new(
                Arc::new(MemoryStore::new()),
                clock,
                random,
                Settings::default(),
            )
        };
        let (one, two) = (engine(), engine());
        let number = |id: &str| u128::from_str_radix(&id.replace('-', ""), 16).unwrap();
        let ids: HashSet<u128> = (0..500)
            .flat_map(|_| [number(&one.corr_id()), number(&two.corr_id())])
            .collect();
        assert_eq!(ids.len(), 1_000);
        let (some, all) = (
            ids.iter().fold(0, |some, id| some | id),
            ids.iter().fold(u128::MAX, |all, id| all & id),
        );
        // The time, the version and the variant are the same in all of them; all else varies.
        assert_eq!((some ^ all).count_ones(), 74);
        assert_eq!(all >> 80, 1_767_610_800_000);
        assert_eq!((all >> 76 & 0xf, all >> 62 & 0b11), (7, 0b10));
    }

    #[test]
    fn the_same_key_gives_the_same_numbers() {
        let draw = || {
            let random = Random::from_key([7; 32]);
            (0..POOL + 3).map(|_| random.next_u64()).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
    }
}
