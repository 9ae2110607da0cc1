//! Gathering an operation's input from path, query and body, without interpreting it.

use std::{borrow::Cow, collections::HashMap};

use asyncgate_api::{Method, Spec};
use asyncgate_edge::{BodyLimits, WholeBody, coding, read_body};
use asyncgate_engine::{Fault, Source, Turn};
use axum::{
    body::Body,
    http::{HeaderMap, header, request::Parts},
};
use bytes::{Bytes, BytesMut};
use percent_encoding::percent_decode_str;
use serde_json::value::RawValue;

/// The input as one JSON object or one query string.
#[derive(Debug)]
pub(crate) enum Input {
    Json {
        body: Bytes,
        /// The turn of a large body. It lasts until the call is answered.
        _turn: Option<Turn>,
    },
    Form(String),
}

impl Input {
    /// Returns the input as the engine reads it. A body is handed over, and gone when it was read.
    pub(crate) fn source(&mut self) -> Source<'_> {
        match self {
            Self::Json { body, .. } => Source::Body(std::mem::take(body)),
            Self::Form(text) => Source::Form(text),
        }
    }
}

/// Reads the parts of an operation's input and puts them together.
pub(crate) async fn gather(
    spec: &Spec,
    head: &Parts,
    body: Body,
    limits: BodyLimits,
) -> Result<Input, Fault> {
    let (path, headers) = (head.uri.path(), &head.headers);
    let query = head.uri.query().unwrap_or_default();
    for (text, part) in [(path, "path"), (query, "query")] {
        // Without a percent sign it is ASCII.
        let is_encoded = text.as_bytes().contains(&b'%');
        if is_encoded && percent_decode_str(text).decode_utf8().is_err() {
            return Err(Fault::bad_request(format!("the {part} is not UTF-8")));
        }
    }
    match spec.method {
        Method::Get | Method::Delete => Ok(Input::Form(form(spec, path, query))),
        Method::Post | Method::Put | Method::Patch => {
            refuse_browser_forms(headers)?;
            let keeper = limits.keeper();
            let WholeBody { bytes, turn } = read_body(body, coding(headers)?, limits).await?;
            let spliced = splice(spec, path, query, headers, &bytes)?;
            Ok(Input::Json {
                body: spliced.map_or(bytes, |copy| keeper.keep(copy)),
                _turn: turn,
            })
        }
    }
}

/// Returns the path's fields and the query as one query string.
fn form(spec: &Spec, path: &str, query: &str) -> String {
    let mut form = String::with_capacity(query.len() + 64);
    for (name, value) in path_values(spec, path) {
        form.push_str(name);
        form.push('=');
        form.push_str(value);
        form.push('&');
    }
    form.push_str(query);
    form.truncate(form.trim_end_matches('&').len());
    form
}

/// Puts the path's, the query's and the headers' fields in front of those in the body's object. Their
/// values are texts. A field that the body has too must say the same there. Without such fields there is
/// nothing to put, and the body goes to the engine as it came.
fn splice(
    spec: &Spec,
    path: &str,
    query: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Option<Bytes>, Fault> {
    let text = body.trim_ascii();
    let mut fields: Vec<(Cow<'_, str>, Cow<'_, str>)> = path_values(spec, path)
        .map(|(name, value)| (name.into(), decode(value)))
        .chain(pairs(query))
        .chain(header_values(spec, headers))
        .collect();
    if text.is_empty() {
        return Ok(Some(object(&fields, b"}").freeze()));
    }
    if fields.is_empty() {
        return Ok(None);
    }
    let Some(rest) = text.strip_prefix(b"{") else {
        return Err(Fault::bad_request("the body must be a JSON object"));
    };
    let repeated = drop_repeated(&mut fields, text)?;
    if repeated && fields.is_empty() {
        return Ok(None);
    }
    let last = rest.trim_ascii_start().starts_with(b"}");
    let mut spliced = object(&fields, if last { b"" } else { b"," });
    spliced.extend_from_slice(rest);
    Ok(Some(spliced.freeze()))
}

/// Drops the fields that the body has too, with the same value. Returns true if there were any.
fn drop_repeated(
    fields: &mut Vec<(Cow<'_, str>, Cow<'_, str>)>,
    body: &[u8],
) -> Result<bool, Fault> {
    // Nearly no body repeats a field. To look for the names costs much less than to read the body.
    let text = str::from_utf8(body).unwrap_or_default();
    let stands = |name: &str| text.contains(&json_text(name));
    if !fields.iter().any(|(name, _)| stands(name)) {
        return Ok(false);
    }
    // A body that is no object is refused when it is read.
    let Ok(said) = serde_json::from_str::<HashMap<String, &RawValue>>(text) else {
        return Ok(false);
    };
    let count = fields.len();
    for (name, value) in &*fields {
        let Some(raw) = said.get(name.as_ref()) else {
            continue;
        };
        let same = raw.get() == value || raw.get() == json_text(value);
        if !same && serde_json::from_str::<String>(raw.get()).ok().as_deref() != Some(value) {
            let message = format!("{name} is given twice, with different values");
            return Err(Fault::bad_request(message).with("field", name.as_ref()));
        }
    }
    fields.retain(|(name, _)| !said.contains_key(name.as_ref()));
    Ok(fields.len() < count)
}

fn object(fields: &[(Cow<'_, str>, Cow<'_, str>)], end: &[u8]) -> BytesMut {
    let mut object = BytesMut::from(&b"{"[..]);
    for (n, (name, value)) in fields.iter().enumerate() {
        if n > 0 {
            object.extend_from_slice(b",");
        }
        let field = format!("{}:{}", json_text(name), json_text(value));
        object.extend_from_slice(field.as_bytes());
    }
    object.extend_from_slice(end);
    object
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the path's fields with their values, which are still percent-encoded.
fn path_values<'a>(spec: &Spec, path: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
    let parts = spec.path.split('/').zip(path.split('/'));
    parts.filter_map(|(part, value)| Some((part.strip_prefix('{')?.strip_suffix('}')?, value)))
}

/// Returns the fields that stand in headers. A value that is no text is not left out: it is refused
/// like any value that the field cannot have.
fn header_values<'a>(
    spec: &Spec,
    headers: &'a HeaderMap,
) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> {
    spec.headers.iter().filter_map(|(header, field)| {
        let value = headers.get(*header)?;
        Some(((*field).into(), String::from_utf8_lossy(value.as_bytes())))
    })
}

