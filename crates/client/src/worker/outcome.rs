//! A handler's input and output: a payload, and an outcome or a failure.

use std::fmt;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};

use crate::Error;

const MAX_MESSAGE_CHARS: usize = 2_000;

/// A task's input, as it was sent.
#[derive(Clone)]
pub struct Payload(pub(super) Box<RawValue>);

impl Payload {
    /// Returns the payload as JSON text.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Reads the payload. One that has another form is a failure that no retry can mend.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_str(self.0.get()).map_err(|error| {
            Failure::permanent(format!(
                "the payload is not what this task type takes: {error}"
            ))
            .of_kind("payload")
        })
    }

    /// Returns the payload, to pass it on as it is.
    pub fn into_raw(self) -> Box<RawValue> {
        self.0
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({} bytes)", self.0.get().len())
    }
}

/// A success. It should say where the results are, in artifacts, or that they were delivered: without
/// either the task succeeds, but its owner is still owed the proof.
#[derive(Clone, Default)]
pub struct Outcome {
    pub(super) result: Option<Box<RawValue>>,
    pub(super) artifacts: Option<Box<RawValue>>,
    pub(super) delivery_proof: Option<Box<RawValue>>,
    pub(super) summary: Option<String>,
    pub(super) metadata: Option<Box<RawValue>>,
}

impl Outcome {
    /// Makes a success that returns nothing.
    pub fn empty() -> Self {
        Self::default()
    }

    /// Makes a success that returns a value.
    pub fn json<T: Serialize + ?Sized>(result: &T) -> Result<Self, Failure> {
        Ok(Self::raw(raw(result)?))
    }

    /// Makes a success that returns JSON text as it is.
    pub fn raw(result: Box<RawValue>) -> Self {
        Self {
            result: Some(result),
            ..Self::default()
        }
    }

    /// Adds the places of the results: a list of pointers such as `{type, url}`, or one.
    pub fn with_artifacts<T: Serialize + ?Sized>(mut self, artifacts: &T) -> Result<Self, Failure> {
        self.artifacts = Some(raw(artifacts)?);
        Ok(self)
    }

    /// Adds the proof that the results were delivered: target, time, status.
    pub fn with_delivery_proof<T: Serialize + ?Sized>(
        mut self,
        proof: &T,
    ) -> Result<Self, Failure> {
        self.delivery_proof = Some(raw(proof)?);
        Ok(self)
    }

    /// Adds a summary of the result, in words: 4 KiB at most.
    #[must_use]
    pub fn with_summary(mut self, summary: impl Into<String>) -> Self {
        self.summary = Some(summary.into());
        self
    }

    /// Adds what else there is to say of the work: an object of up to 16 KiB.
    pub fn with_metadata<T: Serialize + ?Sized>(mut self, metadata: &T) -> Result<Self, Failure> {
        self.metadata = Some(raw(metadata)?);
        Ok(self)
    }
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outcome")
            .field("result_bytes", &self.result.as_ref().map(|r| r.get().len()))
            .field("artifacts", &self.artifacts.is_some())
            .field("delivery_proof", &self.delivery_proof.is_some())
            .finish()
    }
}

fn raw<T: Serialize + ?Sized>(value: &T) -> Result<Box<RawValue>, Failure> {
    to_raw_value(value).map_err(|error| {
        Failure::permanent(format!("the result cannot be written as JSON: {error}"))
            .of_kind("result")
    })
}

/// A failure. The task's owner sees it as `{"kind", "message", "details"?}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Failure {
    kind: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<serde_json::Value>,
    #[serde(skip)]
    retryable: bool,
    #[serde(skip)]
    pub(super) retry_after_seconds: Option<u32>,
}

impl Failure {
    /// Makes a failure that would happen again: the task ends.
    pub fn permanent(message: impl Into<String>) -> Self {
        Self::new(message.into(), false)
    }

    /// Makes a failure that may not happen again: the task is retried while attempts are left.
    pub fn retryable(message: impl Into<String>) -> Self {
        Self::new(message.into(), true)
    }

    /// Names the sort of failure, for programs. Default `handler`.
    #[must_use]
    pub fn of_kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with_details(mut self, details: serde_json::Value) -> Self {
        self.details = Some(details);
        self
    }

    /// Asks for the retry after so many seconds, instead of the usual growing delay. At most a day.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Returns true if the task may be retried.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }

    /// Returns the sort of failure.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the message.
    pub fn message(&self) -> &str {
        &self.message
    }

    fn new(message: String, retryable: bool) -> Self {
        let message = match message.char_indices().nth(MAX_MESSAGE_CHARS) {
            Some((end, _)) => format!("{}…", &message[..end]),
            None => message,
        };
        Self {
            kind: "handler".to_owned(),
            message,
            details: None,
            retryable,
            retry_after_seconds: None,
        }
    }

    /// Returns the failure as it is reported.
    pub(super) fn report(&self) -> Box<RawValue> {
        to_raw_value(self).unwrap_or_default()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The failure of a call that the handler itself made: retryable if the call is.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.to_string(), error.is_transient()).of_kind("call")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_reported_with_its_kind_and_cut_when_it_is_endless() {
        let failure = Failure::retryable("x".repeat(5_000)).of_kind("k");
        assert!(failure.is_retryable());
        assert_eq!(failure.message().chars().count(), MAX_MESSAGE_CHARS + 1);
        let small = Failure::permanent("no").report();
        assert_eq!(small.get(), r#"{"kind":"handler","message":"no"}"#);
    }

    #[test]
    fn neither_payload_nor_result_is_shown() {
        let secret = || RawValue::from_string("\"secret\"".to_owned()).unwrap();
        assert!(!format!("{:?}", Payload(secret())).contains("secret"));
        assert!(!format!("{:?}", Outcome::raw(secret())).contains("secret"));
    }
}
