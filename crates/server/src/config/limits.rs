//! Policies and tiers as an operator writes them.
//!
//! They are tables of any size, so they travel as JSON text and are read here: once to check them
//! against each other, before anything is applied, and once to use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use asyncgate_core::admission::{
    Bucket, Delay, Flaw, Limits, MILLIONTHS, Policy, Rule, Stage, Tier, Tiered, Window,
};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Written {
    TokenBucket {
        capacity: u64,
        refill_per_minute: f64,
        #[serde(default)]
        overdraw: bool,
        #[serde(default)]
        shadow: bool,
    },
    FixedWindow {
        limit: u64,
        window_secs: u64,
        #[serde(default)]
        shadow: bool,
    },
    SequentialDelay {
        stages: Vec<WrittenStage>,
        #[serde(default)]
        shadow: bool,
    },
    Tiered {
        standard: Option<String>,
        trusted: Option<String>,
        batch: Option<String>,
        throttled: Option<String>,
        #[serde(default)]
        shadow: bool,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenStage {
    delay: u64,
    reset_timer: Option<bool>,
    batch_size: Option<u64>,
    repetitions: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenTiers {
    trusted: Vec<String>,
    batch: Vec<String>,
    throttled: Vec<String>,
}

/// What is wrong, and which setting it is about.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    pub key: &'static str,
    pub problem: String,
}

const POLICIES: &str = "limits.policies";
const TIERS: &str = "limits.tiers";

/// Reads both tables and checks that they fit together. Empty texts stand for empty tables.
pub fn limits(policies: &str, tiers: &str) -> Result<Limits, Wrong> {
    let wrong = |key, problem| Wrong { key, problem };
    let written: BTreeMap<String, serde_json::Value> =
        parse(policies).map_err(|problem| wrong(POLICIES, problem))?;
    let mut read = Vec::new();
    for (name, value) in written {
        let policy = serde_json::from_value(value)
            .map_err(|error| error.to_string())
            .and_then(|written| policy(written).map_err(|flaw| flaw.to_string()))
            .map_err(|problem| wrong(POLICIES, format!("{name}: {problem}")))?;
        read.push((name, policy));
    }
    let tiers: WrittenTiers = parse(tiers).map_err(|problem| wrong(TIERS, problem))?;
    let of = |tier: Tier, clients: Vec<String>| clients.into_iter().map(move |one| (tier, one));
    let clients = of(Tier::Trusted, tiers.trusted)
        .chain(of(Tier::Batch, tiers.batch))
        .chain(of(Tier::Throttled, tiers.throttled));
    Limits::new(read, clients).map_err(|flaws| {
        let key = match flaws.first() {
            Some((_, Flaw::TwoTiers { .. })) => TIERS,
            _ => POLICIES,
        };
        let told: Vec<String> = flaws
            .iter()
            .map(|(name, flaw)| match name.as_str() {
                "" => flaw.to_string(),
                name => format!("{name}: {flaw}"),
            })
            .collect();
        wrong(key, told.join("; "))
    })
}

fn parse<T: serde::de::DeserializeOwned + Default>(text: &str) -> Result<T, String> {
    match text.is_empty() {
        true => Ok(T::default()),
        false => serde_json::from_str(text).map_err(|error| error.to_string()),
    }
}

fn policy(written: Written) -> Result<Policy, Flaw> {
    let (rule, shadow) = match written {
        Written::TokenBucket {
            capacity,
            refill_per_minute,
            overdraw,
            shadow,
        } => {
            let bucket = Bucket::per_minute(capacity, millionths(refill_per_minute))?;
            (Rule::Bucket(bucket.with_overdraw(overdraw)), shadow)
        }
        Written::FixedWindow {
            limit,
            window_secs,
            shadow,
        } => (Rule::Window(Window::new(limit, window_secs)?), shadow),
        Written::SequentialDelay { stages, shadow } => {
            let stages = stages.into_iter().map(stage).collect();
            (Rule::Delay(Arc::new(Delay::new(stages)?)), shadow)
        }
        Written::Tiered {
            standard,
            trusted,
            batch,
            throttled,
            shadow,
        } => {
            let mut tiered = Tiered::default();
            let named = [standard, trusted, batch, throttled];
            for (bucket, named) in tiered.0.iter_mut().zip(named) {
                if let Some(named) = named {
                    *bucket = named.into();
                }
            }
            return Ok(Policy::Tiered { tiered, shadow });
        }
    };
    Ok(Policy::Rule { rule, shadow })
}

/// A rate to the nearest millionth of a token; zero for what is no rate.
fn millionths(tokens: f64) -> u64 {
    let millionths = (tokens * MILLIONTHS as f64).round();
    // The cast stops at both ends.
    if millionths.is_finite() {
        millionths as u64
    } else {
        0
    }
}

fn stage(written: WrittenStage) -> Stage {
    Stage {
        delay: written.delay,
        reset_timer: written.reset_timer.unwrap_or(true),
        batch_size: written.batch_size.unwrap_or(1),
        repetitions: written.repetitions.unwrap_or(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_every_kind_are_read() {
        let policies = r#"{
            "api": {"kind": "token_bucket", "capacity": 5, "refill_per_minute": 0.5, "overdraw": true},
            "hour": {"kind": "fixed_window", "limit": 3, "window_secs": 3600, "shadow": true},
            "pin": {"kind": "sequential_delay", "stages": [{"delay": 0}, {"delay": 60, "resetTimer": false,
                     "batchSize": 2, "repetitions": 3}]},
            "mine": {"kind": "tiered", "trusted": "api"}
        }"#;
        let limits = limits(policies, r#"{"trusted": ["a"], "throttled": ["b"]}"#).unwrap();
        let rule = |name, tier| limits.resolve(name, tier).unwrap();
        let Rule::Bucket(bucket) = rule("api", Tier::Standard).rule else {
            panic!("no bucket");
        };
        assert_eq!((bucket.capacity(), bucket.fill_secs()), (5, 600));
        assert!(bucket.overdraw());
        assert!(rule("hour", Tier::Standard).shadow);
        let Rule::Delay(delay) = rule("pin", Tier::Standard).rule else {
            panic!("no delay");
        };
        assert_eq!(delay.stages()[0], Stage::after(0));
        assert_eq!(delay.stages()[1].batch_size, 2);
        assert_eq!(&*rule("mine", Tier::Trusted).policy, "api");
        assert_eq!(&*rule("mine", Tier::Batch).policy, "batch");
        assert_eq!(
            (limits.tier("a"), limits.tier("b")),
            (Tier::Trusted, Tier::Throttled)
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_name() {
        for (policies, told) in [
            ("[]", "invalid type"),
            (r#"{"x": {}}"#, "x: missing field `kind`"),
            (r#"{"x": {"kind": "magic"}}"#, "x: unknown variant"),
            (
                r#"{"x": {"kind": "token_bucket", "capacity": 1}}"#,
                "x: missing field `refill_per_minute`",
            ),
            (
                r#"{"x": {"kind": "token_bucket", "capacity": 0, "refill_per_minute": 1}}"#,
                "x: capacity",
            ),
            (
                r#"{"x": {"kind": "token_bucket", "capacity": 1, "refill_per_minute": -1}}"#,
                "x: capacity and refill",
            ),
            (
                r#"{"x": {"kind": "token_bucket", "capacity": 1, "refill_per_minute": 1, "burst": 2}}"#,
                "x: unknown field",
            ),
            (
                r#"{"x": {"kind": "fixed_window", "limit": 1, "window_secs": 0}}"#,
                "x: window_secs",
            ),
            (
                r#"{"x": {"kind": "sequential_delay", "stages": []}}"#,
                "x: stages",
            ),
            (
                r#"{"x": {"kind": "sequential_delay", "stages": [{"delay": -1}]}}"#,
                "x: invalid value",
            ),
            (
                r#"{"x": {"kind": "tiered", "batch": "y"}}"#,
                "x: batch: there is no token_bucket named y",
            ),
            (
                r#"{"a b": {"kind": "fixed_window", "limit": 1, "window_secs": 1}}"#,
                "a b: the name",
            ),
        ] {
            let wrong = limits(policies, "").unwrap_err();
            assert_eq!(wrong.key, POLICIES);
            assert!(wrong.problem.contains(told), "{told}: {}", wrong.problem);
        }
        let twice = limits("", r#"{"trusted": ["a"], "batch": ["a"]}"#).unwrap_err();
        assert_eq!(
            (twice.key, twice.problem.as_str()),
            (TIERS, "a is listed in two tiers")
        );
    }
}
