//! The tables of limits as an operator writes them: policies, tiers, and what names policies.
//!
//! [`Table::parse`] checks each table alone; [`limits`] checks them against each other.

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
    messages: Option<String>,
}

/// One of the tables that limits are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Policies by name.
    Policies,
    /// Clients by tier.
    Tiers,
    /// The policies that limit the server's own operations.
    Gate,
    /// Policies by Envoy's domains and descriptors.
    Envoy,
}

/// The rows of a table, parsed.
#[derive(Debug, Clone)]
pub enum Rows {
    /// Policies with their names.
    Policies(Vec<(String, Policy)>),
    /// Clients with their tiers.
    Tiers(Vec<(Tier, String)>),
    /// Names of policies with the operations that they limit.
    Gate(Vec<(Scope, String)>),
    /// A domain, a pattern of descriptors and the name of a policy.
    Envoy(Vec<(String, String, String)>),
}

impl Table {
    /// All tables.
    pub const ALL: [Self; 4] = [Self::Policies, Self::Tiers, Self::Gate, Self::Envoy];

    /// Returns the name of the setting that holds the table.
    pub const fn setting(self) -> &'static str {
        match self {
            Self::Policies => "limits.policies",
            Self::Tiers => "limits.tiers",
            Self::Gate => "limits.gate",
            Self::Envoy => "limits.envoy",
        }
    }

    /// Parses a table from JSON; an empty text is an empty table. An error says what is wrong.
    pub fn parse(self, text: &str) -> Result<Rows, String> {
        match self {
            Self::Policies => policies(text).map(Rows::Policies),
            Self::Tiers => tiers(text).map(Rows::Tiers),
            Self::Gate => gate(text).map(Rows::Gate),
            Self::Envoy => envoy(text).map(Rows::Envoy),
        }
    }
}

/// A contradiction between tables, and the table that has to change.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The table.
    pub table: Table,
    /// The problem, for people.
    pub problem: String,
}

/// Puts tables together. What one of them names must be in another, or built in; a table that is left
/// out is empty.
pub fn limits(tables: impl IntoIterator<Item = Rows>) -> Result<Limits, Wrong> {
    let (mut policies, mut tiers, mut gate, mut envoy) = Default::default();
    for table in tables {
        match table {
            Rows::Policies(rows) => policies = rows,
            Rows::Tiers(rows) => tiers = rows,
            Rows::Gate(rows) => gate = rows,
            Rows::Envoy(rows) => envoy = rows,
        }
    }
    let limits = Limits::new(policies, tiers).map_err(|flaws| {
        let table = match flaws.first() {
            Some((_, Flaw::TwoTiers { .. })) => Table::Tiers,
            _ => Table::Policies,
        };
        wrong(table, &flaws)
    })?;
    let limits = limits.with_call_limits(gate);
    let limits = limits.map_err(|flaws| wrong(Table::Gate, &flaws))?;
    let limits = limits.with_descriptors(envoy);
    limits.map_err(|flaws| wrong(Table::Envoy, &flaws))
}

/// Lists everything that is wrong with a table.
fn wrong(table: Table, flaws: &[(String, Flaw)]) -> Wrong {
    let problems = flaws.iter().map(|(name, flaw)| match name.as_str() {
        "" => flaw.to_string(),
        name => format!("{name}: {flaw}"),
    });
    let problem = problems.collect::<Vec<_>>().join("; ");
    Wrong { table, problem }
}

fn parse<T: serde::de::DeserializeOwned + Default>(text: &str) -> Result<T, String> {
    match text.is_empty() {
        true => Ok(T::default()),
        false => serde_json::from_str(text).map_err(|error| error.to_string()),
    }
}

fn policies(text: &str) -> Result<Vec<(String, Policy)>, String> {
    // The values are parsed one by one, so that an error can name the policy.
    let written: BTreeMap<String, serde_json::Value> = parse(text)?;
    let policies = written.into_iter().map(|(name, value)| {
        let policy = serde_json::from_value(value)
            .map_err(|error| error.to_string())
            .and_then(|written| policy(written).map_err(|flaw| flaw.to_string()));
        match policy {
            Ok(policy) => Ok((name, policy)),
            Err(problem) => Err(format!("{name}: {problem}")),
        }
    });
    policies.collect()
}

fn tiers(text: &str) -> Result<Vec<(Tier, String)>, String> {
    let written: WrittenTiers = parse(text)?;
    let of = |tier: Tier, clients: Vec<String>| clients.into_iter().map(move |one| (tier, one));
    let clients = of(Tier::Trusted, written.trusted)
        .chain(of(Tier::Batch, written.batch))
        .chain(of(Tier::Throttled, written.throttled));
    Ok(clients.collect())
}

