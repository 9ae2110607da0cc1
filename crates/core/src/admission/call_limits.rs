//! The limits of calls to the server itself: for everyone together, for each tenant, for each principal. And
//! of the messages that calls bring. Some are the operator's, others are the hourly quotas of a tenant.

use super::{Flaw, LimitCheck, Limits, Resolved, Rule, Tier};
use crate::{
    Principal, TenantId,
    identity::{QuotaName, Quotas},
};

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
    /// The tasks that each tenant creates. A call costs as many as it brings.
    Tasks,
    /// The messages that each tenant sends. A call costs as many as it brings.
    Messages,
}

impl Scope {
    /// Every scope, the widest first.
    pub const ALL: [Self; 5] = [
        Self::Global,
        Self::Tenant,
        Self::Principal,
        Self::Tasks,
        Self::Messages,
    ];

    /// Returns the scope's name in settings and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Tenant => "tenant",
            Self::Principal => "principal",
            Self::Tasks => "tasks",
            Self::Messages => "messages",
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
            Self::Messages => format!("tenant:{tenant}:messages"),
        }
    }

    /// Returns what a caller is known by among those whose calls are counted apart.
    fn key(self, tenant: TenantId, principal: &Principal) -> String {
        let bucket = self.bucket(tenant, principal);
        match self {
            // Two tenants may have principals of the same name.
            Self::Principal => format!("{tenant}/{bucket}"),
            Self::Global | Self::Tenant | Self::Tasks | Self::Messages => bucket,
        }
    }

    /// Returns the check that a call of this caller must pass.
    fn check(
        self,
        by: &Resolved,
        tenant: TenantId,
        principal: &Principal,
        cost: i64,
    ) -> LimitCheck {
        LimitCheck {
            policy: by.policy.clone(),
            key: self.key(tenant, principal),
            rule: by.rule.clone(),
            cost,
            shadow: by.shadow,
        }
    }
}

/// A check that a call must pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallCheck {
    /// The calls that it counts together.
    pub scope: Scope,
    /// The quota behind it; absent if it is the operator's limit.
    pub quota: Option<QuotaName>,
    /// The question.
    pub check: LimitCheck,
}

impl CallCheck {
    /// Returns the name under which callers are told of the limit.
    pub const fn policy(&self) -> &'static str {
        match self.quota {
            Some(quota) => quota.as_str(),
            None => self.scope.as_str(),
        }
    }
}

