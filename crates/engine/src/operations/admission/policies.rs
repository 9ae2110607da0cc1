//! Lists policies.

use asyncgate_api::{ListPolicies, ListPoliciesOutput, NoInput, PolicyRecord};
use asyncgate_core::admission::{Policy, Rule};

use super::Execute;
use crate::{Caller, Engine, Fault};

impl Execute for ListPolicies {
    async fn execute(engine: &Engine, _: &Caller, _: NoInput) -> Result<ListPoliciesOutput, Fault> {
        let limits = &engine.settings().limits;
        let policies = limits.policies().map(|(name, policy)| record(name, policy));
        Ok(ListPoliciesOutput {
            policies: policies.collect(),
        })
    }
}

fn record(name: &str, policy: &Policy) -> PolicyRecord {
    let (kind, limit, window_secs, shadow) = match policy {
        Policy::Tiered { shadow, .. } => ("tiered", None, None, *shadow),
        Policy::Rule { rule, shadow } => {
            let window_secs = match rule {
                Rule::Bucket(bucket) => Some(bucket.fill_secs()),
                Rule::Window(window) => Some(window.window_secs),
                Rule::Delay(_) => None,
            };
            (rule.kind(), Some(rule.limit()), window_secs, *shadow)
        }
    };
    PolicyRecord {
        policy: name.to_owned(),
        kind: kind.to_owned(),
        limit,
        window_secs,
        shadow,
    }
}
