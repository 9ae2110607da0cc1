//! What a command said: the bytes of its stdout up to a limit, and the end of its stderr.

use crate::{output, plain::plain};

/// The most bytes of a line that are kept together.
const MAX_LINE: usize = 4 << 10;
/// The most bytes of stderr that are kept, at the end of it.
const MAX_TAIL: usize = 8 << 10;
/// The most characters of an error.
const MAX_CHARS: usize = 1_900;

/// Bytes up to a limit.
#[derive(Debug)]
pub struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
    overflowed: bool,
}

impl Bounded {
    pub const fn new(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            overflowed: false,
        }
    }

    pub fn take(&mut self, bytes: &[u8]) {
        let room = self.limit - self.bytes.len();
        self.overflowed |= bytes.len() > room;
        self.bytes
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// Returns all bytes, or nothing if there were more than the limit.
    pub fn all(&self) -> Option<&[u8]> {
        (!self.overflowed).then_some(&self.bytes)
    }
}

/// The end of a stream, whose lines are passed on as they come.
#[derive(Debug)]
pub struct Tail {
    bytes: Vec<u8>,
    line: Vec<u8>,
    /// Stands in front of each line; nothing is passed on without it.
    label: Option<String>,
}

impl Tail {
    pub const fn new(label: Option<String>) -> Self {
        Self {
            bytes: Vec::new(),
            line: Vec::new(),
            label,
        }
    }

    pub fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(MAX_TAIL);
        self.bytes.drain(..excess);
        for byte in bytes {
            match byte {
                b'\n' => self.pass_on(),
                _ if self.line.len() >= MAX_LINE => {
                    self.pass_on();
                    self.line.push(*byte);
                }
                _ => self.line.push(*byte),
            }
        }
    }

    fn pass_on(&mut self) {
        let line = String::from_utf8_lossy(&self.line);
        if let Some(label) = &self.label {
            output::mutter(&format!("{label}  {}", plain(line.trim_end())));
        }
        self.line.clear();
    }

    /// Passes on what stands after the last line, and returns the end of the text.
    pub fn end(&mut self) -> String {
        if !self.line.is_empty() {
            self.pass_on();
        }
        let text = String::from_utf8_lossy(&self.bytes);
        let text = text.trim();
        let chars = text.chars().count();
        let mut end = text.chars();
        if chars > MAX_CHARS {
            end.nth(chars - MAX_CHARS - 1);
            return format!("…{}", end.as_str());
        }
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_much_is_not_kept_in_part() {
        let mut bounded = Bounded::new(3);
        bounded.take(b"ab");
        bounded.take(b"c");
        assert_eq!(bounded.all(), Some(&b"abc"[..]));
        bounded.take(b"d");
        assert_eq!(bounded.all(), None);
    }

    #[test]
    fn of_a_long_text_the_end_is_kept() {
        let mut tail = Tail::new(None);
        for n in 0..10_000 {
            tail.take(format!("line {n} ü\n").as_bytes());
        }
        let end = tail.end();
        assert!(
            end.starts_with('…') && end.ends_with("line 9999 ü"),
            "{end}"
        );
        assert_eq!(end.chars().count(), MAX_CHARS + 1);
        let mut short = Tail::new(None);
        short.take(b"  no ink\xff \n");
        assert_eq!(short.end(), "no ink\u{fffd}");
    }
}
