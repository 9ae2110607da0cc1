//! Checks limits that a proxy names by descriptors, as Envoy does.

use asyncgate_api::{CheckLimits, CheckLimitsInput, LimitCheck, LimitVerdict};
use futures_util::future::BoxFuture;

use super::Execute;
use crate::{Caller, Engine, Fault, call};

/// A call of somebody else that a proxy wants limited.
#[derive(Debug)]
pub struct Descriptor<'a> {
    /// Keys with values. A pattern of the settings makes a policy and a key of them.
    pub entries: Vec<(&'a str, &'a str)>,
    /// The tokens that the call takes.
    pub cost: i64,
}

impl Engine {
    /// Asks the limits of all descriptors in one step: one call of [`CheckLimits`]. Returns a verdict for
    /// each descriptor, or nothing for one that no policy limits.
    pub fn check_descriptors<'a>(
        &'a self,
        caller: &'a Caller,
        domain: &'a str,
        descriptors: &'a [Descriptor<'a>],
    ) -> BoxFuture<'a, Result<Vec<Option<LimitVerdict>>, Fault>> {
        // Boxed, so that it is compiled here and not where it is awaited.
        Box::pin(self.check_described(caller, domain, descriptors))
    }

    async fn check_described(
        &self,
        caller: &Caller,
        domain: &str,
        descriptors: &[Descriptor<'_>],
    ) -> Result<Vec<Option<LimitVerdict>>, Fault> {
        let mut limited = Vec::with_capacity(descriptors.len());
        // The settings are read only when the caller may ask: who may not is not told what is limited.
        let decode = || {
            if domain.is_empty() || descriptors.is_empty() {
                let message = "give a domain and at least one descriptor";
                return Err(Fault::bad_request(message));
            }
            let checks = descriptors.iter().map(|one| self.described(domain, one));
            let checks: Vec<Option<LimitCheck>> = checks.collect();
            limited.extend(checks.iter().map(Option::is_some));
            Ok(CheckLimitsInput {
                checks: Some(checks.into_iter().flatten().collect()),
                ..CheckLimitsInput::default()
            })
        };
        let ask = |input: CheckLimitsInput| async move {
            // The operation refuses an empty list, but to Envoy it means that nothing is limited.
            if input.checks.as_ref().is_some_and(Vec::is_empty) {
                return Ok(Vec::new());
            }
            let output = CheckLimits::execute(self, caller, input).await?;
            Ok(output.results.unwrap_or_default())
        };
        let verdicts = call::run::<CheckLimits, _, _>(self, caller, decode, ask);
        let mut verdicts = verdicts.await?.into_iter();
        let of_each = limited.into_iter().map(|limited| match limited {
            true => verdicts.next(),
            false => None,
        });
        Ok(of_each.collect())
    }

    fn described(&self, domain: &str, descriptor: &Descriptor<'_>) -> Option<LimitCheck> {
        let limits = &self.settings().limits;
        let (policy, key) = limits.described(domain, &descriptor.entries)?;
        Some(LimitCheck {
            policy: policy.to_string(),
            key,
            cost: Some(descriptor.cost),
        })
    }
}
