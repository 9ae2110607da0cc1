//! The HTTP headers that repeat a request's version, method and tool name for proxies, and the
//! rule that they agree with the body.

use std::borrow::Cow;

use http::HeaderMap;

use crate::{
    jsonrpc::{Error, ErrorCode},
    names,
};

const VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

/// The routing headers as they came.
#[derive(Debug, Default)]
pub(crate) struct Routing<'a> {
    pub version: Option<&'a str>,
    pub method: Option<&'a str>,
    pub name: Option<&'a str>,
    /// A header that came twice or is not text. Readers would disagree on its value.
    pub unclear: Option<&'static str>,
}

impl<'a> Routing<'a> {
    pub(crate) fn read(headers: &'a HeaderMap) -> Self {
        let mut routing = Self::default();
        routing.version = routing.single(headers, VERSION);
        routing.method = routing.single(headers, METHOD);
        routing.name = routing.single(headers, NAME);
        routing
    }

    /// Returns the called tool, if the headers name it clearly.
    pub(crate) fn tool(&self) -> Option<Cow<'a, str>> {
        let called = self.unclear.is_none() && self.method == Some("tools/call");
        self.name.filter(|_| called).and_then(decode)
    }

    /// Checks that the headers agree with the body's version, method and (for a tool call) name. Either
    /// name of a tool agrees with the other: both are known to mean it.
    pub(crate) fn check(
        &self,
        version: &str,
        method: &str,
        name: Option<&str>,
    ) -> Result<(), Error> {
        if let Some(header) = self.unclear {
            return Err(mismatch(format!(
                "the header {header} must come once, as text"
            )));
        }
        if self.version != Some(version) {
            return Err(mismatch(
                "the header MCP-Protocol-Version does not match the version in `_meta`",
            ));
        }
        if self.method != Some(method) {
            return Err(mismatch("the header Mcp-Method does not match the method"));
        }
        let named = self.name.and_then(decode);
        let agree = |name| named.is_some_and(|named| names::agree(&named, name));
        if name.is_none_or(agree) {
            return Ok(());
        }
        Err(mismatch("the header Mcp-Name does not match `params.name`"))
    }

    fn single(&mut self, headers: &'a HeaderMap, name: &'static str) -> Option<&'a str> {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?;
        let text = value.to_str().ok();
        if text.is_none() || values.next().is_some() {
            self.unclear = Some(name);
        }
        text.map(|text| text.trim_matches([' ', '\t']))
    }
}

fn mismatch(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorCode::HeaderMismatch, message)
}

/// Decodes `=?base64?...?=`, the form of values that do not fit a header.
fn decode(value: &str) -> Option<Cow<'_, str>> {
    let wrapped = value
        .strip_prefix("=?base64?")
        .and_then(|rest| rest.strip_suffix("?="));
    let Some(encoded) = wrapped else {
        return Some(Cow::Borrowed(value));
    };
    let bytes = decode_base64(encoded.as_bytes())?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

/// Decodes standard base64 with padding, in its one canonical form only: two spellings of one name
/// would let a proxy and this server read different tools.
fn decode_base64(encoded: &[u8]) -> Option<Vec<u8>> {
    if !encoded.len().is_multiple_of(4) {
        return None;
    }
    let padding = encoded
        .iter()
        .rev()
        .take_while(|byte| **byte == b'=')
        .count();
    let digits = &encoded[..encoded.len() - padding];
    if padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0_u32);
    for digit in digits {
        bits = bits << 6 | base64_digit(*digit)?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    (bits == 0).then_some(bytes)
}

fn base64_digit(byte: u8) -> Option<u32> {
    let digit = match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, value.parse().unwrap());
        }
        map
    }

    fn call(name: &str) -> HeaderMap {
        headers(&[(VERSION, "v"), (METHOD, "tools/call"), (NAME, name)])
    }

    #[test]
    fn a_name_may_be_wrapped() {
        for (header, name) in [
            ("asyncgate.create_task", "asyncgate.create_task"),
            ("  asyncgate.fail\t", "asyncgate.fail"),
            ("asyncgate.fail", "asyncgate_fail"),
            ("asyncgate_fail", "asyncgate.fail"),
            ("=?base64?Y2Fmw6k=?=", "café"),
            ("=?base64?SGVsbG8h?=", "Hello!"),
            ("=?base64?SGk=", "=?base64?SGk="),
        ] {
            let headers = call(header);
            let checked = Routing::read(&headers).check("v", "tools/call", Some(name));
            assert_eq!(checked, Ok(()), "{header}");
        }
    }

    #[test]
    fn a_name_that_differs_or_is_broken_is_a_mismatch() {
        for header in [
            "other",
            "HELLO!",
            "=?base64?SGVsbG8h",
            "=?base64?SGVsbG8?=",
            "=?base64?SGVs!!8h?=",
            "=?base64?SGVsbG9=?=",
            "=?base64?====?=",
        ] {
            let headers = call(header);
            let error = Routing::read(&headers)
                .check("v", "tools/call", Some("Hello!"))
                .unwrap_err();
            assert_eq!(error.code, ErrorCode::HeaderMismatch, "{header}");
        }
        assert_eq!(decode_base64(b"SGVsbG9="), None, "stray bits");
        assert_eq!(decode_base64(b"SGVsbG8="), Some(b"Hello".to_vec()));
        let missing = headers(&[(VERSION, "v"), (METHOD, "tools/call")]);
        assert!(
            Routing::read(&missing)
                .check("v", "tools/call", Some("x"))
                .is_err()
        );
        assert!(
            Routing::read(&missing)
                .check("v", "tools/call", None)
                .is_ok()
        );
    }

    #[test]
    fn a_header_that_comes_twice_is_a_mismatch() {
        for name in [VERSION, METHOD, NAME] {
            let mut twice = call("t");
            let value = twice.get(name).unwrap().clone();
            twice.append(name, value);
            let routing = Routing::read(&twice);
            assert!(
                routing.check("v", "tools/call", Some("t")).is_err(),
                "{name}"
            );
        }
    }
}
