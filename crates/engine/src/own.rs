//! The limits of the server's own operations.
//!
//! They are asked once per call, after the caller's right and before its input. Where nothing is
//! limited, that costs one look at the settings.

use asyncgate_api::{Access, Code, CreateTask, Operation as _, Spec};
use asyncgate_core::admission::{Asks, OWN_TENANT, Scope};

use crate::{
    Caller, Engine, Fault,
    operations::host_fault,
    rate::{self, Header, Told},
};

impl Engine {
    /// Charges a call to the limits of its caller. Answers what HTTP tells of them.
    pub(crate) async fn charge(&self, caller: &Caller, spec: &Spec) -> Result<Vec<Header>, Fault> {
        if spec.access == Access::Open || !self.settings().limits.limit_own() {
            return Ok(Vec::new());
        }
        // Boxed, so that calls without limits do not carry it around.
        Box::pin(self.charge_all(caller, spec)).await
    }

    async fn charge_all(&self, caller: &Caller, spec: &Spec) -> Result<Vec<Header>, Fault> {
        let now = self.now();
        let makes_task = spec.name == CreateTask::SPEC.name;
        let limits = &self.settings().limits;
        let checks = limits.own_checks(caller.tenant, &caller.principal, makes_task);
        let asks = Asks {
            limits: checks.iter().map(|(_, check)| check.clone()).collect(),
            ..Asks::default()
        };
        let answered = self.host.admit(OWN_TENANT, now, asks).await;
        let answered = answered.map_err(host_fault)?.answer;
        let mut all = Vec::with_capacity(checks.len());
        let mut refused: Option<(Scope, Told)> = None;
        for ((scope, check), limited) in checks.iter().zip(&answered.limits) {
            self.metrics.admission.limited(&check.policy, limited);
            let bucket = scope.bucket(caller.tenant, &caller.principal);
            let told = Told::new(scope.as_str(), &bucket, check, limited, now);
            let tightest = refused.as_ref();
            let is_tightest = tightest.is_none_or(|(_, other)| rate::tighter(&told, other).is_lt());
            if !told.allowed && is_tightest {
                refused = Some((*scope, told.clone()));
            }
            all.push(told);
        }
        let headers = rate::headers(&all);
        match refused {
            None => Ok(headers),
            Some((scope, told)) => Err(refusal(scope, &told, headers)),
        }
    }
}

/// A call that a limit refuses.
fn refusal(scope: Scope, told: &Told, headers: Vec<Header>) -> Fault {
    let message = match scope {
        Scope::Global => "the server takes no more calls at the moment; try again later",
        Scope::Tenant => "your tenant made too many calls; try again later",
        Scope::Principal => "you made too many calls; try again later",
        Scope::Tasks => "your tenant called create_task too often; try again later",
    };
    let mut fault = Fault::new(Code::RateLimit, message)
        .with("error", "rate_limit_exceeded")
        .with("bucket", told.bucket.as_str())
        .with("limit", told.limit);
    if let Some(secs) = told.window_secs {
        fault = fault.with("window", window(secs));
    }
    fault.headers = headers;
    match told.retry_after_secs {
        Some(secs) => fault.retry_after(u32::try_from(secs).unwrap_or(u32::MAX)),
        None => fault,
    }
}

/// A length of time in the largest unit that it is a number of.
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
