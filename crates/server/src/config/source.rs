//! The sources of settings: flags, the environment and a file. Each is read into texts by the names of
//! settings. Only the names are checked here; the texts are parsed later, all by the same rules.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::Error;
use super::key::Key;
use super::table::{CONFIG_ENV, find, keys, nearest};

/// The place that a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The table of settings.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Env(String),
    /// A flag on the command line.
    Flag(String),
    /// Another setting that leaves no choice.
    Implied(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Implied(by) => write!(f, "implied by {by}"),
        }
    }
}

/// A text that a source gave for a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub text: String,
    pub source: Source,
}

impl Given {
    /// Returns the text of a setting that no source names.
    pub fn default_of(key: &Key) -> Self {
        Self {
            text: key.default.to_owned(),
            source: Source::Default,
        }
    }
}

/// Variables with the prefix of settings that are none: the commands that talk to a server read them.
const OF_COMMANDS: [&str; 5] = [
    CONFIG_ENV,
    "ASYNCGATE_URL",
    "ASYNCGATE_PROFILE",
    "ASYNCGATE_CLIENT_CERT",
    "ASYNCGATE_CLIENT_KEY",
];

/// The texts of one source, by the names of settings.
pub type Layer = BTreeMap<&'static str, Given>;

/// A flag of the command line that sets a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// The flag as it was written, such as `--bind`.
    pub flag: String,
    /// The name of the setting.
    pub name: String,
    pub text: String,
}

/// Reads the flags; a later one wins over an earlier one.
pub fn from_flags(flags: &[Flag]) -> Result<Layer, Error> {
    let mut layer = Layer::new();
    for flag in flags {
        let source = Source::Flag(flag.flag.clone());
        let key = find(&flag.name).ok_or_else(|| unknown(&flag.name, &source))?;
        if key.hides(&flag.text) {
            return Err(Error::SecretOnCommandLine {
                key: key.name,
                env: key.env(),
            });
        }
        layer.insert(
            key.name,
            Given {
                text: flag.text.clone(),
                source,
            },
        );
    }
    Ok(layer)
}

/// Reads the environment. Of two texts for one setting, the later in the list counts. Adds warnings
/// about variables that look like ours and are not, and about old names.
///
/// An empty variable counts as not set: deployment tools leave them behind.
pub fn from_env(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    warnings: &mut Vec<String>,
) -> Result<Vec<(&'static str, Given)>, Error> {
    let mut texts = Vec::new();
    let variables: BTreeMap<OsString, OsString> = variables.into_iter().collect();
    for key in keys() {
        // The product's own variable comes last and counts: it is more specific than a specification's.
        let names: Vec<String> = key.variables().collect();
        for name in names.into_iter().rev() {
            let Some(value) = variables.get(&OsString::from(&name)) else {
                continue;
            };
            if value.is_empty() {
                continue;
            }
            if key.old_env == Some(name.as_str()) {
                let new = key.more_env.first().copied().unwrap_or_default();
                warnings.push(format!("{name} is deprecated; use {new}"));
            }
            texts.push((key.name, given_by_env(key, name, value)?));
        }
    }
    let ours: Vec<String> = keys().flat_map(Key::variables).collect();
    for name in variables.keys().filter_map(|name| name.to_str()) {
        let looks_like_ours = name.starts_with("ASYNCGATE_") || name.starts_with("SVCMBX_");
        if looks_like_ours && !ours.iter().any(|our| our == name) && !OF_COMMANDS.contains(&name) {
            let hint = nearest(name, ours.iter().map(String::as_str));
            warnings.push(format!("{name} is not a setting{}", did_you_mean(hint)));
        }
    }
    Ok(texts)
}

fn given_by_env(key: &Key, name: String, value: &OsString) -> Result<Given, Error> {
    let source = Source::Env(name);
    match value.to_str() {
        Some(text) => Ok(Given {
            text: text.to_owned(),
            source,
        }),
        None => Err(Error::Value {
            key: key.name,
            shown: "(not UTF-8)".to_owned(),
            source_of: source,
            problem: "must be UTF-8 text".to_owned(),
        }),
    }
}

/// Reads a file; its ending says whether it is TOML, YAML or JSON. A string `env:NAME` in it stands for
/// the value of that environment variable, so that secrets need not be written into files.
pub fn from_file(path: &Path, env: &[(OsString, OsString)]) -> Result<Layer, Error> {
    let failed = |reason: String| Error::File {
        path: path.to_owned(),
        reason: one_line(&reason),
    };
    let ending = path
        .extension()
        .and_then(|ending| ending.to_str())
        .unwrap_or_default();
    let parse: fn(&str) -> Result<Json, String> = match ending {
        "toml" => parse_toml,
        "yaml" | "yml" => |text| serde_yaml_ng::from_str(text).map_err(|e| e.to_string()),
        "json" => |text| serde_json::from_str(text).map_err(|e| e.to_string()),
        _ => {
            return Err(failed(
                "its name must end in .toml, .yaml, .yml or .json".to_owned(),
            ));
        }
    };
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let mut root = parse(&text).map_err(failed)?;
    expand(&mut root, env).map_err(failed)?;
    let mut layer = Layer::new();
    match root {
        Json::Null => {}
        Json::Object(_) => flatten("", &root, &Source::File(path.to_owned()), &mut layer)?,
        Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) => {
            return Err(failed("it must hold a table of settings".to_owned()));
        }
    }
    Ok(layer)
}

