//! The check of web pages: only those on this machine and those that the operator named may call.
//!
//! Without this check any page could reach a server on the visitor's loopback, by rebinding its
//! own name to 127.0.0.1.

use std::net::IpAddr;

use http::{HeaderMap, Uri, header};

/// The origins that an operator allows besides loopback.
#[derive(Debug)]
pub(crate) struct Origins(Vec<String>);

impl Origins {
    pub(crate) fn new(allowed: &[String]) -> Self {
        Self(allowed.iter().map(|origin| normal(origin)).collect())
    }

    /// Returns true if a request with these headers may call. Programs send no `Origin`, so its absence
    /// is fine; more than one is not.
    pub(crate) fn allow(&self, headers: &HeaderMap) -> bool {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return true;
        };
        let Ok(origin) = origin.to_str() else {
            return false;
        };
        let origin = normal(origin);
        origins.next().is_none() && (is_loopback(&origin) || self.0.contains(&origin))
    }
}

/// Returns the one spelling of an origin: lower case, no trailing slash, no default port.
fn normal(origin: &str) -> String {
    let origin = origin.trim().trim_end_matches('/').to_ascii_lowercase();
    let default_port = match origin.split_once(':') {
        Some(("http", _)) => ":80",
        Some(("https", _)) => ":443",
        _ => return origin,
    };
    origin
        .strip_suffix(default_port)
        .map_or_else(|| origin.clone(), str::to_owned)
}

fn is_loopback(origin: &str) -> bool {
    let Ok(uri) = origin.parse::<Uri>() else {
        return false;
    };
    let (Some("http" | "https"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return false;
    };
    if authority.as_str().contains('@') || uri.path() != "/" || uri.query().is_some() {
        return false;
    }
    let host = authority.host();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(origin: &str, list: &[&str]) -> bool {
        let list: Vec<String> = list.iter().map(|origin| (*origin).to_owned()).collect();
        let mut headers = HeaderMap::new();
        headers.insert(header::ORIGIN, origin.parse().unwrap());
        Origins::new(&list).allow(&headers)
    }

    #[test]
    fn loopback_pages_and_programs_may_call() {
        assert!(Origins::new(&[]).allow(&HeaderMap::new()));
        for origin in [
            "http://localhost",
            "http://localhost:6274",
            "https://LOCALHOST:1",
            "http://127.0.0.1:8080",
            "http://127.9.9.9",
            "http://[::1]:3000",
        ] {
            assert!(allowed(origin, &[]), "{origin}");
        }
    }

    #[test]
    fn other_pages_may_not() {
        for origin in [
            "http://evil.example.com",
            "http://localhost.evil.example.com",
            "http://127.0.0.1.evil.example.com",
            "http://localhost@evil.example.com",
            "http://evil.example.com@localhost",
            "http://10.0.0.1",
            "http://[::2]",
            "null",
            "file://localhost",
            "localhost",
            "http://",
            "",
        ] {
            assert!(!allowed(origin, &["https://ok.example.com"]), "{origin}");
        }
    }

    #[test]
    fn a_named_origin_is_matched_whole() {
        let list = [
            "https://Ok.example.com:443/",
            "http://b.example.com:81",
            "null",
        ];
        for origin in [
            "https://ok.example.com",
            "HTTPS://OK.EXAMPLE.COM:443",
            "http://b.example.com:81",
            "null",
        ] {
            assert!(allowed(origin, &list), "{origin}");
        }
        for origin in [
            "http://ok.example.com",
            "https://ok.example.com:444",
            "http://b.example.com",
        ] {
            assert!(!allowed(origin, &list), "{origin}");
        }
    }

    #[test]
    fn two_origins_are_one_too_many() {
        let mut headers = HeaderMap::new();
        for _ in 0..2 {
            headers.append(header::ORIGIN, "http://localhost".parse().unwrap());
        }
        assert!(!Origins::new(&[]).allow(&headers));
    }
}
