//! The limits of calls to the server itself: those of the operator, and the hourly quotas of the caller's tenant.
//!
//! A call is charged once, after its caller's role was checked and before its input is read, to all of its limits or to
//! none. The messages and the batch of tasks that it brings are charged when they are known. Where nothing is limited,
//! a call pays two looks at what is in memory.

use asyncgate_api::{Access, Code, CreateTask, Operation as _, Spec};
use asyncgate_core::{
    TenantId, Timestamp,
    admission::{Asks, CallCheck, SERVER_TENANT, Scope, hourly_checks},
};

use futures_util::future::BoxFuture;

use crate::{
    Caller, Engine, Fault, Principal, Touches,
    operations::host_fault,
    rate_headers::{Header, ReportedLimit, headers, is_wanted, note, tighter},
    tenants::InForce,
};

impl Engine {
    /// Charges a call to the limits of its caller. Returns what is to be told of them.
    pub(crate) async fn charge(
        &self,
        caller: &Caller,
        spec: &Spec,
    ) -> Result<Vec<ReportedLimit>, Fault> {
        if is_anonymous(caller, spec) {
            return Ok(Vec::new());
        }
        let tenant = self.tenant(caller.tenant).await?;
        let now = self.now();
        let in_force = tenant.at(now);
        let limits = &self.settings().limits;
        let mut told = Vec::new();
        if in_force.is_rated || limits.limits_calls() {
            let makes_task = spec.name == CreateTask::SPEC.name;
            let (tenant, principal) = (caller.tenant, &caller.principal);
            let mut checks = limits.call_checks(tenant, principal, makes_task);
            if let (true, Some(quotas)) = (in_force.is_rated, &in_force.quotas) {
                checks.extend(hourly_checks(quotas, tenant, principal, makes_task, 1));
            }
            // Boxed, so that the futures of calls without limits stay small.
            told = Box::pin(self.charge_all(tenant, principal, now, checks, told)).await?;
        }
        // What a limit refuses is not metered.
        tenant.count_call();
        Ok(told)
    }

    /// Charges what a call brings. Adds what is to be told of these limits to what was `told` of the others.
    pub(crate) async fn charge_brought(
        &self,
        caller: &Caller,
        brought: Brought,
        told: Vec<ReportedLimit>,
    ) -> Result<Vec<ReportedLimit>, Fault> {
        let Brought { messages, tasks } = brought;
        let limits = &self.settings().limits;
        let (tenant, principal) = (caller.tenant, &caller.principal);
        let now = self.now();
        let mut checks = Vec::new();
        if limits.limits_calls() {
            checks = limits.item_checks(Scope::Messages, tenant, principal, messages);
            checks.extend(limits.item_checks(Scope::Tasks, tenant, principal, tasks));
        }
        if tasks > 0 {
            let cost = i64::try_from(tasks).unwrap_or(i64::MAX);
            let standing = self.tenant(tenant).await?;
            checks.extend(hourly_task_checks(
                standing.at(now),
                tenant,
                principal,
                cost,
            ));
        }
        if checks.is_empty() {
            return Ok(told);
        }
        Box::pin(self.charge_all(tenant, principal, now, checks, told)).await
    }

    /// Charges the hourly quota of new tasks with one that comes by another way than a call. A cost of -1 gives it back.
    pub(crate) async fn charge_task(
        &self,
        tenant: TenantId,
        principal: &Principal,
        cost: i64,
    ) -> Result<(), Fault> {
        let standing = self.tenant(tenant).await?;
        let now = self.now();
        let checks = hourly_task_checks(standing.at(now), tenant, principal, cost);
        if checks.is_empty() {
            return Ok(());
        }
        let told = Vec::new();
        Box::pin(self.charge_all(tenant, principal, now, checks, told)).await?;
        Ok(())
    }

    /// Returns the headers about the hourly quotas of a caller whose request did not come as far as a call, or was
    /// refused before it was charged. Nothing is charged.
    pub fn limit_headers<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Vec<Header>> {
        // Boxed, so that it is compiled here and not where it is awaited.
        Box::pin(async move {
            if caller.tenant == SERVER_TENANT {
                return Vec::new();
            }
            let now = self.now();
            match self.tenant(caller.tenant).await {
                Ok(standing) if standing.at(now).is_rated => {
                    self.look_at_quotas(caller, standing.at(now), now).await
                }
                // Headers are no reason to fail.
                Ok(_) | Err(_) => Vec::new(),
            }
        })
    }

    /// Notes the headers about the hourly quotas of a caller, for a facade whose request made no call.
    pub async fn note_limits(&self, caller: &Caller) {
        if is_wanted() {
            note(&self.limit_headers(caller).await);
        }
    }

