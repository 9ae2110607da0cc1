//! Random histories that prefer the edges of numbers. A host and the rule are given the same ones.

use std::{collections::HashMap, convert::Infallible, sync::Arc};

use asyncgate_core::{
    TenantId, Timestamp,
    admission::{
        Asks, Bucket, Delay, Increment, LimitCheck, Name, NonceCheck, Row, Rule, Stage, Together,
        Window, decide,
    },
};

use crate::admission::Host;

const STEPS: usize = 60;
/// The largest number up to which a double holds every whole number.
const EXACT: u64 = (1 << 53) - 1;

/// The size of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breadth {
    /// It asks about one counter, limit or nonce.
    One,
    /// It asks about several, of every kind.
    Many,
}

/// Asks a host and the rule the same questions, by the callers' clock, on a tenant that has the number of the seed.
///
/// # Panics
///
/// If the host answers otherwise than the rule.
pub async fn follow_history(host: Arc<dyn Host>, seed: u64, breadth: Breadth) {
    let mut random = Random(seed);
    let mut tenant = [0; 16];
    tenant[..8].copy_from_slice(&seed.to_be_bytes());
    let tenant = TenantId::from_bytes(tenant);
    let mut rows: HashMap<Name, Row> = HashMap::new();
    let mut now = Timestamp::from_millis(1_731_690_000_000);
    let mut asked = Vec::new();
    for step in 0..STEPS {
        // Half of the histories are about buckets of the finest parts, which fill within milliseconds.
        let fine = seed % 2 == 1;
        now = now.plus_millis(random.wait(fine).cast_signed());
        let asks = match fine {
            true => random.fine_asks(seed),
            false => random.asks(),
        };
        let asks = match breadth {
            Breadth::One => one_of(asks),
            Breadth::Many => asks,
        };
        asked.push((now, asks.clone()));
        let load = |name| Ok::<_, Infallible>(rows.get(&name).copied());
        let Ok(decision) = decide(tenant, now, &asks, load);
        let told = host.admit(tenant, now, asks).await;
        assert_eq!(
            told.as_ref(),
            Ok(&decision.verdicts),
            "history {seed}, step {step}: {:#?}",
            &asked[asked.len().saturating_sub(3)..]
        );
        rows.extend(decision.rows);
    }
}

