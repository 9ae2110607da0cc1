//! Which text wins for each key, and whether the winners fit together.

use std::ffi::OsString;
use std::path::PathBuf;

use super::Error;
use super::key::{Key, Reload, Value};
use super::source::{Flag, Given, Source, from_env, from_file, from_flags};
use super::table::{KEPT_FOR_LATER, KEYS, ORDERED, find};

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
            .map(from_file)
            .transpose()?
            .unwrap_or_default();
        let mut entries = Vec::with_capacity(KEYS.len());
        for key in KEYS {
            // A value that is overruled is checked too: it would surprise whoever removes the other.
            let layers = [
                file.remove(key.name),
                env.remove(key.name),
                flags.remove(key.name),
            ];
            let mut entry = check(
                key,
                Given {
                    text: key.default.to_owned(),
                    source: Source::Default,
                },
            )?;
            for given in layers.into_iter().flatten() {
                entry = check(key, given)?;
            }
            entries.push(entry);
        }
        let mut effective = Self { entries, warnings };
        effective.warn_of_idle_keys();
        effective.check_order()?;
        effective.check_insecure_dev()?;
        Ok(effective)
    }

    /// Takes over from a newer reading what needs no restart; the rest stays what the process runs with.
    pub fn adopt_live(&mut self, newer: &Self) {
        for ((key, fresh), entry) in newer.iter().zip(&mut self.entries) {
            if key.reload == Reload::Live {
                entry.clone_from(fresh);
            }
        }
    }

    /// The keys with their values, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &Entry)> {
        KEYS.iter().zip(&self.entries)
    }

    /// The value of a key; nothing if the table has no such key.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.iter()
            .find(|(key, _)| key.name == name)
            .map(|(_, entry)| entry)
    }

    fn warn_of_idle_keys(&mut self) {
        let idle = self.iter().filter(|(key, entry)| {
            entry.source != Source::Default && KEPT_FOR_LATER.contains(&key.name)
        });
        let told: Vec<String> = idle
            .map(|(key, entry)| format!("{} ({}) changes nothing yet", key.name, entry.source))
            .collect();
        self.warnings.extend(told);
    }

    fn check_order(&self) -> Result<(), Error> {
        for (low_name, high_name) in ORDERED {
            let (Some(low), Some(high)) = (self.get(low_name), self.get(high_name)) else {
                continue;
            };
            let (Value::Integer(small), Value::Integer(large)) = (&low.value, &high.value) else {
                continue;
            };
            if small > large {
                let limit = format!("must be at most {high_name} = {large} ({})", high.source);
                return Err(refuse(low_name, low, limit));
            }
        }
        Ok(())
    }

    /// Without credentials, whoever reaches the port is the admin; so nobody else may reach it.
    fn check_insecure_dev(&self) -> Result<(), Error> {
        let (Some(dev), Some(bind), Some(api_key)) = (
            self.get("allow_insecure_dev"),
            self.get("bind"),
            self.get("api_key"),
        ) else {
            return Ok(());
        };
        if dev.value != Value::Switch(true) {
            return Ok(());
        }
        if matches!(&bind.value, Value::Address(address) if !address.ip().is_loopback()) {
            let problem = format!(
                "needs a loopback address, but bind = {} ({})",
                bind.value, bind.source
            );
            return Err(refuse("allow_insecure_dev", dev, problem));
        }
        if matches!(api_key.value, Value::Secret(Some(_))) {
            let problem = format!(
                "contradicts api_key ({}); set only one of them",
                api_key.source
            );
            return Err(refuse("allow_insecure_dev", dev, problem));
        }
        Ok(())
    }
}

fn check(key: &'static Key, given: Given) -> Result<Entry, Error> {
    match key.rule.check(&given.text) {
        Ok(value) => Ok(Entry {
            value,
            source: given.source,
        }),
        Err(refused) => Err(Error::Value {
            key: key.name,
            shown: if key.is_secret() {
                "(secret)".to_owned()
            } else {
                format!("{:?}", given.text)
            },
            source_of: given.source,
            problem: refused.to_string(),
        }),
    }
}

fn refuse(name: &str, entry: &Entry, problem: String) -> Error {
    Error::Value {
        key: find(name).map_or("", |key| key.name),
        shown: entry.value.to_string(),
        source_of: entry.source.clone(),
        problem,
    }
}
