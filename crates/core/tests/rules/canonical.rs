//! Canonical JSON: equal bytes exactly for equal values. Idempotency and hashes depend on it.

use asyncgate_core::json::canonical;
use proptest::prelude::*;

/// A JSON value, independent of its text.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Word(&'static str),
    /// Digits and a power of ten.
    Number(i64, i8),
    Text(String),
    List(Vec<Value>),
    /// Keys in order, each once.
    Object(Vec<(String, Value)>),
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        prop_oneof![Just("null"), Just("true"), Just("false")].prop_map(Value::Word),
        (-1_000..1_000_i64, -3..4_i8).prop_map(|(digits, power)| number(digits, power)),
        text().prop_map(Value::Text),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
            proptest::collection::btree_map(text(), inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

const ODD: &[char] = &[
    'a',
    'b',
    '"',
    '\\',
    '/',
    ' ',
    '\n',
    '\u{0}',
    ':',
    ',',
    'ü',
    '\u{1f600}',
];

/// Short texts over few characters, so that two of them are often nearly the same.
fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(ODD), 0..4)
        .prop_map(|chars| chars.into_iter().collect())
}

/// Builds numbers without trailing zeros, so that equal numbers are equal values.
fn number(mut digits: i64, mut power: i8) -> Value {
    if digits == 0 {
        return Value::Number(0, 0);
    }
    while digits % 10 == 0 {
        digits /= 10;
        power += 1;
    }
    Value::Number(digits, power)
}

/// Writes a value in the plain form.
fn plain(value: &Value) -> String {
    match value {
        Value::Word(word) => (*word).to_owned(),
        Value::Number(digits, power) => format!("{digits}e{power}"),
        Value::Text(text) => serde_json::to_string(text).unwrap(),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(plain).collect();
            format!("[{}]", items.join(","))
        }
        Value::Object(members) => {
            let member = |(key, value): &(String, Value)| {
                format!("{}:{}", serde_json::to_string(key).unwrap(), plain(value))
            };
            let members: Vec<_> = members.iter().map(member).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// Writes the same value as differently as JSON allows: white space everywhere, keys in reverse,
/// every character as an escape, numbers with needless zeros.
fn fancy(value: &Value) -> String {
    match value {
        Value::Word(word) => format!("\n {word}\t"),
        Value::Number(digits, power) => {
            let sign = if *digits < 0 { "-" } else { "" };
            format!(" {sign}{}.00E{power} ", digits.unsigned_abs())
        }
        Value::Text(text) => escaped(text),
        Value::List(items) => {
            let items: Vec<_> = items.iter().map(fancy).collect();
            format!("[ {} ]", items.join(" , "))
        }
        Value::Object(members) => {
            let member =
                |(key, value): &(String, Value)| format!("{} :\r\n {}", escaped(key), fancy(value));
            let members: Vec<_> = members.iter().rev().map(member).collect();
            format!("{{ {} }}", members.join(" , "))
        }
    }
}

fn escaped(text: &str) -> String {
    let units: String = text
        .encode_utf16()
        .map(|unit| format!("\\u{unit:04X}"))
        .collect();
    format!("\"{units}\"")
}

proptest! {
    #![proptest_config(crate::model::config())]

    #[test]
    fn however_a_value_is_written_its_canonical_bytes_are_the_same(value in value()) {
        let fancy = fancy(&value);
        prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&fancy).is_ok());
        prop_assert_eq!(canonical(&plain(&value)), canonical(&fancy), "{}", fancy);
    }

    #[test]
    fn different_values_have_different_canonical_bytes(left in value(), right in value()) {
        let same = canonical(&plain(&left)) == canonical(&plain(&right));
        prop_assert_eq!(same, left == right);
    }

    #[test]
    fn canonical_bytes_are_canonical(value in value()) {
        let once = canonical(&fancy(&value));
        let text = String::from_utf8(once.clone()).unwrap();
        prop_assert_eq!(canonical(&text), once);
    }
}
