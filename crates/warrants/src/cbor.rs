//! The subset of CBOR that warrants use: definite lengths, integers in their shortest form, no tags.
//!
//! A length is compared with the bytes that are left before anything is allocated for it.

use std::fmt;

/// The reason why bytes are no warrant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

type Result<T> = std::result::Result<T, Malformed>;

const CUT_OFF: Malformed = Malformed("the bytes end too early");
const WRONG_TYPE: Malformed = Malformed("a value is of the wrong type");

/// The beginning of a data item. Lengths are in bytes, items or pairs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Head {
    Unsigned(u64),
    /// The number -1 minus this one.
    Negative(u64),
    Bytes(usize),
    Text(usize),
    Array(usize),
    Map(usize),
    Bool(bool),
    Null,
    Float(f64),
}

/// Reads items from bytes, one after the other.
#[derive(Debug, Clone)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Checks that all bytes have been read.
    pub fn finish(&self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed("there are bytes after the end"))
        }
    }

    /// Returns the bytes that are left to read.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(CUT_OFF)?;
        self.rest = rest;
        Ok(*taken)
    }

    pub fn head(&mut self) -> Result<Head> {
        let [first] = self.chunk()?;
        let (major, minor) = (first >> 5, first & 0x1f);
        if major == 7 {
            return self.simple(minor);
        }
        let argument = self.argument(minor)?;
        Ok(match major {
            0 => Head::Unsigned(argument),
            1 => Head::Negative(argument),
            2 => Head::Bytes(self.length(argument, 1)?),
            3 => Head::Text(self.length(argument, 1)?),
            4 => Head::Array(self.length(argument, 1)?),
            5 => Head::Map(self.length(argument, 2)?),
            _ => return Err(Malformed("tags are not used in warrants")),
        })
    }

    fn argument(&mut self, minor: u8) -> Result<u64> {
        let (argument, least) = match minor {
            0..=23 => (u64::from(minor), 0),
            24 => (u64::from(self.chunk::<1>()?[0]), 24),
            25 => (u64::from(u16::from_be_bytes(self.chunk()?)), 1 << 8),
            26 => (u64::from(u32::from_be_bytes(self.chunk()?)), 1 << 16),
            27 => (u64::from_be_bytes(self.chunk()?), 1 << 32),
            _ => return Err(Malformed("lengths must be definite")),
        };
        // Each number has one form only: two texts of one payload would have two hashes.
        if argument < least {
            return Err(Malformed("integers must be in their shortest form"));
        }
        Ok(argument)
    }

    /// Returns a length that the rest can hold, if each item takes at least `least` bytes.
    fn length(&self, argument: u64, least: usize) -> Result<usize> {
        let length = usize::try_from(argument).map_err(|_| CUT_OFF)?;
        // Without this bound, ten bytes could claim a list of billions of items.
        if length > self.rest.len() / least {
            return Err(CUT_OFF);
        }
        Ok(length)
    }

    fn simple(&mut self, minor: u8) -> Result<Head> {
        Ok(match minor {
            20 => Head::Bool(false),
            21 => Head::Bool(true),
            22 => Head::Null,
            25 => Head::Float(half(u16::from_be_bytes(self.chunk()?))),
            26 => Head::Float(f64::from(f32::from_be_bytes(self.chunk()?))),
            27 => Head::Float(f64::from_be_bytes(self.chunk()?)),
            _ => return Err(WRONG_TYPE),
        })
    }

    /// Returns the beginning of the next item without reading it.
    pub fn peek(&self) -> Result<Head> {
        self.clone().head()
    }

    /// Reads a null, if there is one.
    pub fn null(&mut self) -> Result<bool> {
        let found = self.peek()? == Head::Null;
        if found {
            self.head()?;
        }
        Ok(found)
    }

    pub fn unsigned(&mut self) -> Result<u64> {
        let Head::Unsigned(number) = self.head()? else {
            return Err(WRONG_TYPE);
        };
        Ok(number)
    }

    pub fn small<T: TryFrom<u64>>(&mut self) -> Result<T> {
        T::try_from(self.unsigned()?).map_err(|_| Malformed("a number is too large"))
    }

    pub fn bool(&mut self) -> Result<bool> {
        let Head::Bool(flag) = self.head()? else {
            return Err(WRONG_TYPE);
        };
        Ok(flag)
    }

    pub fn text(&mut self) -> Result<&'a str> {
        let Head::Text(length) = self.head()? else {
            return Err(WRONG_TYPE);
        };
        self.text_of(length)
    }

    pub fn text_of(&mut self, length: usize) -> Result<&'a str> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes).map_err(|_| Malformed("a text is not UTF-8"))
    }

    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let Head::Bytes(length) = self.head()? else {
            return Err(WRONG_TYPE);
        };
        self.take(length)
    }

    /// Reads exactly `N` bytes.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.bytes()?.try_into();
        bytes.map_err(|_| Malformed("a byte string is of the wrong length"))
    }

    /// Reads bytes in either of the two forms in which they occur: a byte string, or a list of numbers.
    pub fn bytes_or_numbers(&mut self) -> Result<Vec<u8>> {
        if matches!(self.peek()?, Head::Bytes(_)) {
            return self.bytes().map(<[u8]>::to_vec);
        }
        (0..self.array()?).map(|_| self.small()).collect()
    }

    pub fn array(&mut self) -> Result<usize> {
        let Head::Array(length) = self.head()? else {
            return Err(WRONG_TYPE);
        };
        Ok(length)
    }

    /// Reads the beginning of a list of exactly `length` items.
    pub fn tuple(&mut self, length: usize) -> Result<()> {
        if self.array()? == length {
            Ok(())
        } else {
            Err(Malformed("a list is of the wrong length"))
        }
    }

    pub fn map(&mut self) -> Result<usize> {
        let Head::Map(pairs) = self.head()? else {
            return Err(WRONG_TYPE);
        };
        Ok(pairs)
    }

    /// Reads one item of any type and returns its bytes. It counts open items instead of recursing, so that
    /// deep nesting cannot exhaust the stack.
    pub fn skip(&mut self) -> Result<&'a [u8]> {
        let start = self.rest;
        let mut left = 1_usize;
        while left > 0 {
            left -= 1;
            match self.head()? {
                Head::Bytes(length) => drop(self.take(length)?),
                Head::Text(length) => drop(self.text_of(length)?),
                Head::Array(length) => left += length,
                Head::Map(pairs) => left += 2 * pairs,
                Head::Unsigned(_)
                | Head::Negative(_)
                | Head::Bool(_)
                | Head::Null
                | Head::Float(_) => {}
            }
        }
        Ok(&start[..start.len() - self.rest.len()])
    }
}

