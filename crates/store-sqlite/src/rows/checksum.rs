//! Checksums of rows: a byte that went bad on the disk becomes an error, never an answer.
//!
//! A checksum is the XXH3 (64 bits) of the row's key and of every value that it covers, each with its
//! type and length. It guards against disks, not against people: nobody can change a ledger unseen,
//! because `core` links its receipts by hashes.
//!
//! The type of the column says how the checksum was made. XXH3 is a blob of eight bytes. An integer is
//! the checksum of schema versions 1 to 3 ([`version_3`]), which is still checked and never written.
//! So a store needs no rewriting when it is brought up to date.

mod version_3;

use std::cell::Cell;

use asyncgate_core::Timestamp;
use rusqlite::{
    CachedStatement, Result, ToSql,
    types::{FromSql, FromSqlResult, ToSqlOutput, Type, Value, ValueRef},
};
use twox_hash::XxHash3_64;

use crate::codec::Key;

// The types of values, as checksums cover them. They are part of the file format.
const NULL: u8 = 0;
const INTEGER: u8 = 1;
const REAL: u8 = 2;
const TEXT: u8 = 3;
const BLOB: u8 = 4;

/// The most bytes that a thread keeps for its next checksum. Large payloads are rare.
const MAX_KEPT_BYTES: usize = 64 << 10;

thread_local! {
    /// The room for the bytes of one row, used again and again: hashing them at once is faster than
    /// hashing value after value, and this way it costs no allocation.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes that a checksum covers, as far as they were added.
#[derive(Debug)]
pub(crate) struct Checksum {
    covered: Vec<u8>,
}

impl Checksum {
    /// Begins with the key of the row, so that a row in the place of another one is found too.
    pub(crate) fn new(key: Key) -> Self {
        let mut sum = Self {
            covered: ROOM.take(),
        };
        sum.restart(key);
        sum
    }

    fn restart(&mut self, key: Key) {
        self.covered.clear();
        self.covered.extend_from_slice(&key.0.to_le_bytes());
    }

    /// Covers a value.
    pub(crate) fn add(&mut self, value: ValueRef<'_>) {
        // The type and the length go first, so that no two rows look alike.
        match value {
            ValueRef::Null => self.covered.push(NULL),
            ValueRef::Integer(number) => self.add_word(INTEGER, number.to_le_bytes()),
            ValueRef::Real(number) => self.add_word(REAL, number.to_le_bytes()),
            ValueRef::Text(text) => self.add_bytes(TEXT, text),
            ValueRef::Blob(bytes) => self.add_bytes(BLOB, bytes),
        }
    }

    /// Covers a text.
    pub(crate) fn add_text(&mut self, text: &str) {
        self.add_bytes(TEXT, text.as_bytes());
    }

    fn add_word(&mut self, kind: u8, word: [u8; 8]) {
        let mut bytes = [kind; 9];
        bytes[1..].copy_from_slice(&word);
        self.covered.extend_from_slice(&bytes);
    }

    fn add_bytes(&mut self, kind: u8, bytes: &[u8]) {
        self.add_word(kind, (bytes.len() as u64).to_le_bytes());
        self.covered.extend_from_slice(bytes);
    }

    fn xxh3(&self) -> [u8; 8] {
        XxHash3_64::oneshot(&self.covered).to_le_bytes()
    }

    /// Fails if the row does not have the checksum that it should have.
    pub(crate) fn check(&self, stored: Stored) -> Result<()> {
        let right = match stored {
            Stored::Xxh3(sum) => sum == self.xxh3(),
            Stored::Version3(sum) => sum == version_3::sum(&self.covered),
        };
        if right {
            return Ok(());
        }
        Err(damaged(
            "the row does not have the checksum that it should have",
        ))
    }
}

impl Drop for Checksum {
    fn drop(&mut self) {
        if self.covered.capacity() <= MAX_KEPT_BYTES {
            ROOM.set(std::mem::take(&mut self.covered));
        }
    }
}

/// A checksum as it stands in a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Stored {
    Xxh3([u8; 8]),
    Version3(i64),
}

impl FromSql for Stored {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Integer(sum) => Ok(Self::Version3(sum)),
            ValueRef::Null | ValueRef::Real(_) | ValueRef::Text(_) | ValueRef::Blob(_) => {
                <[u8; 8]>::column_result(value).map(Self::Xxh3)
            }
        }
    }
}

/// The error for what can only be damage.
pub(crate) fn damaged(what: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Null, what.into())
}

/// Returns true if an error is damage in a single row: other rows can still be read.
pub(crate) const fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(
        error,
        rusqlite::Error::FromSqlConversionFailure(..)
            | rusqlite::Error::IntegralValueOutOfRange(..)
            | rusqlite::Error::InvalidColumnType(..)
    )
}

/// Binds the columns of a row one after the other, and computes its checksums on the way.
pub(crate) struct Cells<'a, 'conn> {
    statement: &'a mut CachedStatement<'conn>,
    key: Key,
    next: usize,
    sum: Checksum,
}

impl<'a, 'conn> Cells<'a, 'conn> {
    /// Begins with the key of the row.
    pub(crate) fn new(statement: &'a mut CachedStatement<'conn>, key: Key) -> Result<Self> {
        let mut cells = Self {
            statement,
            key,
            next: 1,
            sum: Checksum::new(key),
        };
        cells.bind(key.0)?;
        Ok(cells)
    }

    /// Binds a column that the checksum covers.
    pub(crate) fn put(&mut self, value: impl ToSql) -> Result<()> {
        match value.to_sql()? {
            // A statement comes from the cache without values, and a value that is not bound is NULL. Half of the columns
            // of a new task are.
            ToSqlOutput::Borrowed(ValueRef::Null) | ToSqlOutput::Owned(Value::Null) => {
                self.sum.add(ValueRef::Null);
                self.next += 1;
                Ok(())
            }
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

    /// Binds a column that the checksum covers where it is not empty. Such a column can be added to a table
    /// whose rows have checksums already.
    pub(crate) fn put_some(&mut self, text: Option<&str>) -> Result<()> {
        if let Some(text) = text {
            self.cover(text);
        }
        self.bind(text)
    }

    pub(crate) fn put_time(&mut self, time: Timestamp) -> Result<()> {
        self.put(time.as_millis())
    }

    /// Covers a text that stands in another table.
    pub(crate) fn cover(&mut self, text: &str) {
        self.sum.add_text(text);
    }

    /// Binds a column that the checksum does not cover.
    pub(crate) fn bind(&mut self, value: impl ToSql) -> Result<()> {
        self.statement.raw_bind_parameter(self.next, value)?;
        self.next += 1;
        Ok(())
    }

    /// Binds the checksum of what was put since the last one, and begins the next.
    pub(crate) fn seal(&mut self) -> Result<()> {
        let sum = self.sum.xxh3();
        self.sum.restart(self.key);
        self.bind(sum)
    }

    pub(crate) fn execute(self) -> Result<()> {
        self.statement.raw_execute().map(drop)
    }
}

#[cfg(test)]
mod tests;
