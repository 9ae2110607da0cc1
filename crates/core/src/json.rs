//! JSON text that is kept byte for byte, and the canonical form by which two texts are compared.
//!
//! Invariants: a [`Json`] is one well-formed JSON value nested at most [`MAX_DEPTH`] deep, with numbers that
//! other readers take too; its text is never rewritten. Canonical bytes are equal exactly when the values are: object keys sorted,
//! no white space, strings by their characters, numbers by their exact decimal value.

use std::{fmt, sync::Arc};

use serde_json::value::RawValue;

/// The deepest allowed nesting of a value.
pub const MAX_DEPTH: usize = 128;

/// The longest text of a number. Whole numbers of 256 bits have 78 digits; some readers stop at some thousands.
pub const MAX_NUMBER_BYTES: usize = 128;

/// The longest whole number that is canonical as plain digits.
const MAX_PLAIN_DIGITS: usize = 20;

/// A JSON value in its sender's own text. Copies share the text.
#[derive(Clone)]
pub struct Json(Arc<RawValue>);

/// The error for a value that is well-formed and cannot be taken all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is nested more deeply than [`MAX_DEPTH`].
    #[error("JSON is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// One of its texts has half of a pair of surrogates, which is no character. Most readers refuse it.
    #[error("a text has a lone surrogate (\\ud800 to \\udfff without its other half)")]
    LoneSurrogate,
    /// One of its numbers is longer than [`MAX_NUMBER_BYTES`] or beyond a double. Many readers refuse it.
    #[error("a number has more than {MAX_NUMBER_BYTES} characters or is beyond a double")]
    Number,
}

impl Json {
    /// Takes a well-formed value that is not nested too deeply and that everybody can read: its texts are made of
    /// characters, and its numbers are of a usual size.
    pub fn new(raw: Box<RawValue>) -> Result<Self, Unfit> {
        check(raw.get())?;
        Ok(Self(raw.into()))
    }

    /// Reads back the text of an earlier [`Json`]; returns none if it is not well-formed. Older servers took any
    /// number and lone surrogates, so they are no reason to refuse it here.
    pub fn from_text(text: String) -> Option<Self> {
        RawValue::from_string(text).ok().map(|raw| Self(raw.into()))
    }

    /// The value `null`.
    pub fn null() -> Self {
        Self(RawValue::NULL.to_owned().into())
    }

    /// The text as its sender wrote it.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The value for embedding in other JSON.
    pub fn raw(&self) -> &RawValue {
        &self.0
    }

    /// The size of the text in bytes.
    pub fn len(&self) -> usize {
        self.text().len()
    }

    /// Returns false: every JSON value has text.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns true for `null`, `[]`, `{}` and `""`: values that say nothing.
    pub fn says_nothing(&self) -> bool {
        let canonical = canonical(self.text());
        [&b"null"[..], b"[]", b"{}", b"\"\""].contains(&canonical.as_slice())
    }

    /// The number of elements, if this is an array.
    pub fn array_len(&self) -> Option<usize> {
        serde_json::from_str::<Vec<serde::de::IgnoredAny>>(self.text())
            .ok()
            .map(|elements| elements.len())
    }
}

/// Compares values, not texts.
impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        // Equal texts are the common case, and skip the canonical form.
        self.text() == other.text() || canonical(self.text()) == canonical(other.text())
    }
}

impl Eq for Json {}

/// Shows the size only: payloads must not reach a log.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.len())
    }
}

