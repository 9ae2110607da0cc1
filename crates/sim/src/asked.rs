//! The input of a call, read field by field when the model looks at it. To read all of it into a value
//! first would cost as much as the engine's own reading.

use std::{ops::Range, str::FromStr, sync::Arc};

use asyncgate_core::{PrincipalKind, Timestamp};
use serde::de::DeserializeOwned;

/// An input and the places of its fields. An input that is no object has none.
#[derive(Debug, Clone)]
pub struct Asked {
    input: Arc<str>,
    fields: Vec<Field>,
}

/// The place of a field.
#[derive(Debug, Clone)]
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

impl Asked {
    /// Finds the fields of an input.
    pub fn new(input: Arc<str>) -> Self {
        let fields = fields(input.as_bytes()).unwrap_or_default();
        Self { input, fields }
    }

    /// Returns the input as it was sent.
    pub fn input(&self) -> &Arc<str> {
        &self.input
    }

    /// Returns a value as it was sent, unless it is null.
    pub fn raw(&self, name: &str) -> Option<&str> {
        let is_meant = |field: &&Field| {
            field.name.len() == name.len()
                && self.input.as_bytes()[field.name.clone()] == *name.as_bytes()
        };
        let field = self.fields.iter().find(is_meant)?;
        let value = self.input.get(field.value.clone())?;
        (value != "null").then_some(value)
    }

    /// Returns true if there is a value.
    pub fn has(&self, name: &str) -> bool {
        self.raw(name).is_some()
    }

    /// Returns a text. Simulated clients write no text that needs an escape.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.raw(name)?.strip_prefix('"')?.strip_suffix('"')
    }

    /// Returns a text, or an empty one if there is none.
    pub fn text_or_empty(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    /// Returns an id, or another value that is written as a text.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text(name)?.parse().ok()
    }

    /// Returns a number.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.raw(name)?.parse().ok()
    }

    /// Returns true if a flag is set.
    pub fn flag(&self, name: &str) -> bool {
        self.raw(name) == Some("true")
    }

    /// Returns a value of any type.
    pub fn value<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_str(self.raw(name)?).ok()
    }

    /// Returns the objects of a list, each as an input of its own.
    pub fn items(&self, name: &str) -> Vec<Self> {
        let list = self.raw(name).unwrap_or_default();
        let items = elements(list.as_bytes()).unwrap_or_default().into_iter();
        items.map(|at| Self::new(list[at].into())).collect()
    }

    /// Returns the kind of the named principal.
    pub fn kind(&self) -> Option<PrincipalKind> {
        self.parsed("principal_kind")
    }

    /// Returns true if a success says where its result is.
    pub fn is_locatable(&self) -> bool {
        let says = |name, forms: &[char]| {
            let proof = self.raw(name).unwrap_or_default();
            proof.starts_with(forms) && !["[]", "{}", "\"\""].contains(&proof)
        };
        says("artifacts", &['[', '{', '"']) || says("delivery_proof", &['[', '{'])
    }

    /// Returns the end of a lease that is asked for at `now`.
    pub fn lease_end(&self, now: Timestamp, seconds: Option<i64>) -> Timestamp {
        now.plus_millis(seconds.map_or(300_000, |seconds| (seconds * 1_000).min(1_800_000)))
    }
}

fn fields(json: &[u8]) -> Option<Vec<Field>> {
    let mut fields = Vec::with_capacity(8);
    let mut at = 1;
    while json.get(at)? != &b'}' {
        let name_end = string_end(json, at)?;
        let value_end = value_end(json, name_end + 1)?;
        fields.push(Field {
            name: at + 1..name_end - 1,
            value: name_end + 1..value_end,
        });
        at = value_end + usize::from(json.get(value_end)? == &b',');
    }
    Some(fields)
}

fn elements(json: &[u8]) -> Option<Vec<Range<usize>>> {
    let mut elements = Vec::new();
    let mut at = 1;
    while json.get(at)? != &b']' {
        let end = value_end(json, at)?;
        elements.push(at..end);
        at = end + usize::from(json.get(end)? == &b',');
    }
    Some(elements)
}

/// Returns the end of the value that begins at `at`. Simulated clients write no white space.
fn value_end(json: &[u8], at: usize) -> Option<usize> {
    match json.get(at)? {
        b'"' => string_end(json, at),
        b'[' | b'{' => nested_end(json, at),
        _ => find(json, at, |byte| matches!(byte, b',' | b']' | b'}')),
    }
}

/// Returns the end of the list or object that begins at `at`.
fn nested_end(json: &[u8], at: usize) -> Option<usize> {
    let (mut at, mut depth) = (at, 0);
    loop {
        at = find(json, at, |byte| {
            matches!(byte, b'"' | b'[' | b']' | b'{' | b'}')
        })?;
        match json[at] {
            b'"' => at = string_end(json, at)?,
            b'[' | b'{' => (at, depth) = (at + 1, depth + 1),
            _ => (at, depth) = (at + 1, depth - 1),
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Returns the end of the string that begins at `at`.
fn string_end(json: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    loop {
        at = find(json, at, |byte| matches!(byte, b'"' | b'\\'))?;
        if json[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn find(json: &[u8], from: usize, wanted: impl Fn(u8) -> bool) -> Option<usize> {
    let found = json.get(from..)?.iter().position(|byte| wanted(*byte));
    Some(from + found?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(input: &str) -> Asked {
        Asked::new(input.into())
    }

    #[test]
    fn fields_are_found_wherever_they_stand() {
        let asked = asked(r#"{"a":"x","b":[{"c":"}]\"","d":1}],"e":-7,"f":null,"g":true,"":{}}"#);
        assert_eq!(asked.text("a"), Some("x"));
        assert_eq!(asked.raw("b"), Some(r#"[{"c":"}]\"","d":1}]"#));
        assert_eq!(asked.number("e"), Some(-7));
        assert!(!asked.has("f") && asked.flag("g") && !asked.flag("e"));
        assert_eq!(asked.raw(""), Some("{}"));
        assert!(!asked.has("c"), "it is a field of something else");
    }

    #[test]
    fn items_are_asked_for_by_themselves() {
        let asked = asked(r#"{"list":[{"a":1},{"a":2,"b":[3]},{}],"none":[]}"#);
        let numbers = asked
            .items("list")
            .iter()
            .map(|item| item.number("a"))
            .collect::<Vec<Option<u8>>>();
        assert_eq!(numbers, [Some(1), Some(2), None]);
        assert!(asked.items("none").is_empty() && asked.items("other").is_empty());
    }

    #[test]
    fn what_is_no_object_asks_for_nothing() {
        for input in [
            "",
            "{",
            "{\"",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":\"",
            "{\"a\":[",
            "7",
            "{\"a\":\"\\",
        ] {
            assert!(asked(input).fields.is_empty(), "{input}");
        }
        assert!(asked("{}").fields.is_empty());
    }
}
