//! Domains as an operator sets them up.

use asyncgate_core::hex;
use asyncgate_domains::{Compat, Poprf, SecretKey};
use serde::Deserialize;
use serde_json::Value;

/// What keys are derived for, so that a seed that is also used elsewhere makes other keys there.
const INFO: &[u8] = b"asyncgate";

/// Everything about domains.
#[derive(Debug, Clone)]
pub struct Domains {
    pub enabled: bool,
    pub compat: Compat,
    /// Absent: domains only limit.
    pub evaluator: Option<Poprf>,
    /// What limits requests by the address of the client.
    pub client_policy: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u64,
    // Not a string: the reader of JSON would repeat a wrong one in its complaint.
    seed: Value,
}

/// Reads the keys of the evaluator. What is wrong is told without what was written.
pub fn keys(text: &str) -> Result<Poprf, String> {
    let written: Vec<Written> = match text.is_empty() {
        true => Vec::new(),
        false => serde_json::from_str(text)
            .map_err(|_| "must be a list of tables with version and seed".to_owned())?,
    };
    let keys = written.into_iter().map(|key| {
        let seed = key.seed.as_str().and_then(hex::decode::<32>);
        let wrong = || {
            let version = key.version;
            format!("the seed of version {version} must be 64 lower-case hexadecimal digits")
        };
        let derived = seed.and_then(|seed| SecretKey::derive(&seed, INFO));
        Ok((key.version, derived.ok_or_else(wrong)?))
    });
    let keys = keys.collect::<Result<Vec<_>, String>>()?;
    Poprf::new(keys).ok_or_else(|| "must have at least one key, and each version once".to_owned())
}

#[cfg(test)]
mod tests {
    use asyncgate_domains::Evaluator as _;

    use super::*;

    fn seed(digit: &str) -> String {
        digit.repeat(64)
    }

    #[test]
    fn keys_are_derived_from_their_seeds() {
        let written = |second: &str| {
            let (first, second) = (seed("a"), seed(second));
            format!(
                r#"[{{"version": 1, "seed": "{first}"}}, {{"version": 2, "seed": "{second}"}}]"#
            )
        };
        let (one, other) = (keys(&written("b")).unwrap(), keys(&written("c")).unwrap());
        assert_eq!(one.keys()[0], other.keys()[0]);
        assert_ne!(one.keys()[1].public, other.keys()[1].public);
    }

    #[test]
    fn what_is_wrong_is_told_without_the_seed() {
        let short = "abc123";
        for (text, told) in [
            (String::new(), "at least one key"),
            ("{}".to_owned(), "a list of tables"),
            (format!(r#"["{short}"]"#), "a list of tables"),
            (
                format!(r#"[{{"version": "{short}", "seed": ""}}]"#),
                "a list of tables",
            ),
            (
                format!(r#"[{{"version": 7, "seed": "{short}"}}]"#),
                "the seed of version 7",
            ),
            (
                format!(
                    r#"[{{"version": 1, "seed": "{0}"}}, {{"version": 1, "seed": "{0}"}}]"#,
                    seed("a")
                ),
                "each version once",
            ),
        ] {
            let wrong = keys(&text).unwrap_err();
            assert!(wrong.contains(told), "{text}: {wrong}");
            assert!(!wrong.contains(short), "{wrong}");
        }
    }
}
