//! `http_get`: what it fetches, and what it refuses to touch.

use std::{net::SocketAddr, time::Duration};

use asyncgate_client::{
    api::{ListOpenObligationsInput, TaskStatus},
    handlers::{HttpGet, HttpGetOptions},
};
use axum::{
    Router,
    extract::RawQuery,
    http::header,
    response::{IntoResponse, Redirect},
    routing::get,
};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::{
    server::{Gate, create, ended},
    worker::{builder, hire},
};

/// A small site to fetch from.
async fn site() -> SocketAddr {
    let typed = |kind: &'static str, body: &'static [u8]| {
        let answer = move || async move {
            (
                [(header::CONTENT_TYPE, kind), (header::SET_COOKIE, "a=b")],
                body,
            )
                .into_response()
        };
        get(answer)
    };
    let router = Router::new()
        .route("/text", typed("text/plain", "grüße".as_bytes()))
        .route("/binary", typed("image/png", b"\x89PNG\0"))
        .route("/one", get(|| async { Redirect::temporary("two/../text") }))
        .route(
            "/to",
            get(|RawQuery(target): RawQuery| async move {
                Redirect::temporary(&target.unwrap_or_default())
            }),
        )
        .route("/round", get(|| async { Redirect::temporary("/round") }))
        .route("/slow", get(std::future::pending::<&'static str>));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port");
    let addr = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    addr
}

/// Runs payloads through a worker and gives back how each ended.
async fn run(options: HttpGetOptions, payloads: &[Value]) -> Vec<(TaskStatus, Value)> {
    let gate = Gate::start().await;
    let client = gate.client();
    let http_get = HttpGet::new(options).expect("a handler");
    let hired = hire(builder(client.clone()).handle("http_get", http_get.handler()));
    let mut ends = Vec::new();
    let mut succeeded = 0;
    for payload in payloads {
        let mut input = crate::server::task("http_get", &payload.to_string());
        input.max_attempts = Some(1);
        let created = client.create_task(&input).await.expect("a task");
        let record = ended(&client, &created.task_id).await;
        let result = record.result.expect("a result");
        let said = result.result.or(result.error).expect("a word");
        let said = serde_json::from_str(said.get()).expect("JSON");
        succeeded += usize::from(record.status == TaskStatus::Succeeded);
        ends.push((record.status, said));
    }
    hired.stop().await;
    // Artifacts close obligations, and so do failures.
    let owed = client.open_obligations(ListOpenObligationsInput {
        principal_id: Some("alice".to_owned()),
        ..Default::default()
    });
    assert_eq!(owed.count().await, 0, "{succeeded} succeeded");
    ends
}

fn allowed() -> HttpGetOptions {
    HttpGetOptions {
        allow_private: true,
        ..Default::default()
    }
}

#[tokio::test]
async fn what_is_allowed_is_fetched_within_bounds() {
    let addr = site().await;
    let url = |path: &str| format!("http://{addr}{path}");
    let ends = run(
        HttpGetOptions {
            max_redirects: 2,
            ..allowed()
        },
        &[
            json!({ "url": url("/text") }),
            json!({ "url": url("/binary") }),
            json!({ "url": url("/one#part") }),
            json!({ "url": url("/text"), "max_bytes": 3 }),
            json!({ "url": url("/missing") }),
            json!({ "url": url("/round") }),
            json!({ "url": url("/slow"), "timeout_seconds": 0.05 }),
        ],
    )
    .await;
    let (status, text) = &ends[0];
    assert_eq!(*status, TaskStatus::Succeeded);
    assert_eq!(
        (&text["status"], &text["body"], &text["truncated"]),
        (&json!(200), &json!("grüße"), &json!(false))
    );
    assert_eq!(text["headers"]["content-type"], "text/plain");
    assert!(text["headers"].get("set-cookie").is_none());
    let (_, binary) = &ends[1];
    assert_eq!(binary["body_base64"], "iVBORwA=");
    assert!(binary.get("body").is_none());
    let (_, redirected) = &ends[2];
    assert_eq!(redirected["url"], url("/text"));
    let (_, cut) = &ends[3];
    assert_eq!(
        (&cut["body"], &cut["bytes"], &cut["truncated"]),
        (&json!("gr"), &json!(3), &json!(true))
    );
    let (status, missing) = &ends[4];
    assert_eq!(
        (*status, &missing["status"]),
        (TaskStatus::Succeeded, &json!(404))
    );
    for (end, kind) in [(&ends[5], "redirects"), (&ends[6], "timeout")] {
        assert_eq!((end.0, &end.1["kind"]), (TaskStatus::Failed, &json!(kind)));
    }
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused() {
    let port = site().await.port();
    let urls = [
        format!("http://127.0.0.1:{port}/text"),
        format!("http://[::1]:{port}/text"),
        format!("http://[::ffff:127.0.0.1]:{port}/text"),
        // These are names, and are looked up.
        format!("http://localhost:{port}/text"),
        format!("http://127.1:{port}/text"),
        format!("http://2130706433:{port}/text"),
        format!("http://0x7f000001:{port}/text"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://10.0.0.1/".to_owned(),
        "https://192.168.0.1/".to_owned(),
        "http://[fd00:ec2::254]/".to_owned(),
        "http://0.0.0.0/".to_owned(),
        "http://224.0.0.1/".to_owned(),
        "http://user@1.1.1.1/".to_owned(),
        "ftp://1.1.1.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
        "not a url".to_owned(),
    ];
    let payloads: Vec<Value> = urls.iter().map(|url| json!({ "url": url })).collect();
    let ends = run(HttpGetOptions::default(), &payloads).await;
    for (url, (status, said)) in urls.iter().zip(&ends) {
        assert_eq!(*status, TaskStatus::Failed, "{url}");
        assert_eq!(said["kind"], "url_refused", "{url}: {said}");
        // The addresses that a name has in the worker's network are nobody's business.
        let said = said.to_string();
        for address in ["127.0.0.1", "::1"] {
            assert!(
                url.contains(address) || !said.contains(address),
                "{url}: {said}"
            );
        }
    }
}

/// The first hop is allowed; where it leads to is looked at like any other URL.
#[tokio::test]
async fn a_redirect_does_not_open_what_is_closed() {
    let port = site().await.port();
    let targets = [
        format!("http://127.0.0.2:{port}/text"),
        format!("//[::1]:{port}/text"),
        "http://169.254.169.254/".to_owned(),
        "http://127.2/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ];
    let payloads: Vec<Value> = targets
        .iter()
        .map(|target| json!({ "url": format!("http://127.0.0.1:{port}/to?{target}") }))
        .collect();
    let options = HttpGetOptions {
        allow: vec!["127.0.0.1".parse().expect("an address")],
        ..Default::default()
    };
    let ends = run(options.clone(), &payloads).await;
    for (target, (status, said)) in targets.iter().zip(&ends) {
        assert_eq!(*status, TaskStatus::Failed, "{target}");
        assert_eq!(said["kind"], "url_refused", "{target}: {said}");
    }
    let back = json!({ "url": format!("http://127.0.0.1:{port}/to?/text") });
    let ends = run(options, &[back]).await;
    assert_eq!(ends[0].1["body"], "grüße");
}

#[tokio::test]
async fn a_payload_with_an_unknown_field_is_refused() {
    let payload = json!({ "url": "http://1.1.1.1/", "method": "POST" });
    let ends = run(HttpGetOptions::default(), &[payload]).await;
    assert_eq!(ends[0].1["kind"], "payload");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_tried_again_later() {
    let gate = Gate::start().await;
    let client = gate.client();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let free = listener.local_addr().expect("an address");
    drop(listener);
    let http_get = HttpGet::new(HttpGetOptions {
        timeout: Duration::from_secs(5),
        ..allowed()
    });
    let http_get = http_get.expect("a handler");
    let hired = hire(builder(client.clone()).handle("http_get", http_get.handler()));
    let payload = json!({ "url": format!("http://{free}/") });
    let task_id = create(&client, "http_get", &payload.to_string()).await;
    while crate::server::now(&client, &task_id).await.attempt == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(hired.stop().await.failed, 1);
    assert_eq!(gate.count("task.retry_scheduled").await, 1);
}
