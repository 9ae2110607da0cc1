//! What changed between two readings of the settings, and what of it can be applied at once.

use super::key::Reload;
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

/// The keys that differ, in the table's order. Secrets appear as set or not set.
pub fn changes(old: &Effective, new: &Effective) -> Vec<Change> {
    let pairs = old.iter().zip(new.iter());
    pairs
        .filter(|((_, before), (_, after))| before.value != after.value)
        .map(|((key, before), (_, after))| Change {
            key: key.name,
            from: before.value.to_string(),
            to: after.value.to_string(),
            live: key.reload == Reload::Live,
        })
        .collect()
}
