//! The toolsets that a client is shown.
//!
//! Invariant: they decide what is *listed*. What may be *called* follows from the caller's rights alone,
//! so a tool that is not listed can still be called by those who may.

use std::fmt;

use asyncgate_api::Toolset;

/// The word that stands for every toolset.
const ALL: &str = "all";
/// The query parameter of the endpoint that names toolsets.
const PARAMETER: &str = "tools";

/// A choice of toolsets, at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toolsets(u8);

/// Why a choice of toolsets cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub struct Unreadable(String);

impl Toolsets {
    /// Every toolset.
    pub const ALL: Self = Self((1 << Toolset::ALL.len()) - 1);

    /// Reads names that are separated by commas: `agent`, `worker`, `mailbox`, `admission`, `ops`, or
    /// `all`. No name at all is no choice.
    ///
    /// # Errors
    /// When a name is not known. The error says which, and which are.
    pub fn parse(text: &str) -> Result<Option<Self>, Unreadable> {
        let mut bits = 0;
        let names = text.split(',').map(str::trim);
        for name in names.filter(|name| !name.is_empty()) {
            bits |= match Toolset::ALL.into_iter().find(|set| set.as_str() == name) {
                Some(set) => bit(set),
                None if name == ALL => Self::ALL.0,
                None => return Err(Unreadable::name(name)),
            };
        }
        Ok((bits != 0).then_some(Self(bits)))
    }

    /// Reads the query of a request to the endpoint: `tools=agent,worker`. Other parameters are refused,
    /// so that a misspelt one is noticed.
    pub(crate) fn asked(query: Option<&str>) -> Result<Option<Self>, Unreadable> {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query.unwrap_or_default())
            .map_err(|_| Unreadable::query())?;
        let unknown = pairs.iter().find(|(name, _)| name != PARAMETER);
        if let Some((name, _)) = unknown {
            return Err(Unreadable::parameter(name));
        }
        let values: Vec<String> = pairs.into_iter().map(|(_, value)| value).collect();
        Self::parse(&values.join(","))
    }

    /// Returns true if the toolset was chosen.
    pub(crate) const fn contains(self, set: Toolset) -> bool {
        self.0 & bit(set) != 0
    }
}

const fn bit(set: Toolset) -> u8 {
    1 << set as u8
}

impl From<Toolset> for Toolsets {
    fn from(set: Toolset) -> Self {
        Self(bit(set))
    }
}

impl fmt::Display for Toolsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chosen = Toolset::ALL.into_iter().filter(|set| self.contains(*set));
        let names: Vec<&str> = chosen.map(Toolset::as_str).collect();
        f.write_str(&names.join(","))
    }
}

impl Unreadable {
    fn name(name: &str) -> Self {
        let known = Toolsets::ALL;
        let shown = shortened(name);
        Self(format!(
            "there is no toolset {shown:?}; choose from {known}, or {ALL}"
        ))
    }

    fn parameter(name: &str) -> Self {
        let shown = shortened(name);
        Self(format!(
            "there is no query parameter {shown:?} here, only {PARAMETER}"
        ))
    }

    fn query() -> Self {
        Self("the query cannot be read".to_owned())
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_is_any_of_the_names() {
        for (text, shown) in [
            ("agent", "agent"),
            ("mailbox,agent", "agent,mailbox"),
            (" worker , worker,", "worker"),
            ("all", "agent,worker,mailbox,admission,ops"),
            ("ops,all", "agent,worker,mailbox,admission,ops"),
        ] {
            let parsed = Toolsets::parse(text).unwrap().unwrap();
            assert_eq!(parsed.to_string(), shown, "{text}");
        }
        for text in ["", " ", ",,"] {
            assert_eq!(Toolsets::parse(text), Ok(None), "{text:?}");
        }
    }

    #[test]
    fn an_unknown_name_is_told_which_are_known() {
        let error = Toolsets::parse("agent,Worker").unwrap_err().to_string();
        assert!(error.contains(r#""Worker""#), "{error}");
        assert!(
            error.contains("agent,worker,mailbox,admission,ops, or all"),
            "{error}"
        );
        let long = Toolsets::parse(&"x".repeat(10_000)).unwrap_err();
        assert!(long.to_string().len() < 200);
    }

    #[test]
    fn a_query_names_toolsets_and_nothing_else() {
        let some = |text: &str| Toolsets::parse(text).unwrap();
        for (query, expected) in [
            (None, None),
            (Some(""), None),
            (Some("tools="), None),
            (Some("tools=agent%2Cworker"), some("agent,worker")),
            (Some("tools=agent&tools=ops"), some("agent,ops")),
            (Some("tools=agent,+worker"), some("agent,worker")),
        ] {
            assert_eq!(Toolsets::asked(query), Ok(expected), "{query:?}");
        }
        let error = Toolsets::asked(Some("tool=agent")).unwrap_err();
        assert!(error.to_string().contains("only tools"), "{error}");
        assert!(Toolsets::asked(Some("tools=nope")).is_err());
    }
}
