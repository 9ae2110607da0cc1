//! Identifiers. All are UUIDv7, so that rows written together lie together.
//!
//! Invariants: ids drawn from later stamps sort later; a receipt's id carries the receipt's place
//! in its tenant's ledger, so that finding a receipt by id needs no index of its own.

use std::{fmt, str::FromStr};

use uuid::Uuid;

/// A receipt's place in its tenant's ledger, counted from 1 without gaps.
pub type Seq = u64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// From the sixteen bytes of its UUID.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The sixteen bytes of its UUID.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text).map(Self)
            }
        }
    };
}

id!(
    /// A boundary of isolation. Every row belongs to one tenant.
    TenantId
);
id!(
    /// A task. Ids of one server sort by the time of creation, which is the order of claims.
    TaskId
);
id!(
    /// A lease, and the fencing token of the worker that holds it.
    LeaseId
);
id!(
    /// A receipt.
    ReceiptId
);

impl ReceiptId {
    /// The place in the ledger that the id names. Only a look at the ledger tells whether a
    /// receipt with this id stands there.
    pub const fn seq(&self) -> Seq {
        ((self.0.as_u128() >> SEQ_SHIFT) as u64) & SEQ_MASK
    }
}

const SEQ_BITS: u32 = 44;
const SEQ_SHIFT: u32 = 18;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// When an [`Ids`] was made: milliseconds and a counter within them, never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl Stamp {
    const COUNTER_BITS: u32 = 12;

    /// The first stamp of a millisecond.
    pub const fn of_millis(millis: i64) -> Self {
        let millis = if millis < 0 { 0 } else { millis as u64 };
        Self((millis << Self::COUNTER_BITS) & ((1 << 60) - 1))
    }

    /// From what [`Stamp::as_u64`] gave.
    pub const fn from_u64(value: u64) -> Self {
        Self(value & ((1 << 60) - 1))
    }

    /// As a number that sorts as the stamp does.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

/// A deterministic source of the ids that one decision needs.
#[derive(Debug, Clone)]
pub struct Ids {
    stamp: Stamp,
    seed: u64,
    drawn: u64,
}

impl Ids {
    /// Ids for one decision: `stamp` must be unique in the process, `seed` random.
    pub const fn new(stamp: Stamp, seed: u64) -> Self {
        Self {
            stamp,
            seed,
            drawn: 0,
        }
    }

    /// The next task id.
    pub fn task(&mut self) -> TaskId {
        TaskId(self.next())
    }

    /// The next lease id.
    pub fn lease(&mut self) -> LeaseId {
        LeaseId(self.next())
    }

    /// The id of the receipt at `seq`.
    pub fn receipt(&mut self, seq: Seq) -> ReceiptId {
        let random = self.random() >> (64 - SEQ_SHIFT);
        ReceiptId(self.uuid(((seq & SEQ_MASK) << SEQ_SHIFT) | random))
    }

    /// Sixty-four random bits that follow from the seed.
    pub fn random(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed.wrapping_add(self.drawn.wrapping_mul(GOLDEN)))
    }

    /// Ids of one decision sort in the order they are drawn (the high bits count), and cannot be
    /// guessed from each other (the low bits are random).
    fn next(&mut self) -> Uuid {
        let random = self.random() >> (64 - 50);
        let tail = ((self.drawn & 0xfff) << 50) | random;
        self.uuid(tail)
    }

    fn uuid(&self, tail: u64) -> Uuid {
        let high = ((self.stamp.0 >> Stamp::COUNTER_BITS) << 16)
            | 0x7000
            | (self.stamp.0 & ((1 << Stamp::COUNTER_BITS) - 1));
        let low = (0b10 << 62) | (tail & ((1 << 62) - 1));
        Uuid::from_u64_pair(high, low)
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: every input bit reaches every output bit.
const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_valid_version_7_uuids_that_sort_by_stamp_and_draw() {
        let mut earlier = Ids::new(Stamp::of_millis(1_000), 7);
        let mut later = Ids::new(Stamp::from_u64(Stamp::of_millis(1_000).as_u64() + 1), 1);
        let drawn = [earlier.task(), earlier.task(), earlier.task(), later.task()];
        assert!(drawn.windows(2).all(|pair| pair[0] < pair[1]), "{drawn:?}");
        for id in drawn {
            assert_eq!(id.0.get_version_num(), 7);
            assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
        }
    }

    #[test]
    fn a_receipt_id_carries_its_place() {
        let mut ids = Ids::new(Stamp::of_millis(1_767_610_800_123), u64::MAX);
        for seq in [1, 2, 1_000_000, SEQ_MASK] {
            let id = ids.receipt(seq);
            assert_eq!(id.seq(), seq);
            assert_eq!(id.0.get_version_num(), 7);
            assert_eq!(id.to_string().parse::<ReceiptId>().unwrap(), id);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let draw = |seed| {
            let mut ids = Ids::new(Stamp::of_millis(5), seed);
            (ids.task(), ids.lease(), ids.receipt(9))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
