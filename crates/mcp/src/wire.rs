//! Results as they stand on the wire, in each era.
//!
//! Invariant: a tool's output is copied as bytes, into the text block and into
//! `structuredContent`. It is never parsed here, so it cannot lose anything.

use serde_json::{Value, json};

use crate::{
    era::{self, Era},
    jsonrpc::{Error, ErrorCode},
};

/// The time for which a client may keep the tool list and the answer of `server/discover`. Both
/// change only when the server is replaced by a newer one.
const TTL_MS: u32 = 300_000;

const INSTRUCTIONS: &str = include_str!("instructions.md");

/// Results that never change while the process lives.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub discover: String,
    pub handshake_tools: String,
    pub stateless_tools: String,
    /// The end of every other result in the stateless era.
    stateless_end: String,
}

impl Fixed {
    pub(crate) fn new(tools: &str) -> Self {
        let meta = json!({"io.modelcontextprotocol/serverInfo": server_info()});
        let discover = json!({
            "supportedVersions": era::supported(),
            "capabilities": capabilities(),
            "instructions": INSTRUCTIONS.trim(),
            "resultType": "complete",
            "ttlMs": TTL_MS,
            "cacheScope": "public",
            "_meta": meta,
        });
        let end = format!(r#""resultType":"complete","_meta":{meta}}}"#);
        Self {
            discover: discover.to_string(),
            handshake_tools: format!(r#"{{"tools":{tools}}}"#),
            stateless_tools: format!(
                r#"{{"tools":{tools},"ttlMs":{TTL_MS},"cacheScope":"public",{end}"#
            ),
            stateless_end: format!(",{end}"),
        }
    }

    /// Appends the result of a tool that did what it was asked.
    pub(crate) fn write_success(
        &self,
        json: &mut Vec<u8>,
        era: Era,
        output: &[u8],
    ) -> Result<(), Error> {
        let text = std::str::from_utf8(output).map_err(internal)?;
        self.begin_content(json, text)?;
        json.extend_from_slice(br#","structuredContent":"#);
        json.extend_from_slice(output);
        json.extend_from_slice(br#","isError":false"#);
        self.end(json, era);
        Ok(())
    }

    /// Appends the result of a tool that refused or failed. It has no `structuredContent`: that is
    /// bound to the tool's output schema, and clients hold it against the schema in errors too.
    pub(crate) fn write_failure(
        &self,
        json: &mut Vec<u8>,
        era: Era,
        body: &str,
    ) -> Result<(), Error> {
        self.begin_content(json, body)?;
        json.extend_from_slice(br#","isError":true"#);
        self.end(json, era);
        Ok(())
    }

    fn begin_content(&self, json: &mut Vec<u8>, text: &str) -> Result<(), Error> {
        json.extend_from_slice(br#"{"content":[{"type":"text","text":"#);
        serde_json::to_writer(&mut *json, text).map_err(internal)?;
        json.extend_from_slice(b"}]");
        Ok(())
    }

    fn end(&self, json: &mut Vec<u8>, era: Era) {
        match era {
            Era::Handshake => json.push(b'}'),
            Era::Stateless => json.extend_from_slice(self.stateless_end.as_bytes()),
        }
    }
}

/// Returns the answer to `initialize`.
pub(crate) fn initialized(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities(),
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS.trim(),
    })
}

/// Replaces the line breaks of a message by spaces, for framings where a line is a message. In JSON
/// they can only stand between tokens, where a space means the same.
pub(crate) fn on_one_line(mut json: Vec<u8>) -> Vec<u8> {
    for byte in &mut json {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
    json
}

fn capabilities() -> Value {
    json!({"tools": {}})
}

fn server_info() -> Value {
    json!({
        "name": "asyncgate",
        "title": "AsyncGate",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn internal(_: impl std::error::Error) -> Error {
    Error::new(ErrorCode::Internal, "the output could not be encoded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn cacheable_results_say_how_long_and_for_whom() {
        let fixed = Fixed::new(r#"[{"name":"t"}]"#);
        for json in [&fixed.discover, &fixed.stateless_tools] {
            let value = parsed(json);
            assert_eq!(value["resultType"], "complete");
            assert_eq!(value["ttlMs"], TTL_MS);
            assert_eq!(value["cacheScope"], "public");
            let info = &value["_meta"]["io.modelcontextprotocol/serverInfo"];
            assert_eq!(info["name"], "asyncgate");
        }
        let discover = parsed(&fixed.discover);
        assert_eq!(discover["supportedVersions"][0], "2026-07-28");
        assert_eq!(discover["capabilities"], json!({"tools": {}}));
        assert!(discover["instructions"].as_str().unwrap().contains("lease"));
        assert_eq!(
            parsed(&fixed.stateless_tools)["tools"],
            json!([{"name": "t"}])
        );
        assert_eq!(fixed.handshake_tools, r#"{"tools":[{"name":"t"}]}"#);
    }

    #[test]
    fn the_guide_names_only_tools_that_exist() {
        let tools = crate::tool_list();
        let names: Vec<_> = tools["tools"].as_array().unwrap().iter().collect();
        let exists = |tool: &str| names.iter().any(|one| one["name"] == tool);
        let words = INSTRUCTIONS.split(|c: char| c.is_whitespace() || ",:;`".contains(c));
        let named: Vec<_> = words
            .map(|word| word.trim_end_matches('.'))
            .filter(|word| word.starts_with("asyncgate."))
            .collect();
        assert!(named.len() >= 8, "{named:?}");
        for tool in named {
            assert!(exists(tool), "{tool}");
        }
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        let line = on_one_line(b"{\"a\":\r\n\"\\n\"}".to_vec());
        assert_eq!(line, b"{\"a\":  \"\\n\"}");
    }
}
