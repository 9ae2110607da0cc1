//! `sleep_then_return`: takes a set time, to watch leases, renewals, progress and shutdown at work.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{json, value::RawValue};
use tokio::time::{Instant, sleep_until};

use crate::{Context, Failure, Outcome, Payload};

/// The longest sleep.
const MAX: Duration = Duration::from_secs(3_600);
/// The time between two reports of progress.
const PROGRESS: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    /// The time to sleep, up to an hour.
    seconds: f64,
    /// The value to return then.
    #[serde(default, rename = "return")]
    value: Option<Box<RawValue>>,
}

/// Sleeps for `seconds` and returns the payload's `return`, as it was sent. Every five seconds it
/// reports its progress; it stops when it is asked to.
pub async fn sleep_then_return(context: Context, payload: Payload) -> Result<Outcome, Failure> {
    let input: Input = payload.parse()?;
    let length = Duration::try_from_secs_f64(input.seconds)
        .ok()
        .filter(|length| *length <= MAX)
        .ok_or_else(|| Failure::permanent("seconds must be 0 to 3600").of_kind("payload"))?;
    let start = Instant::now();
    let end = start + length;
    loop {
        let next = (Instant::now() + PROGRESS).min(end);
        tokio::select! {
            () = sleep_until(next) => {}
            cause = context.cancelled() => {
                return Err(Failure::retryable(format!("woken early: {cause:?}")).of_kind("cancelled"));
            }
        }
        if next >= end {
            break;
        }
        let slept = start.elapsed().as_secs();
        // If this report is lost, the next one makes up for it.
        let _ = context
            .progress(&json!({ "slept_seconds": slept, "seconds": input.seconds }))
            .await;
    }
    let place = json!([{ "type": "inline", "task_id": context.task().task_id }]);
    Outcome::raw(input.value.unwrap_or_default()).with_artifacts(&place)
}
