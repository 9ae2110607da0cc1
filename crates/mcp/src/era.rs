//! The two eras of MCP, and the members that a request must have in each.
//!
//! Up to 2025-11-25 a client shakes hands (`initialize`) and then names the agreed version in a
//! header. Since 2026-07-28 there is no handshake: each request carries its version and its
//! client's capabilities in `_meta`, and over HTTP it repeats version, method and tool name in
//! headers so that proxies can route it.
//!
//! Invariants:
//! - The era is decided per message, from the message and its headers alone; nothing is remembered.
//! - Where a header and the body disagree the request is refused, never guessed at: a proxy may
//!   have acted on the header.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::{json, value::RawValue};

use crate::{
    dispatch::Admitted,
    headers::Routing,
    jsonrpc::{self, Body, Error, ErrorCode, Message, Request, is_object, present},
};

/// The version of the era without a handshake.
pub(crate) const STATELESS: &str = "2026-07-28";

/// The versions that a handshake can agree on, newest first.
pub(crate) const HANDSHAKE: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The version that the revisions before 2025-06-18 imply when none is named.
pub(crate) const UNNAMED: &str = "2025-03-26";

/// The set of rules that a message follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25 and older.
    Handshake,
    /// 2026-07-28.
    Stateless,
}

/// The members of `params` that MCP itself reads.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Params<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    pub name: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "protocolVersion",
        deserialize_with = "present"
    )]
    pub protocol_version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestId", deserialize_with = "present")]
    pub request_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

impl<'a> Params<'a> {
    pub(crate) fn read(raw: Option<&'a RawValue>) -> Result<Self, Error> {
        let Some(raw) = raw else {
            return Ok(Self::default());
        };
        if !is_object(raw) {
            return Err(Error::invalid_params("`params` must be an object"));
        }
        serde_json::from_str(raw.get())
            .map_err(|_| Error::invalid_params("a member of `params` is given twice"))
    }

    fn meta(&self) -> Meta<'a> {
        self.meta
            .filter(|meta| is_object(meta))
            .and_then(|meta| serde_json::from_str(meta.get()).ok())
            .unwrap_or_default()
    }
}

/// The members of `params._meta` that name the version and the client's capabilities.
#[derive(Debug, Default, Deserialize)]
struct Meta<'a> {
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/protocolVersion",
        deserialize_with = "present"
    )]
    version: Option<&'a RawValue>,
    #[serde(
        borrow,
        default,
        rename = "io.modelcontextprotocol/clientCapabilities",
        deserialize_with = "present"
    )]
    capabilities: Option<&'a RawValue>,
}

/// Reads a request's params, settles its era and checks its envelope. `routing` is given over HTTP.
pub(crate) fn admit<'a>(
    request: &'a Request<'a>,
    routing: Option<&Routing<'_>>,
) -> Result<Admitted<'a>, Error> {
    let params = Params::read(request.params)?;
    let header = routing.and_then(|routing| routing.version);
    let era = era_of(header, &request.method, &params);
    if era == Era::Stateless {
        check_stateless(&request.method, &params, routing)?;
    }
    Ok(Admitted {
        request,
        params,
        era,
    })
}

/// Returns the tool that a message calls, if it is one message and calls one.
pub(crate) fn called_tool(body: &[u8]) -> Option<String> {
    let Ok(Body::One(raw)) = jsonrpc::read_body(body) else {
        return None;
    };
    let Ok(Message::Request(request)) = jsonrpc::read_message(raw) else {
        return None;
    };
    if request.method != "tools/call" {
        return None;
    }
    let name = Params::read(request.params).ok()?.name?;
    jsonrpc::text(name).map(Cow::into_owned)
}

/// Returns the era of a request, from the version its headers name (over HTTP) and its params.
fn era_of(header: Option<&str>, method: &str, params: &Params<'_>) -> Era {
    if header.is_some_and(|version| !HANDSHAKE.contains(&version)) {
        return Era::Stateless;
    }
    // `initialize` exists in the older era only, whatever a client stamps on it.
    let Some(version) = params.meta().version.filter(|_| method != "initialize") else {
        return Era::Handshake;
    };
    let version = jsonrpc::text(version).unwrap_or_default();
    let agrees = header.is_none_or(|header| header == version);
    if agrees && HANDSHAKE.contains(&version.as_ref()) {
        return Era::Handshake;
    }
    Era::Stateless
}

/// Checks the demands of 2026-07-28 on every request: the envelope in `_meta`, then the headers (over
/// HTTP) against the body, then the version. The order is part of the contract: a client that
/// disagrees with itself is told so, not that its version is unknown.
fn check_stateless(
    method: &str,
    params: &Params<'_>,
    routing: Option<&Routing<'_>>,
) -> Result<(), Error> {
    let named = routing.and_then(|routing| routing.version);
    let meta = params.meta();
    let envelope = meta
        .version
        .zip(meta.capabilities.filter(|raw| is_object(raw)));
    let Some((version, _)) = envelope else {
        if let Some(unknown) = named.filter(|version| *version != STATELESS) {
            return Err(unsupported_version(unknown));
        }
        return Err(Error::invalid_params(
            "`params._meta` must have `io.modelcontextprotocol/protocolVersion` and \
             `io.modelcontextprotocol/clientCapabilities`",
        ));
    };
    let Some(version) = jsonrpc::text(version) else {
        return Err(Error::invalid_params(
            "`io.modelcontextprotocol/protocolVersion` must be a string",
        ));
    };
    if let Some(routing) = routing {
        let name = params.name.filter(|_| method == "tools/call");
        routing.check(&version, method, name.and_then(jsonrpc::text).as_deref())?;
    }
    if version != STATELESS {
        return Err(unsupported_version(&version));
    }
    Ok(())
}