    async fn look_at_quotas(
        &self,
        caller: &Caller,
        in_force: &InForce,
        now: Timestamp,
    ) -> Vec<Header> {
        let Some(quotas) = &in_force.quotas else {
            return Vec::new();
        };
        let (tenant, principal) = (caller.tenant, &caller.principal);
        let checks = hourly_checks(quotas, tenant, principal, false, 0);
        let told = self.charge_all(tenant, principal, now, checks, Vec::new());
        told.await.map(|told| headers(&told)).unwrap_or_default()
    }

    async fn charge_all(
        &self,
        tenant: TenantId,
        principal: &Principal,
        now: Timestamp,
        checks: Vec<CallCheck>,
        mut told: Vec<ReportedLimit>,
    ) -> Result<Vec<ReportedLimit>, Fault> {
        if checks.is_empty() {
            return Ok(told);
        }
        let asks = Asks {
            limits: checks.iter().map(|asked| asked.check.clone()).collect(),
            ..Asks::default()
        };
        let answered = self.host.admit(SERVER_TENANT, now, asks).await;
        let answered = answered.map_err(host_fault)?.answer;
        let mut refused: Option<(&CallCheck, ReportedLimit)> = None;
        for (asked, limited) in checks.iter().zip(&answered.limits) {
            let check = &asked.check;
            self.metrics.admission.limited(&check.policy, limited);
            let bucket = asked.scope.bucket(tenant, principal);
            let limit = ReportedLimit::new(asked.policy(), &bucket, check, limited, now);
            let other = refused.as_ref();
            let is_tightest = other.is_none_or(|(_, other)| tighter(&limit, other).is_lt());
            if !limit.allowed && is_tightest {
                refused = Some((asked, limit.clone()));
            }
            told.push(limit);
        }
        match refused {
            None => Ok(told),
            Some((asked, limit)) => Err(refusal(asked, &limit, headers(&told))),
        }
    }
}

/// The things in a call that have limits of their own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Brought {
    messages: usize,
    tasks: usize,
}

impl Brought {
    pub(crate) fn of(touches: Touches<'_>) -> Self {
        Self {
            messages: touches.messages(),
            tasks: touches.tasks(),
        }
    }
}

/// Returns the checks of the hourly quota of new tasks.
fn hourly_task_checks(
    in_force: &InForce,
    tenant: TenantId,
    principal: &Principal,
    cost: i64,
) -> Vec<CallCheck> {
    let (true, Some(quotas)) = (in_force.is_rated, &in_force.quotas) else {
        return Vec::new();
    };
    let mut checks = hourly_checks(quotas, tenant, principal, true, cost);
    checks.retain(|asked| asked.scope == Scope::Tasks);
    checks
}

/// Returns true if there is nobody to charge.
fn is_anonymous(caller: &Caller, spec: &Spec) -> bool {
    spec.access == Access::Open || caller.tenant == SERVER_TENANT
}

/// Makes the fault of a call that a limit refuses.
fn refusal(asked: &CallCheck, limit: &ReportedLimit, headers: Vec<Header>) -> Fault {
    let scope = asked.scope;
    // No wait helps a call that brings more than the limit ever allows.
    let brings = match scope {
        Scope::Messages => true,
        Scope::Tasks => asked.check.cost > 1,
        Scope::Global | Scope::Tenant | Scope::Principal => false,
    };
    let too_many = brings && limit.retry_after_secs.is_none();
    let message = match scope {
        Scope::Global => "the server takes no more calls at the moment; try again later",
        Scope::Tenant => "your tenant made too many calls; try again later",
        Scope::Principal => "you made too many calls; try again later",
        Scope::Tasks if too_many => {
            "the call brings more tasks than the limit allows at once; create fewer in a call"
        }
        Scope::Tasks => "your tenant created too many tasks; try again later",
        Scope::Messages if too_many => {
            "the call brings more messages than the limit allows at once; send fewer in a call"
        }
        Scope::Messages => "your tenant sent too many messages; try again later",
    };
    let code = match too_many {
        false => Code::RateLimit,
        true => Code::LimitExceeded,
    };
    let mut fault = Fault::new(code, message)
        .with("error", "rate_limit_exceeded")
        .with("bucket", limit.bucket.as_str())
        .with("limit", limit.limit);
    if let Some(quota) = asked.quota {
        fault = fault.with("quota", quota.as_str());
    }
    if let Some(secs) = limit.window_secs {
        fault = fault.with("window", window(secs));
    }
    fault.headers = headers;
    match limit.retry_after_secs {
        Some(secs) => fault.retry_after(u32::try_from(secs).unwrap_or(u32::MAX)),
        None => fault,
    }
}

/// Writes a length of time in the largest unit that divides it.
fn window(secs: u64) -> String {
    match secs {
        secs if secs % 3_600 == 0 => format!("{}h", secs / 3_600),
        secs if secs % 60 == 0 => format!("{}m", secs / 60),
        secs => format!("{secs}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_told_in_their_largest_unit() {
        for (secs, text) in [(3_600, "1h"), (7_200, "2h"), (60, "1m"), (90, "90s")] {
            assert_eq!(window(secs), text);
        }
    }
}
