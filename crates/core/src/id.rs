//! Identifiers. Most are UUIDv7, so that rows written together lie together; messages have ULIDs,
//! which sort as their texts do.
//!
//! Invariants: ids drawn from later stamps sort later. An id carries the place in its tenant's
//! ledger where its story begins (a receipt's own place, a task's assignment, a lease's
//! acceptance), so that a store finds the thing by its id without an index of ids.

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
            /// Builds an id from the sixteen bytes of its UUID.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// Returns the sixteen bytes of its UUID.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }

            /// Returns the place in the ledger that the id names. Anyone can invent an id, so a caller
            /// must compare the whole id with that of the row found there.
            pub const fn seq(&self) -> Seq {
                ((self.0.as_u128() >> SEQ_SHIFT) as u64) & SEQ_MASK
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
    /// A task. Of two tasks with the same priority, the one with the lower place is older and goes first.
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
id!(
    /// A record of identity: a tenant, a key, or anything else that lets somebody in. It carries no place.
    RecordId
);
id!(
    /// An entry of an audit log. It carries no place.
    AuditId
);
id!(
    /// An event that tells what a tenant used. It carries no place.
    UsageEventId
);

impl TaskId {
    /// Returns the id's short form, unless its place is too large for one.
    pub const fn short(&self) -> Option<ShortId> {
        let fits = self.seq() < 1 << (ShortId::BITS - SEQ_SHIFT);
        let tail = self.0.as_u128() as u64 & ((1 << ShortId::BITS) - 1);
        if fits { Some(ShortId(tail)) } else { None }
    }
}

/// The last group of a task's id without the zeros in front: the place and the random bits, but not the
/// time. No two tasks of a tenant have the same place, so it names one task; a slip of the pen meets
/// other random bits and names none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ShortId(u64);

impl ShortId {
    /// The size of the last group of a UUID.
    const BITS: u32 = 48;

    /// Returns the place of the task's assignment.
    pub const fn seq(&self) -> Seq {
        self.0 >> SEQ_SHIFT
    }
}

impl fmt::Display for ShortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The error for a text that is no short form of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not the short form of an id: it must be 5 to 12 hexadecimal digits and not begin with 0")]
pub struct NotAShortId;

impl FromStr for ShortId {
    type Err = NotAShortId;

    fn from_str(text: &str) -> Result<Self, NotAShortId> {
        let is_digits = text.bytes().all(|digit| digit.is_ascii_hexdigit());
        if !is_digits || text.len() > 12 || text.starts_with('0') {
            return Err(NotAShortId);
        }
        let tail = u64::from_str_radix(text, 16).map_err(|_| NotAShortId)?;
        // Places are counted from 1.
        Some(Self(tail))
            .filter(|id| id.seq() > 0)
            .ok_or(NotAShortId)
    }
}

/// A message: a ULID that carries its place among its tenant's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u128);

impl MessageId {
    const RANDOM_BITS: u32 = 80 - SEQ_BITS;

    /// Builds an id from its sixteen bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Returns its sixteen bytes.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Returns the place that the id names. Anyone can invent an id, so a caller must compare the
    /// whole id with that of the row found there.
    pub const fn seq(&self) -> u64 {
        ((self.0 >> Self::RANDOM_BITS) as u64) & SEQ_MASK
    }

    /// Returns the same id with another place.
    #[must_use]
    pub const fn moved_to(self, seq: u64) -> Self {
        let mask = (SEQ_MASK as u128) << Self::RANDOM_BITS;
        let seq = ((seq & SEQ_MASK) as u128) << Self::RANDOM_BITS;
        Self((self.0 & !mask) | seq)
    }
}

/// The digits of a ULID: Crockford's base 32, without I, L, O and U.
const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0_u8; 26];
        for (n, digit) in text.iter_mut().rev().enumerate() {
            *digit = CROCKFORD[(self.0 >> (5 * n)) as usize & 31];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

/// The error for a text that is no ULID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a ULID: it must be 26 digits and letters")]
pub struct NotAUlid;

impl FromStr for MessageId {
    type Err = NotAUlid;

    fn from_str(text: &str) -> Result<Self, NotAUlid> {
        // 26 digits of 5 bits are 130 bits: the first digit may use only three of its five.
        if text.len() != 26 || text.as_bytes()[0] > b'7' {
            return Err(NotAUlid);
        }
        let mut value = 0_u128;
        for digit in text.bytes() {
            let digit = digit.to_ascii_uppercase();
            let place = CROCKFORD.iter().position(|known| *known == digit);
            value = value << 5 | place.ok_or(NotAUlid)? as u128;
        }
        Ok(Self(value))
    }
}

// A UUIDv7 has 62 bits after its variant: 44 for the place, the lower 18 random. See `Ids::uuid`.
const SEQ_BITS: u32 = 44;
const SEQ_SHIFT: u32 = 18;
const SEQ_MASK: u64 = (1 << SEQ_BITS) - 1;

/// The moment of an [`Ids`]: milliseconds and a counter within them, never given out twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

impl Stamp {
    const COUNTER_BITS: u32 = 12;

    /// Returns the first stamp of a millisecond.
    pub const fn of_millis(millis: i64) -> Self {
        let millis = if millis < 0 { 0 } else { millis as u64 };
        // A UUIDv7 has room for 48 bits of milliseconds and 12 bits of counter.
        Self((millis << Self::COUNTER_BITS) & ((1 << 60) - 1))
    }

    /// Restores a stamp from the number that [`Stamp::as_u64`] returned.
    pub const fn from_u64(value: u64) -> Self {
        Self(value & ((1 << 60) - 1))
    }

    /// Returns the stamp as a number of the same order.
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
    /// Creates the source for one decision: `stamp` must be unique in the process, `seed` random.
    pub const fn new(stamp: Stamp, seed: u64) -> Self {
        Self {
            stamp,
            seed,
            drawn: 0,
        }
    }

    /// Draws the id of the task whose assignment stands at `seq`.
    pub fn task(&mut self, seq: Seq) -> TaskId {
        TaskId(self.uuid(seq))
    }

    /// Draws the id of the lease whose acceptance stands at `seq`.
    pub fn lease(&mut self, seq: Seq) -> LeaseId {
        LeaseId(self.uuid(seq))
    }

    /// Draws the id of the receipt at `seq`.
    pub fn receipt(&mut self, seq: Seq) -> ReceiptId {
        ReceiptId(self.uuid(seq))
    }

    /// Draws the id of the message at `seq`.
    pub fn message(&mut self, seq: u64) -> MessageId {
        let millis = u128::from(self.stamp.0 >> Stamp::COUNTER_BITS);
        // A ULID has 80 bits after its milliseconds: 44 for the place, the lower 36 random.
        let random = self.random() >> (64 - MessageId::RANDOM_BITS);
        let tail = u128::from(seq & SEQ_MASK) << MessageId::RANDOM_BITS | u128::from(random);
        MessageId(millis << 80 | tail)
    }

    /// Draws the id of a record.
    pub fn record(&mut self) -> RecordId {
        RecordId::from_bytes(self.correlation())
    }

    /// Draws the id of an entry of an audit log.
    pub fn audit(&mut self) -> AuditId {
        AuditId::from_bytes(self.correlation())
    }

    /// Draws the id of a usage event.
    pub fn usage_event(&mut self) -> UsageEventId {
        UsageEventId::from_bytes(self.correlation())
    }

    /// Draws a UUIDv7 that names nothing stored.
    pub fn correlation(&mut self) -> [u8; 16] {
        // It is in no ledger, so a random number takes the bits of the place.
        let place = self.random();
        *self.uuid(place).as_bytes()
    }

    /// Draws sixty-four random bits that follow from the seed.
    pub fn random(&mut self) -> u64 {
        // SplitMix64: the state is the seed plus a multiple of the golden ratio, so a clone of the
        // source draws the same numbers again.
        self.drawn += 1;
        mix(self.seed.wrapping_add(self.drawn.wrapping_mul(GOLDEN)))
    }

    fn uuid(&mut self, seq: Seq) -> Uuid {
        let random = self.random() >> (64 - SEQ_SHIFT);
        let tail = ((seq & SEQ_MASK) << SEQ_SHIFT) | random;
        // 48 bits of milliseconds, the version 7, 12 bits of counter; below, the variant and the tail.
        let high = ((self.stamp.0 >> Stamp::COUNTER_BITS) << 16)
            | 0x7000
            | (self.stamp.0 & ((1 << Stamp::COUNTER_BITS) - 1));
        Uuid::from_u64_pair(high, (0b10 << 62) | tail)
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
    fn ids_are_version_7_uuids_that_sort_by_stamp_and_carry_their_place() {
        let mut last = None;
        for (stamp, seq) in [
            (1_000, 9),
            (1_001, SEQ_MASK),
            (1_002, 1),
            (9_999, 1_000_000),
        ] {
            let mut ids = Ids::new(Stamp::from_u64(stamp), u64::MAX);
            let id = ids.receipt(seq);
            assert_eq!(id.seq(), seq);
            assert_eq!(id.0.get_version_num(), 7);
            assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
            assert_eq!(id.to_string().parse::<ReceiptId>().unwrap(), id);
            assert!(last < Some(id));
            last = Some(id);
        }
    }

    #[test]
    fn message_ids_are_ulids_that_carry_their_place() {
        let mut ids = Ids::new(Stamp::of_millis(1_760_292_161_000), 7);
        let (one, two) = (ids.message(1), ids.message(SEQ_MASK));
        assert!(one < two && one.to_string() < two.to_string());
        for (id, seq) in [(one, 1), (two, SEQ_MASK)] {
            assert_eq!(id.seq(), seq);
            assert_eq!(id.to_string().len(), 26);
            assert_eq!(id.to_string().parse(), Ok(id));
            assert_eq!(id.to_string().to_lowercase().parse(), Ok(id));
        }
        for text in [
            "",
            "01JAE6ZQX5",
            "8ZZZZZZZZZZZZZZZZZZZZZZZZZ",
            "0000000000000000000000000U",
        ] {
            assert_eq!(text.parse::<MessageId>(), Err(NotAUlid), "{text}");
        }
        let largest = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ";
        assert_eq!(largest.parse::<MessageId>().unwrap().to_string(), largest);
    }

    #[test]
    fn the_short_form_of_an_id_is_the_end_of_it_and_names_its_place() {
        for seq in [1, 2, 77, 1_000_000, (1 << 30) - 1] {
            let id = Ids::new(Stamp::of_millis(1_760_292_161_000), seq).task(seq);
            let short = id.short().unwrap();
            assert_eq!(short.seq(), seq);
            assert!(id.to_string().ends_with(&short.to_string()), "{id} {short}");
            assert_eq!(short.to_string().parse(), Ok(short));
            assert_eq!(short.to_string().to_uppercase().parse(), Ok(short));
        }
        let late = Ids::new(Stamp::of_millis(5), 1).task(1 << 30);
        assert_eq!(late.short(), None);
        for text in [
            "",
            "7",
            "3ffff",
            "0fffff",
            "+fffff",
            "1234567890abc",
            "xyzxyz",
            "🦀🦀",
        ] {
            assert_eq!(text.parse::<ShortId>(), Err(NotAShortId), "{text}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_ids() {
        let draw = |seed| {
            let mut ids = Ids::new(Stamp::of_millis(5), seed);
            (ids.task(7), ids.lease(8), ids.receipt(9))
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
