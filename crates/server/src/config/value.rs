//! Values of settings, parsed and checked.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use asyncgate_core::hex;
use asyncgate_engine::Network;
use asyncgate_mcp::Toolsets;
use serde_json::Value as Json;

use super::backend::Backend;
use super::quantity::{show_duration, show_size};
use super::table_value::Table;
use super::topic_classes::Classes;

/// A value that passed its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Integer(i64),
    Duration(Duration),
    Size(u64),
    Days(Option<u32>),
    Switch(bool),
    Word(&'static str),
    Text(String),
    Address(SocketAddr),
    Path(PathBuf),
    List(Vec<String>),
    Uids(Vec<u32>),
    Classes(Classes),
    Weights(Vec<(String, u32)>),
    Keys(Vec<[u8; 32]>),
    Toolsets(Toolsets),
    Networks(Vec<Network>),
    Table(Table),
    Secret(Option<Secret>),
    Backend(Backend),
    Webhook(asyncgate_courier::Address),
    /// The setting is optional, and no source gave a value.
    Unset,
}

impl Value {
    /// Returns the value as a number, to compare it with another of its kind.
    pub fn amount(&self) -> Option<i128> {
        if let Self::Integer(number) = self {
            Some(i128::from(*number))
        } else if let Self::Duration(time) = self {
            i128::try_from(time.as_millis()).ok()
        } else if let Self::Size(bytes) = self {
            Some(i128::from(*bytes))
        } else {
            None
        }
    }

    /// Makes the relative paths in the value relative to a directory.
    pub fn relative_to(&mut self, dir: &Path) {
        if let Self::Path(path) = self {
            // An absolute path replaces the directory.
            *path = dir.join(&*path);
        } else if let Self::Backend(backend) = self {
            backend.relative_to(dir);
        }
    }

    /// Returns the value for `config show --json`.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Integer(number) => Json::from(*number),
            Self::Size(bytes) => Json::from(*bytes),
            Self::Days(days) => days.map_or_else(|| Json::from("never"), Json::from),
            Self::Switch(on) => Json::from(*on),
            Self::List(items) => Json::from(items.clone()),
            Self::Uids(uids) => Json::from(uids.clone()),
            Self::Keys(keys) => keys.iter().map(|key| hex::encode(key)).collect(),
            Self::Networks(networks) => networks.iter().map(Network::to_string).collect(),
            Self::Classes(classes) => classes.clone().into_iter().collect(),
            Self::Weights(pairs) => {
                let text = |(name, weight): &(String, u32)| (name.clone(), weight.to_string());
                pairs.iter().map(text).collect()
            }
            Self::Unset => Json::Null,
            Self::Word(_)
            | Self::Text(_)
            | Self::Duration(_)
            | Self::Address(_)
            | Self::Path(_)
            | Self::Backend(_)
            | Self::Webhook(_)
            | Self::Toolsets(_)
            | Self::Table(_)
            | Self::Secret(_) => Json::from(self.to_string()),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Duration(time) => f.write_str(&show_duration(*time)),
            Self::Size(bytes) => f.write_str(&show_size(*bytes)),
            Self::Days(Some(days)) => write!(f, "{days}"),
            Self::Days(None) => f.write_str("never"),
            Self::Switch(on) => write!(f, "{on}"),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => f.write_str(text),
            Self::Address(address) => write!(f, "{address}"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::List(items) => join(f, items, Clone::clone),
            Self::Uids(uids) => join(f, uids, u32::to_string),
            Self::Classes(classes) if classes.is_empty() => Ok(()),
            Self::Classes(_) => write!(f, "{}", self.to_json()),
            Self::Weights(pairs) => join(f, pairs, |(name, weight)| format!("{name}={weight}")),
            Self::Keys(keys) => join(f, keys, |key| hex::encode(key)),
            Self::Toolsets(toolsets) => write!(f, "{toolsets}"),
            Self::Networks(networks) => join(f, networks, Network::to_string),
            Self::Table(table) => write!(f, "{table}"),
            Self::Backend(backend) => write!(f, "{backend}"),
            Self::Webhook(address) => f.write_str(&address.shown()),
            Self::Secret(Some(secret)) => write!(f, "{secret:?}"),
            Self::Secret(None) | Self::Unset => f.write_str("(not set)"),
        }
    }
}

fn join<T>(f: &mut fmt::Formatter<'_>, items: &[T], show: impl Fn(&T) -> String) -> fmt::Result {
    let texts: Vec<String> = items.iter().map(show).collect();
    f.write_str(&texts.join(","))
}

/// A credential. Neither `Debug` nor `Display` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub(super) fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// Returns the credential itself; for comparing it, never for showing it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(set)")
    }
}