/// Converts a number of 16 bits: a sign, 5 bits of exponent, 10 bits of fraction.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction * 2_f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction / 1024.0) * 2_f64.powi(exponent - 15),
    };
    sign * magnitude
}

/// Writes items for the message that a holder signs.
#[derive(Debug, Default)]
pub(crate) struct Writer {
    pub bytes: Vec<u8>,
}

impl Writer {
    fn head(&mut self, major: u8, argument: u64) {
        let major = major << 5;
        let wide = argument.to_be_bytes();
        match argument {
            0..=23 => self.bytes.push(major | wide[7]),
            24..=0xff => self.bytes.extend([major | 24, wide[7]]),
            0x100..=0xffff => {
                self.bytes.push(major | 25);
                self.bytes.extend(&wide[6..]);
            }
            0x1_0000..=0xffff_ffff => {
                self.bytes.push(major | 26);
                self.bytes.extend(&wide[4..]);
            }
            _ => {
                self.bytes.push(major | 27);
                self.bytes.extend(&wide);
            }
        }
    }

    pub fn integer(&mut self, number: i64) {
        match u64::try_from(number) {
            Ok(number) => self.head(0, number),
            // CBOR stores a negative number n as -1 - n, which is the complement of n.
            Err(_) => self.head(1, !number.cast_unsigned()),
        }
    }

    pub fn text(&mut self, text: &str) {
        self.head(3, text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    pub fn array(&mut self, length: usize) {
        self.head(4, length as u64);
    }

    pub fn map(&mut self, pairs: usize) {
        self.head(5, pairs as u64);
    }

    pub fn bool(&mut self, flag: bool) {
        self.bytes.push(if flag { 0xf5 } else { 0xf4 });
    }

    pub fn null(&mut self) {
        self.bytes.push(0xf6);
    }

    /// Writes a number in the shortest form that holds it exactly.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a number that does not fit is written in a longer form"
    )]
    pub fn float(&mut self, number: f64) {
        let single = number as f32;
        if let Some(bits) = to_half(number) {
            self.bytes.push(0xf9);
            self.bytes.extend(bits.to_be_bytes());
        } else if f64::from(single).to_bits() == number.to_bits() {
            self.bytes.push(0xfa);
            self.bytes.extend(single.to_be_bytes());
        } else {
            self.bytes.push(0xfb);
            self.bytes.extend(number.to_be_bytes());
        }
    }
}

