//! Settings: one table of keys, four sources, one typed result.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults.
//! A value that its setting's rule refuses, or a name that the table does not have, stops the start
//! with one line that names the setting and the source.
//!
//! The way of a value: `source` reads texts, `key` and `rule` parse each text once into a `value`,
//! `resolve` decides which one counts, `cross_checks` compares values, `settings` gives each its field.

mod backend;
mod changes;
mod cross_checks;
mod domains;
mod ingress;
mod key;
mod providers;
mod quantity;
mod resolve;
mod rule;
mod settings;
mod show;
mod source;
mod table;
mod table_value;
mod tenants;
mod topic_classes;
mod value;

use std::path::PathBuf;

pub use backend::Backend;
pub use changes::changes;
pub use domains::Domains;
pub use resolve::{Effective, Inputs};
pub use settings::{LogFormat, Profile, Settings, StoreKind};
pub use show::{reference, show_json, show_text};
pub use source::{Flag, Source};
pub use table::{CONFIG_ENV, keys};

/// Returns true if a setting is either on or off.
pub fn is_switch(key: &key::Key) -> bool {
    key.rule == rule::Rule::Switch
}

/// The reason why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value did not pass its setting's rule, or contradicts another value.
    #[error("{key} = {shown} ({source_of}) {problem}")]
    Value {
        key: &'static str,
        shown: String,
        source_of: Source,
        problem: String,
    },
    /// The table has no such setting.
    #[error("{key} ({source_of}) is not a setting{hint}")]
    UnknownKey {
        key: String,
        source_of: Source,
        hint: String,
    },
    /// The file cannot be read or parsed.
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// A secret stands on the command line, which other processes can read.
    #[error("{key} (flag --set) is a secret and command lines are public; set {env} or use a file")]
    SecretOnCommandLine { key: &'static str, env: String },
    /// The table of settings and the program disagree about a setting's name or type.
    #[error("defect: the setting {0} does not have the type that the program expects")]
    Defect(&'static str),
}

#[cfg(test)]
pub mod tests;
