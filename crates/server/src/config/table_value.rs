//! Settings that are whole tables: what limits, ingresses, domains and logins are made of.
//!
//! A table is parsed once, from the text that a source gave, into the types that the program uses. It
//! keeps that text in a canonical form, to be shown and compared. Whether a table agrees with other
//! settings is checked when the settings are put together.

use std::fmt;

use asyncgate_admission::Rows;
use asyncgate_domains::Poprf;
use asyncgate_engine::Ingresses;
use asyncgate_oauth::ProviderSettings;
use serde_json::Value as Json;

use super::rule::Refused;
use super::{domains, ingress, providers};

/// The subject of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One of the tables that limits are made of.
    Limits(asyncgate_admission::Table),
    /// Ingresses by name, with their secrets.
    Ingress,
    /// The keys of the domains' evaluator.
    DomainKeys,
    /// The providers at which people log in, with their secrets.
    Providers,
}

impl Kind {
    /// Returns true if the table holds secrets and is never shown.
    pub const fn is_secret(self) -> bool {
        match self {
            Self::Limits(_) => false,
            Self::Ingress | Self::DomainKeys | Self::Providers => true,
        }
    }
}

/// The parsed content of a table.
#[derive(Debug, Clone)]
pub enum Content {
    Limits(Rows),
    Ingress(Ingresses),
    /// No keys if the setting is empty.
    DomainKeys(Option<Poprf>),
    Providers(Vec<ProviderSettings>),
}

/// A table as it was given, and its content. An empty text is an empty table.
#[derive(Clone)]
pub struct Table {
    kind: Kind,
    text: String,
    pub content: Content,
}

impl Table {
    /// Parses a table. Returns nothing if the text is no table at all.
    pub fn parse(kind: Kind, text: &str) -> Option<Result<Self, Refused>> {
        let text = canonical(kind, text)?;
        let content = match kind {
            Kind::Limits(table) => table.parse(&text).map(Content::Limits),
            Kind::Ingress => ingress::parse(&text).map(Content::Ingress),
            Kind::DomainKeys => domains::parse_keys(&text).map(Content::DomainKeys),
            Kind::Providers => providers::parse(&text).map(Content::Providers),
        };
        Some(match content {
            Ok(content) => Ok(Self {
                kind,
                text,
                content,
            }),
            Err(problem) => Err(Refused::Content {
                shown: shown(kind, &text).to_owned(),
                problem,
            }),
        })
    }
}

/// Returns the text of a table as JSON without spaces and with sorted names, so that two ways to write
/// the same table are equal.
fn canonical(kind: Kind, text: &str) -> Option<String> {
    if text.is_empty() {
        return Some(String::new());
    }
    #[cfg(test)]
    PARSED.set(PARSED.get() + 1);
    let table: Json = serde_json::from_str(text).ok()?;
    let is_table = table.is_object() || (kind.is_secret() && table.is_array());
    is_table.then(|| table.to_string())
}

fn shown(kind: Kind, text: &str) -> &str {
    match (kind.is_secret(), text) {
        (false, text) => text,
        (true, "") => "(not set)",
        (true, _) => "(set)",
    }
}

impl PartialEq for Table {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Table {}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(shown(self.kind, &self.text))
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
thread_local! {
    /// The number of tables that this thread has parsed.
    pub static PARSED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
}
