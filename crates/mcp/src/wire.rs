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
/// change only when the server is replaced by a newer one, or the caller gets other rights.
const TTL_MS: u32 = 300_000;

/// Who may share those answers: nobody, because they depend on the caller's rights.
const CACHE_SCOPE: &str = "private";

/// Writes results.
#[derive(Debug)]
pub(crate) struct Results {
    /// The end of every result in the stateless era.
    stateless_end: String,
}

impl Default for Results {
    fn default() -> Self {
        let meta = meta();
        Self {
            stateless_end: format!(r#","resultType":"complete","_meta":{meta}}}"#),
        }
    }
}

impl Results {
    /// Returns the result of `tools/list`.
    pub(crate) fn tools(&self, era: Era, tools: &str) -> String {
        let end = &self.stateless_end;
        match era {
            Era::Handshake => format!(r#"{{"tools":{tools}}}"#),
            Era::Stateless => {
                format!(r#"{{"tools":{tools},"ttlMs":{TTL_MS},"cacheScope":"{CACHE_SCOPE}"{end}"#)
            }
        }
    }

    /// Returns the result of `server/discover`.
    pub(crate) fn discovered(&self, guide: &str) -> String {
        let result = json!({
            "supportedVersions": era::supported(),
            "capabilities": capabilities(),
            "instructions": guide,
            "resultType": "complete",
            "ttlMs": TTL_MS,
            "cacheScope": CACHE_SCOPE,
            "_meta": meta(),
        });
        result.to_string()
    }

    /// Returns the result of `initialize`.
    pub(crate) fn initialized(&self, version: &str, guide: &str) -> String {
        let result = json!({
            "protocolVersion": version,
            "capabilities": capabilities(),
            "serverInfo": server_info(),
            "instructions": guide,
        });
        result.to_string()
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

fn meta() -> Value {
    json!({"io.modelcontextprotocol/serverInfo": server_info()})
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
        let results = Results::default();
        let discover = results.discovered("About a lease.");
        let listed = results.tools(Era::Stateless, r#"[{"name":"t"}]"#);
        for json in [&discover, &listed] {
            let value = parsed(json);
            assert_eq!(value["resultType"], "complete");
            assert_eq!(value["ttlMs"], TTL_MS);
            assert_eq!(value["cacheScope"], "private");
            let info = &value["_meta"]["io.modelcontextprotocol/serverInfo"];
            assert_eq!(info["name"], "asyncgate");
        }
        let discover = parsed(&discover);
        assert_eq!(discover["supportedVersions"][0], "2026-07-28");
        assert_eq!(discover["capabilities"], json!({"tools": {}}));
        assert_eq!(discover["instructions"], "About a lease.");
        assert_eq!(parsed(&listed)["tools"], json!([{"name": "t"}]));
        let older = results.tools(Era::Handshake, r#"[{"name":"t"}]"#);
        assert_eq!(older, r#"{"tools":[{"name":"t"}]}"#);
    }

    #[test]
    fn line_breaks_between_tokens_become_spaces() {
        let line = on_one_line(b"{\"a\":\r\n\"\\n\"}".to_vec());
        assert_eq!(line, b"{\"a\":  \"\\n\"}");
    }
}
