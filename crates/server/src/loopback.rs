//! The check of a server that asks for no credential: only programs on this machine may call.
//!
//! Its main address is a loopback address, but a web page can reach that too, by rebinding its own name
//! to 127.0.0.1. Its requests still carry that name. A socket file is out of its reach.

use std::net::IpAddr;
use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_edge::{correlate, error_response};
use asyncgate_engine::{Engine, Fault};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

/// Restricts routes to requests that call this machine by a name of its own.
pub fn only(routes: Router, engine: Arc<Engine>) -> Router {
    routes.layer(from_fn_with_state(engine, check))
}

async fn check(State(engine): State<Arc<Engine>>, request: Request, next: Next) -> Response {
    if is_loopback(request.uri(), request.headers()) {
        return next.run(request).await;
    }
    let corr_id = correlate(request.headers(), || engine.corr_id());
    let message = "without credentials, only localhost and loopback addresses are served; the Host is another";
    error_response(&Fault::new(Code::Forbidden, message), &corr_id.text)
}

/// Returns true if every host that the request names is this machine. HTTP/2 names it in the request's
/// line, HTTP/1.1 in a header.
fn is_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let named = match (uri.authority(), hosts.next(), hosts.next()) {
        (_, _, Some(_)) => return false,
        (authority, Some(host), None) => {
            let Ok(host) = Authority::try_from(host.as_bytes()) else {
                return false;
            };
            vec![Some(host), authority.cloned()]
        }
        (authority, None, None) => vec![authority.cloned()],
    };
    // Very old programs name no host and pass; pages always name one.
    named.iter().flatten().all(|host| {
        let name = host.host().trim_end_matches('.');
        let address = name.trim_start_matches('[').trim_end_matches(']');
        let address: Result<IpAddr, _> = address.parse();
        name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(target: &str, hosts: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        is_loopback(&target.parse().unwrap(), &headers)
    }

    #[test]
    fn only_names_of_this_machine_pass() {
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:80",
            "localhost.",
        ] {
            assert!(allowed("/v1/tasks", &[host]), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]",
            "",
            "a b",
            "127.0.0.1.nip.io",
        ] {
            assert!(!allowed("/v1/tasks", &[host]), "{host}");
        }
        assert!(allowed("/v1/tasks", &[]));
        assert!(!allowed("/v1/tasks", &["localhost", "evil.example"]));
        assert!(allowed("http://localhost:8080/x", &[]));
        assert!(!allowed("http://evil.example/x", &[]));
        assert!(!allowed("http://evil.example/x", &["localhost"]));
    }
}
