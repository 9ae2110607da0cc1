//! Descriptors: the names that a proxy gives to what it wants limited, and the policy and key they mean.
//!
//! A descriptor is a list of keys with values, in a domain. Each domain has patterns. A pattern is a
//! list of keys, some with a required value, and names a policy. The values that it leaves free form
//! the key of the limit, so that a proxy and any other caller that name the same client use the same
//! bucket.

use std::{collections::HashMap, sync::Arc};

use super::{Flaw, Limits};

/// The longest key that is used unhashed.
const MAX_KEY_BYTES: usize = 256;

/// The patterns of each domain, the most specific first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Descriptors(HashMap<String, Vec<Pattern>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// The keys, and their required values.
    entries: Vec<(String, Option<String>)>,
    policy: Arc<str>,
}

impl Pattern {
    /// Reads `key,key=value`.
    fn read(text: &str, policy: &str) -> Result<Self, Flaw> {
        let entry = |entry: &str| {
            let (key, value) = match entry.split_once('=') {
                Some((key, value)) => (key, Some(value.to_owned())),
                None => (entry, None),
            };
            (!key.is_empty()).then(|| (key.to_owned(), value))
        };
        let entries: Option<Vec<_>> = text.split(',').map(entry).collect();
        Ok(Self {
            entries: entries.ok_or(Flaw::Pattern)?,
            policy: policy.into(),
        })
    }

    fn fits(&self, entries: &[(&str, &str)]) -> bool {
        let fits =
            |((key, value), (given_key, given)): (&(String, Option<String>), &(&str, &str))| {
                key == given_key && value.as_deref().is_none_or(|value| value == *given)
            };
        // Position by position: the order of keys has a meaning in Envoy's descriptors.
        self.entries.len() == entries.len() && self.entries.iter().zip(entries).all(fits)
    }

    /// Returns the values that the pattern leaves free.
    fn free<'a>(&self, entries: &[(&str, &'a str)]) -> Vec<&'a str> {
        let given = self.entries.iter().zip(entries);
        let free = given.filter(|((_, value), _)| value.is_none());
        free.map(|(_, (_, value))| *value).collect()
    }
}

impl Limits {
    /// Adds patterns to these limits; each is a domain, a text and the name of a policy.
    pub fn with_descriptors(
        mut self,
        patterns: impl IntoIterator<Item = (String, String, String)>,
    ) -> Result<Self, Vec<(String, Flaw)>> {
        let mut flaws = Vec::new();
        let mut domains: HashMap<String, Vec<Pattern>> = HashMap::new();
        for (domain, text, policy) in patterns {
            let named = || format!("{domain}: {text}");
            if self.policy(&policy).is_none() {
                flaws.push((
                    named(),
                    Flaw::NoPolicy {
                        named: policy.clone(),
                    },
                ));
            }
            match Pattern::read(&text, &policy) {
                Ok(pattern) => domains.entry(domain).or_default().push(pattern),
                Err(flaw) => flaws.push((named(), flaw)),
            }
        }
        if !flaws.is_empty() {
            return Err(flaws);
        }
        for patterns in domains.values_mut() {
            // A required value (false) sorts before a free one, from left to right. The entries break
            // ties, so that the order does not depend on the order of the settings.
            patterns.sort_by(|one, other| {
                let free = |pattern: &Pattern| -> Vec<bool> {
                    let entries = pattern.entries.iter();
                    entries.map(|(_, value)| value.is_none()).collect()
                };
                free(one)
                    .cmp(&free(other))
                    .then_with(|| one.entries.cmp(&other.entries))
            });
        }
        self.descriptors = Descriptors(domains);
        Ok(self)
    }

    /// Returns the policy and the key of a descriptor, or none if nothing limits it. A domain without
    /// patterns stands for the policy of the same name.
    pub fn described(&self, domain: &str, entries: &[(&str, &str)]) -> Option<(Arc<str>, String)> {
        let (policy, free) = match self.descriptors.0.get(domain) {
            Some(patterns) => {
                let pattern = patterns.iter().find(|pattern| pattern.fits(entries))?;
                (Arc::clone(&pattern.policy), pattern.free(entries))
            }
            None => {
                let (name, _) = self.policy(domain)?;
                let values = entries.iter().map(|(_, value)| *value);
                (Arc::clone(name), values.collect())
            }
        };
        Some((policy, key(domain, &free)))
    }
}

