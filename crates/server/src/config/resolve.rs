//! Which text wins for each key, and whether the winners fit together.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Error;
use super::key::{Key, Reload, Value};
use super::source::{Flag, Given, Source, from_env, from_file, from_flags};
use super::table::keys;

/// Everything that settings are read from. Kept, so that a reload reads the same places again.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// The flags that set keys.
    pub flags: Vec<Flag>,
    /// The file, if one was named.
    pub file: Option<PathBuf>,
    /// The environment.
    pub env: Vec<(OsString, OsString)>,
}

/// One key with the value in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    pub source: Source,
}

/// The value in force for every key of the table, in the table's order.
#[derive(Debug, Clone, Default)]
pub struct Effective {
    entries: Vec<Entry>,
    /// What deserves a warning and does not stop the start.
    pub warnings: Vec<String>,
}

impl Effective {
    /// Reads all places, checks every value, and checks them against each other.
    pub fn read(inputs: &Inputs) -> Result<Self, Error> {
        let mut flags = from_flags(&inputs.flags)?;
        let (mut env, warnings) = from_env(inputs.env.iter().cloned())?;
        let mut file = inputs
            .file
            .as_deref()
            .map(|path| from_file(path, &inputs.env))
            .transpose()?
            .unwrap_or_default();
        let mut entries = Vec::new();
        for key in keys() {
            // A value that is overruled is checked too: it would surprise whoever removes the other.
            let layers = [
                file.remove(key.name),
                env.remove(key.name),
                flags.remove(key.name),
            ];
            let default = Given {
                text: key.default.to_owned(),
                source: Source::Default,
            };
            let mut entry = Entry::check(key, default)?;
            for given in layers.into_iter().flatten() {
                entry = Entry::check(key, given)?;
            }
            entries.push(entry);
        }
        let mut effective = Self { entries, warnings };
        effective.fit_together()?;
        Ok(effective)
    }

    /// What to run with after a newer reading: it gives what needs no restart, the rest stays.
    pub fn adopt_live(&self, newer: &Self) -> Result<Self, Error> {
        let mut next = Self {
            entries: self.entries.clone(),
            warnings: Vec::new(),
        };
        for ((key, fresh), entry) in newer.iter().zip(&mut next.entries) {
            if key.reload == Reload::Live {
                entry.clone_from(fresh);
            }
        }
        // Old and new were each good; together they may not be.
        next.fit_together()?;
        Ok(next)
    }

    /// The keys with their values, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &Entry)> {
        keys().zip(&self.entries)
    }

    /// The value of a key; nothing if the table has no such key.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, entry)| entry)
    }

    /// Puts a value in force that another setting leaves no choice about.
    pub(super) fn imply(&mut self, name: &str, value: Value, by: &'static str) {
        let mut entries = keys().zip(&mut self.entries);
        if let Some((_, entry)) = entries.find(|(key, _)| key.name == name) {
            *entry = Entry {
                value,
                source: Source::Implied(by),
            };
        }
    }
}

impl Entry {
    fn check(key: &'static Key, given: Given) -> Result<Self, Error> {
        Ok(Self {
            value: key.check(&given)?,
            source: given.source,
        })
    }
}
