//! Builds a request from an operation's spec and input.
//!
//! Each field of the input is written once, into the path, the query or the body. Values are never
//! interpreted: a payload reaches the wire byte for byte as it was given.

use std::{ops::Range, time::Duration};

use asyncgate_api::{Effect, Operation, Spec};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::Serialize;

use crate::{
    Error,
    fields::{Fields, hand_over},
};

/// The characters that are escaped in a path or query.
pub(crate) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// The fields that must be present even when they are null. Any other null is a field that was not
/// set, and is not sent: a server that does not know the field yet would refuse it.
const MAY_BE_NULL: [&str; 2] = ["error", "progress"];

/// A request that can be sent any number of times.
#[derive(Debug, Clone)]
pub(crate) struct Prepared {
    pub spec: &'static Spec,
    /// Path and query.
    pub target: String,
    /// The JSON body, where the method has one.
    pub body: Option<Bytes>,
    /// The time that the server was asked to wait before it answers.
    pub wait: Duration,
    /// True if it may be sent again when it is not known whether it was done.
    pub repeatable: bool,
}

impl Prepared {
    /// Builds a request. `extra` is a text field that is added to the input.
    pub fn new<O: Operation>(
        input: &O::Input,
        extra: Option<(&'static str, &str)>,
    ) -> Result<Self, Error>
    where
        O::Input: Serialize,
    {
        let spec = const { &O::SPEC };
        let mut parts = Parts {
            target: spec.path.to_owned(),
            body: Vec::with_capacity(256),
            has_body: spec.method.has_body(),
            wait: Duration::ZERO,
        };
        let written = hand_over(input, &mut parts).and_then(|()| match extra {
            Some((name, value)) => parts.field(name, value),
            None => Ok(()),
        });
        written.map_err(|error| {
            Error::invalid(format!("the input cannot be written as JSON: {error}"))
        })?;
        if let Some((_, unfilled)) = parts.target.split_once('{') {
            let field = unfilled.split('}').next().unwrap_or_default();
            return Err(Error::invalid(format!("{field} is empty")));
        }
        if parts.body.is_empty() {
            parts.body.push(b'{');
        }
        parts.body.push(b'}');
        Ok(Self {
            spec,
            target: parts.target,
            body: parts.has_body.then(|| parts.body.into()),
            wait: parts.wait,
            repeatable: spec.effect != Effect::Add,
        })
    }
}

/// A request that is being built, field by field.
struct Parts {
    /// The path, with `{name}` where a field belongs, and the query so far.
    target: String,
    /// A JSON object without its closing brace; empty until it has a field.
    body: Vec<u8>,
    has_body: bool,
    wait: Duration,
}

impl Fields for Parts {
    fn field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), serde_json::Error> {
        let Self { target, body, .. } = self;
        let before = body.len();
        // Names of fields are identifiers, which need no escapes in JSON.
        body.extend_from_slice(if before == 0 { b"{\"" } else { b",\"" });
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(b"\":");
        let start = body.len();
        serde_json::to_writer(&mut *body, value)?;
        let json = &body[start..];
        if json == b"null" && !MAY_BE_NULL.contains(&name) {
            body.truncate(before);
            return Ok(());
        }
        if name == "wait_seconds" {
            self.wait = serde_json::from_slice(json).map_or(Duration::ZERO, Duration::from_secs);
        }
        if let Some(place) = place(target, name) {
            let value = encoded(json)?;
            if !value.is_empty() {
                target.replace_range(place, &value);
            }
            body.truncate(before);
        } else if !self.has_body {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(name);
            target.push('=');
            target.push_str(&encoded(json)?);
            body.truncate(before);
        }
        Ok(())
    }
}

/// Finds the place of a field in a path: `{name}`. Values that were filled in have no braces, because
/// braces are escaped.
fn place(target: &str, name: &str) -> Option<Range<usize>> {
    target.match_indices('{').find_map(|(start, _)| {
        let rest = target[start..].strip_prefix('{')?.strip_prefix(name)?;
        let end = target.len() - rest.strip_prefix('}')?.len();
        Some(start..end)
    })
}

/// Writes a scalar for a path or query: a text without its quotes, anything else as it is.
fn encoded(json: &[u8]) -> Result<String, serde_json::Error> {
    if !json.starts_with(b"\"") {
        return Ok(percent_encode(json, ENCODED).to_string());
    }
    let text: String = serde_json::from_slice(json)?;
    Ok(percent_encode(text.as_bytes(), ENCODED).to_string())
}

