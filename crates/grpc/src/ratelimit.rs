//! Envoy's rate limit service over the policies of limits.
//!
//! A descriptor comes to a policy and a key by the settings; all that do are asked in one step, and
//! the rest is not limited. Refusals are answers: an error means that nothing was decided.

use asyncgate_api::{CheckLimits, CheckLimitsInput, LimitCheck, LimitVerdict};
use asyncgate_engine::{Caller, Engine, Fault, authorise, execute, rate_headers};
use prost_types::Duration;

use crate::envoy::{
    config::core::v3::HeaderValue,
    extensions::common::ratelimit::v3::RateLimitDescriptor,
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    },
};

/// Asks the limits of all descriptors.
pub(crate) async fn should_rate_limit(
    engine: &Engine,
    caller: &Caller,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, Fault> {
    // Who may not ask is not told what is limited either.
    authorise::<CheckLimits>(engine, caller)?;
    if request.domain.is_empty() || request.descriptors.is_empty() {
        return Err(Fault::bad_request(
            "give a domain and at least one descriptor",
        ));
    }
    let checks: Vec<Option<LimitCheck>> = {
        let limits = &engine.settings().limits;
        let descriptors = request.descriptors.iter();
        let check = |descriptor| {
            let (policy, key) = limits.described(&request.domain, &entries(descriptor))?;
            Some(LimitCheck {
                policy: policy.to_string(),
                key,
                cost: Some(hits(descriptor, request.hits_addend)),
            })
        };
        descriptors.map(check).collect()
    };
    let limited: Vec<bool> = checks.iter().map(Option::is_some).collect();
    let checks: Vec<LimitCheck> = checks.into_iter().flatten().collect();
    let verdicts = if checks.is_empty() {
        Vec::new()
    } else {
        let input = CheckLimitsInput {
            checks: Some(checks),
            ..CheckLimitsInput::default()
        };
        let output = execute::<CheckLimits>(engine, caller, input).await?;
        output.results.unwrap_or_default()
    };
    Ok(response(&limited, &verdicts))
}

fn entries(descriptor: &RateLimitDescriptor) -> Vec<(&str, &str)> {
    let entries = descriptor.entries.iter();
    entries
        .map(|entry| (entry.key.as_str(), entry.value.as_str()))
        .collect()
}

/// How much a descriptor is charged.
fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> i64 {
    let of_request = u64::from(of_request.max(1));
    let hits = descriptor.hits_addend.unwrap_or(of_request);
    // More than any limit has, so the end of the numbers is as good.
    i64::try_from(hits).unwrap_or(i64::MAX)
}

/// The answer about descriptors, of which some are limited and have a verdict.
fn response(limited: &[bool], verdicts: &[LimitVerdict]) -> RateLimitResponse {
    let allowed = verdicts.iter().all(|verdict| verdict.allowed);
    let mut verdicts_left = verdicts.iter();
    let statuses = limited.iter().map(|limited| {
        let verdict = if *limited { verdicts_left.next() } else { None };
        verdict.map_or_else(unlimited, status)
    });
    let statuses = statuses.collect();
    let headers = rate_headers(verdicts).into_iter();
    RateLimitResponse {
        overall_code: code(allowed).into(),
        statuses,
        response_headers_to_add: headers
            .map(|(name, value)| HeaderValue {
                key: name.to_owned(),
                value,
            })
            .collect(),
    }
}

const fn code(allowed: bool) -> Code {
    match allowed {
        true => Code::Ok,
        false => Code::OverLimit,
    }
}

fn unlimited() -> DescriptorStatus {
    DescriptorStatus {
        code: Code::Ok.into(),
        ..DescriptorStatus::default()
    }
}

fn status(verdict: &LimitVerdict) -> DescriptorStatus {
    DescriptorStatus {
        code: code(verdict.allowed).into(),
        current_limit: Some(RateLimit {
            requests_per_unit: clipped(verdict.limit),
            unit: unit(verdict.window_secs).into(),
            name: verdict.policy.clone(),
        }),
        limit_remaining: clipped(verdict.remaining),
        duration_until_reset: Some(Duration {
            seconds: i64::try_from(verdict.reset_in_secs).unwrap_or(i64::MAX),
            nanos: 0,
        }),
    }
}

fn clipped(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The unit that a limit's time is exactly.
const fn unit(window_secs: Option<u64>) -> Unit {
    match window_secs {
        Some(1) => Unit::Second,
        Some(60) => Unit::Minute,
        Some(3_600) => Unit::Hour,
        Some(86_400) => Unit::Day,
        Some(604_800) => Unit::Week,
        _ => Unit::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_those_of_the_descriptor_or_of_the_request_and_at_least_one() {
        let of = |own| RateLimitDescriptor {
            entries: Vec::new(),
            hits_addend: own,
        };
        for (own, of_request, expected) in [
            (None, 0, 1),
            (None, 3, 3),
            (Some(0), 3, 0),
            (Some(7), 3, 7),
            (Some(u64::MAX), 3, i64::MAX),
        ] {
            assert_eq!(hits(&of(own), of_request), expected, "{own:?} {of_request}");
        }
    }
}
