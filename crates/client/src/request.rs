//! Building a request from an operation's spec and input.
//!
//! The input is serialized once. Fields that travel in the path are taken out of it; what is left
//! becomes the query or the body. Values are never interpreted: a payload reaches the wire byte for
//! byte as it was given.

use std::time::Duration;

use asyncgate_api::{Effect, Method, Operation, Spec};
use bytes::Bytes;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::Error;

/// What is written as it is in a path or query.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
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
    /// The JSON body of a POST.
    pub body: Option<Bytes>,
    /// How long the server was asked to wait before it answers.
    pub wait: Duration,
    /// Whether it may be sent again when it is not known if it was done.
    pub repeatable: bool,
}

impl Prepared {
    /// `extra` is a text field that is added to the input.
    pub fn new<O: Operation>(input: &O::Input, extra: Option<(&str, &str)>) -> Result<Self, Error>
    where
        O::Input: Serialize,
    {
        let spec = const { &O::SPEC };
        let unreadable = |error: serde_json::Error| {
            Error::invalid(format!("the input cannot be written as JSON: {error}"))
        };
        let json = serde_json::to_string(input).map_err(unreadable)?;
        let Members(mut members) = serde_json::from_str(&json).map_err(unreadable)?;
        members.retain(|(name, value)| value.get() != "null" || MAY_BE_NULL.contains(name));
        let wait = members
            .iter()
            .find(|(name, _)| *name == "wait_seconds")
            .and_then(|(_, value)| value.get().parse().ok())
            .map_or(Duration::ZERO, Duration::from_secs);
        let mut target = path(spec, &mut members)?;
        let body = match spec.method {
            Method::Post | Method::Put => Some(object(&members, extra)),
            Method::Get | Method::Delete => {
                write_query(&mut target, &members)?;
                None
            }
        };
        Ok(Self {
            spec,
            target,
            body,
            wait,
            repeatable: spec.effect != Effect::Add,
        })
    }
}

/// The path with its fields filled in; they leave `members`.
fn path(spec: &Spec, members: &mut Vec<(&str, &RawValue)>) -> Result<String, Error> {
    let mut path = String::with_capacity(spec.path.len() + 64);
    for part in spec.path.split('/').skip(1) {
        path.push('/');
        let Some(field) = part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) else {
            path.push_str(part);
            continue;
        };
        let place = members.iter().position(|(name, _)| *name == field);
        let value = match place {
            Some(place) => text(members.remove(place).1)?,
            None => String::new(),
        };
        if value.is_empty() {
            return Err(Error::invalid(format!("{field} is empty")));
        }
        path.extend(utf8_percent_encode(&value, ENCODED));
    }
    Ok(path)
}

fn write_query(target: &mut String, members: &[(&str, &RawValue)]) -> Result<(), Error> {
    for (n, (name, value)) in members.iter().enumerate() {
        target.push(if n == 0 { '?' } else { '&' });
        target.push_str(name);
        target.push('=');
        target.extend(utf8_percent_encode(&text(value)?, ENCODED));
    }
    Ok(())
}

fn object(members: &[(&str, &RawValue)], extra: Option<(&str, &str)>) -> Bytes {
    let length: usize = members
        .iter()
        .map(|(name, value)| name.len() + value.get().len() + 4)
        .sum();
    let mut body = String::with_capacity(length + 80);
    body.push('{');
    for (name, value) in members {
        write_name(&mut body, name);
        body.push_str(value.get());
    }
    if let Some((name, value)) = extra {
        write_name(&mut body, name);
        body.push_str(&serde_json::Value::from(value).to_string());
    }
    body.push('}');
    body.into()
}

/// Names are those of fields and need no escapes.
fn write_name(body: &mut String, name: &str) {
    if body.len() > 1 {
        body.push(',');
    }
    body.push('"');
    body.push_str(name);
    body.push_str("\":");
}

/// A scalar as it stands in a path or query: a text without its quotes, anything else as it is.
fn text(value: &RawValue) -> Result<String, Error> {
    let json = value.get();
    if json.starts_with('"') {
        return serde_json::from_str(json)
            .map_err(|error| Error::invalid(format!("a text that is none: {error}")));
    }
    Ok(json.to_owned())
}

/// The members of an object, in order, uninterpreted.
struct Members<'a>(Vec<(&'a str, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(&'de str, &'de RawValue)>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut members = Vec::with_capacity(16);
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Collect).map(Members)
    }
}

#[cfg(test)]
mod tests {
    use asyncgate_api::*;

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
