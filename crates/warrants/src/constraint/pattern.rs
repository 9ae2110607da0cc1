//! Patterns with wildcards, and regular expressions.

use super::Doubt;

/// The largest program to which a regular expression may be compiled.
const REGEX_BYTES: usize = 128 * 1024;

/// Returns true if the whole text matches: `*` is any text, `?` any character, `[a-c]` or `[!a-c]` one of a
/// class. Programs differ in what `**` means, so it has no answer here.
pub(crate) fn matches(pattern: &str, text: &str) -> Result<bool, Doubt> {
    let tokens = tokens(pattern).ok_or(Doubt::Unsupported)?;
    let text: Vec<char> = text.chars().collect();
    let (mut token, mut at) = (0, 0);
    // The last wildcard and the end of its match: on a mismatch it takes one character more. Earlier
    // wildcards need no retry, so the time is bounded by the product of both lengths.
    let mut wildcard = None;
    loop {
        match tokens.get(token) {
            None if at == text.len() => return Ok(true),
            Some(Token::Any) => {
                wildcard = Some((token, at));
                token += 1;
                continue;
            }
            Some(Token::One(class)) if text.get(at).is_some_and(|c| class.holds(*c)) => {
                token += 1;
                at += 1;
                continue;
            }
            None | Some(Token::One(_)) => {}
        }
        match &mut wildcard {
            Some((from, reach)) if *reach < text.len() => {
                *reach += 1;
                token = *from + 1;
                at = *reach;
            }
            _ => return Ok(false),
        }
    }
}

enum Token {
    Any,
    One(Class),
}

struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    fn holds(&self, c: char) -> bool {
        let within = self
            .ranges
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&c));
        within != self.negated
    }
}

fn tokens(pattern: &str) -> Option<Vec<Token>> {
    if pattern.contains("**") {
        return None;
    }
    let chars: Vec<char> = pattern.chars().collect();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(c) = chars.get(at) {
        at += 1;
        tokens.push(match c {
            '*' => Token::Any,
            '?' => one(true, Vec::new()),
            '[' => {
                let (class, length) = class(chars.get(at..)?)?;
                at += length;
                Token::One(class)
            }
            _ => one(false, vec![(*c, *c)]),
        });
    }
    Some(tokens)
}

const fn one(negated: bool, ranges: Vec<(char, char)>) -> Token {
    Token::One(Class { negated, ranges })
}

/// Reads a class after its `[`. Returns it with its number of characters, the `]` included. A `]` directly
/// at the start belongs to the class.
fn class(chars: &[char]) -> Option<(Class, usize)> {
    let negated = chars.first() == Some(&'!');
    let start = usize::from(negated);
    let length = chars.iter().skip(start + 1).position(|c| *c == ']')? + 1;
    let inner = chars.get(start..start + length)?;
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let Some(from) = inner.get(at) {
        match inner.get(at + 1..at + 3) {
            Some(['-', to]) => {
                ranges.push((*from, *to));
                at += 3;
            }
            _ => {
                ranges.push((*from, *from));
                at += 1;
            }
        }
    }
    Some((Class { negated, ranges }, start + length + 1))
}

/// Returns true if the expression is found in the text.
pub(crate) fn regex_matches(pattern: &str, text: &str) -> Result<bool, Doubt> {
    let mut builder = regex::RegexBuilder::new(pattern);
    let regex = builder.size_limit(REGEX_BYTES).build();
    let regex = regex.map_err(|_| Doubt::Unsupported)?;
    Ok(regex.is_match(text))
}

/// Returns true if every text that matches `child` also matches `parent`. It decides only patterns with
/// one wildcard at the end or at the start.
pub(crate) fn covers(parent: &str, child: &str) -> bool {
    if parent == child {
        return true;
    }
    match (Form::of(parent), Form::of(child)) {
        (Form::Prefix(parent), Form::Prefix(child) | Form::Text(child)) => {
            child.starts_with(parent)
        }
        (Form::Suffix(parent), Form::Suffix(child) | Form::Text(child)) => child.ends_with(parent),
        _ => false,
    }
}

enum Form<'a> {
    Text(&'a str),
    Prefix(&'a str),
    Suffix(&'a str),
    Other,
}

impl<'a> Form<'a> {
    fn of(pattern: &'a str) -> Self {
        let special = |text: &str| text.contains(['*', '?', '[']);
        if !special(pattern) {
            return Self::Text(pattern);
        }
        match (pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
            (Some(prefix), _) if !special(prefix) => Self::Prefix(prefix),
            (_, Some(suffix)) if !special(suffix) => Self::Suffix(suffix),
            _ => Self::Other,
        }
    }
}