/// Refuses a well-formed text that cannot be taken all the same. Every payload passes here, so it is walked once.
fn check(text: &str) -> Result<(), Unfit> {
    let (mut rest, mut depth) = (text.as_bytes(), 0_usize);
    while let Some(byte) = rest.first() {
        let mut len = 1;
        match byte {
            b'"' => {
                len = string_len(rest);
                let string = &rest[..len];
                if string.contains(&b'\\') && has_lone_surrogate(string) {
                    return Err(Unfit::LoneSurrogate);
                }
            }
            b'-' | b'0'..=b'9' => {
                len = number_len(rest);
                if is_unfit(&rest[..len]) {
                    return Err(Unfit::Number);
                }
            }
            b'[' | b'{' => {
                depth += 1;
                // Canonical bytes are written by recursion; the bound keeps hostile input from exhausting the stack.
                if depth > MAX_DEPTH {
                    return Err(Unfit::TooDeep);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        rest = &rest[len..];
    }
    Ok(())
}

/// Returns true if a well-formed string has half of a pair of surrogates.
fn has_lone_surrogate(string: &[u8]) -> bool {
    let mut rest = string;
    // A backslash stands only in strings, and each begins an escape.
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = &rest[at + 1..];
        let unit = escaped_unit(rest);
        // An escape has one character, or `u` and four digits.
        rest = rest
            .get(if unit.is_some() { 5.. } else { 1.. })
            .unwrap_or_default();
        match unit {
            Some(0xd800..0xdc00) => {
                let low = rest.strip_prefix(b"\\").and_then(escaped_unit);
                if !low.is_some_and(|low| (0xdc00..0xe000).contains(&low)) {
                    return true;
                }
                rest = rest.get(6..).unwrap_or_default();
            }
            Some(0xdc00..0xe000) => return true,
            Some(_) | None => {}
        }
    }
    false
}

/// Returns the number of a `\u` escape whose backslash was read.
fn escaped_unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"u")?.get(..4)?;
    u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
}

/// Returns true if a number in a well-formed text is too long, or beyond a double.
pub fn has_unfit_number(text: &str) -> bool {
    let mut rest = text.as_bytes();
    let starts = |byte: &u8| matches!(byte, b'"' | b'-' | b'0'..=b'9');
    while let Some(at) = rest.iter().position(starts) {
        rest = &rest[at..];
        let len = match rest[0] {
            b'"' => string_len(rest),
            _ => {
                let len = number_len(rest);
                if is_unfit(&rest[..len]) {
                    return true;
                }
                len
            }
        };
        rest = &rest[len..];
    }
    false
}

/// Returns the length of the number that a text begins with.
fn number_len(text: &[u8]) -> usize {
    let goes_on = |byte: &u8| matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E' | b'0'..=b'9');
    let end = text.iter().position(|byte| !goes_on(byte));
    end.unwrap_or(text.len())
}

/// Returns the length of the string that a text begins with, quotes included.
fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(run) = text[at..].iter().position(|byte| b"\"\\".contains(byte)) {
        at += run + 1;
        if text[at - 1] == b'"' {
            return at;
        }
        // The byte after a backslash ends nothing.
        at = (at + 1).min(text.len());
    }
    text.len()
}

fn is_unfit(number: &[u8]) -> bool {
    // Only an exponent can carry so short a number beyond a double.
    let plain = number.len() <= MAX_PLAIN_DIGITS && !number.iter().any(|byte| b"eE".contains(byte));
    let value = || str::from_utf8(number).ok()?.parse::<f64>().ok();
    !plain && (number.len() > MAX_NUMBER_BYTES || !value().is_some_and(f64::is_finite))
}

/// Returns the canonical bytes of a well-formed text.
pub fn canonical(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    write_canonical(&mut out, text);
    out
}

/// Appends the canonical bytes of a well-formed text.
pub(crate) fn write_canonical(out: &mut Vec<u8>, text: &str) {
    let mut reader = Reader {
        rest: text.as_bytes(),
    };
    reader.skip_space();
    reader.value(out);
}