#[cfg(test)]
mod tests {
    use asyncgate_api::*;
    use serde_json::value::RawValue;

    use super::*;

    fn prepared<O: Operation>(input: &O::Input) -> Prepared
    where
        O::Input: Serialize,
    {
        Prepared::new::<O>(input, None).unwrap()
    }

    fn body(prepared: &Prepared) -> &str {
        std::str::from_utf8(prepared.body.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn path_fields_leave_the_input_and_the_rest_is_a_query() {
        let get = prepared::<GetTask>(&GetTaskInput {
            task_id: "a/b ?".to_owned(),
            wait_seconds: Some(7),
            principal_kind: Some(PrincipalKind::Human),
            principal_id: Some("x&y".to_owned()),
        });
        assert_eq!(
            get.target,
            "/v1/tasks/a%2Fb%20%3F?wait_seconds=7&principal_kind=human&principal_id=x%26y"
        );
        assert_eq!(get.wait, Duration::from_secs(7));
        assert!(get.body.is_none() && get.repeatable);
    }

    #[test]
    fn a_payload_is_not_touched() {
        let raw = r#"{ "b":1.10, "a" : 1e400,"a":[null ,"\u0000"] }"#;
        let input = CreateTaskInput {
            task_type: "t".to_owned(),
            payload: Some(RawValue::from_string(raw.to_owned()).unwrap()),
            ..Default::default()
        };
        let create = Prepared::new::<CreateTask>(&input, Some(("idempotency_key", "k\""))).unwrap();
        let expected = format!(r#"{{"type":"t","payload":{raw},"idempotency_key":"k\""}}"#);
        assert_eq!(body(&create), expected);
        assert!(!create.repeatable);
    }

    #[test]
    fn what_must_be_there_is_there_though_it_is_null() {
        let fail = prepared::<Fail>(&FailInput {
            task_id: "7".to_owned(),
            lease_id: "8".to_owned(),
            ..Default::default()
        });
        assert_eq!(fail.target, "/v1/tasks/7/fail");
        assert_eq!(
            body(&fail),
            r#"{"lease_id":"8","error":null,"retryable":false}"#
        );
    }

    #[test]
    fn an_input_without_fields_is_an_empty_object() {
        let mut claim = prepared::<LeaseNext>(&LeaseNextInput::default());
        assert_eq!(body(&claim), "{}");
        claim = prepared::<LeaseNext>(&LeaseNextInput {
            wait_seconds: Some(3),
            ..Default::default()
        });
        assert_eq!(body(&claim), r#"{"wait_seconds":3}"#);
        assert_eq!(claim.wait, Duration::from_secs(3));
    }

    #[test]
    fn an_empty_path_field_is_refused_before_it_is_sent() {
        let error = Prepared::new::<GetTask>(&GetTaskInput::default(), None).unwrap_err();
        assert_eq!(error.to_string(), "task_id is empty");
    }

    /// The fields that the schema demands and that may hold any JSON are those kept when null.
    #[test]
    fn every_field_that_may_not_be_left_out_is_kept() {
        fn check<O: Operation>() {
            let schema = schemars::schema_for!(O::Input);
            let required = schema.get("required").and_then(|list| list.as_array());
            for field in required.into_iter().flatten() {
                let field = field.as_str().unwrap();
                let kind = &schema.get("properties").unwrap()[field]["type"];
                let anything = kind.is_null();
                assert_eq!(
                    anything,
                    MAY_BE_NULL.contains(&field),
                    "{}: {field}",
                    O::SPEC.name
                );
            }
        }
        check::<CreateTask>();
        check::<GetTask>();
        check::<ListTasks>();
        check::<CancelTask>();
        check::<LeaseNext>();
        check::<RenewLease>();
        check::<ReleaseLease>();
        check::<StartTask>();
        check::<ReportProgress>();
        check::<Complete>();
        check::<Fail>();
        check::<ListOpenObligations>();
        check::<Bootstrap>();
        check::<ListReceipts>();
        check::<ListLedger>();
        check::<ReadLedger>();
        check::<GetLedgerHead>();
        check::<GetReceipt>();
        check::<AckReceipt>();
        check::<GetConfig>();
        check::<GetHealth>();
    }
}
