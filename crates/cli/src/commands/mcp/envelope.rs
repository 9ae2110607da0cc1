//! What HTTP wants to know of a message: its version, its method and the thing that it names.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::Deserialize;
use serde_json::value::RawValue;

/// The little of a message that is looked at.
#[derive(Debug)]
pub struct Envelope {
    pub kind: Kind,
    /// The id of the request that this message cancels.
    pub cancels: Option<String>,
    method: Option<String>,
    /// The version that the message itself names, as those of 2026-07-28 and later do.
    version: Option<String>,
    name: Option<String>,
}

/// What a message is owed.
#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    /// An answer under this id, which stands here as it stands in the message.
    Request(String),
    /// Nothing.
    Quiet,
    /// Unknown: it is a batch, or no message at all.
    Unknown,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    name: Option<String>,
    uri: Option<String>,
    task_id: Option<String>,
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

/// The result of a handshake.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Initialized {
    protocol_version: String,
}

impl Envelope {
    /// Looks at a message. One that cannot be read is for the server to refuse.
    pub fn read(line: &[u8]) -> Self {
        let Ok(message) = serde_json::from_slice::<Message<'_>>(line) else {
            return Self {
                kind: Kind::Unknown,
                cancels: None,
                method: None,
                version: None,
                name: None,
            };
        };
        let params = message.params.map(RawValue::get);
        let params = params.and_then(|params| serde_json::from_str(params).ok());
        let params: Params<'_> = params.unwrap_or_default();
        let method = message.method;
        let name = match method.as_deref() {
            Some("tools/call" | "prompts/get") => params.name,
            Some("resources/read") => params.uri,
            Some(method) if method.starts_with("tasks/") => params.task_id,
            _ => None,
        };
        let cancels = params.request_id.map(|id| id.get().to_owned());
        let is_cancel = method.as_deref() == Some("notifications/cancelled");
        Self {
            kind: match (message.id, &method) {
                (Some(id), Some(_)) => Kind::Request(id.get().to_owned()),
                _ => Kind::Quiet,
            },
            cancels: cancels.filter(|_| is_cancel),
            version: params.meta.and_then(|meta| meta.version),
            method,
            name,
        }
    }

    /// Returns the headers that repeat parts of the message. `agreed` is the version of a handshake.
    pub fn headers(&self, agreed: Option<&str>) -> Vec<(&'static str, String)> {
        let version = self.version.as_deref().or(agreed);
        let version = version.filter(|version| is_plain(version));
        let headers = [
            ("mcp-protocol-version", version.map(str::to_owned)),
            ("mcp-method", self.method.as_deref().map(header_value)),
            ("mcp-name", self.name.as_deref().map(header_value)),
        ];
        let headers = headers.into_iter();
        headers
            .filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Returns the version that a handshake agreed on, if this is one and `answer` answers it.
    pub fn agreed_version(&self, answer: &[u8]) -> Option<String> {
        if self.method.as_deref() != Some("initialize") {
            return None;
        }
        let answer: Message<'_> = serde_json::from_slice(answer).ok()?;
        let result: Initialized = serde_json::from_str(answer.result?.get()).ok()?;
        Some(result.protocol_version)
    }

    /// Returns true if a message of the server is the answer to this one.
    pub fn is_answered_by(&self, message: &[u8]) -> bool {
        let answer = serde_json::from_slice::<Message<'_>>(message);
        match (&self.kind, answer) {
            (Kind::Request(id), Ok(answer)) => {
                // A refusal of a message whose id could not be read has none.
                answer.method.is_none() && answer.id.is_none_or(|own| own.get() == id)
            }
            (Kind::Quiet | Kind::Unknown, _) | (_, Err(_)) => true,
        }
    }
}

/// Returns a text as the value of a header, in the form that MCP has for texts that do not fit one.
fn header_value(text: &str) -> String {
    if is_plain(text) && !text.starts_with("=?base64?") {
        return text.to_owned();
    }
    format!("=?base64?{}?=", STANDARD.encode(text))
}

