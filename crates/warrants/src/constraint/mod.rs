//! Constraints: the allowed values of a tool's arguments.
//!
//! A constraint that this server does not know, or that it cannot decide for a value, has no answer. The
//! answer is not "no", because a negation would turn that into "yes". A call without an answer is refused.

mod command;
mod narrow;
mod network;
mod path;
mod pattern;
mod range;
mod read;
mod url;

use std::collections::BTreeMap;

pub use network::Network;
pub(crate) use read::Budget;

use crate::{
    pop::Arguments,
    value::{TEXT, Value},
};

/// A constraint on one argument.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Constraint {
    Exact(Value),
    Pattern(String),
    Range(range::Range),
    OneOf(Vec<Value>),
    Regex(String),
    NotOneOf(Vec<Value>),
    Cidr(Network),
    UrlPattern(url::UrlPattern),
    Contains(Vec<Value>),
    Subset(Vec<Value>),
    All(Vec<Self>),
    Any(Vec<Self>),
    Not(Box<Self>),
    Wildcard,
    Subpath(path::Subpath),
    UrlSafe(url::UrlSafe),
    Shlex(Vec<String>),
    /// A type that is not known, or known but not supported, and its bytes.
    Unsupported(u8, Vec<u8>),
}

/// The reason why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// The constraint cannot be checked here.
    Unsupported,
    /// The value cannot be read as the kind of thing that the constraint is about.
    Unreadable,
}

impl Constraint {
    /// Returns true if the value is allowed.
    pub fn allows(&self, value: &Value) -> Result<bool, Doubt> {
        match self {
            Self::Wildcard => Ok(true),
            Self::Exact(expected) => Ok(expected == value),
            Self::OneOf(values) => Ok(values.contains(value)),
            Self::NotOneOf(excluded) => Ok(!excluded.contains(value)),
            Self::Range(range) => Ok(value.as_number().is_some_and(|n| range.holds(n))),
            Self::Contains(required) => Ok(value
                .as_list()
                .is_some_and(|list| required.iter().all(|item| list.contains(item)))),
            Self::Subset(allowed) => Ok(value
                .as_list()
                .is_some_and(|list| list.iter().all(|item| allowed.contains(item)))),
            Self::Pattern(pattern) => of_text(value, |text| pattern::matches(pattern, text)),
            Self::Regex(pattern) => of_text(value, |text| pattern::regex_matches(pattern, text)),
            Self::Cidr(network) => of_text(value, |text| {
                let address = text.parse().map_err(|_| Doubt::Unreadable)?;
                Ok(network.contains(address))
            }),
            Self::UrlPattern(pattern) => of_text(value, |text| pattern.matches(text)),
            Self::UrlSafe(rules) => of_text(value, |text| rules.allow(text)),
            Self::Shlex(allowed) => of_text(value, |text| Ok(command::allowed(allowed, text))),
            Self::Subpath(subpath) => Ok(subpath.allows(value)),
            // An empty list would allow everything, which was hardly intended.
            Self::All(parts) if parts.is_empty() => Err(Doubt::Unsupported),
            Self::All(parts) => all(parts, value),
            Self::Any(parts) => any(parts, value),
            // A doubt stays a doubt under a negation.
            Self::Not(inner) => inner.allows(value).map(|allowed| !allowed),
            Self::Unsupported(..) => Err(Doubt::Unsupported),
        }
    }
}

/// Applies a constraint to a text. Other values are not allowed. Very long texts get no answer, because
/// the time to match one grows with its length times that of the pattern.
fn of_text(value: &Value, allows: impl Fn(&str) -> Result<bool, Doubt>) -> Result<bool, Doubt> {
    match value.as_text() {
        Some(text) if text.len() > TEXT => Err(Doubt::Unreadable),
        Some(text) => allows(text),
        None => Ok(false),
    }
}

/// Returns false if any part says no; otherwise a doubt if any part has one.
fn all(parts: &[Constraint], value: &Value) -> Result<bool, Doubt> {
    let mut answer = Ok(true);
    for part in parts {
        match part.allows(value) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(doubt) => answer = Err(doubt),
        }
    }
    answer
}

/// Returns true if any part says yes; otherwise a doubt if any part has one.
fn any(parts: &[Constraint], value: &Value) -> Result<bool, Doubt> {
    let mut answer = Ok(false);
    for part in parts {
        match part.allows(value) {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            Err(doubt) => answer = Err(doubt),
        }
    }
    answer
}

/// The constraints on the arguments of one tool.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct ConstraintSet {
    pub constraints: BTreeMap<String, Constraint>,
    /// True if arguments without a constraint are allowed beside those with one.
    pub allow_unknown: bool,
}

/// The reason why arguments are not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    Unknown(String),
    Missing(String),
    Refused(String),
    Unsupported(String),
}

impl ConstraintSet {
    /// Checks the arguments. A tool without constraints accepts any; a tool with constraints accepts exactly
    /// the arguments that have one, unless `allow_unknown` is set.
    pub fn allows(&self, args: &Arguments) -> Result<(), Violation> {
        let closed = !self.constraints.is_empty() && !self.allow_unknown;
        let unknown = args
            .keys()
            .find(|name| !self.constraints.contains_key(*name));
        if let Some(name) = unknown.filter(|_| closed) {
            return Err(Violation::Unknown(name.clone()));
        }
        for (name, constraint) in &self.constraints {
            let Some(value) = args.get(name) else {
                return Err(Violation::Missing(name.clone()));
            };
            match constraint.allows(value) {
                Ok(true) => {}
                Ok(false) | Err(Doubt::Unreadable) => {
                    return Err(Violation::Refused(name.clone()));
                }
                Err(Doubt::Unsupported) => return Err(Violation::Unsupported(name.clone())),
            }
        }
        Ok(())
    }
}