/// Parses TOML. A mistake is described in one line; the library would draw the source over several.
fn parse_toml(text: &str) -> Result<Json, String> {
    toml::from_str(text).map_err(|error| {
        let before = error
            .span()
            .and_then(|span| text.get(..span.start))
            .unwrap_or_default();
        format!(
            "line {}: {}",
            before.matches('\n').count() + 1,
            error.message()
        )
    })
}

/// Replaces every `env:NAME` by the variable's value.
fn expand(value: &mut Json, env: &[(OsString, OsString)]) -> Result<(), String> {
    match value {
        Json::String(text) => {
            let Some(name) = text.strip_prefix("env:") else {
                return Ok(());
            };
            let found = env.iter().find(|(known, _)| known == name);
            // An empty variable counts as not set here too.
            let found = found.and_then(|(_, value)| value.to_str());
            let found = found.filter(|value| !value.is_empty());
            let missing = || format!("env:{name} is asked for, but the environment has no {name}");
            *text = found.ok_or_else(missing)?.to_owned();
            Ok(())
        }
        Json::Array(items) => items.iter_mut().try_for_each(|item| expand(item, env)),
        Json::Object(table) => table.values_mut().try_for_each(|item| expand(item, env)),
        Json::Null | Json::Bool(_) | Json::Number(_) => Ok(()),
    }
}

/// Collects the values of nested tables under dotted names.
fn flatten(name: &str, value: &Json, source: &Source, layer: &mut Layer) -> Result<(), Error> {
    if let Some(key) = find(name) {
        let refuse = |problem: String| Error::Value {
            key: key.name,
            shown: "(a table, a list or nothing)".to_owned(),
            source_of: source.clone(),
            problem,
        };
        let text = text_of(key, value).ok_or_else(|| refuse(format!("must be {}", key.rule)))?;
        let given = Given {
            text,
            source: source.clone(),
        };
        // The parsers of files refuse a name that comes twice. They do not know that a setting may have
        // two names.
        if layer.insert(key.name, given).is_some() {
            let names: Vec<&str> = key.names().collect();
            return Err(refuse(format!("is set twice, as {}", names.join(" and "))));
        }
        return Ok(());
    }
    let is_table = name.is_empty() || is_table(name);
    if value.is_null() && is_table {
        return Ok(());
    }
    let Some(table) = value.as_object().filter(|_| is_table) else {
        return Err(unknown(name, source));
    };
    for (part, inner) in table {
        let inner_name = if name.is_empty() {
            part.clone()
        } else {
            format!("{name}.{part}")
        };
        flatten(&inner_name, inner, source, layer)?;
    }
    Ok(())
}

fn is_table(name: &str) -> bool {
    keys().flat_map(Key::names).any(|key| {
        key.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('.'))
    })
}

/// Returns the value as `--set` would write it. A file may write a list of items as a list, and pairs or
/// a table as a table.
fn text_of(key: &Key, value: &Json) -> Option<String> {
    let texts: Option<Vec<String>> = if let Some(items) = value.as_array()
        && key.rule.takes_list()
    {
        items.iter().map(scalar).collect()
    } else if let Some(pairs) = value.as_object()
        && key.rule.takes_pairs()
    {
        let pair = |(name, value)| Some(format!("{name}={}", scalar(value)?));
        pairs.iter().map(pair).collect()
    } else if (value.is_object() || value.is_array()) && key.rule.takes_table() {
        return Some(value.to_string());
    } else {
        return scalar(value);
    };
    texts.map(|texts| texts.join(","))
}

fn scalar(value: &Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text.clone()),
        Json::Number(number) => Some(number.to_string()),
        Json::Bool(on) => Some(on.to_string()),
        Json::Array(_) | Json::Null | Json::Object(_) => None,
    }
}

fn unknown(name: &str, source: &Source) -> Error {
    let hint = nearest(name, keys().flat_map(Key::names));
    Error::UnknownKey {
        key: one_line(name),
        source_of: source.clone(),
        hint: did_you_mean(hint),
    }
}

fn did_you_mean(hint: Option<&str>) -> String {
    hint.map(|name| format!("; did you mean {name}?"))
        .unwrap_or_default()
}

/// Makes one line of a text: an error is one line, whatever a parser or a user put into it.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
