//! The limits of calls to the server itself.
//!
//! A call is charged once, after its caller's role was checked and before its input is read. The messages that
//! it brings are charged when they are known, all or none. A server without such limits pays one look at the
//! settings.

use asyncgate_api::{Access, Code, CreateTask, Operation as _, Spec};
use asyncgate_core::admission::{Asks, LimitCheck, SERVER_TENANT, Scope};

use crate::{
    Caller, Engine, Fault,
    operations::host_fault,
    rate_headers::{Header, ReportedLimit, headers, tighter},
};

impl Engine {
    /// Charges a call to the limits of its caller. Returns what is to be told of them.
    pub(crate) async fn charge(
        &self,
        caller: &Caller,
        spec: &Spec,
    ) -> Result<Vec<ReportedLimit>, Fault> {
        // Without a credential there is nobody to charge.
        let is_anonymous = spec.access == Access::Open || caller.tenant == SERVER_TENANT;
        if is_anonymous || !self.settings().limits.limits_calls() {
            return Ok(Vec::new());
        }
        let makes_task = spec.name == CreateTask::SPEC.name;
        let limits = &self.settings().limits;
        let checks = limits.call_checks(caller.tenant, &caller.principal, makes_task);
        // Boxed, so that the futures of calls without limits stay small.
        Box::pin(self.charge_all(caller, checks, Vec::new())).await
    }

    /// Charges the messages that a call brings. Adds what is to be told of their limit to what was `told`
    /// of the others.
    pub(crate) async fn charge_messages(
        &self,
        caller: &Caller,
        messages: usize,
        told: Vec<ReportedLimit>,
    ) -> Result<Vec<ReportedLimit>, Fault> {
        let limits = &self.settings().limits;
        if messages == 0 || !limits.limits_calls() {
            return Ok(told);
        }
        let checks = limits.message_checks(caller.tenant, &caller.principal, messages);
        Box::pin(self.charge_all(caller, checks, told)).await
    }

    async fn charge_all(
        &self,
        caller: &Caller,
        checks: Vec<(Scope, LimitCheck)>,
        mut told: Vec<ReportedLimit>,
    ) -> Result<Vec<ReportedLimit>, Fault> {
        if checks.is_empty() {
            return Ok(told);
        }
        let now = self.now();
        let asks = Asks {
            limits: checks.iter().map(|(_, check)| check.clone()).collect(),
            ..Asks::default()
        };
        let answered = self.host.admit(SERVER_TENANT, now, asks).await;
        let answered = answered.map_err(host_fault)?.answer;
        let mut refused: Option<(Scope, ReportedLimit)> = None;
        for ((scope, check), limited) in checks.iter().zip(&answered.limits) {
            self.metrics.admission.limited(&check.policy, limited);
            let bucket = scope.bucket(caller.tenant, &caller.principal);
            let limit = ReportedLimit::new(scope.as_str(), &bucket, check, limited, now);
            let other = refused.as_ref();
            let is_tightest = other.is_none_or(|(_, other)| tighter(&limit, other).is_lt());
            if !limit.allowed && is_tightest {
                refused = Some((*scope, limit.clone()));
            }
            told.push(limit);
        }
        match refused {
            None => Ok(told),
            Some((scope, limit)) => Err(refusal(scope, &limit, headers(&told))),
        }
    }
}

/// Makes the fault of a call that a limit refuses.
fn refusal(scope: Scope, limit: &ReportedLimit, headers: Vec<Header>) -> Fault {
    // No wait helps a call that brings more messages than the limit ever allows.
    let too_many = scope == Scope::Messages && limit.retry_after_secs.is_none();
    let message = match scope {
        Scope::Global => "the server takes no more calls at the moment; try again later",
        Scope::Tenant => "your tenant made too many calls; try again later",
        Scope::Principal => "you made too many calls; try again later",
        Scope::Tasks => "your tenant called create_task too often; try again later",
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
