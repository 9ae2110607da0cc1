//! The settings of domains, and the keys of their evaluator as an operator writes them.

use asyncgate_core::hex;
use asyncgate_domains::{Compat, Poprf, SecretKey};
use serde::Deserialize;
use serde_json::Value;

/// The purpose that goes into each key: the same seed makes other keys elsewhere.
const INFO: &[u8] = b"asyncgate";

/// The word for no limit.
pub const NO_POLICY: &str = "none";

/// The settings of domains.
#[derive(Debug, Clone)]
pub struct Domains {
    pub enabled: bool,
    pub compat: Compat,
    /// Absent if domains only limit.
    pub evaluator: Option<Poprf>,
    /// The policy that limits requests by the address of the client.
    pub client_policy: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    version: u64,
    // Not a string: serde would quote a wrong one in its error, and this is a secret.
    seed: Value,
}

/// The problem of an evaluator without keys.
pub const NO_KEYS: &str = "must have at least one key, and each version once";

/// Parses the keys of the evaluator; none if the text is empty. An error never quotes the text.
pub fn parse_keys(text: &str) -> Result<Option<Poprf>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let written: Vec<Written> = serde_json::from_str(text)
        .map_err(|_| "must be a list of tables with version and seed".to_owned())?;
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
    Poprf::new(keys).map(Some).ok_or_else(|| NO_KEYS.to_owned())
}

#[cfg(test)]
mod tests {
    use asyncgate_domains::Evaluator as _;

    use super::*;
    use crate::config::tests::{refused, settings};

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
        let keys = |second| parse_keys(&written(second)).unwrap().unwrap();
        let (one, other) = (keys("b"), keys("c"));
        assert_eq!(one.keys()[0], other.keys()[0]);
        assert_ne!(one.keys()[1].public, other.keys()[1].public);
    }

    #[test]
    fn what_is_wrong_is_told_without_the_seed() {
        let short = "abc123";
        for (text, told) in [
            ("[]".to_owned(), "at least one key"),
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
            let wrong = parse_keys(&text).unwrap_err();
            assert!(wrong.contains(told), "{text}: {wrong}");
            assert!(!wrong.contains(short), "{wrong}");
        }
    }

    #[test]
    fn an_evaluator_needs_keys() {
        let evaluator = ("domains.evaluator", "poprf-ristretto255");
        let message = refused(&[evaluator]);
        assert!(
            message
                .starts_with("domains.keys = (not set) (default) is wrong: must have at least one"),
            "{message}"
        );
        let keys = format!(r#"[{{"version": 1, "seed": "{}"}}]"#, seed("a"));
        let settings = settings(&[evaluator, ("domains.keys", &keys)]);
        assert!(settings.domains.evaluator.is_some());
    }
}
