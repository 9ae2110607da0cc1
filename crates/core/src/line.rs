//! Text of others on one line, for logs and lists.

use std::fmt::Write as _;

/// The longest line, in bytes.
const MAX_BYTES: usize = 512;
/// The mark of a text that was cut.
const CUT_MARK: char = '…';

/// Returns a text on one line that ends within the bound. Characters that move the cursor, end the line or change
/// the direction of reading are written as escapes, and so is the backslash, so that an escape is what it looks like.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::new();
    for character in text.chars() {
        let before = line.len();
        if character == '\\' {
            line.push_str("\\\\");
        } else if is_hidden(character) {
            // Writing to a string cannot fail.
            let _ = write!(line, "\\u{{{:x}}}", u32::from(character));
        } else {
            line.push(character);
        }
        if line.len() > MAX_BYTES - CUT_MARK.len_utf8() {
            line.truncate(before);
            line.push(CUT_MARK);
            break;
        }
    }
    line
}

/// Returns true for characters that cannot be seen but change what is seen.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}
