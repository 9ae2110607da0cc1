//! What is wrong before an operation is reached: the route, the credential, the transport.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::json;

use crate::calls::is_id;
use crate::harness::KEY;
use crate::http::{Connection, Request};
use crate::input::Scene;

#[test]
fn routes_and_methods_that_do_not_exist_are_refused() {
    let scene = Scene::set();
    for target in [
        "/",
        "/v1",
        "/v1/",
        "/v1/nothing",
        "/v2/tasks",
        "/v1/tasks/",
        "/v1/tasks/a/b/c",
    ] {
        scene.server.get(target).refused(404, "NOT_FOUND");
        scene.post(target, "{}").refused(404, "NOT_FOUND");
    }
    let id = &scene.held.task_id;
    for (method, target) in [
        ("DELETE", "/v1/tasks".to_owned()),
        ("PUT", format!("/v1/tasks/{id}")),
        ("POST", format!("/v1/tasks/{id}")),
        ("PATCH", format!("/v1/tasks/{id}")),
        ("GET", format!("/v1/tasks/{id}/complete")),
        ("GET", "/v1/leases/claim".to_owned()),
        ("POST", "/v1/config".to_owned()),
        ("POST", "/v1/bootstrap".to_owned()),
        ("DELETE", "/v1/receipts".to_owned()),
        ("BREW", "/v1/tasks".to_owned()),
    ] {
        let answer = scene.server.send(Request::new(method, &target));
        answer.refused(405, "METHOD_NOT_ALLOWED");
        assert!(
            answer.header("Allow").is_some(),
            "{method} {target}: {answer:?}"
        );
    }
    scene.nothing_has_changed();
}

#[test]
fn without_a_good_credential_nothing_is_told() {
    let scene = Scene::set();
    let near = format!("{KEY}x");
    let short = &KEY[..KEY.len() - 1];
    let made_up = format!("aga_{}", "a".repeat(52));
    for header in [
        None,
        Some(String::new()),
        Some("Bearer".to_owned()),
        Some("Bearer ".to_owned()),
        Some(KEY.to_owned()),
        Some(format!("Basic {KEY}")),
        Some(format!("Bearer {near}")),
        Some(format!("Bearer {short}")),
        Some(format!("Bearer {}", KEY.to_uppercase())),
        Some(format!("Bearer {made_up}")),
        Some("Bearer \u{e9}".to_owned()),
    ] {
        let dress = |request: Request| match &header {
            Some(value) => request.header("Authorization", value),
            None => request,
        };
        for target in scene.gets() {
            if target == "/v1/health" {
                continue;
            }
            let answer = scene.server.send_bare(&dress(Request::get(&target)));
            answer.refused(401, "UNAUTHORIZED");
            let told = answer.header("WWW-Authenticate").unwrap_or_default();
            assert!(told.starts_with("Bearer "), "{answer:?}");
            assert!(told.contains("resource_metadata="), "{answer:?}");
        }
        for target in scene.posts() {
            let request = dress(Request::post(&target, "not even JSON"));
            scene
                .server
                .send_bare(&request)
                .refused(401, "UNAUTHORIZED");
        }
    }
    let lower = Request::get("/v1/config").header("authorization", &format!("bearer {KEY}"));
    scene.server.send_bare(&lower).expect(200);
    scene.nothing_has_changed();
}

#[test]
fn the_caller_may_name_its_request() {
    let scene = Scene::set();
    for (target, status) in [
        ("/v1/config", 200),
        ("/v1/nothing", 404),
        ("/v1/tasks/x", 400),
    ] {
        let request = Request::get(target).header("X-Corr-Id", "my-request.7");
        let answer = scene.server.send(request);
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("X-Corr-Id"), Some("my-request.7"));
        if status != 200 {
            assert_eq!(answer.json()["corr_id"], "my-request.7");
        }
        let bare = Request::get(target).header("X-Corr-Id", "anonymous");
        let answer = scene.server.send_bare(&bare);
        assert_eq!(answer.header("X-Corr-Id"), Some("anonymous"));
    }
    for unfit in ["", &"x".repeat(5_000)] {
        let answer = scene
            .server
            .send(Request::get("/v1/config").header("X-Corr-Id", unfit));
        is_id(&json!(answer.header("X-Corr-Id")));
    }
    let one = scene.server.get("/v1/config");
    let two = scene.server.get("/v1/config");
    is_id(&json!(one.header("X-Corr-Id")));
    assert_ne!(one.header("X-Corr-Id"), two.header("X-Corr-Id"));
}

#[test]
fn a_web_page_cannot_send_a_form() {
    let scene = Scene::set();
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let request = Request::new("POST", "/v1/tasks")
            .header("Origin", "http://evil.example.com")
            .header("Content-Type", kind)
            .body(r#"{"type":"x"}"#);
        scene.server.send(request).refused(400, "BAD_REQUEST");
    }
    scene.nothing_has_changed();
}

#[test]
fn bodies_that_do_not_arrive_whole_are_not_acted_on() {
    let scene = Scene::set();
    let request = scene
        .server
        .with_key(Request::post("/v1/tasks", r#"{"type":"x"}"#));
    let head = request.head(scene.server.address);
    let chunked = scene
        .server
        .with_key(Request::chunked("/v1/tasks", &[b"{\"type\":\"x\"}"]));
    let chunked_head = chunked.head(scene.server.address);
    for bytes in [
        head.clone(),
        format!("{head}{{\"type\""),
        format!("{chunked_head}c\r\n{{\"type\":\"x\"}}\r\n"),
        format!("{chunked_head}ffffffffffffffffffff\r\n{{\"type\":\"x\"}}"),
        format!("{chunked_head}zz\r\n{{\"type\":\"x\"}}"),
    ] {
        let mut stream = TcpStream::connect(scene.server.address).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        drop(stream);
    }
    // A later call on the same server is answered, and nothing came of the halves.
    scene.server.get("/v1/config").expect(200);
    scene.nothing_has_changed();
}

#[test]
fn what_is_no_http_is_refused_and_the_server_goes_on() {
    let scene = Scene::set();
    for bytes in [
        "nonsense\r\n\r\n".to_owned(),
        "GET /v1/config HTTP/9.9\r\n\r\n".to_owned(),
        "GET /v1/config HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n".to_owned(),
        format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(100_000)),
        format!(
            "GET / HTTP/1.1\r\nHost: x\r\nX-Large: {}\r\n\r\n",
            "x".repeat(100_000)
        ),
        "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_owned(),
        "POST /v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"
            .to_owned(),
    ] {
        let answer = Connection::open(scene.server.address)
            .unwrap()
            .exchange(bytes.as_bytes());
        if let Ok(answer) = answer {
            assert!(
                (400..500).contains(&answer.status),
                "{bytes:.60}: {answer:?}"
            );
        }
    }
    scene.server.get("/v1/config").expect(200);
    scene.nothing_has_changed();
}

#[test]
fn a_refusal_reaches_a_client_that_sends_first_and_reads_afterwards() {
    let scene = Scene::set();
    let body = vec![b'x'; 6 << 20];
    let stranger = Request::post("/v1/tasks", body.clone()).bearer("nobody");
    scene
        .server
        .send_bare(&stranger)
        .refused(401, "UNAUTHORIZED");
    let nowhere = Request::post("/v1/nowhere", body.clone());
    scene.server.send(nowhere).refused(404, "NOT_FOUND");
    let method = Request::new("PUT", "/v1/tasks").body(body);
    assert_eq!(scene.server.send(method).status, 405);
    scene.nothing_has_changed();
}