/// Returns the checks of a tenant's hourly quotas that a caller's call must pass, to be asked as [`SERVER_TENANT`].
pub fn hourly_checks(
    quotas: &Quotas,
    tenant: TenantId,
    principal: &Principal,
    makes_task: bool,
    cost: i64,
) -> Vec<CallCheck> {
    let counted = [
        (QuotaName::ApiCallsPerHour, Scope::Tenant, true),
        (QuotaName::PrincipalApiCallsPerHour, Scope::Principal, true),
        (QuotaName::TasksPerHour, Scope::Tasks, makes_task),
    ];
    let counted = counted.into_iter().filter(|(_, _, counts)| *counts);
    let check = |(name, scope, _): (QuotaName, Scope, bool)| {
        let bucket = quotas.get(name).hourly_bucket()?;
        Some(CallCheck {
            scope,
            quota: Some(name),
            check: LimitCheck {
                // No policy of an operator has a colon in its name, so this row is no other's.
                policy: format!("quota:{}", name.as_str()).into(),
                key: scope.key(tenant, principal),
                rule: Rule::Bucket(bucket),
                cost,
                shadow: false,
            },
        })
    };
    counted.filter_map(check).collect()
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

    /// Returns true if any policy limits calls or messages.
    pub fn limits_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Returns the checks that a caller's call must pass, to be asked as [`SERVER_TENANT`].
    pub fn call_checks(
        &self,
        tenant: TenantId,
        principal: &Principal,
        makes_task: bool,
    ) -> Vec<CallCheck> {
        let counts = |scope: Scope| match scope {
            Scope::Global | Scope::Tenant | Scope::Principal => true,
            Scope::Tasks => makes_task,
            Scope::Messages => false,
        };
        self.checks(tenant, principal, 1, counts)
    }

    /// Returns the checks that so many messages or tasks of a call must pass, to be asked as [`SERVER_TENANT`].
    pub fn item_checks(
        &self,
        of: Scope,
        tenant: TenantId,
        principal: &Principal,
        items: usize,
    ) -> Vec<CallCheck> {
        let cost = i64::try_from(items).unwrap_or(i64::MAX);
        let counts = |scope| scope == of && items > 0;
        self.checks(tenant, principal, cost, counts)
    }

    fn checks(
        &self,
        tenant: TenantId,
        principal: &Principal,
        cost: i64,
        counts: impl Fn(Scope) -> bool,
    ) -> Vec<CallCheck> {
        let asked = self.calls.iter().filter(|(scope, _)| counts(*scope));
        let check = |(scope, by): &(Scope, Resolved)| CallCheck {
            scope: *scope,
            quota: None,
            check: scope.check(by, tenant, principal, cost),
        };
        asked.map(check).collect()
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
            let mut asked = limits.call_checks(tenant, &agent(id), true);
            asked.extend(limits.item_checks(Scope::Messages, tenant, &agent(id), 1));
            asked.into_iter().map(|asked| asked.check.key).collect()
        };
        let (ann, bob, other_ann) = (keys(ACME, "ann"), keys(ACME, "bob"), keys(OTHER, "ann"));
        let same = |one: &[String], other: &[String]| -> Vec<bool> {
            one.iter()
                .zip(other)
                .map(|(one, other)| one == other)
                .collect()
        };
        assert_eq!(same(&ann, &bob), [true, true, false, true, true]);
        assert_eq!(same(&ann, &other_ann), [true, false, false, false, false]);
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
    fn messages_are_counted_by_themselves_and_each_costs() {
        let limits = limited(&[(Scope::Messages, "standard")]).unwrap();
        let ann = agent("ann");
        assert_eq!(limits.call_checks(ACME, &ann, true).len(), 0);
        assert_eq!(limits.item_checks(Scope::Messages, ACME, &ann, 0).len(), 0);
        let asked = limits.item_checks(Scope::Messages, ACME, &ann, 1_000);
        let costs: Vec<i64> = asked.iter().map(|asked| asked.check.cost).collect();
        assert_eq!(costs, [1_000]);
        assert_eq!(
            asked,
            limits.item_checks(Scope::Messages, ACME, &agent("bob"), 1_000)
        );
        assert_ne!(
            asked,
            limits.item_checks(Scope::Messages, OTHER, &ann, 1_000)
        );
    }

    #[test]
    fn hourly_quotas_are_buckets_with_rows_of_their_own() {
        use crate::identity::Quota;
        let ann = agent("ann");
        assert_eq!(hourly_checks(&Quotas::default(), ACME, &ann, true, 1), []);
        let all = [
            (QuotaName::ApiCallsPerHour, 1_000),
            (QuotaName::PrincipalApiCallsPerHour, 50),
            (QuotaName::TasksPerHour, 100),
        ];
        let quotas = all
            .into_iter()
            .fold(Quotas::default(), |quotas, (name, n)| {
                quotas.with(name, Quota::AtMost(n))
            });
        let told = |makes_task| -> Vec<(&str, String, u64)> {
            let checks = hourly_checks(&quotas, ACME, &ann, makes_task, 1);
            let told = checks.iter().map(|asked| {
                let bucket = asked.scope.bucket(ACME, &ann);
                (asked.policy(), bucket, asked.check.rule.limit())
            });
            told.collect()
        };
        let calls = [
            (
                "api_calls_per_hour",
                format!("tenant:{ACME}:api_calls"),
                1_000,
            ),
            (
                "principal_api_calls_per_hour",
                "principal:agent/ann:api_calls".to_owned(),
                50,
            ),
        ];
        assert_eq!(told(false), calls);
        assert_eq!(told(true)[..2], calls);
        let tasks = ("tasks_per_hour", format!("tenant:{ACME}:tasks"), 100);
        assert_eq!(told(true)[2], tasks);
        // Neither another tenant nor a policy of the operator has the same row.
        let now = crate::Timestamp::default();
        let name = |tenant| {
            let checks = hourly_checks(&quotas, tenant, &ann, false, 1);
            checks[1].check.name(SERVER_TENANT, now)
        };
        assert_ne!(name(ACME), name(OTHER));
        let operators = limited(&[(Scope::Principal, "standard")]).unwrap();
        let operators = operators.call_checks(ACME, &ann, false);
        assert_ne!(operators[0].check.name(SERVER_TENANT, now), name(ACME));
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
