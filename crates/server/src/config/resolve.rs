//! Reads every source, decides which text counts for each setting, and puts the settings together.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use super::Error;
use super::key::{Key, Reload};
use super::settings::Settings;
use super::source::{Flag, Given, Layer, Source, from_env, from_file, from_flags};
use super::table::keys;
use super::value::Value;

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

/// The value in force of one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub value: Value,
    pub source: Source,
}

/// The values in force of all settings, in the table's order.
#[derive(Debug, Clone, Default)]
pub struct Entries(Vec<Entry>);

impl Entries {
    /// Returns the settings with their values, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &Entry)> {
        keys().zip(&self.0)
    }

    /// Returns the value of a setting. A name that the table does not have is a defect.
    pub fn get(&self, name: &'static str) -> Result<&Entry, Error> {
        let found = self.iter().find(|(key, _)| key.name == name);
        found.map(|(_, entry)| entry).ok_or(Error::Defect(name))
    }

    /// Puts a value in force that another setting leaves no choice about.
    pub(super) fn imply(&mut self, name: &str, value: Value, by: &'static str) {
        let mut entries = keys().zip(&mut self.0);
        if let Some((_, entry)) = entries.find(|(key, _)| key.name == name) {
            *entry = Entry {
                value,
                source: Source::Implied(by),
            };
        }
    }

    /// Makes the error that refuses a setting's value.
    pub(super) fn refuse(&self, name: &'static str, problem: impl Into<String>) -> Error {
        match self.get(name) {
            Ok(entry) => Error::Value {
                key: name,
                shown: entry.value.to_string(),
                source_of: entry.source.clone(),
                problem: problem.into(),
            },
            Err(defect) => defect,
        }
    }
}

/// The result of one reading of the settings.
#[derive(Debug, Clone)]
pub struct Effective {
    pub entries: Entries,
    /// The same values as the program uses them.
    pub settings: Settings,
    /// Remarks that do not stop the start.
    pub warnings: Vec<String>,
}

impl Effective {
    /// Reads all sources, parses every value, and checks the values against each other.
    pub fn read(inputs: &Inputs) -> Result<Self, Error> {
        let flags = from_flags(&inputs.flags)?;
        let mut warnings = Vec::new();
        let env = from_env(inputs.env.iter().cloned(), &mut warnings)?;
        let file = match &inputs.file {
            Some(path) => from_file(path, &inputs.env)?,
            None => Layer::new(),
        };
        let mut given: BTreeMap<&str, Vec<Given>> = BTreeMap::new();
        // A later source wins over an earlier one.
        for (name, text) in file.into_iter().chain(env).chain(flags) {
            given.entry(name).or_default().push(text);
        }
        let entries = keys().map(|key| Entry::of(key, given.remove(key.name).unwrap_or_default()));
        let entries = entries.collect::<Result<_, Error>>()?;
        Self::new(Entries(entries), warnings)
    }

    /// Returns the settings to run with after a newer reading: the newer values of what needs no restart,
    /// and the old values of the rest.
    pub fn adopt_live(&self, newer: &Self) -> Result<Self, Error> {
        let mut entries = self.entries.clone();
        for ((key, fresh), entry) in newer.entries.iter().zip(&mut entries.0) {
            if key.reload == Reload::Live {
                entry.clone_from(fresh);
            }
        }
        // Old and new were each good; the mixture may not be, so it is checked again.
        Self::new(entries, Vec::new())
    }

    fn new(mut entries: Entries, mut warnings: Vec<String>) -> Result<Self, Error> {
        warnings.extend(entries.cross_check()?);
        let settings = Settings::new(&entries)?;
        Ok(Self {
            entries,
            settings,
            warnings,
        })
    }
}

impl Entry {
    /// Parses the texts that sources gave for a setting, the default first; the last one counts.
    fn of(key: &'static Key, given: Vec<Given>) -> Result<Self, Error> {
        let mut entry = Self::parse(key, Given::default_of(key))?;
        // A text that is overruled is parsed too: a mistake in it would surprise whoever removes the other.
        for given in given {
            entry = Self::parse(key, given)?;
        }
        Ok(entry)
    }

    fn parse(key: &'static Key, given: Given) -> Result<Self, Error> {
        let mut value = key.parse(&given)?;
        // A file means the same wherever the program is started. Flags and variables are written by
        // somebody who knows the working directory.
        if let Source::File(file) = &given.source
            && let Some(dir) = file.parent()
        {
            value.relative_to(dir);
        }
        Ok(Self {
            value,
            source: given.source,
        })
    }
}