/// Joins values to a key. A client may choose a value, but must not reach the key of others with it:
/// so a slash only stands between values, and a percent sign only begins an escape.
fn key(domain: &str, values: &[&str]) -> String {
    let escaped = values
        .iter()
        .map(|value| value.replace('%', "%25").replace('/', "%2F"));
    let key = match values {
        [] => format!("%all/{domain}"),
        _ => escaped.collect::<Vec<_>>().join("/"),
    };
    match key.len() {
        1..=MAX_KEY_BYTES => key,
        // A long value must not escape the limit either, so it is hashed and not cut or refused.
        _ => format!("%blake3:{}", blake3::hash(key.as_bytes())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(patterns: &[(&str, &str, &str)]) -> Limits {
        let owned = patterns
            .iter()
            .map(|(domain, text, policy)| ((*domain).into(), (*text).into(), (*policy).into()));
        Limits::default().with_descriptors(owned).unwrap()
    }

    fn found(limits: &Limits, domain: &str, entries: &[(&str, &str)]) -> Option<(String, String)> {
        let found = limits.described(domain, entries);
        found.map(|(policy, key)| (policy.to_string(), key))
    }

    #[test]
    fn the_most_specific_pattern_counts_and_free_values_are_the_key() {
        let limits = limits(&[
            ("edge", "remote_address", "client"),
            ("edge", "remote_address=10.0.0.1", "trusted"),
            ("edge", "path,remote_address", "standard"),
            ("edge", "path=/login,remote_address", "throttled"),
            ("edge", "path,remote_address=10.0.0.1", "batch"),
        ]);
        for (entries, expected) in [
            (
                &[("remote_address", "10.0.0.9")][..],
                Some(("client", "10.0.0.9")),
            ),
            (
                &[("remote_address", "10.0.0.1")],
                Some(("trusted", "%all/edge")),
            ),
            (
                &[("path", "/a"), ("remote_address", "1")],
                Some(("standard", "%2Fa/1")),
            ),
            (
                &[("path", "/login"), ("remote_address", "10.0.0.1")],
                Some(("throttled", "10.0.0.1")),
            ),
            (
                &[("path", "/a"), ("remote_address", "10.0.0.1")],
                Some(("batch", "%2Fa")),
            ),
            (&[("remote_address", "1"), ("path", "/a")], None),
            (&[("user", "1")], None),
            (&[], None),
        ] {
            let expected = expected.map(|(policy, key)| (policy.to_owned(), key.to_owned()));
            assert_eq!(found(&limits, "edge", entries), expected, "{entries:?}");
        }
    }

    #[test]
    fn a_domain_without_patterns_stands_for_a_policy() {
        let limits = limits(&[("edge", "user", "client")]);
        let user = [("user", "7")];
        assert_eq!(
            found(&limits, "batch", &user),
            Some(("batch".into(), "7".into()))
        );
        assert_eq!(
            found(&limits, "batch", &[]),
            Some(("batch".into(), "%all/batch".into()))
        );
        assert_eq!(found(&limits, "nobody", &user), None);
    }

    #[test]
    fn no_two_lists_of_values_share_a_key() {
        let long = "x".repeat(MAX_KEY_BYTES + 1);
        let hashed = key("d", &[&long]);
        let lists: [&[&str]; 14] = [
            &[],
            &["%all", "d"],
            &[&long],
            &[&long, "x"],
            &[&hashed],
            &["a/b/c"],
            &["a%2Fb/c"],
            &["a"],
            &["a/b", "c"],
            &["a", "b/c"],
            &["a%2Fb", "c"],
            &["a", "b", "c"],
            &["", "c"],
            &[""],
        ];
        let mut keys: Vec<String> = lists.iter().map(|values| key("d", values)).collect();
        for key in &keys {
            assert!((1..=MAX_KEY_BYTES).contains(&key.len()), "{key}");
        }
        let count = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), count);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, policy, told) in [
            ("", "client", Flaw::Pattern),
            ("a,,b", "client", Flaw::Pattern),
            ("=1", "client", Flaw::Pattern),
            (
                "a",
                "nope",
                Flaw::NoPolicy {
                    named: "nope".into(),
                },
            ),
        ] {
            let patterns = [("edge".to_owned(), text.to_owned(), policy.to_owned())];
            let flaws = Limits::default().with_descriptors(patterns).unwrap_err();
            assert_eq!(flaws, [(format!("edge: {text}"), told)]);
        }
    }
}
