//! Settings: one table of keys, four places to set them, one typed result.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults.
//! A value that its key's rule refuses, or a name that the table does not have, stops the start
//! with one line that names the key and where it came from.

mod backend;
mod domains;
mod ingress;
mod key;
mod quantity;
mod reload;
mod resolve;
mod settings;
mod show;
mod source;
mod table;
mod together;

use std::path::PathBuf;

pub use backend::Backend;
pub use domains::Domains;
pub use reload::changes;
pub use resolve::{Effective, Inputs};
pub use settings::{LogFormat, Profile, Settings, StoreKind};
pub use show::{reference, show_json, show_text};
pub use source::{Flag, Source};
pub use table::{CONFIG_ENV, keys};

/// Whether a setting is either on or off.
pub fn is_switch(key: &key::Key) -> bool {
    key.rule == key::Rule::Switch
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value did not pass its key's rule.
    #[error("{key} = {shown} ({source_of}) {problem}")]
    Value {
        key: &'static str,
        shown: String,
        source_of: Source,
        problem: String,
    },
    /// The table has no such key.
    #[error("{key} ({source_of}) is not a setting{hint}")]
    UnknownKey {
        key: String,
        source_of: Source,
        hint: String,
    },
    /// The file cannot be read or parsed.
    #[error("{}: {reason}", path.display())]
    File { path: PathBuf, reason: String },
    /// Other processes can read a command line.
    #[error("{key} (flag --set) is a secret and command lines are public; set {env} or use a file")]
    SecretOnCommandLine { key: &'static str, env: String },
}

#[cfg(test)]
mod tests;
