//! Reading of inputs: from the values that callers send to those that rules understand.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use asyncgate_api::{
    Code, Operation,
    bounds::{MAX_NAME_BYTES, MAX_NAMES, MAX_TEXT_BYTES, MAX_WAIT_SECONDS},
};
use asyncgate_core::{Json, ReceiptId, Seq};
use asyncgate_store::SeqPage;
use serde_json::value::RawValue;

use crate::{Engine, Fault, Source};

/// Decodes an operation's input.
///
/// # Errors
/// Input that the operation does not take, with the field that is wrong.
pub fn decode<O: Operation>(source: Source<'_>) -> Result<O::Input, Fault> {
    let read = match source {
        Source::Json(bytes) => asyncgate_api::decode_for::<O>(bytes),
        Source::Body(bytes) => asyncgate_api::decode_for::<O>(&bytes),
        Source::Form(text) => O::read_form(text),
    };
    read.map_err(Fault::from)
}

/// Reads an id.
pub(crate) fn id<T: FromStr>(field: &str, text: &str) -> Result<T, Fault> {
    text.parse()
        .map_err(|_| Fault::bad_request(format!("{field} is not a UUID")))
}

/// Reads a name.
pub(crate) fn name(field: &str, text: String) -> Result<String, Fault> {
    check_name(field, &text)?;
    Ok(text)
}

/// Refuses a name that is empty, too long, or has invisible characters.
pub(crate) fn check_name(field: &str, text: &str) -> Result<(), Fault> {
    if text.is_empty() || text.len() > MAX_NAME_BYTES || text.chars().any(char::is_control) {
        return Err(Fault::bad_request(format!(
            "{field} must have 1 to {MAX_NAME_BYTES} bytes and no control characters"
        )));
    }
    Ok(())
}

/// Reads a list of names.
pub(crate) fn names(field: &str, list: Vec<String>) -> Result<Vec<String>, Fault> {
    if list.len() > MAX_NAMES {
        return Err(Fault::bad_request(format!(
            "{field} must have at most {MAX_NAMES} entries"
        )));
    }
    list.into_iter().map(|entry| name(field, entry)).collect()
}

/// Reads a longer text.
pub(crate) fn text(field: &str, text: Option<String>) -> Result<Option<String>, Fault> {
    if text
        .as_ref()
        .is_some_and(|text| text.len() > MAX_TEXT_BYTES)
    {
        return Err(Fault::bad_request(format!(
            "{field} must have at most {MAX_TEXT_BYTES} bytes"
        )));
    }
    Ok(text)
}

/// Reads a text of at most `limit` bytes.
pub(crate) fn bounded_text(
    field: &'static str,
    text: Option<String>,
    limit: usize,
) -> Result<Option<String>, Fault> {
    match text {
        Some(text) if text.len() > limit => Err(over(field, limit as i64, "bytes")),
        text => Ok(text),
    }
}

/// Takes a JSON value of at most `limit` bytes.
pub(crate) fn bounded_json(
    field: &'static str,
    raw: Option<Box<RawValue>>,
    limit: usize,
) -> Result<Option<Json>, Fault> {
    match some_json(field, raw)? {
        Some(json) if json.len() > limit => Err(over(field, limit as i64, "bytes")),
        json => Ok(json),
    }
}

/// Reads a number of seconds that may be at most `limit`.
pub(crate) fn bounded_seconds<T: Copy + Into<i64>>(
    field: &'static str,
    seconds: Option<T>,
    limit: i64,
) -> Result<Option<T>, Fault> {
    match seconds {
        Some(seconds) if seconds.into() > limit => Err(over(field, limit, "seconds")),
        seconds => Ok(seconds),
    }
}

fn over(field: &'static str, limit: i64, unit: &str) -> Fault {
    let message = format!("{field} must have at most {limit} {unit}");
    Fault::new(Code::LimitExceeded, message)
        .with("field", field)
        .with("limit", limit)
}

/// Takes a JSON value and keeps its bytes.
pub(crate) fn json(field: &str, raw: Box<RawValue>) -> Result<Json, Fault> {
    Json::new(raw).map_err(|error| Fault::bad_request(format!("{field}: {error}")))
}

/// Takes a JSON value that may be missing.
pub(crate) fn some_json(field: &str, raw: Option<Box<RawValue>>) -> Result<Option<Json>, Fault> {
    raw.map(|raw| json(field, raw)).transpose()
}

/// Reads a positive number of seconds, and returns it in milliseconds.
pub(crate) fn positive_seconds(field: &str, seconds: Option<i64>) -> Result<Option<i64>, Fault> {
    match seconds {
        Some(seconds) if seconds <= 0 => {
            Err(Fault::bad_request(format!("{field} must be at least 1")))
        }
        Some(seconds) => Ok(Some(seconds.saturating_mul(1_000))),
        None => Ok(None),
    }
}

/// Refuses a number out of its bounds.
pub(crate) fn within(field: &str, value: i64, bounds: &RangeInclusive<i64>) -> Result<i64, Fault> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    let (start, end) = (bounds.start(), bounds.end());
    Err(Fault::bad_request(format!("{field} must be {start} to {end}")).with("field", field))
}

/// Reads the time that a call may wait.
pub(crate) fn wait(seconds: Option<u32>) -> Result<Duration, Fault> {
    let seconds = seconds.unwrap_or(0);
    if seconds > MAX_WAIT_SECONDS {
        return Err(Fault::bad_request(format!(
            "wait_seconds must be 0 to {MAX_WAIT_SECONDS}"
        )));
    }
    Ok(Duration::from_secs(u64::from(seconds)))
}

/// Returns a page size: the default if none is wished, and at most `max`.
pub(crate) fn limit(
    field: &str,
    wished: Option<u32>,
    default: u32,
    max: u32,
) -> Result<usize, Fault> {
    match wished {
        Some(0) => Err(Fault::bad_request(format!("{field} must be at least 1"))),
        Some(wished) => Ok(wished.min(max) as usize),
        None => Ok(default.min(max) as usize),
    }
}

impl Engine {
    /// Returns the number of entries that a list may give.
    pub(crate) fn page_size(&self, wished: Option<u32>) -> Result<usize, Fault> {
        let settings = self.settings();
        let (default, max) = (settings.default_list_limit, settings.max_list_limit);
        limit("limit", wished, default, max)
    }

    /// Returns the page of the ledger after `since`, which must name a receipt of the tenant. The page
    /// asks for one more than `limit`, which shows if there are more.
    pub(crate) async fn page_after(
        &self,
        tenant: asyncgate_core::TenantId,
        since: Option<&str>,
        limit: usize,
    ) -> Result<SeqPage, Fault> {
        let after: Seq = match since {
            None => 0,
            Some(text) => {
                let id: ReceiptId = id("since_receipt_id", text)?;
                if self.store.receipt(tenant, id).await?.is_none() {
                    return Err(Fault::bad_request("since_receipt_id names no receipt"));
                }
                id.seq()
            }
        };
        Ok(SeqPage {
            after,
            limit: limit + 1,
        })
    }
}