/// Returns the refusal of a version that we do not speak, with those that we do.
pub(crate) fn unsupported_version(requested: &str) -> Error {
    Error::new(
        ErrorCode::UnsupportedVersion,
        "this protocol version is not supported",
    )
    .with_data(json!({"supported": supported(), "requested": requested}))
}

/// Returns every version that we speak, newest first.
pub(crate) fn supported() -> Vec<&'static str> {
    std::iter::once(STATELESS).chain(HANDSHAKE).collect()
}

/// Returns the version that a handshake agrees on: the client's if we speak it, else our newest of that
/// era.
pub(crate) fn negotiate(requested: &str) -> &'static str {
    let same = HANDSHAKE.into_iter().find(|version| *version == requested);
    same.unwrap_or(HANDSHAKE[0])
}

/// Returns true if a version allows several messages in one body. 2025-06-18 took that away again.
pub(crate) fn allows_batches(version: &str) -> bool {
    matches!(version, "2025-03-26" | "2024-11-05")
}

#[cfg(test)]
mod tests {
    use super::*;

    const META: &str = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}"#;

    fn params(json: &str) -> Params<'_> {
        Params::read(Some(serde_json::from_str(json).unwrap())).unwrap()
    }

    fn routing<'a>(version: Option<&'a str>, method: Option<&'a str>) -> Routing<'a> {
        Routing {
            version,
            method,
            ..Routing::default()
        }
    }

    fn code(json: &str, routing: Option<&Routing<'_>>) -> Option<i32> {
        check_stateless("tools/list", &params(json), routing)
            .err()
            .map(|error| error.code.number())
    }

    #[test]
    fn the_era_follows_header_and_envelope() {
        let old = r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}"#;
        let table = [
            (None, "tools/list", "{}", Era::Handshake),
            (Some("2025-06-18"), "tools/list", "{}", Era::Handshake),
            (Some("2026-07-28"), "tools/list", "{}", Era::Stateless),
            (Some("1999-01-01"), "tools/list", "{}", Era::Stateless),
            (None, "tools/list", META, Era::Stateless),
            (Some("2025-06-18"), "tools/list", META, Era::Stateless),
            (None, "initialize", META, Era::Handshake),
            (Some("2026-07-28"), "initialize", META, Era::Stateless),
            (
                None,
                "tools/list",
                r#"{"_meta":{"progressToken":1}}"#,
                Era::Handshake,
            ),
            (None, "tools/list", old, Era::Handshake),
            (Some("2025-11-25"), "tools/list", old, Era::Handshake),
            (Some("2025-06-18"), "tools/list", old, Era::Stateless),
        ];
        for (header, method, json, era) in table {
            let found = era_of(header, method, &params(json));
            assert_eq!(found, era, "{header:?} {method} {json}");
        }
    }

    #[test]
    fn the_envelope_is_required_whole() {
        let known = routing(Some(STATELESS), Some("tools/list"));
        assert_eq!(code(META, Some(&known)), None);
        assert_eq!(code(META, None), None);
        for json in [
            "{}",
            r#"{"_meta":null}"#,
            r#"{"_meta":[]}"#,
            r#"{"_meta":{"io.modelcontextprotocol/clientCapabilities":{}}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":null}}"#,
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":5,"io.modelcontextprotocol/clientCapabilities":{}}}"#,
        ] {
            assert_eq!(code(json, Some(&known)), Some(-32602), "{json}");
        }
    }

    #[test]
    fn headers_are_checked_before_the_version() {
        let table = [
            (
                routing(None, Some("tools/list")),
                -32020,
                "no version header",
            ),
            (
                routing(Some("2025-11-25"), Some("tools/list")),
                -32020,
                "other version",
            ),
            (routing(Some(STATELESS), None), -32020, "no method header"),
            (
                routing(Some(STATELESS), Some("TOOLS/LIST")),
                -32020,
                "other method",
            ),
        ];
        for (headers, expected, why) in table {
            assert_eq!(code(META, Some(&headers)), Some(expected), "{why}");
        }
        let unknown = META.replace(STATELESS, "v999");
        let agreed = routing(Some("v999"), Some("tools/list"));
        assert_eq!(code(&unknown, Some(&agreed)), Some(-32022));
        assert_eq!(
            code("{}", Some(&agreed)),
            Some(-32022),
            "no envelope either"
        );
        let disagreed = routing(Some(STATELESS), Some("tools/list"));
        assert_eq!(code(&unknown, Some(&disagreed)), Some(-32020));
    }

    #[test]
    fn an_unknown_version_is_told_what_is_spoken() {
        let data = unsupported_version("v999").data.unwrap();
        assert_eq!(data["requested"], "v999");
        assert_eq!(data["supported"][0], STATELESS);
        assert_eq!(data["supported"].as_array().unwrap().len(), 5);
    }

    #[test]
    fn the_handshake_echoes_what_it_can() {
        assert_eq!(negotiate("2024-11-05"), "2024-11-05");
        assert_eq!(negotiate("2025-06-18"), "2025-06-18");
        assert_eq!(negotiate("2026-07-28"), "2025-11-25");
        assert_eq!(negotiate("nonsense"), "2025-11-25");
    }
}
