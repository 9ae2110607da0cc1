//! The address of this server, as clients know it.

use axum::http::{HeaderMap, Uri, header};

/// What is known about the address of this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAddress {
    /// The address in the settings, if there is one.
    pub public_url: Option<String>,
    /// True if the listener speaks TLS.
    pub secure: bool,
    /// The host and port of the listener, for clients that do not say how they call it.
    pub listener: String,
}

impl OwnAddress {
    /// Returns the address under which the sender of a request knows this server, without a slash at its end.
    ///
    /// Without a setting it is the host that the client called. Nobody but the client itself can choose that, and it is
    /// the client that goes on with what it is told.
    pub fn of(&self, uri: &Uri, headers: &HeaderMap) -> String {
        if let Some(url) = &self.public_url {
            return url.trim_end_matches('/').to_owned();
        }
        let named = headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let named = uri.authority().map(|it| it.as_str()).or(named);
        let host = named.filter(|host| is_plain(host));
        let scheme = if self.secure { "https" } else { "http" };
        format!("{scheme}://{}", host.unwrap_or(&self.listener))
    }
}

/// Returns true for a host and a port without anything that would mean something else in an address.
fn is_plain(host: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte);
    !host.is_empty() && host.len() <= 255 && host.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn address(public_url: Option<&str>, secure: bool) -> OwnAddress {
        OwnAddress {
            public_url: public_url.map(str::to_owned),
            secure,
            listener: "127.0.0.1:8080".to_owned(),
        }
    }

    fn headers(host: &[u8]) -> HeaderMap {
        HeaderMap::from_iter([(header::HOST, HeaderValue::from_bytes(host).unwrap())])
    }

    #[test]
    fn the_setting_counts_more_than_what_the_client_says() {
        let own = address(Some("https://gate.example/"), false);
        let uri = Uri::from_static("/oauth/jwks");
        assert_eq!(own.of(&uri, &headers(b"evil")), "https://gate.example");
    }

    #[test]
    fn without_a_setting_the_client_says_whom_it_called() {
        let path = Uri::from_static("/oauth/jwks");
        let own = address(None, false);
        assert_eq!(
            own.of(&path, &headers(b"localhost:80")),
            "http://localhost:80"
        );
        assert_eq!(own.of(&path, &headers(b"[::1]:80")), "http://[::1]:80");
        assert_eq!(
            address(None, true).of(&path, &headers(b"a.b")),
            "https://a.b"
        );
        for odd in [
            &b""[..],
            b"a/b",
            b"a\"b",
            b"a@b",
            b"a b",
            b"\xff",
            &[b'a'; 256],
        ] {
            assert_eq!(own.of(&path, &headers(odd)), "http://127.0.0.1:8080");
        }
        let whole = Uri::from_static("http://other:1/oauth/jwks");
        assert_eq!(own.of(&whole, &headers(b"a")), "http://other:1");
        assert_eq!(own.of(&path, &HeaderMap::new()), "http://127.0.0.1:8080");
    }
}
