//! The operations of admission, one file each, and the reading of their inputs.

mod check_limits;
mod check_nonces;
mod check_revocations;
mod descriptors;
mod health;
mod increment_counter;
mod policies;
mod revocations;
mod revoke;
mod subject;
mod tiers;
mod unrevoke;
mod verify;

use asyncgate_admission::Unavailable;
use asyncgate_api::{self as api, Code, bounds::MAX_ADMISSION_SECS};
use asyncgate_core::{Timestamp, admission::MAX_SECS, hex};

pub use self::descriptors::Descriptor;
use super::{Execute, Executed};
use crate::Fault;

/// Writes the origin of an answer as the wire has it.
fn provenance(from: asyncgate_admission::Provenance) -> api::Provenance {
    api::Provenance {
        source: from.source.as_str().to_owned(),
        backend: from.backend.to_owned(),
        failure_mode: from.failure_mode.map(|mode| mode.as_str().to_owned()),
        cache_age_secs: from.cache_age_secs,
    }
}

/// Makes the fault for a host that does not answer, when its failure mode allows nothing without it.
pub(crate) fn host_fault(failure: Unavailable) -> Fault {
    let seconds = u32::try_from(failure.retry_after_secs).unwrap_or(u32::MAX);
    let message = "the backend of admission does not answer; try again";
    Fault::new(Code::HostUnavailable, message)
        .retry_after(seconds.max(1))
        .because(failure.cause)
}

/// Returns the seconds since 1970.
pub(crate) const fn unix(time: Timestamp) -> i64 {
    time.as_millis().div_euclid(1_000)
}

/// Reads thirty-two bytes from lower-case hexadecimal digits.
fn hex64(field: &str, text: &str) -> Result<[u8; 32], Fault> {
    let wrong = || {
        Fault::bad_request(format!("{field} must be 64 lower-case hexadecimal digits"))
            .with("field", field)
    };
    hex::decode(text).ok_or_else(wrong)
}

const _: () = assert!(MAX_ADMISSION_SECS == MAX_SECS, "the rule's own bound");

/// Checks the length of a window or a life.
fn seconds(field: &str, value: u64) -> Result<u64, Fault> {
    if (1..=MAX_ADMISSION_SECS).contains(&value) {
        return Ok(value);
    }
    let message = format!("{field} must be 1 to {MAX_ADMISSION_SECS}");
    Err(Fault::bad_request(message).with("field", field))
}

/// Takes either one item or a list of at most `max`, and says if it was one. To give both is refused.
fn one_or_many<T>(
    (one, is_one): (impl FnOnce() -> Result<T, Fault>, bool),
    (field, many): (&str, Option<Vec<T>>),
    max: usize,
) -> Result<(Vec<T>, bool), Fault> {
    match many {
        None => Ok((vec![one()?], true)),
        Some(_) if is_one => Err(Fault::bad_request(format!(
            "give either {field} or one alone, not both"
        ))),
        Some(many) if many.is_empty() || many.len() > max => Err(Fault::bad_request(format!(
            "{field} must have 1 to {max} entries"
        ))
        .with("field", field)),
        Some(many) => Ok((many, false)),
    }
}

/// Adds to a fault the index of the item that is wrong, if there are many.
fn at(index: usize, single: bool) -> impl FnOnce(Fault) -> Fault {
    move |fault| match single {
        true => fault,
        false => fault.with("index", index),
    }
}

/// Requires a field that an item of its own must have.
fn needed<T>(field: &str, value: Option<T>) -> Result<T, Fault> {
    let missing = || Fault::bad_request(format!("missing field `{field}`")).with("field", field);
    value.ok_or_else(missing)
}
