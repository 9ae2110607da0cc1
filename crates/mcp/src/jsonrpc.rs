//! JSON-RPC 2.0 as MCP uses it: reading messages and writing answers, as bytes.
//!
//! Invariants:
//! - The content of a message is borrowed, never parsed into a tree and written again. Ids, params
//!   and tool arguments keep every digit, key order and escape that the client sent.
//! - An id is a string or an integer. `null` is no id, and a message without one is a notification.
//! - Every refusal names the id of the message it refuses, when that id could be read.

use std::borrow::Cow;

use asyncgate_engine::has_unfit_number;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json, value::RawValue};

/// A body: one message, or several in an array.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    One(&'a RawValue),
    Batch(Vec<&'a RawValue>),
}

/// One message from a client.
#[derive(Debug)]
pub(crate) enum Message<'a> {
    Request(Request<'a>),
    Notification(Notification<'a>),
    /// An answer to a server's request. We send none, so it is dropped.
    Response,
}

/// A message that is owed an answer.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub id: &'a RawValue,
    pub method: Cow<'a, str>,
    pub params: Option<&'a RawValue>,
}

/// A message that is owed none.
#[derive(Debug)]
pub(crate) struct Notification<'a> {
    pub method: Cow<'a, str>,
    pub params: Option<&'a RawValue>,
}

/// A message that could not be read, with the id it had, if any.
#[derive(Debug)]
pub(crate) struct Unreadable<'a> {
    pub id: Option<&'a RawValue>,
    pub error: Error,
}

/// A protocol error: the message itself was wrong. A tool that fails is no protocol error.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Error {
    pub code: ErrorCode,
    pub message: Cow<'static, str>,
    pub data: Option<Value>,
}

/// The error codes that we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorCode {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    HeaderMismatch,
    UnsupportedVersion,
}

impl ErrorCode {
    pub(crate) const fn number(self) -> i32 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::HeaderMismatch => -32020,
            Self::UnsupportedVersion => -32022,
        }
    }
}

impl Error {
    pub(crate) fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    pub(crate) fn invalid_request(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    pub(crate) fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorCode::InvalidParams, message)
    }

    pub(crate) fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}

/// Reads a body as far as telling one message from several.
pub(crate) fn read_body(bytes: &[u8]) -> Result<Body<'_>, Error> {
    let parse_error = || Error::new(ErrorCode::Parse, "the body is not JSON");
    let text = std::str::from_utf8(bytes).map_err(|_| parse_error())?;
    let whole: &RawValue = serde_json::from_str(text).map_err(|_| parse_error())?;
    if !whole.get().starts_with('[') {
        return Ok(Body::One(whole));
    }
    let messages: Vec<&RawValue> = serde_json::from_str(whole.get()).map_err(|_| parse_error())?;
    Ok(Body::Batch(messages))
}

/// Reads one message. `raw` is known to be JSON, so only the rules of JSON-RPC are checked.
pub(crate) fn read_message(raw: &RawValue) -> Result<Message<'_>, Unreadable<'_>> {
    let refuse = |id, message: &'static str| Unreadable {
        id,
        error: Error::invalid_request(message),
    };
    if !is_object(raw) {
        return Err(refuse(None, "a message is a JSON object"));
    }
    let Ok(envelope) = serde_json::from_str::<Envelope<'_>>(raw.get()) else {
        return Err(refuse(None, "a member of the message is given twice"));
    };
    let id = envelope.id.filter(|id| is_id(id));
    if envelope.jsonrpc.and_then(text).as_deref() != Some("2.0") {
        return Err(refuse(id, "`jsonrpc` must be \"2.0\""));
    }
    let Some(method) = envelope.method else {
        if envelope.result.is_some() || envelope.error.is_some() {
            return Ok(Message::Response);
        }
        return Err(refuse(id, "`method` is missing"));
    };
    let Some(method) = text(method) else {
        return Err(refuse(id, "`method` must be a string"));
    };
    let params = envelope.params.filter(|params| params.get() != "null");
    match (envelope.id, id) {
        (None, _) => Ok(Message::Notification(Notification { method, params })),
        (Some(_), Some(id)) => Ok(Message::Request(Request { id, method, params })),
        (Some(_), None) => Err(refuse(None, "`id` must be a string or an integer")),
    }
}

/// Starts an answer that carries a result. The caller appends the result and then `}`.
pub(crate) fn begin_result(id: &RawValue, capacity: usize) -> Vec<u8> {
    let mut json = Vec::with_capacity(capacity + id.get().len() + 40);
    json.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    json.extend_from_slice(id.get().as_bytes());
    json.extend_from_slice(br#","result":"#);
    json
}

/// Returns an answer that carries an error. Without an id, JSON-RPC asks for `"id":null`.
pub(crate) fn error_answer(id: Option<&RawValue>, error: &Error) -> Vec<u8> {
    let mut body = json!({"code": error.code.number(), "message": error.message});
    if let Some(data) = &error.data {
        body["data"] = data.clone();
    }
    let id = id.map_or("null", RawValue::get);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{body}}}"#).into_bytes()
}

