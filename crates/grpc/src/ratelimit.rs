//! Envoy's rate limit service over the policies of limits.
//!
//! The engine finds the limit of each descriptor and asks all of them in one step. A refusal is an
//! answer: an error means that nothing was decided.

use asyncgate_api::LimitVerdict;
use asyncgate_engine::{Caller, Descriptor, Engine, Fault, rate_headers};
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
    let descriptors = request.descriptors.iter();
    let descriptors: Vec<Descriptor<'_>> = descriptors
        .map(|descriptor| Descriptor {
            entries: entries(descriptor),
            cost: hits(descriptor, request.hits_addend),
        })
        .collect();
    let checked = engine.check_descriptors(caller, &request.domain, &descriptors);
    Ok(response(&checked.await?))
}

fn entries(descriptor: &RateLimitDescriptor) -> Vec<(&str, &str)> {
    let entries = descriptor.entries.iter();
    entries
        .map(|entry| (entry.key.as_str(), entry.value.as_str()))
        .collect()
}

/// Returns the tokens that a descriptor takes: its own number, or that of the request.
fn hits(descriptor: &RateLimitDescriptor, of_request: u32) -> i64 {
    let of_request = u64::from(of_request.max(1));
    let hits = descriptor.hits_addend.unwrap_or(of_request);
    // No limit has as many, so the largest number is as good.
    i64::try_from(hits).unwrap_or(i64::MAX)
}

/// Makes the answer from the verdicts on all descriptors. One without a verdict is not limited.
fn response(verdicts: &[Option<LimitVerdict>]) -> RateLimitResponse {
    let limited = || verdicts.iter().flatten();
    let headers = rate_headers(limited()).into_iter();
    RateLimitResponse {
        overall_code: code(limited().all(|verdict| verdict.allowed)).into(),
        statuses: verdicts.iter().map(status).collect(),
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

fn status(verdict: &Option<LimitVerdict>) -> DescriptorStatus {
    let Some(verdict) = verdict else {
        return DescriptorStatus {
            code: Code::Ok.into(),
            ..DescriptorStatus::default()
        };
    };
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

/// Returns the unit that is exactly as long as a limit's window.
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
