//! The limits of the server's own operations: for everyone together, for each tenant, for each principal.

use super::{Flaw, LimitCheck, Limits, Resolved, Rule, Tier};
use crate::{Principal, TenantId};

/// Whose rows these limits have. It is nobody's tenant, so that no caller can reach them, and one, so
/// that all are charged in one step.
pub const OWN_TENANT: TenantId = TenantId::from_bytes([0; 16]);

/// Whom a limit of the server's own operations counts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everyone.
    Global,
    /// Each tenant.
    Tenant,
    /// Each principal of a tenant.
    Principal,
    /// Each tenant, but only its calls of `create_task`.
    Tasks,
}

impl Scope {
    /// Every scope, the widest first.
    pub const ALL: [Self; 4] = [Self::Global, Self::Tenant, Self::Principal, Self::Tasks];

    /// The scope's name in settings and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Global => "global",
            Self::Tenant => "tenant",
            Self::Principal => "principal",
            Self::Tasks => "tasks",
        }
    }

    /// What the bucket of a caller is called.
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

    /// What it asks of a caller.
    fn check(self, by: &Resolved, tenant: TenantId, principal: &Principal) -> LimitCheck {
        let bucket = self.bucket(tenant, principal);
        LimitCheck {
            policy: by.policy.clone(),
            // Principals of two tenants may have one name.
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
    /// These, with policies for the server's own operations.
    pub fn with_own(
        mut self,
        named: impl IntoIterator<Item = (Scope, String)>,
    ) -> Result<Self, Vec<(String, Flaw)>> {
        let (mut own, mut flaws) = (Vec::new(), Vec::new());
        for (scope, policy) in named {
            match self.resolve(&policy, Tier::default()) {
                Ok(
                    Resolved {
                        rule: Rule::Delay(_),
                        ..
                    }
                    | Resolved { tier: Some(_), .. },
                ) => {
                    flaws.push((scope.as_str().to_owned(), Flaw::NotForOwn { named: policy }));
                }
                Ok(resolved) => own.push((scope, resolved)),
                Err(_) => flaws.push((scope.as_str().to_owned(), Flaw::NoPolicy { named: policy })),
            }
        }
        match flaws.is_empty() {
            true => {
                self.own = own;
                Ok(self)
            }
            false => Err(flaws),
        }
    }

    /// Whether anything limits the server's own operations.
    pub fn limit_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// What to ask before an operation of a caller, by [`OWN_TENANT`].
    pub fn own_checks(
        &self,
        tenant: TenantId,
        principal: &Principal,
        makes_task: bool,
    ) -> Vec<(Scope, LimitCheck)> {
        let asked = self.own.iter();
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

    fn own(named: &[(Scope, &str)]) -> Result<Limits, Vec<(String, Flaw)>> {
        let named = named
            .iter()
            .map(|(scope, name)| (*scope, (*name).to_owned()));
        Limits::default().with_own(named)
    }

    #[test]
    fn each_scope_counts_its_own_callers_together() {
        let all = Scope::ALL.map(|scope| (scope, "standard"));
        let limits = own(&all).unwrap();
        let keys = |tenant, id: &str| -> Vec<String> {
            let asked = limits.own_checks(tenant, &agent(id), true);
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
        let limits = own(&[(Scope::Tasks, "standard")]).unwrap();
        let ann = agent("ann");
        assert_eq!(limits.own_checks(ACME, &ann, true).len(), 1);
        assert_eq!(limits.own_checks(ACME, &ann, false).len(), 0);
        assert!(limits.limit_own() && !Limits::default().limit_own());
    }

    #[test]
    fn a_policy_must_be_there_and_not_depend_on_a_client() {
        let missing = Flaw::NoPolicy {
            named: "nope".into(),
        };
        let flaws = own(&[(Scope::Global, "nope")]).unwrap_err();
        assert_eq!(flaws, [("global".to_owned(), missing)]);
        let tiered = Flaw::NotForOwn {
            named: "client".into(),
        };
        let flaws = own(&[(Scope::Tenant, "client")]).unwrap_err();
        assert_eq!(flaws, [("tenant".to_owned(), tiered)]);
    }
}