/// A reader of well-formed JSON. On other text it stops early; it never panics.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn value(&mut self, out: &mut Vec<u8>) {
        let before = self.rest.len();
        match self.rest.first() {
            Some(b'{') => self.object(out),
            Some(b'[') => self.array(out),
            Some(b'"') => self.string(out),
            Some(_) => self.scalar(out),
            None => {}
        }
        if self.rest.len() == before {
            // There is no value here: the text is not well-formed. Ending it stops the loops above.
            self.rest = &[];
        }
        self.skip_space();
    }

    /// Writes the members in their order in the text, and sorts them only if they are not in order.
    fn object(&mut self, out: &mut Vec<u8>) {
        self.skip();
        out.push(b'{');
        let start = out.len();
        let mut members: Vec<Member> = Vec::new();
        // The first test ends the loop on text that is not well-formed.
        while !self.rest.is_empty() && !self.eat(b'}') {
            if !members.is_empty() {
                out.push(b',');
            }
            let begin = out.len();
            self.value(out);
            let key_end = out.len();
            out.push(b':');
            self.eat(b':');
            self.value(out);
            self.eat(b',');
            members.push(Member {
                begin,
                key_end,
                end: out.len(),
            });
        }
        put_in_order(out, start, &mut members);
        out.push(b'}');
    }

    fn array(&mut self, out: &mut Vec<u8>) {
        self.skip();
        out.push(b'[');
        let mut first = true;
        while !self.rest.is_empty() && !self.eat(b']') {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            self.value(out);
            self.eat(b',');
        }
        out.push(b']');
    }

    fn string(&mut self, out: &mut Vec<u8>) {
        self.pass(1);
        out.push(b'"');
        // Control characters must be escaped in JSON, so only a quote or a backslash ends a run.
        while let Some(run) = self.rest.iter().position(|byte| b"\"\\".contains(byte)) {
            let escaped = self.rest[run] == b'\\';
            out.extend_from_slice(self.pass(run));
            self.pass(1);
            if !escaped {
                break;
            }
            self.escape(out);
        }
        out.push(b'"');
    }

    fn escape(&mut self, out: &mut Vec<u8>) {
        match self.pass(1) {
            b"u" => self.unicode_escape(out),
            b"b" => write_char(out, '\u{8}'),
            b"f" => write_char(out, '\u{c}'),
            b"n" => write_char(out, '\n'),
            b"r" => write_char(out, '\r'),
            b"t" => write_char(out, '\t'),
            // A quote, a slash or a backslash stands for itself.
            [itself] => write_char(out, char::from(*itself)),
            _ => {}
        }
    }

    /// Decodes a `\u` escape. A surrogate without its partner is no character; it stays an escape.
    fn unicode_escape(&mut self, out: &mut Vec<u8>) {
        let Some(unit) = self.hex4() else { return };
        // If the second escape turns out to be no low surrogate, reading goes back to here.
        let before_low = self.rest;
        let low = if (0xd800..0xdc00).contains(&unit) && self.rest.starts_with(b"\\u") {
            self.pass(2);
            self.hex4()
        } else {
            None
        };
        let pair = low.and_then(|low| char::decode_utf16([unit, low]).next()?.ok());
        match pair.or_else(|| char::from_u32(u32::from(unit))) {
            Some(decoded) => {
                if pair.is_none() {
                    self.rest = before_low;
                }
                write_char(out, decoded);
            }
            None => {
                self.rest = before_low;
                out.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }

    fn hex4(&mut self) -> Option<u16> {
        let digits = str::from_utf8(self.rest.get(..4)?).ok()?;
        let unit = u16::from_str_radix(digits, 16).ok()?;
        self.pass(4);
        Some(unit)
    }

    fn scalar(&mut self, out: &mut Vec<u8>) {
        let ends = |byte: &u8| b",]}: \t\r\n".contains(byte);
        let end = self.rest.iter().position(ends);
        match self.pass(end.unwrap_or(self.rest.len())) {
            word @ (b"true" | b"false" | b"null") => out.extend_from_slice(word),
            number => write_number(out, str::from_utf8(number).unwrap_or_default()),
        }
    }

    /// Skips one byte and the white space after it.
    fn skip(&mut self) {
        self.pass(1);
        self.skip_space();
    }

    fn skip_space(&mut self) {
        while let [b' ' | b'\t' | b'\r' | b'\n', rest @ ..] = self.rest {
            self.rest = rest;
        }
    }

    fn eat(&mut self, wanted: u8) -> bool {
        let found = self.rest.first() == Some(&wanted);
        if found {
            self.skip();
        }
        found
    }

    /// Takes the next `count` bytes, or fewer at the end of the text.
    fn pass(&mut self, count: usize) -> &'a [u8] {
        let (passed, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        passed
    }
}

/// The place in the output of one member of an object.
struct Member {
    begin: usize,
    key_end: usize,
    end: usize,
}

/// Sorts the members that were written from `start` on by their keys.
fn put_in_order(out: &mut Vec<u8>, start: usize, members: &mut [Member]) {
    let ordered = members.windows(2).all(|pair| {
        let (left, right) = (&pair[0], &pair[1]);
        out[left.begin..left.key_end] <= out[right.begin..right.key_end]
    });
    if ordered {
        return;
    }
    // The sort is stable: of members with one key, the last one counts for most readers.
    members.sort_by_cached_key(|member| out[member.begin..member.key_end].to_vec());
    let mut sorted = Vec::with_capacity(out.len() - start);
    for (n, member) in members.iter().enumerate() {
        if n > 0 {
            sorted.push(b',');
        }
        sorted.extend_from_slice(&out[member.begin..member.end]);
    }
    out.truncate(start);
    out.extend_from_slice(&sorted);
}

fn write_char(out: &mut Vec<u8>, c: char) {
    match c {
        '"' | '\\' => out.extend_from_slice(&[b'\\', c as u8]),
        control if control < ' ' => {
            out.extend_from_slice(format!("\\u{:04x}", u32::from(control)).as_bytes());
        }
        plain => out.extend_from_slice(plain.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

/// Writes a number so that `1`, `1.0` and `10e-1` agree and no digit is ever rounded away: whole
/// numbers of up to [`MAX_PLAIN_DIGITS`] digits plainly, others as digits and a power of ten.
fn write_number(out: &mut Vec<u8>, text: &str) {
    // Most numbers are canonical already; this test saves their parsing.
    let plain = text.len() <= MAX_PLAIN_DIGITS
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && (text.len() == 1 || !text.starts_with('0'));
    if plain {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (sign, mantissa) = match mantissa.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", mantissa),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        out.push(b'0');
        return;
    }
    let Ok(exponent) = exponent.parse::<i64>() else {
        // An exponent beyond 64 bits: such numbers are equal only if their texts are.
        out.extend_from_slice(text.as_bytes());
        return;
    };
    // Zeros cut off at the end move into the power of ten.
    let dropped = digits.len() - digits.trim_end_matches('0').len();
    // In 128 bits, because an exponent near the bounds of 64 bits must not overflow.
    let power = i128::from(exponent) - fraction.len() as i128 + dropped as i128;
    let zeros = usize::try_from(power).unwrap_or(usize::MAX);
    if zeros.saturating_add(significant.len()) <= MAX_PLAIN_DIGITS {
        out.extend_from_slice(format!("{sign}{significant}{:0<zeros$}", "").as_bytes());
    } else {
        out.extend_from_slice(format!("{sign}{significant}e{power}").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(left: &str, right: &str) -> bool {
        canonical(left) == canonical(right)
    }

    #[test]
    fn equal_values_have_equal_canonical_bytes() {
        for (left, right) in [
            (r#"{"b":1,"a":[1, 2]}"#, r#" { "a" : [1,2] , "b" : 1 } "#),
            ("1", "1.0"),
            ("100", "1e2"),
            ("0.001", "1E-3"),
            ("-0", "0.0e7"),
            ("-12", "-1.2e1"),
            ("123456789012345678900000", "1234567890123456789e5"),
            ("[ ]", "[]"),
            (
                r#"{"b":{"y":1,"x":[{"q":1,"p":2}]},"a":3}"#,
                r#"{"a":3,"b":{"x":[{"p":2,"q":1}],"y":1}}"#,
            ),
            (r#""\u0041\n""#, r#""A\u000a""#),
            (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
            (r#""\/""#, r#""/""#),
            (r#"{"a":{"d":1,"c":2}}"#, r#"{"a":{"c":2,"d":1}}"#),
            (r#"" a ""#, r#"" a ""#),
        ] {
            assert!(same(left, right), "{left} and {right}");
        }
    }

    #[test]
    fn different_values_have_different_canonical_bytes() {
        for (left, right) in [
            ("1", "\"1\""),
            ("12345678901234567890", "12345678901234567891"),
            ("0.1", "0.10000000000000001"),
            ("1e400", "2e400"),
            ("[1,2]", "[2,1]"),
            ("[[1],2]", "[1,[2]]"),
            ("null", "[]"),
            (r#""\u0000""#, r#""""#),
            (r#"" a""#, r#""a""#),
            (r#""\ud800""#, r#""\ud801""#),
            (r#""\\u0041""#, r#""A""#),
            (r#"{"a":1}"#, r#"{"a":2}"#),
            (r#"{"a":1,"b":1}"#, r#"{"a":1}"#),
            (r#"{"b":0,"a":1,"a":2}"#, r#"{"b":0,"a":2,"a":1}"#),
        ] {
            assert!(!same(left, right), "{left} and {right}");
        }
    }

    #[test]
    fn what_is_not_json_ends_too() {
        for text in [
            "", "[", "[:", "{", "{:", "{\"a\"", "\"", "\"\\", "\"\\u12", "[,]", "}", "é", "{[}]:,",
        ] {
            canonical(text);
        }
    }

    #[test]
    fn depth_is_counted_outside_strings_only() {
        let brackets = "[".repeat(MAX_DEPTH + 1);
        for text in [
            format!(r#"{{"{brackets}":["]"]}}"#),
            format!(r#""\"{brackets}""#),
            format!("[{}[]]", "[],".repeat(MAX_DEPTH)),
            format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH)),
        ] {
            assert_eq!(check(&text), Ok(()), "{text}");
        }
        let nested = format!("{brackets}{}", "]".repeat(MAX_DEPTH + 1));
        assert_eq!(check(&nested), Err(Unfit::TooDeep));
    }

    #[test]
    fn half_a_pair_of_surrogates_is_no_text() {
        for (text, fits) in [
            (r#""\ud800""#, false),
            (r#""\udfff""#, false),
            (r#""\ud800\ud800""#, false),
            (r#""\ud83d x \ude00""#, false),
            (r#""\ude00\ud83d""#, false),
            (r#"{"\uDBFF":1}"#, false),
            (r#"[{"a":["\n\ud800"]}]"#, false),
            (r#""\ud83d\ude00""#, true),
            (r#""\ud83d\ude00\ud83d\uDE00""#, true),
            (r#""\\ud800""#, true),
            (r#""\\\ud800""#, false),
            (r#""\u0000\ue000""#, true),
        ] {
            let raw = RawValue::from_string(text.to_owned()).unwrap();
            assert_eq!(Json::new(raw).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn numbers_that_others_cannot_read_are_refused() {
        let long = |digits| "7".repeat(digits);
        for (text, fits) in [
            (long(MAX_NUMBER_BYTES), true),
            (long(MAX_NUMBER_BYTES + 1), false),
            (format!("0.{}", long(MAX_NUMBER_BYTES)), false),
            (format!("[1,-{}]", long(5_000)), false),
            (
                format!("{{\"a\\\"{}\":\"-{}\\\\\"}}", long(999), long(999)),
                true,
            ),
            (format!("[\"\\\\\",{}]", long(999)), false),
            ("1e308".to_owned(), true),
            ("1E309".to_owned(), false),
            ("-1e+999".to_owned(), false),
            ("[true,1e99999999999999999999]".to_owned(), false),
            ("1e-99999999999999999999".to_owned(), true),
            ("\"1e999\"".to_owned(), true),
            ("{\"1e999\":[{\"x\": 1e999 }]}".to_owned(), false),
            ("[false, null, 0, -0.5e-3]".to_owned(), true),
        ] {
            let raw = RawValue::from_string(text.clone()).unwrap();
            assert_eq!(Json::new(raw).is_ok(), fits, "{text}");
        }
    }

    #[test]
    fn empty_values_say_nothing() {
        for (text, nothing) in [
            ("[]", true),
            (" { } ", true),
            ("null", true),
            ("0", false),
            ("[0]", false),
        ] {
            assert_eq!(
                Json::from_text(text.trim().to_owned())
                    .unwrap()
                    .says_nothing(),
                nothing,
                "{text}"
            );
        }
    }
}
