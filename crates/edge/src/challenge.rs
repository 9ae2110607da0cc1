//! What a client is told whose credential is missing or not good: where it can learn how to get one.

use axum::http::{HeaderMap, HeaderValue, Request, header};

use crate::request::bearer_of;

/// The longest name of a host that is repeated in an answer.
const MAX_HOST: usize = 261;
/// The place where a client learns who gives out tokens (RFC 9728).
const METADATA: &str = "/.well-known/oauth-protected-resource";
/// The path of MCP, which is a resource of its own.
const MCP: &str = "/mcp";

/// A request, as far as the refusal of its credential must know it. It is kept while the request is answered.
#[derive(Debug, Clone)]
pub struct Challenge {
    host: Option<HeaderValue>,
    is_mcp: bool,
    /// What the request showed as its credential. Most requests are not refused, so nobody looks at it here.
    shown: Option<HeaderValue>,
}

impl Challenge {
    /// Notes what a refusal of this request would have to tell.
    pub fn of<B>(request: &Request<B>) -> Self {
        let named = request.headers().get(header::HOST).cloned();
        let authority = || {
            let authority = request.uri().authority()?;
            HeaderValue::from_str(authority.as_str()).ok()
        };
        let mut shown = request.headers().get(header::AUTHORIZATION).cloned();
        if let Some(shown) = &mut shown {
            // Not even a debugging line shows it.
            shown.set_sensitive(true);
        }
        Self {
            host: named.or_else(authority),
            is_mcp: request.uri().path().starts_with(MCP),
            shown,
        }
    }

    /// Completes the answer to a request whose credential was refused. `base` is the address by which clients reach
    /// the server, if it is known; otherwise it follows from the scheme and from what the client calls the server.
    pub fn complete(&self, headers: &mut HeaderMap, base: Option<&str>, scheme: &str) {
        // A client of OAuth is asked for its secret, not for a token.
        let is_ours = |given: &HeaderValue| given.as_bytes().starts_with(b"Bearer");
        let given = headers.get_mut(header::WWW_AUTHENTICATE);
        let Some(given) = given.filter(|given| is_ours(given)) else {
            return;
        };
        let mut text = String::from("Bearer realm=\"asyncgate\"");
        if self.shown.as_ref().and_then(bearer_of).is_some() {
            text.push_str(", error=\"invalid_token\"");
        }
        let base = base.map(str::to_owned).or_else(|| {
            let host = self.host.as_ref()?.to_str().ok()?;
            is_plain(host).then(|| format!("{scheme}://{host}"))
        });
        if let Some(base) = base {
            let resource = if self.is_mcp { MCP } else { "" };
            text.push_str(&format!(
                ", resource_metadata=\"{base}{METADATA}{resource}\""
            ));
        }
        if let Ok(complete) = HeaderValue::from_str(&text) {
            *given = complete;
        }
    }
}

/// Returns true if a host can be repeated within quotes.
fn is_plain(host: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    !host.is_empty() && host.len() <= MAX_HOST && host.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(request: &Request<()>, base: Option<&str>) -> String {
        let mut headers = HeaderMap::new();
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        Challenge::of(request).complete(&mut headers, base, "http");
        headers[header::WWW_AUTHENTICATE]
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn request(uri: &str, host: Option<&str>, showed: bool) -> Request<()> {
        let mut request = Request::builder().uri(uri);
        if let Some(host) = host {
            request = request.header(header::HOST, host);
        }
        if showed {
            request = request.header(header::AUTHORIZATION, "Bearer x");
        }
        request.body(()).unwrap()
    }

    #[test]
    fn a_client_learns_where_the_metadata_are() {
        for (uri, host, showed, base, expected) in [
            (
                "/v1/tasks",
                Some("h:8080"),
                false,
                None,
                "Bearer realm=\"asyncgate\", resource_metadata=\"http://h:8080/.well-known/oauth-protected-resource\"",
            ),
            (
                "/mcp",
                Some("[::1]:8080"),
                true,
                None,
                "Bearer realm=\"asyncgate\", error=\"invalid_token\", resource_metadata=\"http://[::1]:8080/.well-known/oauth-protected-resource/mcp\"",
            ),
            (
                "/v1/tasks",
                Some("h"),
                false,
                Some("https://gate.example.com"),
                "Bearer realm=\"asyncgate\", resource_metadata=\"https://gate.example.com/.well-known/oauth-protected-resource\"",
            ),
            (
                "https://two.example/v1/tasks",
                None,
                false,
                None,
                "Bearer realm=\"asyncgate\", resource_metadata=\"http://two.example/.well-known/oauth-protected-resource\"",
            ),
            ("/v1/tasks", None, false, None, "Bearer realm=\"asyncgate\""),
            (
                "/v1/tasks",
                Some("h\"x"),
                false,
                None,
                "Bearer realm=\"asyncgate\"",
            ),
            (
                "/v1/tasks",
                Some("u@h"),
                false,
                None,
                "Bearer realm=\"asyncgate\"",
            ),
        ] {
            assert_eq!(told(&request(uri, host, showed), base), expected);
        }
    }

    #[test]
    fn other_answers_stay_as_they_are() {
        let mut headers = HeaderMap::new();
        Challenge::of(&request("/", Some("h"), false)).complete(&mut headers, None, "http");
        assert!(headers.is_empty());
        let basic = HeaderValue::from_static("Basic realm=\"asyncgate\"");
        headers.insert(header::WWW_AUTHENTICATE, basic.clone());
        Challenge::of(&request("/", Some("h"), false)).complete(&mut headers, None, "http");
        assert_eq!(headers[header::WWW_AUTHENTICATE], basic);
    }
}
