//! Where no credential is asked for, only those on this machine may call.
//!
//! The main address is a loopback address then, but a web page can reach it too, by rebinding its own
//! name to 127.0.0.1. Its requests still carry that name. A socket file is out of its reach.

use std::net::IpAddr;
use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_engine::{Engine, Fault};
use asyncgate_rest::{CORR_ID, error_response};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

/// These routes, for requests to this machine by a name of its own.
pub fn only(routes: Router, engine: Arc<Engine>) -> Router {
    routes.layer(from_fn_with_state(engine, check))
}

async fn check(State(engine): State<Arc<Engine>>, request: Request, next: Next) -> Response {
    if is_loopback(request.uri(), request.headers()) {
        return next.run(request).await;
    }
    let given = request.headers().get(CORR_ID);
    let corr_id = engine.correlate(given.and_then(|value| value.to_str().ok()));
    let message = "without credentials, only localhost and loopback addresses are served; the Host is another";
    error_response(&Fault::new(Code::Forbidden, message), &corr_id.text)
}

/// HTTP/2 names the host in the request's line, HTTP/1.1 in a header.
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
    // Programs of another age name none; pages always do.
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
