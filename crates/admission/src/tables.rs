//! Policies and tiers as an operator writes them.
//!
//! They are tables of any size, so they travel as JSON text and are read here: once to check them
//! against each other, before anything is applied, and once to use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use asyncgate_core::admission::{
    Bucket, Delay, Flaw, Limits, MILLIONTHS, Policy, Rule, Scope, Stage, Tier, Tiered, Window,
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct WrittenGate {
    global: Option<String>,
    tenant: Option<String>,
    principal: Option<String>,
    tasks: Option<String>,
}

/// The texts of the tables. An empty text stands for an empty table.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tables<'a> {
    /// Policies by name.
    pub policies: &'a str,
    /// Clients by tier.
    pub tiers: &'a str,
    /// The policies that limit calls to the server itself.
    pub gate: &'a str,
    /// Policies by Envoy's domains and descriptors.
    pub envoy: &'a str,
}

impl<'a> Tables<'a> {
    /// Reads what the operator wrote, and checks that it fits together.
    pub fn limits(self) -> Result<Limits, Wrong> {
        limits(self)
    }

    /// All of them, by the names of the settings.
    pub fn read<E>(text: impl Fn(&'static str) -> Result<&'a str, E>) -> Result<Self, E> {
        Ok(Self {
            policies: text(POLICIES)?,
            tiers: text(TIERS)?,
            gate: text(GATE)?,
            envoy: text(ENVOY)?,
        })
    }
}

/// What is wrong, and which setting it is about.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The setting.
    pub key: &'static str,
    /// What is wrong.
    pub problem: String,
}

const POLICIES: &str = "limits.policies";
const TIERS: &str = "limits.tiers";
const GATE: &str = "limits.gate";
const ENVOY: &str = "limits.envoy";

fn limits(tables: Tables<'_>) -> Result<Limits, Wrong> {
    let limits = policies(tables.policies, tables.tiers)?;
    let gate: WrittenGate = parse(tables.gate).map_err(|problem| wrong(GATE, problem))?;
    let gate = [gate.global, gate.tenant, gate.principal, gate.tasks];
    let calls = Scope::ALL.into_iter().zip(gate);
    let calls = calls.filter_map(|(scope, policy)| Some((scope, policy?)));
    let limits = limits
        .with_call_limits(calls)
        .map_err(|flaws| told(GATE, &flaws))?;
    let envoy: BTreeMap<String, BTreeMap<String, String>> =
        parse(tables.envoy).map_err(|problem| wrong(ENVOY, problem))?;
    let patterns = envoy.into_iter().flat_map(|(domain, patterns)| {
        let of = move |(pattern, policy)| (domain.clone(), pattern, policy);
        patterns.into_iter().map(of)
    });
    let limits = limits.with_descriptors(patterns);
    limits.map_err(|flaws| told(ENVOY, &flaws))
}

fn wrong(key: &'static str, problem: String) -> Wrong {
    Wrong { key, problem }
}

/// Everything that is wrong with a table.
fn told(key: &'static str, flaws: &[(String, Flaw)]) -> Wrong {
    let told = flaws.iter().map(|(name, flaw)| match name.as_str() {
        "" => flaw.to_string(),
        name => format!("{name}: {flaw}"),
    });
    wrong(key, told.collect::<Vec<_>>().join("; "))
}

fn policies(policies: &str, tiers: &str) -> Result<Limits, Wrong> {
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
        told(key, &flaws)
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
        let tables = Tables {
            policies,
            tiers: r#"{"trusted": ["a"], "throttled": ["b"]}"#,
            ..Tables::default()
        };
        let limits = limits(tables).unwrap();
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
            let tables = Tables {
                policies,
                ..Tables::default()
            };
            let wrong = limits(tables).unwrap_err();
            assert_eq!(wrong.key, POLICIES);
            assert!(wrong.problem.contains(told), "{told}: {}", wrong.problem);
        }
        let tables = Tables {
            tiers: r#"{"trusted": ["a"], "batch": ["a"]}"#,
            ..Tables::default()
        };
        let twice = limits(tables).unwrap_err();
        assert_eq!(
            (twice.key, twice.problem.as_str()),
            (TIERS, "a is listed in two tiers")
        );
    }

    #[test]
    fn the_gate_and_envoy_name_policies() {
        let policies =
            r#"{"api": {"kind": "token_bucket", "capacity": 5, "refill_per_minute": 0.5}}"#;
        let with = |gate, envoy| {
            limits(Tables {
                policies,
                gate,
                envoy,
                ..Tables::default()
            })
        };
        let envoy = r#"{"edge": {"generic_key=slow": "api", "remote_address": "client"}}"#;
        let limits = with(r#"{"tenant": "api"}"#, envoy).unwrap();
        assert!(limits.limits_calls());
        let (policy, key) = limits
            .described("edge", &[("remote_address", "1")])
            .unwrap();
        assert_eq!((&*policy, key.as_str()), ("client", "1"));
        for (gate, envoy, key, problem) in [
            (r#"{"tenants": "api"}"#, "", GATE, "unknown field"),
            (
                r#"{"tenant": "nope"}"#,
                "",
                GATE,
                "tenant: there is no policy named nope",
            ),
            (
                r#"{"global": "client"}"#,
                "",
                GATE,
                "global: client must be",
            ),
            ("", r#"{"edge": "api"}"#, ENVOY, "invalid type"),
            (
                "",
                r#"{"edge": {"a": "nope"}}"#,
                ENVOY,
                "edge: a: there is no policy",
            ),
            (
                "",
                r#"{"edge": {",": "api"}}"#,
                ENVOY,
                "edge: ,: a pattern must",
            ),
        ] {
            let wrong = with(gate, envoy).unwrap_err();
            assert_eq!(wrong.key, key, "{gate}{envoy}");
            assert!(wrong.problem.contains(problem), "{}", wrong.problem);
        }
    }
}