fn is_plain(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(line: &str) -> Vec<(&'static str, String)> {
        Envelope::read(line.as_bytes()).headers(Some("2025-11-25"))
    }

    fn pair(name: &'static str, value: &str) -> (&'static str, String) {
        (name, value.to_owned())
    }

    #[test]
    fn headers_repeat_what_the_message_says() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mailbox.send","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#;
        assert_eq!(
            headers(call),
            [
                pair("mcp-protocol-version", "2026-07-28"),
                pair("mcp-method", "tools/call"),
                pair("mcp-name", "mailbox.send"),
            ]
        );
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"x"}}"#;
        assert_eq!(
            headers(list),
            [
                pair("mcp-protocol-version", "2025-11-25"),
                pair("mcp-method", "tools/list")
            ]
        );
        let task = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"taskId":"t"}}"#;
        assert_eq!(headers(task)[2], pair("mcp-name", "t"));
    }

    #[test]
    fn what_does_not_fit_a_header_is_encoded() {
        for (name, value) in [
            ("café", "=?base64?Y2Fmw6k=?="),
            ("a b", "=?base64?YSBi?="),
            ("a\\r\\nx", "=?base64?YQ0KeA==?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            let call = format!(r#"{{"id":1,"method":"tools/call","params":{{"name":"{name}"}}}}"#);
            assert_eq!(headers(&call)[2], pair("mcp-name", value));
        }
        let version = r#"{"method":"m","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"a\r\nb"}}}"#;
        assert_eq!(headers(version), [pair("mcp-method", "m")]);
    }

    #[test]
    fn a_message_is_owed_an_answer_or_not() {
        let request = |id: &str| Kind::Request(id.to_owned());
        for (line, kind) in [
            (r#"{"id":1,"method":"m"}"#, request("1")),
            (
                r#"{"id":"a\"b","method":"m","params":[1]}"#,
                request(r#""a\"b""#),
            ),
            (r#"{"method":"m"}"#, Kind::Quiet),
            (r#"{"id":1,"result":{}}"#, Kind::Quiet),
            (r#"[{"id":1,"method":"m"}]"#, Kind::Unknown),
            ("nonsense", Kind::Unknown),
            ("7", Kind::Unknown),
        ] {
            assert_eq!(Envelope::read(line.as_bytes()).kind, kind, "{line}");
        }
    }

    #[test]
    fn a_cancellation_names_its_request() {
        let cancel = br#"{"method":"notifications/cancelled","params":{"requestId":"r"}}"#;
        assert_eq!(Envelope::read(cancel).cancels.as_deref(), Some(r#""r""#));
        let other = br#"{"method":"other","params":{"requestId":"r"}}"#;
        assert_eq!(Envelope::read(other).cancels, None);
    }

    #[test]
    fn an_answer_is_told_from_notifications_and_other_answers() {
        let envelope = Envelope::read(br#"{"id":7,"method":"initialize"}"#);
        for (message, is_answer) in [
            (r#"{"id":7,"result":{}}"#, true),
            (r#"{"id":7,"error":{}}"#, true),
            (r#"{"id":null,"error":{}}"#, true),
            (r#"{"id":8,"result":{}}"#, false),
            (r#"{"method":"notifications/progress"}"#, false),
            (r#"{"id":7,"method":"ping"}"#, false),
        ] {
            let found = envelope.is_answered_by(message.as_bytes());
            assert_eq!(found, is_answer, "{message}");
        }
        let hello = br#"{"id":7,"result":{"protocolVersion":"2025-06-18"}}"#;
        assert_eq!(
            envelope.agreed_version(hello).as_deref(),
            Some("2025-06-18")
        );
        let list = Envelope::read(br#"{"id":7,"method":"tools/list"}"#);
        assert_eq!(list.agreed_version(hello), None);
    }
}
