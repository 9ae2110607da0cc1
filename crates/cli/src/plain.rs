//! Text that others wrote, made fit for a terminal.

use std::{borrow::Cow, fmt::Write as _};

use unicode_width::UnicodeWidthChar as _;

/// Escapes the characters that could move the cursor, command the terminal, or show text in another
/// order than it has.
pub fn plain(text: &str) -> Cow<'_, str> {
    escaped(text, |plain, char| plain.extend(char.escape_default()))
}

/// Escapes the same characters as [`plain`], but leaves the ends of lines.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |plain, char| match char {
        '\n' => plain.push(char),
        _ => plain.extend(char.escape_default()),
    })
}

/// Escapes the same characters as [`plain`] in a JSON document, which keeps its meaning. Line breaks
/// stay: they can only stand between values.
pub fn plain_json(json: &str) -> Cow<'_, str> {
    escaped(json, |plain, char| match char {
        '\n' | '\r' | '\t' => plain.push(char),
        _ => {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(plain, "\\u{unit:04x}");
            }
        }
    })
}

/// Puts a JSON document on one line. Its line breaks can only stand between values.
pub fn one_line(json: &str) -> String {
    json.split(['\n', '\r', '\t'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the number of columns that a plain text takes on a terminal.
pub fn width(plain: &str) -> usize {
    plain.chars().filter_map(|char| char.width()).sum()
}

fn escaped(text: &str, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_harmful(char) {
            escape(&mut plain, char);
        } else {
            plain.push(char);
        }
    }
    Cow::Owned(plain)
}

fn is_harmful(char: char) -> bool {
    // The ranges are marks of direction, which can reverse what follows them, and line separators.
    let reorders = matches!(
        char,
        '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    char.is_control() || reorders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_drive_a_terminal_is_escaped() {
        for (text, shown) in [
            ("Grüße 日本", "Grüße 日本"),
            ("a\n\x1b[31mb\t", "a\\n\\u{1b}[31mb\\t"),
            ("\u{9b}2J\u{7f}", "\\u{9b}2J\\u{7f}"),
            ("\u{202e}abc", "\\u{202e}abc"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\n  \"a\": \"\u{9b}2J\u{202e}ü\"\n}";
        let shown = plain_json(text);
        assert_eq!(shown, "{\n  \"a\": \"\\u009b2J\\u202eü\"\n}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(text));
        assert_eq!(one_line("{\n  \"a\":\t1\n}\n"), "{ \"a\": 1 }");
    }

    #[test]
    fn wide_characters_take_two_columns_and_marks_none() {
        assert_eq!(width("abc"), 3);
        assert_eq!(width("日本"), 4);
        assert_eq!(width("e\u{301}"), 1);
    }
}