fn pairs(query: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
}

fn decode(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return text.into();
    }
    let spaced = text.replace('+', " ");
    percent_decode_str(&spaced)
        .decode_utf8_lossy()
        .into_owned()
        .into()
}

/// Refuses requests of web pages that are not JSON. A page can make a browser send a form to this
/// server, with whatever the network position of the browser grants; it cannot make it send JSON.
fn refuse_browser_forms(headers: &HeaderMap) -> Result<(), Fault> {
    let is_json = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.trim_start().starts_with("application/json"));
    if headers.contains_key(header::ORIGIN) && !is_json {
        return Err(Fault::bad_request("send Content-Type: application/json"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use asyncgate_api::{CancelTask, GetTask, Operation, SendMessage};

    use super::*;

    fn spliced(query: &str, body: &'static str) -> String {
        let path = "/v1/tasks/7/cancel";
        let bytes = splice(
            &CancelTask::SPEC,
            path,
            query,
            &HeaderMap::new(),
            body.as_bytes(),
        );
        let bytes = bytes.unwrap();
        String::from_utf8(bytes.as_deref().unwrap_or(body.as_bytes()).to_vec()).unwrap()
    }

    #[test]
    fn path_and_query_stand_in_front_of_the_body() {
        for (query, body, expected) in [
            ("", "", r#"{"task_id":"7"}"#),
            ("", " {} ", r#"{"task_id":"7"}"#),
            ("", r#"{"reason":"x"}"#, r#"{"task_id":"7","reason":"x"}"#),
            (
                "principal_id=a%20b",
                "{ }",
                r#"{"task_id":"7","principal_id":"a b" }"#,
            ),
            ("a=%22", "", r#"{"task_id":"7","a":"\""}"#),
        ] {
            assert_eq!(spliced(query, body), expected);
        }
    }

    #[test]
    fn what_stands_in_two_places_counts_once_and_must_say_the_same() {
        for (query, body, expected) in [
            (
                "principal_id=a",
                r#"{"principal_id":"a"}"#,
                r#"{"task_id":"7","principal_id":"a"}"#,
            ),
            (
                "principal_id=a%22",
                r#"{"principal_id":"\u0061\"","task_id":"7"}"#,
                r#"{"principal_id":"\u0061\"","task_id":"7"}"#,
            ),
            (
                "principal_id=a",
                r#"{"reason":"\"principal_id\""}"#,
                r#"{"task_id":"7","principal_id":"a","reason":"\"principal_id\""}"#,
            ),
            ("wait=5", r#"{"wait":5}"#, r#"{"task_id":"7","wait":5}"#),
        ] {
            assert_eq!(spliced(query, body), expected);
        }
        for (query, body) in [
            ("principal_id=a", r#"{"principal_id":"b"}"#),
            ("principal_id=a", r#"{"principal_id":null}"#),
            ("", r#"{"task_id":"8"}"#),
        ] {
            let (path, headers) = ("/v1/tasks/7/cancel", HeaderMap::new());
            let refused = splice(&CancelTask::SPEC, path, query, &headers, body.as_bytes());
            assert!(refused.is_err(), "{query}");
        }
    }

    #[test]
    fn a_body_that_is_no_object_is_refused() {
        let (spec, path) = (&CancelTask::SPEC, "/v1/tasks/7/cancel");
        assert!(splice(spec, path, "", &HeaderMap::new(), b"[1]").is_err());
    }

    #[test]
    fn headers_that_stand_for_fields_become_fields() {
        let mut headers = HeaderMap::new();
        let mode = header::HeaderValue::from_static("409-conflict");
        headers.insert("x-idempotency-mode", mode);
        headers.insert("x-other", header::HeaderValue::from_static("1"));
        let body = br#"{"topic":"t"}"#;
        let spliced = splice(&SendMessage::SPEC, "/v1/send", "", &headers, body).unwrap();
        let expected = br#"{"idempotency_mode":"409-conflict","topic":"t"}"#;
        assert_eq!(spliced.as_deref(), Some(expected.as_slice()));
    }

    #[test]
    fn a_get_is_one_query_string() {
        assert_eq!(
            form(&GetTask::SPEC, "/v1/tasks/7", "wait_seconds=1"),
            "task_id=7&wait_seconds=1"
        );
        assert_eq!(form(&GetTask::SPEC, "/v1/tasks/7", ""), "task_id=7");
    }
}