/// Returns true if a value is a JSON object.
pub(crate) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// Returns the text of a JSON string, or nothing if the value is no string.
pub(crate) fn text(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        return serde_json::from_str(raw.get()).ok().map(Cow::Owned);
    }
    Some(Cow::Borrowed(inner))
}

/// Keeps an explicit `null` apart from a missing member: serde would fold both into `None`.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    method: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    error: Option<&'a RawValue>,
}

fn is_id(raw: &RawValue) -> bool {
    let digits = raw.get().strip_prefix('-').unwrap_or(raw.get());
    let is_whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    // The answer repeats the id, so it must be one that the client's reader takes: a text without a lone surrogate,
    // or a number of a usual size.
    text(raw).is_some() || (is_whole && !has_unfit_number(digits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(json: &str) -> &RawValue {
        serde_json::from_str(json).unwrap()
    }

    fn refused(json: &str) -> (Option<&str>, i32) {
        let unreadable = read_message(one(json)).unwrap_err();
        (
            unreadable.id.map(RawValue::get),
            unreadable.error.code.number(),
        )
    }

    #[test]
    fn ids_and_params_are_borrowed_byte_for_byte() {
        let raw = r#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"method":"m","params":{ "b":1.10,"a":"\u0000" }}"#;
        let Message::Request(request) = read_message(one(raw)).unwrap() else {
            panic!("not a request");
        };
        assert_eq!(request.id.get(), "123456789012345678901234567890");
        assert_eq!(
            request.params.unwrap().get(),
            r#"{ "b":1.10,"a":"\u0000" }"#
        );
        let mut answer = begin_result(request.id, 0);
        answer.extend_from_slice(b"{}}");
        assert_eq!(
            answer,
            br#"{"jsonrpc":"2.0","id":123456789012345678901234567890,"result":{}}"#
        );
    }

    #[test]
    fn a_message_without_an_id_is_a_notification_and_null_is_no_id() {
        let message = read_message(one(r#"{"jsonrpc":"2.0","method":"m"}"#)).unwrap();
        assert!(matches!(message, Message::Notification(n) if n.method == "m"));
        let refused = refused(r#"{"jsonrpc":"2.0","id":null,"method":"m"}"#);
        assert_eq!(refused, (None, -32600));
    }

    #[test]
    fn refusals_name_the_id_when_it_can_be_read() {
        let table = [
            (r#"{"id":7,"method":"m"}"#, Some("7"), "no jsonrpc"),
            (
                r#"{"jsonrpc":"1.0","id":"a","method":"m"}"#,
                Some("\"a\""),
                "old jsonrpc",
            ),
            (r#"{"jsonrpc":"2.0","id":7}"#, Some("7"), "no method"),
            (
                r#"{"jsonrpc":"2.0","id":7,"method":1}"#,
                Some("7"),
                "method is no string",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1.5,"method":"m"}"#,
                None,
                "fractional id",
            ),
            (
                r#"{"jsonrpc":"2.0","id":true,"method":"m"}"#,
                None,
                "boolean id",
            ),
            (
                r#"{"jsonrpc":"2.0","id":{},"method":"m"}"#,
                None,
                "object id",
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"m"}"#,
                None,
                "two ids",
            ),
            ("5", None, "no object"),
            (r#"["2.0"]"#, None, "an array where a message must stand"),
        ];
        for (json, id, why) in table {
            assert_eq!(refused(json), (id, -32600), "{why}");
        }
        let long = format!(
            r#"{{"jsonrpc":"2.0","id":{},"method":"m"}}"#,
            "7".repeat(5_000)
        );
        assert_eq!(refused(&long), (None, -32600));
    }

    #[test]
    fn responses_are_recognised() {
        for json in [
            r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}"#,
        ] {
            assert!(matches!(read_message(one(json)), Ok(Message::Response)));
        }
    }

    #[test]
    fn a_body_that_is_no_json_is_a_parse_error() {
        for body in [
            &b"{"[..],
            b"",
            b"{} {}",
            b"[1,",
            b"\xff",
            b"{\"a\":\"\xc3\x28\"}",
        ] {
            assert_eq!(read_body(body).unwrap_err().code, ErrorCode::Parse);
        }
        let deep = "[".repeat(200_000) + &"]".repeat(200_000);
        assert!(matches!(read_body(deep.as_bytes()), Ok(Body::Batch(items)) if items.len() == 1));
    }

    #[test]
    fn text_unescapes_only_when_it_must() {
        assert!(matches!(text(one("\"a/b\"")), Some(Cow::Borrowed("a/b"))));
        assert_eq!(text(one(r#""a\/b""#)).as_deref(), Some("a/b"));
        assert_eq!(text(one("5")), None);
        assert_eq!(text(one(r#""\ud800""#)), None);
    }

    #[test]
    fn an_error_without_an_id_says_null() {
        let error = Error::invalid_params("no \"x\"").with_data(json!({"a": 1}));
        let answer: Value = serde_json::from_slice(&error_answer(None, &error)).unwrap();
        assert_eq!(
            answer,
            json!({"jsonrpc": "2.0", "id": null,
                "error": {"code": -32602, "message": "no \"x\"", "data": {"a": 1}}})
        );
    }
}
