//! The setting `mailbox.topic_classes`: classes of topics, each with its patterns.
//!
//! It is a table of names with lists of patterns. An older form is read too: prefixes with the names of their classes,
//! as a table or as pairs in a text. A prefix means the same as the pattern of it with a star at its end.

use std::collections::BTreeMap;

use asyncgate_core::mailbox::{TopicClasses, TopicPattern};
use serde_json::Value as Json;

/// The patterns of each class.
pub type Classes = BTreeMap<String, Vec<String>>;

/// The longest name of a class: a label of metrics.
pub const NAME_MAX: usize = 32;
const PATTERN_MAX: usize = 128;
const STAR: char = '*';

/// Parses classes from a table in JSON, or from pairs such as `user:=user_inbox`.
pub fn parse(text: &str) -> Option<Classes> {
    let mut classes = Classes::new();
    if text.starts_with('{') {
        let table: BTreeMap<String, Json> = serde_json::from_str(text).ok()?;
        for (key, value) in table {
            match value {
                Json::Array(patterns) => add_class(&mut classes, key, &patterns)?,
                Json::String(class) => add_prefix(&mut classes, &key, &class)?,
                Json::Null | Json::Bool(_) | Json::Number(_) | Json::Object(_) => return None,
            }
        }
        return Some(classes);
    }
    for pair in text.split(',').map(str::trim) {
        if !pair.is_empty() {
            let (prefix, class) = pair.split_once('=')?;
            add_prefix(&mut classes, prefix.trim(), class.trim())?;
        }
    }
    Some(classes)
}

fn add_class(classes: &mut Classes, name: String, patterns: &[Json]) -> Option<()> {
    let patterns = patterns.iter().map(|pattern| {
        let pattern = pattern.as_str().filter(|text| is_pattern(text))?;
        Some(pattern.to_owned())
    });
    let patterns: Vec<String> = patterns.collect::<Option<_>>()?;
    if !is_name(&name) || patterns.is_empty() {
        return None;
    }
    classes.entry(name).or_default().extend(patterns);
    Some(())
}

fn add_prefix(classes: &mut Classes, prefix: &str, class: &str) -> Option<()> {
    let pattern = format!("{prefix}{STAR}");
    let taken = classes.values().any(|patterns| patterns.contains(&pattern));
    if taken || prefix.contains(STAR) || !is_pattern(prefix) || !is_name(class) {
        return None;
    }
    classes.entry(class.to_owned()).or_default().push(pattern);
    Some(())
}

/// Returns true for a text that can be the label of a metric without any escape.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.len() <= NAME_MAX && text.bytes().all(plain)
}

fn is_pattern(text: &str) -> bool {
    let visible = text.bytes().all(|byte| byte.is_ascii_graphic());
    !text.is_empty() && text.len() <= PATTERN_MAX && visible
}

/// Returns the classes in the form of the rule.
pub fn rule(classes: Classes) -> TopicClasses {
    let of_class = |(class, patterns): (String, Vec<String>)| {
        let pattern = move |pattern| (TopicPattern::new(pattern), class.clone());
        patterns.into_iter().map(pattern)
    };
    TopicClasses::new(classes.into_iter().flat_map(of_class))
}

#[cfg(test)]
mod tests {
    use super::super::Effective;
    use super::super::tests::{file, inputs, value};
    use super::*;

    fn parsed(text: &str) -> Vec<(String, String)> {
        let classes = parse(text).unwrap_or_else(|| panic!("{text}"));
        let pairs = classes.into_iter().flat_map(|(class, patterns)| {
            let pair = move |pattern| (class.clone(), pattern);
            patterns.into_iter().map(pair)
        });
        pairs.collect()
    }

    #[test]
    fn both_forms_are_read_and_may_be_mixed() {
        let pairs = |pairs: &[(&str, &str)]| {
            let owned = |(class, pattern): &(&str, &str)| ((*class).into(), (*pattern).into());
            pairs.iter().map(owned).collect::<Vec<(String, String)>>()
        };
        for (text, expected) in [
            ("", &[][..]),
            (
                "user:=inbox, sys:=inbox",
                &[("inbox", "user:*"), ("inbox", "sys:*")],
            ),
            (
                r#"{"inbox": ["user:*:inbox", "vip"], "all": ["*"]}"#,
                &[("all", "*"), ("inbox", "user:*:inbox"), ("inbox", "vip")],
            ),
            (
                r#"{"user:": "inbox", "inbox": ["vip"]}"#,
                &[("inbox", "vip"), ("inbox", "user:*")],
            ),
        ] {
            assert_eq!(parsed(text), pairs(expected), "{text}");
        }
    }

    #[test]
    fn what_is_neither_is_refused() {
        for text in [
            "user:",
            "user:*=inbox",
            "user:=In",
            "a=x,a=y",
            "{",
            r#"{"inbox": "user:*"}"#,
            r#"{"inbox": []}"#,
            r#"{"inbox": [""]}"#,
            r#"{"inbox": ["a b"]}"#,
            r#"{"inbox": [1]}"#,
            r#"{"In box": ["a"]}"#,
            r#"{"inbox": {"a": 1}}"#,
            r#"{"a": "x", "inbox": null}"#,
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
        let long = |length| format!(r#"{{"{}": ["a"]}}"#, "n".repeat(length));
        assert!(parse(&long(NAME_MAX)).is_some() && parse(&long(NAME_MAX + 1)).is_none());
    }

    #[test]
    fn a_prefix_means_the_pattern_with_a_star_at_its_end() {
        let prefixes = rule(parse("user:=inbox,user:1=vip").unwrap());
        let patterns = rule(parse(r#"{"inbox": ["user:*"], "vip": ["user:1*"]}"#).unwrap());
        assert_eq!(prefixes, patterns);
        assert_eq!(prefixes.first("user:12:x"), Some("vip"));
    }

    #[test]
    fn classes_of_topics_are_a_table_of_names_and_patterns() {
        let file = file(
            ".toml",
            "[mailbox.topic_classes]\ninbox = [\"user:*:inbox\", \"vip\"]\nall = [\"*\"]\n",
        );
        let effective = Effective::read(&inputs(&[], &[], Some(&file))).unwrap();
        let shown = r#"{"all":["*"],"inbox":["user:*:inbox","vip"]}"#;
        assert_eq!(value(&effective, "mailbox.topic_classes").0, shown);
        let classes = effective.settings.topic_classes;
        let of = |topic| classes.all(topic).collect::<Vec<_>>();
        assert_eq!(of("user:7:inbox"), ["inbox", "all"]);
        assert_eq!(of("user:7"), ["all"]);
        // What is shown can be set again.
        let again =
            Effective::read(&inputs(&[("mailbox.topic_classes", shown)], &[], None)).unwrap();
        assert_eq!(again.settings.topic_classes, classes);
    }
}
