//! A setting: its names, its default, and the rule that its values obey.

use super::Error;
use super::rule::{Refused, Rule};
use super::source::Given;
use super::value::Value;

/// One row of the table of settings.
#[derive(Debug)]
pub struct Key {
    /// The name in files and in `--set`; a dot stands for a table.
    pub name: &'static str,
    /// A second name in files and in `--set`, from another specification.
    pub alias: Option<&'static str>,
    /// Further environment variables, from a specification; the first that is set counts.
    pub more_env: &'static [&'static str],
    /// An old environment variable: it works, and its use is warned about.
    pub old_env: Option<&'static str>,
    /// The flag on the command line, without the dashes.
    pub flag: Option<&'static str>,
    /// The value when no source gives one, as text; empty means not set.
    pub default: &'static str,
    /// The rule that checks and parses values.
    pub rule: Rule,
    /// The moment when a changed value takes effect.
    pub reload: Reload,
    /// The description, one sentence for people.
    pub doc: &'static str,
}

/// The moment when a changed value takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// At SIGHUP.
    Live,
    /// At the next start.
    Restart,
}

impl Key {
    /// Returns the environment variable with the product's prefix.
    pub fn env(&self) -> String {
        format!("ASYNCGATE_{}", self.name.replace('.', "_").to_uppercase())
    }

    /// Returns every environment variable of the setting; the first that is set counts.
    pub fn variables(&self) -> impl Iterator<Item = String> {
        let more = self.more_env.iter().chain(&self.old_env);
        std::iter::once(self.env()).chain(more.map(|name| (*name).to_owned()))
    }

    /// Returns the names that files and `--set` may use.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.alias)
    }

    /// Parses a text that a source gave. A refusal names the setting and the source.
    pub fn parse(&self, given: &Given) -> Result<Value, Error> {
        self.rule.parse(&given.text).map_err(|refused| {
            let shown = match &refused {
                Refused::Content { shown, .. } => shown.clone(),
                Refused::Form(_) | Refused::Address(_) if self.hides(&given.text) => {
                    "(secret)".to_owned()
                }
                Refused::Form(_) | Refused::Address(_) => format!("{:?}", given.text),
            };
            Error::Value {
                key: self.name,
                shown,
                source_of: given.source.clone(),
                problem: refused.to_string(),
            }
        })
    }

    /// Returns true if this text must not be shown, nor be given where others can read it.
    pub fn hides(&self, text: &str) -> bool {
        // A password stands before the @ of an address, and receivers are often given a token in the query.
        let is_receiver = matches!(self.rule, Rule::Webhook | Rule::Optional(&Rule::Webhook));
        let is_address = is_receiver || matches!(self.rule, Rule::Backend);
        self.is_secret()
            || (is_address && text.contains('@'))
            || (is_receiver && text.contains('?'))
    }

    /// Returns true if no value of the setting may ever be shown.
    pub fn is_secret(&self) -> bool {
        matches!(self.rule, Rule::Secret)
            || matches!(self.rule, Rule::Table(kind) if kind.is_secret())
    }
}
