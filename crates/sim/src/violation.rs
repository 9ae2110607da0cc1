//! The report of a failed check.

use std::fmt;

/// A rule that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The rule's short name; shrinking keeps it the same.
    pub rule: &'static str,
    /// The observation that breaks it.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// The outcome of a check.
pub type Checked<T = ()> = Result<T, Violation>;

/// Returns a violation of `rule`.
pub fn broken<T>(rule: &'static str, detail: impl Into<String>) -> Checked<T> {
    Err(Violation {
        rule,
        detail: detail.into(),
    })
}

/// Checks a rule; the detail is only built if it does not hold.
pub fn hold(holds: bool, rule: &'static str, detail: impl FnOnce() -> String) -> Checked {
    if holds {
        return Ok(());
    }
    broken(rule, detail())
}
