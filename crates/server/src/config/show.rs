//! The settings in force, for people and for programs. Secrets are shown as set or not set.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::key::{Key, Reload, Value};
use super::resolve::Effective;
use super::table::KEYS;

/// A table: key, value, where it came from.
pub fn show_text(effective: &Effective) -> String {
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let key_width = width(&mut effective.iter().map(|(key, _)| key.name.len()));
    let value_width = width(
        &mut effective
            .iter()
            .map(|(_, entry)| entry.value.to_string().len()),
    )
    .min(40);
    let mut out = String::new();
    for (key, entry) in effective.iter() {
        let value = entry.value.to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<key_width$}  {value:<value_width$}  {}",
            key.name, entry.source
        );
    }
    out
}

/// One object per key, with what it means and how to set it.
pub fn show_json(effective: &Effective) -> Json {
    let entries = effective.iter().map(|(key, entry)| {
        json!({
            "key": key.name,
            "value": json_value(&entry.value),
            "source": entry.source.to_string(),
            "env": environment(key),
            "default": if key.is_secret() { Json::Null } else { Json::from(key.default) },
            "rule": key.rule.to_string(),
            "reload": key.reload == Reload::Live,
            "doc": key.doc,
        })
    });
    json!({ "settings": entries.collect::<Vec<_>>(), "warnings": effective.warnings })
}

fn json_value(value: &Value) -> Json {
    match value {
        Value::Integer(number) => Json::from(*number),
        Value::Days(days) => days.map_or_else(|| Json::from("never"), Json::from),
        Value::Switch(on) => Json::from(*on),
        Value::List(items) => Json::from(items.clone()),
        Value::Word(_) | Value::Text(_) | Value::Address(_) | Value::Path(_) | Value::Secret(_) => {
            Json::from(value.to_string())
        }
    }
}

fn environment(key: &Key) -> Vec<String> {
    std::iter::once(key.env())
        .chain(key.bare_env.map(str::to_owned))
        .collect()
}

/// The reference of all settings, as a Markdown table.
pub fn reference() -> String {
    let mut out = String::from(
        "| key | environment | default | must be | reload | meaning |\n|---|---|---|---|---|---|\n",
    );
    for key in KEYS {
        let variables: Vec<String> = environment(key)
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let default = if key.default.is_empty() {
            "not set".to_owned()
        } else {
            format!("`{}`", key.default)
        };
        let reload = if key.reload == Reload::Live {
            "SIGHUP"
        } else {
            "restart"
        };
        let _ = writeln!(
            out,
            "| `{}` | {} | {default} | {} | {reload} | {} |",
            key.name,
            variables.join(", "),
            key.rule,
            key.doc
        );
    }
    out
}