fn gate(text: &str) -> Result<Vec<(Scope, String)>, String> {
    let written: WrittenGate = parse(text)?;
    let policies = [
        written.global,
        written.tenant,
        written.principal,
        written.tasks,
        written.messages,
    ];
    let named = Scope::ALL.into_iter().zip(policies);
    Ok(named
        .filter_map(|(scope, policy)| Some((scope, policy?)))
        .collect())
}

fn envoy(text: &str) -> Result<Vec<(String, String, String)>, String> {
    let written: BTreeMap<String, BTreeMap<String, String>> = parse(text)?;
    let rows = written.into_iter().flat_map(|(domain, patterns)| {
        let row = move |(pattern, policy)| (domain.clone(), pattern, policy);
        patterns.into_iter().map(row)
    });
    Ok(rows.collect())
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

/// Rounds a rate to millionths of a token. What is no number of tokens gives zero, which is refused.
fn millionths(tokens: f64) -> u64 {
    let millionths = (tokens * MILLIONTHS as f64).round();
    // The cast saturates at both ends.
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

    /// Parses the four tables and puts them together.
    fn read(policies: &str, tiers: &str, gate: &str, envoy: &str) -> Result<Limits, Wrong> {
        let texts = [policies, tiers, gate, envoy];
        let tables = Table::ALL.into_iter().zip(texts);
        let rows = tables.map(|(table, text)| {
            let wrong = |problem| Wrong { table, problem };
            table.parse(text).map_err(wrong)
        });
        limits(rows.collect::<Result<Vec<_>, _>>()?)
    }

    #[test]
    fn policies_of_every_kind_are_read() {
        let policies = r#"{
            "api": {"kind": "token_bucket", "capacity": 5, "refill_per_minute": 0.5, "overdraw": true},
            "hour": {"kind": "fixed_window", "limit": 3, "window_secs": 3600, "shadow": true},
            "pin": {"kind": "sequential_delay", "stages": [{"delay": 0}, {"delay": 60, "resetTimer": false,
                     "batchSize": 2, "repetitions": 3}]},
            "mine": {"kind": "tiered", "trusted": "api"}
        }"#;
        let tiers = r#"{"trusted": ["a"], "throttled": ["b"]}"#;
        let limits = read(policies, tiers, "", "").unwrap();
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
            let wrong = read(policies, "", "", "").unwrap_err();
            assert_eq!(wrong.table, Table::Policies);
            assert!(wrong.problem.contains(told), "{told}: {}", wrong.problem);
        }
        let twice = read("", r#"{"trusted": ["a"], "batch": ["a"]}"#, "", "").unwrap_err();
        assert_eq!(
            (twice.table, twice.problem.as_str()),
            (Table::Tiers, "a is listed in two tiers")
        );
    }

    #[test]
    fn the_gate_and_envoy_name_policies() {
        let policies =
            r#"{"api": {"kind": "token_bucket", "capacity": 5, "refill_per_minute": 0.5}}"#;
        let with = |gate, envoy| read(policies, "", gate, envoy);
        let envoy = r#"{"edge": {"generic_key=slow": "api", "remote_address": "client"}}"#;
        let limits = with(r#"{"tenant": "api"}"#, envoy).unwrap();
        assert!(limits.limits_calls());
        let (policy, key) = limits
            .described("edge", &[("remote_address", "1")])
            .unwrap();
        assert_eq!((&*policy, key.as_str()), ("client", "1"));
        for (gate, envoy, table, problem) in [
            (r#"{"tenants": "api"}"#, "", Table::Gate, "unknown field"),
            (
                r#"{"tenant": "nope"}"#,
                "",
                Table::Gate,
                "tenant: there is no policy named nope",
            ),
            (
                r#"{"global": "client"}"#,
                "",
                Table::Gate,
                "global: client must be",
            ),
            ("", r#"{"edge": "api"}"#, Table::Envoy, "invalid type"),
            (
                "",
                r#"{"edge": {"a": "nope"}}"#,
                Table::Envoy,
                "edge: a: there is no policy",
            ),
            (
                "",
                r#"{"edge": {",": "api"}}"#,
                Table::Envoy,
                "edge: ,: a pattern must",
            ),
        ] {
            let wrong = with(gate, envoy).unwrap_err();
            assert_eq!(wrong.table, table, "{gate}{envoy}");
            assert!(wrong.problem.contains(problem), "{}", wrong.problem);
        }
    }
}
