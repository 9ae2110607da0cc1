//! What changed between two readings of the settings, and what of it can be applied at once.

use super::key::{Key, Reload, Value};
use super::resolve::Effective;

/// A key whose value is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub key: &'static str,
    pub from: String,
    pub to: String,
    /// True when SIGHUP applies it; else it waits for a restart.
    pub live: bool,
}

/// What stands in the place of a secret.
const HIDDEN: &str = "***";

/// The keys that differ, in the table's order. Secrets are hidden.
pub fn changes(old: &Effective, new: &Effective) -> Vec<Change> {
    let pairs = old.iter().zip(new.iter());
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
