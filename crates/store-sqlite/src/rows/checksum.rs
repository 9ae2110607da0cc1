//! Checksums of rows: a byte that went bad on the disk becomes an error, never an answer.
//!
//! They guard against disks, not against people; nobody can change a ledger unseen, see `core`'s
//! links. So they must be cheap above all, and find every damage within eight bytes in a row.

use asyncgate_core::Timestamp;
use rusqlite::{
    Result, Statement, ToSql,
    types::{ToSqlOutput, Type, ValueRef},
};

use crate::codec::Key;

/// A checksum that values are added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// Of a row that has this key, so that a row in the place of another one is found too.
    pub(crate) const fn new(key: Key) -> Self {
        Self(0).with(key.0.cast_unsigned())
    }

    /// Every step can be undone, so words that differ lead to sums that differ, and stay so.
    const fn with(self, word: u64) -> Self {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(mixed ^ (mixed >> 32))
    }

    pub(crate) fn add(&mut self, value: ValueRef<'_>) {
        // The kind and the length go first, so that no two rows look alike.
        *self = match value {
            ValueRef::Null => self.with(0),
            ValueRef::Integer(number) => self.with(1).with(number.cast_unsigned()),
            ValueRef::Real(number) => self.with(2).with(number.to_bits()),
            ValueRef::Text(text) => self.with(3).with_bytes(text),
            ValueRef::Blob(bytes) => self.with(4).with_bytes(bytes),
        };
    }

    pub(crate) fn add_text(&mut self, text: &str) {
        self.add(ValueRef::Text(text.as_bytes()));
    }

    fn with_bytes(self, bytes: &[u8]) -> Self {
        let mut sum = self.with(bytes.len() as u64);
        let (blocks, rest) = bytes.as_chunks::<32>();
        if !blocks.is_empty() {
            // Each step waits for the one before it. Four at a time wait for each other less.
            let mut lanes = [sum, sum.with(1), sum.with(2), sum.with(3)];
            for block in blocks {
                for (lane, word) in lanes.iter_mut().zip(block.as_chunks::<8>().0) {
                    *lane = lane.with(u64::from_le_bytes(*word));
                }
            }
            sum = lanes.iter().fold(sum, |sum, lane| sum.with(lane.0));
        }
        let (words, rest) = rest.as_chunks::<8>();
        for word in words {
            sum = sum.with(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        sum.with(u64::from_le_bytes(last))
    }

    const fn to_column(self) -> i64 {
        self.0.cast_signed()
    }

    /// Compares with what was stored.
    pub(crate) fn check(self, stored: i64) -> Result<()> {
        if stored == self.to_column() {
            return Ok(());
        }
        Err(damaged(
            "the row does not have the checksum that it should have",
        ))
    }
}

/// The error for what can only be damage.
pub(crate) fn damaged(what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, what.into())
}

/// Whether an error is one for damage in a single row: others can be read.
pub(crate) const fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
    )
}

/// Binds the columns of a row one after the other, and adds them up.
pub(crate) struct Cells<'a, 'conn> {
    statement: &'a mut Statement<'conn>,
    key: Key,
    next: usize,
    sum: Checksum,
}

impl<'a, 'conn> Cells<'a, 'conn> {
    /// Begins with the key of the row.
    pub(crate) fn new(statement: &'a mut Statement<'conn>, key: Key) -> Result<Self> {
        let mut cells = Self {
            statement,
            key,
            next: 1,
            sum: Checksum::new(key),
        };
        cells.bind(key.0)?;
        Ok(cells)
    }

    /// A column that the checksum covers.
    pub(crate) fn put(&mut self, value: impl ToSql) -> Result<()> {
        match value.to_sql()? {
            ToSqlOutput::Borrowed(value) => {
                self.sum.add(value);
                self.bind(ToSqlOutput::Borrowed(value))
            }
            ToSqlOutput::Owned(value) => {
                self.sum.add((&value).into());
                self.bind(value)
            }
            _ => Err(rusqlite::Error::InvalidQuery),
        }
    }

    pub(crate) fn put_time(&mut self, time: Timestamp) -> Result<()> {
        self.put(time.as_millis())
    }

    /// A text that the checksum covers and that stands elsewhere.
    pub(crate) fn cover(&mut self, text: &str) {
        self.sum.add_text(text);
    }

    /// A column that the checksum does not cover.
    pub(crate) fn bind(&mut self, value: impl ToSql) -> Result<()> {
        self.statement.raw_bind_parameter(self.next, value)?;
        self.next += 1;
        Ok(())
    }

    /// The checksum of what was put since the last one.
    pub(crate) fn seal(&mut self) -> Result<()> {
        let sum = std::mem::replace(&mut self.sum, Checksum::new(self.key));
        self.bind(sum.to_column())
    }

    pub(crate) fn execute(self) -> Result<()> {
        self.statement.raw_execute().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[ValueRef<'_>]) -> Checksum {
        let mut sum = Checksum::new(Key(7));
        values.iter().for_each(|value| sum.add(*value));
        sum
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let text: Vec<u8> = (0..100).collect();
        for len in 0..text.len() {
            let right = sum(&[ValueRef::Text(&text[..len]), ValueRef::Null]);
            for bit in 0..len * 8 {
                let mut flipped = text[..len].to_vec();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_ne!(sum(&[ValueRef::Text(&flipped), ValueRef::Null]), right);
            }
        }
        for bit in 0..64 {
            assert_ne!(
                sum(&[ValueRef::Integer(0)]),
                sum(&[ValueRef::Integer(1 << bit)])
            );
            assert_ne!(Checksum::new(Key(0)), Checksum::new(Key(1 << bit)));
        }
    }

    #[test]
    fn what_looks_alike_is_not_equal() {
        let alike: [&[ValueRef<'_>]; 9] = [
            &[],
            &[ValueRef::Null],
            &[ValueRef::Integer(0)],
            &[ValueRef::Real(0.0)],
            &[ValueRef::Text(b"")],
            &[ValueRef::Blob(b"")],
            &[ValueRef::Text(b"\0")],
            &[ValueRef::Text(b"ab"), ValueRef::Text(b"c")],
            &[ValueRef::Text(b"a"), ValueRef::Text(b"bc")],
        ];
        for (n, one) in alike.iter().enumerate() {
            for other in &alike[..n] {
                assert_ne!(sum(one), sum(other), "{one:?} {other:?}");
            }
        }
    }
}
