//! The limits of calls to the server itself: for everyone together, for each tenant, for each principal.

use super::{Flaw, LimitCheck, Limits, Resolved, Rule, Tier};
use crate::{Principal, TenantId};

/// The tenant of the server itself, which no credential has. The rows of these limits belong to it: no
/// caller can reach them, and all of them can be charged in one step.
pub const SERVER_TENANT: TenantId = TenantId::from_bytes([0; 16]);

/// The calls that one limit counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The calls of everyone.
    Global,
    /// The calls of each tenant.
    Tenant,
    /// The calls of each principal of a tenant.
    Principal,
    /// Each tenant's calls of `create_task`.
    Tasks,
}

impl Scope {
    /// Every scope, the widest first.
    pub const ALL: [Self; 4] = [Self::Global, Self::Tenant, Self::Principal, Self::Tasks];

    /// Returns the scope's name in settings and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Tenant => "tenant",
            Self::Principal => "principal",
            Self::Tasks => "tasks",
        }
    }

    /// Returns the name of a caller's bucket.
    pub fn bucket(self, tenant: TenantId, principal: &Principal) -> String {
        match self {
            Self::Global => "global:api_calls".to_owned(),
            Self::Tenant => format!("tenant:{tenant}:api_calls"),
            Self::Principal => {
                let Principal { kind, id, .. } = principal;
                format!("principal:{}/{id}:api_calls", kind.as_str())
            }
            Self::Tasks => format!("tenant:{tenant}:tasks"),
        }
    }

    /// Returns the check that a call of this caller must pass.
    fn check(self, by: &Resolved, tenant: TenantId, principal: &Principal) -> LimitCheck {
        let bucket = self.bucket(tenant, principal);
        LimitCheck {
            policy: by.policy.clone(),
            // Two tenants may have principals of the same name.
            key: match self {
                Self::Principal => format!("{tenant}/{bucket}"),
                Self::Global | Self::Tenant | Self::Tasks => bucket,
            },
            rule: by.rule.clone(),
            cost: 1,
            shadow: by.shadow,
        }
    }
}

impl Limits {
    /// Adds the policies that limit calls. A policy fits if it does not depend on the client's tier and
    /// is no sequential delay.
    ///
    /// # Errors
    /// Returns everything that is wrong, with the name of the scope that it is about.
    pub fn with_call_limits(
        mut self,
        named: impl IntoIterator<Item = (Scope, String)>,
    ) -> Result<Self, Vec<(String, Flaw)>> {
        let (mut calls, mut flaws) = (Vec::new(), Vec::new());
        for (scope, policy) in named {
            match self.resolve(&policy, Tier::default()) {
                Ok(
                    Resolved {
                        rule: Rule::Delay(_),
                        ..
                    }
                    | Resolved { tier: Some(_), .. },
                ) => {
                    flaws.push((
                        scope.as_str().to_owned(),
                        Flaw::NotForCalls { named: policy },
                    ));
                }
                Ok(resolved) => calls.push((scope, resolved)),
                Err(_) => flaws.push((scope.as_str().to_owned(), Flaw::NoPolicy { named: policy })),
            }
        }
        match flaws.is_empty() {
            true => {
                self.calls = calls;
                Ok(self)
            }
            false => Err(flaws),
        }
    }

    /// Returns true if any policy limits calls.
    pub fn limits_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns the checks that a caller's call must pass, to be asked as [`SERVER_TENANT`].
    pub fn call_checks(
        &self,
        tenant: TenantId,
        principal: &Principal,
        makes_task: bool,
    ) -> Vec<(Scope, LimitCheck)> {
        let asked = self.calls.iter();
        let asked = asked.filter(|(scope, _)| makes_task || *scope != Scope::Tasks);
        asked
            .map(|(scope, by)| (*scope, scope.check(by, tenant, principal)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PrincipalKind;

    const ACME: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    fn agent(id: &str) -> Principal {
        Principal::new(PrincipalKind::Agent, id)
    }

    fn limited(named: &[(Scope, &str)]) -> Result<Limits, Vec<(String, Flaw)>> {
        let named = named
            .iter()
            .map(|(scope, name)| (*scope, (*name).to_owned()));
        Limits::default().with_call_limits(named)
    }

    #[test]
    fn each_scope_counts_its_callers_together() {
        let all = Scope::ALL.map(|scope| (scope, "standard"));
        let limits = limited(&all).unwrap();
        let keys = |tenant, id: &str| -> Vec<String> {
            let asked = limits.call_checks(tenant, &agent(id), true);
            asked.into_iter().map(|(_, check)| check.key).collect()
        };
        let (ann, bob, other_ann) = (keys(ACME, "ann"), keys(ACME, "bob"), keys(OTHER, "ann"));
        let same = |one: &[String], other: &[String]| -> Vec<bool> {
            one.iter()
                .zip(other)
                .map(|(one, other)| one == other)
                .collect()
        };
        assert_eq!(same(&ann, &bob), [true, true, false, true]);
        assert_eq!(same(&ann, &other_ann), [true, false, false, false]);
        let bucket = Scope::Principal.bucket(ACME, &agent("ann"));
        assert_eq!(bucket, "principal:agent/ann:api_calls");
    }

    #[test]
    fn only_new_tasks_count_as_tasks() {
        let limits = limited(&[(Scope::Tasks, "standard")]).unwrap();
        let ann = agent("ann");
        assert_eq!(limits.call_checks(ACME, &ann, true).len(), 1);
        assert_eq!(limits.call_checks(ACME, &ann, false).len(), 0);
        assert!(limits.limits_calls() && !Limits::default().limits_calls());
    }

    #[test]
    fn a_policy_must_be_there_and_not_depend_on_a_client() {
        let missing = Flaw::NoPolicy {
            named: "nope".into(),
        };
        let flaws = limited(&[(Scope::Global, "nope")]).unwrap_err();
        assert_eq!(flaws, [("global".to_owned(), missing)]);
        let tiered = Flaw::NotForCalls {
            named: "client".into(),
        };
        let flaws = limited(&[(Scope::Tenant, "client")]).unwrap_err();
        assert_eq!(flaws, [("tenant".to_owned(), tiered)]);
    }
}