/// Returns the number in 16 bits, if it fits exactly.
fn to_half(number: f64) -> Option<u16> {
    if number.is_nan() {
        return Some(0x7e00);
    }
    let sign = if number.is_sign_negative() { 0x8000 } else { 0 };
    let magnitude = number.abs();
    let bits = if magnitude == 0.0 {
        0
    } else if magnitude.is_infinite() {
        0x7c00
    } else {
        let exponent = ((magnitude.to_bits() >> 52) as i32 - 1023).max(-14);
        if exponent > 15 {
            return None;
        }
        // The number in steps of its last place; fewer than 1024 steps mean a number below the smallest
        // exponent.
        let steps = magnitude * 2_f64.powi(10 - exponent);
        if steps.fract() != 0.0 {
            return None;
        }
        let steps = steps as u16;
        match exponent {
            -14 if steps < 1024 => steps,
            _ => ((exponent + 15) as u16) << 10 | (steps - 1024),
        }
    };
    Some(sign | bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_short_number_is_read_and_written_alike() {
        for bits in 0..=u16::MAX {
            let number = half(bits);
            if number.is_nan() {
                continue;
            }
            let mut writer = Writer::default();
            writer.float(number);
            let [high, low] = bits.to_be_bytes();
            assert_eq!(writer.bytes, [0xf9, high, low], "{number}");
        }
    }

    #[test]
    fn numbers_are_written_in_their_shortest_form() {
        for (number, expected) in [
            (0.5, "f93800"),
            (-0.0, "f98000"),
            (65504.0, "f97bff"),
            (65505.0, "fa477fe100"),
            (100_000.0, "fa47c35000"),
            (1.1, "fb3ff199999999999a"),
            (f64::MAX, "fb7fefffffffffffff"),
            (2_f64.powi(-24), "f90001"),
            (2_f64.powi(-25), "fa33000000"),
        ] {
            let mut writer = Writer::default();
            writer.float(number);
            let hex: String = writer.bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, expected, "{number}");
            assert_eq!(Reader::new(&writer.bytes).head(), Ok(Head::Float(number)));
        }
    }

    #[test]
    fn integers_are_written_in_their_shortest_form() {
        for (number, expected) in [
            (0, &[0x00][..]),
            (23, &[0x17]),
            (24, &[0x18, 24]),
            (256, &[0x19, 1, 0]),
            (65_536, &[0x1a, 0, 1, 0, 0]),
            (i64::MAX, &[0x1b, 0x7f, 255, 255, 255, 255, 255, 255, 255]),
            (-1, &[0x20]),
            (-25, &[0x38, 24]),
            (i64::MIN, &[0x3b, 0x7f, 255, 255, 255, 255, 255, 255, 255]),
        ] {
            let mut writer = Writer::default();
            writer.integer(number);
            assert_eq!(writer.bytes, expected, "{number}");
        }
    }

    #[test]
    fn what_is_not_canonical_or_cut_off_is_refused() {
        for bytes in [
            &[][..],
            &[0x18, 23],
            &[0x19, 0, 255],
            &[0x1a, 0, 0, 255, 255],
            &[0x1b, 0, 0, 0, 0, 255, 255, 255, 255],
            &[0x5f],
            &[0x9f],
            &[0x9b, 255, 255, 255, 255, 255, 255, 255, 255],
            &[0xbb, 127, 255, 255, 255, 255, 255, 255, 255],
            &[0x58, 2, 0],
            &[0xc2, 0x41, 0],
            &[0xf8, 32],
            &[0xf7],
            &[0xff],
            &[0x62, 0xff, 0xff],
        ] {
            assert!(Reader::new(bytes).skip().is_err(), "{bytes:02x?}");
        }
    }

    #[test]
    fn a_deep_item_is_skipped_without_recursion() {
        let mut deep = vec![0x81; 1_000_000];
        deep.push(0);
        assert_eq!(Reader::new(&deep).skip().map(<[u8]>::len), Ok(deep.len()));
    }
}
