//! The packing of values that nobody searches for.
//!
//! A row has columns for what it is found and joined by; everything else of it is one packed value. It begins with the
//! number of its layout, so that a later layout can be told from this one. Numbers take as many bytes as they need.
//! Reading fails with an error, never a panic: a row may have been damaged.

mod admission;
mod mail;
mod receipt;
mod records;
mod task;

use std::sync::Arc;

use asyncgate_core::{Json, Principal, PrincipalKey, PrincipalKind, Timestamp};
use asyncgate_store::Error;

pub(crate) use admission::{
    pack_cell, pack_domain, pack_revocation, pack_tier, subject_key, unpack_cell, unpack_domain,
    unpack_revocation, unpack_tier,
};
pub(crate) use mail::{pack_content, pack_standing, unpack_message};
pub(crate) use receipt::{
    pack_event, pack_receipt, pack_relationship, unpack_event, unpack_receipt, unpack_relationship,
};
pub(crate) use records::{pack_dispatch, pack_draft, unpack_dispatch, unpack_draft};
pub(crate) use task::{pack_class, pack_spec, pack_state, unpack_class, unpack_task};

/// The layout of every value that is written.
const LAYOUT: u8 = 1;

/// Returns the error for a row that cannot be read.
pub(crate) fn damaged(what: &str) -> Error {
    Error::Corrupt(format!("a row cannot be read: {what}"))
}

/// Encodes a principal without its instance: a byte for the kind, then the id. Equal principals have equal bytes.
pub(crate) fn principal_key(principal: &PrincipalKey) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(principal.id.len() + 1);
    bytes.push(principal.kind as u8);
    bytes.extend_from_slice(principal.id.as_bytes());
    bytes
}

/// A value that is being packed.
#[derive(Debug)]
struct Packer(Vec<u8>);

impl Packer {
    fn new() -> Self {
        Self(vec![LAYOUT])
    }

    fn done(self) -> Vec<u8> {
        self.0
    }

    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Packs a number with a sign: small ones stay short whatever their sign.
    fn signed(&mut self, value: i64) {
        self.number(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    fn time(&mut self, value: Timestamp) {
        self.signed(value.as_millis());
    }

    fn bytes(&mut self, value: &[u8]) {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    fn text(&mut self, value: &str) {
        self.bytes(value.as_bytes());
    }

    fn fixed<const N: usize>(&mut self, value: &[u8; N]) {
        self.0.extend_from_slice(value);
    }

    /// Packs a value that may be missing.
    fn some<T>(&mut self, value: Option<T>, pack: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.0.push(0),
            Some(value) => {
                self.0.push(1);
                pack(self, value);
            }
        }
    }

    fn some_text(&mut self, value: Option<&str>) {
        self.some(value, Self::text);
    }

    fn some_time(&mut self, value: Option<Timestamp>) {
        self.some(value, Self::time);
    }

    fn some_json(&mut self, value: Option<&Json>) {
        self.some(value, |p, json| p.text(json.text()));
    }

    fn all<T>(&mut self, values: impl ExactSizeIterator<Item = T>, pack: impl Fn(&mut Self, T)) {
        self.number(values.len() as u64);
        values.for_each(|value| pack(self, value));
    }

    fn principal(&mut self, principal: &Principal) {
        self.0.push(principal.kind as u8);
        self.text(&principal.id);
        self.some_text(principal.instance_id.as_deref());
    }
}

type Result<T> = std::result::Result<T, Error>;

/// A packed value that is being read.
#[derive(Debug)]
struct Unpacker<'a>(&'a [u8]);

impl<'a> Unpacker<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self> {
        match bytes.split_first() {
            Some((&LAYOUT, rest)) => Ok(Self(rest)),
            _ => Err(damaged("its layout is not known")),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let taken = self.0.split_at_checked(len);
        let (taken, rest) = taken.ok_or_else(|| damaged("it ends too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(damaged("a number does not end"))
    }

    fn signed(&mut self) -> Result<i64> {
        let value = self.number()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Reads a number that is at most that of a smaller type.
    fn narrow<T: TryFrom<i64>>(&mut self) -> Result<T> {
        T::try_from(self.signed()?).map_err(|_| damaged("a number is too large"))
    }

    fn time(&mut self) -> Result<Timestamp> {
        self.signed().map(Timestamp::from_millis)
    }

    fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.number()?).map_err(|_| damaged("a length is too large"))?;
        self.take(len)
    }

    fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged("a text is none"))
    }

    fn owned(&mut self) -> Result<String> {
        self.text().map(str::to_owned)
    }

    fn shared(&mut self) -> Result<Arc<str>> {
        self.text().map(Into::into)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut value = [0; N];
        value.copy_from_slice(self.take(N)?);
        Ok(value)
    }

    fn flag(&mut self) -> Result<bool> {
        Ok(self.byte()? != 0)
    }

    fn some<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match self.flag()? {
            false => Ok(None),
            true => read(self).map(Some),
        }
    }

    fn json(&mut self) -> Result<Json> {
        Json::from_text(self.owned()?).ok_or_else(|| damaged("a JSON value is none"))
    }

    fn some_json(&mut self) -> Result<Option<Json>> {
        self.some(Self::json)
    }

    fn all<T>(&mut self, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let len = self.number()?;
        (0..len).map(|_| read(self)).collect()
    }

    /// Reads the number of one of `all`.
    fn one_of<T: Copy>(&mut self, all: &[T]) -> Result<T> {
        let found = all.get(usize::from(self.byte()?));
        found.copied().ok_or_else(|| damaged("a kind is not known"))
    }

    fn principal(&mut self) -> Result<Principal> {
        let principal = Principal::new(self.one_of(&PrincipalKind::ALL)?, self.shared()?);
        let instance_id = self.some(Self::shared)?;
        Ok(Principal {
            instance_id,
            ..principal
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back_as_they_were() {
        for value in [0, 1, -1, 63, -64, 64, 1 << 40, i64::MAX, i64::MIN] {
            let mut packer = Packer::new();
            packer.signed(value);
            packer.number(value.cast_unsigned());
            let bytes = packer.done();
            let mut read = Unpacker::new(&bytes).unwrap();
            assert_eq!(read.signed().unwrap(), value);
            assert_eq!(read.number().unwrap(), value.cast_unsigned());
            assert!(read.byte().is_err());
        }
    }

    #[test]
    fn a_value_that_was_cut_or_has_another_layout_is_an_error() {
        assert!(Unpacker::new(&[]).is_err());
        assert!(Unpacker::new(&[LAYOUT + 1]).is_err());
        let mut packer = Packer::new();
        packer.text("hello");
        let bytes = packer.done();
        for len in 1..bytes.len() {
            assert!(Unpacker::new(&bytes[..len]).unwrap().text().is_err());
        }
    }
}
