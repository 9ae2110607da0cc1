//! Messages of MCP to a server's endpoint, for programs that pass them on and do not read them.
//!
//! A message is sent once. An answer is one message or several: a server may answer with a stream of
//! events, in which notifications come before the answer itself.

use std::fmt;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use percent_encoding::utf8_percent_encode;

use crate::{
    Client, Error,
    lines::{Lines, broken},
    request::ENCODED,
};

const PATH: &str = "/mcp";
/// The name that errors of messages begin with.
const WHAT: &str = "mcp";

/// A server's MCP endpoint.
#[derive(Debug, Clone)]
pub struct Mcp {
    client: Client,
    /// Path and query.
    target: String,
}

impl Client {
    /// Returns the server's MCP endpoint. `toolsets` are the names of those that its lists shall show,
    /// separated by commas; without them the server chooses.
    pub fn mcp(&self, toolsets: Option<&str>) -> Mcp {
        let mut target = PATH.to_owned();
        if let Some(toolsets) = toolsets {
            target.push_str("?tools=");
            target.extend(utf8_percent_encode(toolsets, ENCODED));
        }
        Mcp {
            client: self.clone(),
            target,
        }
    }
}

impl Mcp {
    /// Sends a message, with headers that repeat parts of it. There is no limit on the time for an
    /// answer: drop the future to give up, which also ends a call that waits.
    pub async fn send(&self, headers: &[(&str, String)], json: &[u8]) -> Result<Messages, Error> {
        let sent = self.try_send(headers, json).await;
        sent.map_err(|error| error.during(WHAT, 1))
    }

    async fn try_send(&self, headers: &[(&str, String)], json: &[u8]) -> Result<Messages, Error> {
        let body = Bytes::copy_from_slice(json);
        let mut request = self.client.write(Method::POST, &self.target, Some(body))?;
        let accepted = HeaderValue::from_static("application/json, text/event-stream");
        request.headers_mut().insert(header::ACCEPT, accepted);
        for (name, value) in headers {
            let unfit = || Error::invalid(format!("{name} cannot be sent in a header"));
            let key = HeaderName::try_from(*name).map_err(|_| unfit())?;
            let value = HeaderValue::from_str(value).map_err(|_| unfit())?;
            request.headers_mut().append(key, value);
        }
        let exchange = self.client.begin(request).await?;
        let status = exchange.status;
        if status.is_success() && exchange.is_event_stream {
            let lines = Lines::new(exchange, None);
            return Ok(Messages(Source::Events(lines, Vec::new())));
        }
        let answer = self.client.finish(exchange).await?;
        if answer.body.is_empty() && status.is_success() {
            return Ok(Messages(Source::One(None)));
        }
        // A message that is itself wrong is answered with an error status and a message of MCP.
        if status.is_success() || is_message(&answer.body) {
            return Ok(Messages(Source::One(Some(answer.body))));
        }
        Err(self.client.refused(WHAT, &answer))
    }
}

/// Returns true for JSON-RPC, as opposed to the error body of other protocols.
fn is_message(body: &[u8]) -> bool {
    let value: Result<serde_json::Value, _> = serde_json::from_slice(body);
    value.is_ok_and(|value| value.get("jsonrpc").is_some())
}

/// The messages that answer one message, as they come.
pub struct Messages(Source);

enum Source {
    /// At most one, which is here already.
    One(Option<Vec<u8>>),
    /// A stream of events, and the data of the event that is being read.
    Events(Lines, Vec<u8>),
}

impl Messages {
    /// Returns the next message; nothing after the last one.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, Error> {
        match &mut self.0 {
            Source::One(message) => Ok(message.take()),
            Source::Events(lines, data) => {
                let next = next_event(lines, data).await;
                next.map_err(|error| error.during(WHAT, 1))
            }
        }
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages hold payloads, which must not get into logs.
        f.debug_struct("Messages").finish_non_exhaustive()
    }
}

async fn next_event(lines: &mut Lines, data: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Error> {
    while let Some(line) = lines.next().await? {
        if let Some(message) = take(&line, data) {
            return Ok(Some(message));
        }
    }
    match data.is_empty() {
        true => Ok(None),
        false => Err(broken("the server ended it within an event")),
    }
}

/// Takes a line of a stream of events. Returns the data of an event when the line ends it.
fn take(line: &[u8], data: &mut Vec<u8>) -> Option<Vec<u8>> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.is_empty() {
        let whole = std::mem::take(data);
        return (!whole.is_empty()).then_some(whole);
    }
    // Names of events, ids, waits and comments mean nothing to MCP.
    if let Some(value) = line.strip_prefix(b"data:") {
        if !data.is_empty() {
            data.push(b'\n');
        }
        data.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    #[test]
    fn events_become_messages() {
        let stream = ": hello\nevent: message\nid: 1\ndata: {\"a\":\ndata:1}\r\n\r\n\n\ndata: {}\n\nretry: 5\n\ndata: half\n";
        let mut data = Vec::new();
        let lines = stream.split_terminator('\n');
        let messages: Vec<String> = lines
            .filter_map(|line| take(line.as_bytes(), &mut data))
            .map(|message| String::from_utf8(message).unwrap())
            .collect();
        assert_eq!(messages, ["{\"a\":\n1}", "{}"]);
        assert_eq!(data, b"half");
    }

    #[test]
    fn toolsets_stand_in_the_query() {
        let client = Client::new("http://x/prefix", "k").unwrap();
        assert_eq!(client.mcp(None).target, "/mcp");
        assert_eq!(
            client.mcp(Some("agent,&x")).target,
            "/mcp?tools=agent%2C%26x"
        );
    }

    #[test]
    fn errors_of_other_protocols_are_no_messages() {
        assert!(is_message(br#"{"jsonrpc":"2.0","id":null,"error":{}}"#));
        for body in [&br#"{"error":"unauthorized"}"#[..], b"", b"<html>", b"[]"] {
            assert!(!is_message(body));
        }
    }

    #[tokio::test]
    async fn a_header_cannot_bring_another_header() {
        let mcp = Client::new("http://127.0.0.1:1", "k").unwrap().mcp(None);
        let headers = [("mcp-name", "a\r\nx: y".to_owned())];
        let error = mcp.send(&headers, b"{}").await.unwrap_err();
        assert_eq!(*error.kind(), Kind::Invalid);
    }
}