/// Returns the same question with the first of its parts alone.
fn one_of(mut asks: Asks) -> Asks {
    let mut left = 1;
    let mut keep = |len: usize| {
        let kept = len.min(left);
        left -= kept;
        kept
    };
    asks.counters.truncate(keep(asks.counters.len()));
    asks.limits.truncate(keep(asks.limits.len()));
    asks.nonces.truncate(keep(asks.nonces.len()));
    asks
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a number with any number of bits: small ones are as likely as large ones.
    fn bits(&mut self, most: u32) -> u64 {
        let bits = self.below(u64::from(most)) as u32 + 1;
        self.next() >> (64 - bits)
    }

    /// Returns a number at or near an edge.
    fn edge(&mut self) -> u64 {
        let edge = self.one_of(&[0, 1, 1_000_000_000, EXACT, u64::MAX / 2, u64::MAX]);
        let near = self.below(3);
        if self.chance(50) {
            edge.saturating_add(near)
        } else {
            edge.saturating_sub(near)
        }
    }

    fn wait(&mut self, fine: bool) -> u64 {
        if fine {
            return self.below(12);
        }
        let any = self.one_of(&[999, 20_000, 400_000_000]);
        let any = self.below(any);
        self.one_of(&[0, 1, 1_000, 2_000, 60_000, any])
    }

    /// Returns one limit of a bucket that holds as many parts as there can be, mostly the same one.
    fn fine_asks(&mut self, seed: u64) -> Asks {
        let mut steady = Self(if self.chance(90) { seed } else { self.next() });
        let odd = |bits: u32| steady.next() >> (64 - bits) | 1;
        let odds = [49, 50, 51, 52].map(odd);
        let unit = steady.one_of(&[1, 1, 3, 7, 1_000_003]);
        let refill = steady.one_of(&odds);
        let capacity = EXACT / unit;
        let capacity = steady.one_of(&[capacity, capacity, capacity / 2 + 1]);
        let bucket = Bucket::new(capacity, refill, unit).unwrap();
        let capacity = capacity.cast_signed();
        let part = self.below(capacity.unsigned_abs()).cast_signed();
        let check = LimitCheck {
            policy: "fine".into(),
            key: "k".to_owned(),
            cost: self.one_of(&[capacity, capacity, part, 1, -part, -capacity - part]),
            shadow: false,
            rule: Rule::Bucket(bucket.with_overdraw(true)),
        };
        Asks {
            limits: vec![check],
            ..Asks::default()
        }
    }

    fn asks(&mut self) -> Asks {
        let kinds = self.below(8);
        let mut asks = Asks {
            together: self.one_of(&[Together::Each, Together::Each, Together::All]),
            peek: self.chance(10),
            ..Asks::default()
        };
        let many = |random: &mut Self| 1 + random.below(3);
        if kinds & 1 != 0 {
            asks.counters = (0..many(self)).map(|_| self.increment()).collect();
        }
        if kinds & 2 != 0 {
            asks.limits = (0..many(self)).map(|_| self.limit()).collect();
        }
        if kinds & 4 != 0 {
            asks.nonces = (0..many(self)).map(|_| self.nonce()).collect();
        }
        asks
    }

    fn increment(&mut self) -> Increment {
        let by = self.edge();
        Increment {
            namespace: [self.below(2) as u8; 32],
            window_secs: self.one_of(&[1, 7, 60, 7_776_000, u64::MAX]),
            limit: self.edge(),
            by: self.one_of(&[1, 1, 2, by]),
        }
    }

    fn nonce(&mut self) -> NonceCheck {
        NonceCheck {
            namespace: [1; 32],
            nonce: vec![self.below(6) as u8; 16],
            ttl_secs: self.one_of(&[1, 2, 60, 7_776_000, u64::MAX]),
        }
    }

    fn limit(&mut self) -> LimitCheck {
        let rule = match self.below(3) {
            0 => Rule::Bucket(self.bucket()),
            1 => {
                let limit = self.edge().max(1);
                let secs = self.one_of(&[1, 7, 60, 7_776_000]);
                Rule::Window(Window::new(self.one_of(&[3, limit]), secs).unwrap())
            }
            _ => Rule::Delay(Arc::new(self.delay())),
        };
        let edge = self.edge().cast_signed();
        // These numbers are around what fits, and around what one can owe and hold.
        let most = rule.limit().cast_signed();
        let near = self.below(5).cast_signed() - 2;
        let costs = [
            1,
            1,
            1,
            2,
            0,
            -1,
            edge,
            edge.saturating_neg(),
            most.saturating_add(near),
            most.saturating_mul(-2).saturating_add(near),
            (most / 2).saturating_neg(),
        ];
        LimitCheck {
            policy: self.one_of(&["a", "b"]).into(),
            key: "k".to_owned(),
            cost: self.one_of(&costs),
            shadow: self.chance(20),
            rule,
        }
    }

    /// Returns one of a few buckets, so that they meet again, or one of all that there can be.
    fn bucket(&mut self) -> Bucket {
        let bucket = loop {
            let unit_bits = 1 + self.below(53) as u32;
            let unit = self.bits(unit_bits).max(1);
            let capacity = self.below(EXACT / unit + 1).max(1);
            let refill = self.bits(53).max(1);
            let (capacity, refill, unit) = self.one_of(&[
                (3, 1, 700),
                (3, 2, 700),
                (2, 1, 30_000),
                (1, 1, EXACT),
                (EXACT, EXACT, 1),
                (capacity, refill, unit),
                (EXACT / unit, refill, unit),
            ]);
            if let Ok(bucket) = Bucket::new(capacity, refill, unit) {
                break bucket;
            }
        };
        bucket.with_overdraw(self.chance(60))
    }

    fn delay(&mut self) -> Delay {
        let stages = (0..1 + self.below(3)).map(|_| Stage {
            delay: self.one_of(&[0, 1, 5, 300, EXACT]),
            reset_timer: self.chance(50),
            batch_size: self.one_of(&[1, 1, 2, 3, EXACT]),
            repetitions: self.one_of(&[1, 1, 2, EXACT]),
        });
        Delay::new(stages.collect()).unwrap()
    }
}
