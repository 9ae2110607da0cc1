//! The differences between two readings of the settings.

use super::key::{Key, Reload};
use super::resolve::Effective;
use super::value::Value;

/// A setting whose value differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: &'static str,
    pub from: String,
    pub to: String,
    /// True if SIGHUP applies it; else it takes effect at the next start.
    pub live: bool,
}

/// The text that replaces a secret.
const HIDDEN: &str = "***";

/// Returns the settings that differ, in the table's order. Secrets are hidden.
pub fn changes(old: &Effective, new: &Effective) -> Vec<Change> {
    let pairs = old.entries.iter().zip(new.entries.iter());
    pairs
        .filter(|((_, before), (_, after))| before.value != after.value)
        .map(|((key, before), (_, after))| Change {
            key: key.name,
            from: show(key, &before.value),
            to: show(key, &after.value),
            live: key.reload == Reload::Live,
        })
        .collect()
}

fn show(key: &Key, value: &Value) -> String {
    if key.is_secret() {
        HIDDEN.to_owned()
    } else {
        value.to_string()
    }
}
