//! The endpoint as a client meets it.

use axum::body::to_bytes;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::fake::{Fake, Keys};

const LIMIT: usize = 1000;
const MODERN: &str = "2026-07-28";

/// A request being put together, and the means to send it.
struct Ask(http::request::Builder);

struct Got {
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
}

impl Got {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn code(&self) -> Option<i64> {
        self.json()["error"]["code"].as_i64()
    }

    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

fn bare(method: &str) -> Ask {
    Ask(HttpRequest::builder().method(method).uri("/mcp"))
}

fn post() -> Ask {
    post_to("/mcp")
}

fn post_to(uri: &str) -> Ask {
    Ask(HttpRequest::post(uri))
        .with("authorization", "Bearer alice-key")
        .with("content-type", "application/json")
        .with("accept", "application/json, text/event-stream")
}

fn modern(method: &str) -> Ask {
    post()
        .with("mcp-protocol-version", MODERN)
        .with("mcp-method", method)
}

impl Ask {
    fn with(self, name: &str, value: &str) -> Self {
        Self(self.0.header(name, value))
    }

    async fn send(self, body: impl Into<Body>) -> Got {
        let options = Options {
            allowed_origins: vec!["https://ok.example.com".to_owned()],
            max_input_bytes: LIMIT,
            ..Options::default()
        };
        let dispatcher = Dispatcher::new(Fake::default(), &options);
        let router = mount(dispatcher, Keys, options);
        let request = self.0.body(body.into()).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        Got {
            status: parts.status.as_u16(),
            headers: parts.headers,
            body: to_bytes(body, usize::MAX).await.unwrap().to_vec(),
        }
    }
}

fn request(method: &str, params: &Value) -> String {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
}

fn with_meta(version: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    params
}

fn ping() -> String {
    request("ping", &json!({}))
}

#[tokio::test]
async fn strangers_learn_only_that_a_credential_is_missing() {
    for method in ["POST", "GET", "DELETE", "PUT"] {
        let got = bare(method).send("not even json").await;
        assert_eq!(got.status, 401, "{method}");
        assert_eq!(
            got.header("www-authenticate"),
            r#"Bearer realm="asyncgate""#
        );
        assert_eq!(got.json()["code"], "UNAUTHORIZED");
        assert_eq!(got.json()["error"], "unauthorized");
        assert_eq!(got.json()["corr_id"], got.header("x-corr-id"));
    }
    let bad = bare("POST")
        .with("authorization", "Bearer nope")
        .send("")
        .await;
    assert!(bad.header("www-authenticate").contains("invalid_token"));
    let basic = bare("POST")
        .with("authorization", "Basic alice-key")
        .send("")
        .await;
    assert_eq!(basic.status, 401);
}

#[tokio::test]
async fn a_stranger_is_told_in_the_words_of_the_tool_it_calls() {
    let call = |name: &str| request("tools/call", &json!({"name": name, "arguments": {}}));
    let ask = || bare("POST").with("authorization", "Bearer nope");
    for tool in ["fake.echo", "fake_echo"] {
        let got = ask().send(call(tool)).await;
        let found = (got.status, got.json()["code"].clone());
        assert_eq!(found, (401, json!("E_CAP_AUTH")), "{tool}");
    }
    let large = " ".repeat(MOST_OF_A_STRANGER);
    for body in [
        call("fake.wait"),
        call("nope"),
        call("fake.echo") + &large,
        "{".to_owned(),
    ] {
        let got = ask().send(body).await;
        let found = (got.status, got.json()["code"].clone());
        assert_eq!(found, (401, json!("UNAUTHORIZED")));
    }
}

#[tokio::test]
async fn a_query_chooses_toolsets() {
    let list = || request("tools/list", &json!({}));
    let names = |got: &Got| -> Vec<String> {
        let tools = got.json()["result"]["tools"].as_array().unwrap().clone();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    for (uri, expected) in [
        ("/mcp", &["fake_echo"][..]),
        ("/mcp?tools=worker", &["fake_wait"]),
        ("/mcp?tools=worker,agent", &["fake_echo", "fake_wait"]),
        ("/mcp?tools=all", &["fake_echo", "fake_wait", "fake_old"]),
    ] {
        let got = post_to(uri).send(list()).await;
        assert_eq!(names(&got), expected, "{uri}");
    }
    for uri in ["/mcp?tools=agents", "/mcp?tools=agent,x", "/mcp?tool=agent"] {
        let got = post_to(uri).send(list()).await;
        assert_eq!(
            (got.status, &got.json()["code"]),
            (400, &json!("BAD_REQUEST")),
            "{uri}"
        );
    }
    let got = post_to("/mcp?tools=agents").send(list()).await;
    let said = got.json()["message"].to_string();
    assert!(
        said.contains("agents") && said.contains("admission"),
        "{said}"
    );
    let stranger = Ask(HttpRequest::post("/mcp?tools=agents")).send("").await;
    assert_eq!(stranger.status, 401);
}

#[tokio::test]
async fn the_origin_comes_before_the_credential() {
    let got = bare("POST")
        .with("origin", "http://evil.example.com")
        .send("")
        .await;
    assert_eq!(
        (got.status, &got.json()["code"]),
        (403, &json!("FORBIDDEN"))
    );
    for origin in ["http://localhost:6274", "https://ok.example.com"] {
        let got = post().with("origin", origin).send(ping()).await;
        assert_eq!(got.status, 200, "{origin}");
    }
}

#[tokio::test]
async fn a_guard_that_is_busy_says_when_to_come_back() {
    let got = bare("POST")
        .with("authorization", "bearer busy-key")
        .send("")
        .await;
    assert_eq!((got.status, got.header("retry-after")), (429, "7"));
    assert_eq!(got.header("www-authenticate"), "");
}

#[tokio::test]
async fn only_post_is_served() {
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        let asked = bare(method).with("authorization", "Bearer alice-key");
        let got = asked.send("").await;
        assert_eq!((got.status, got.header("allow")), (405, "POST"), "{method}");
    }
}

#[tokio::test]
async fn media_types_are_negotiated() {
    let key = || bare("POST").with("authorization", "Bearer alice-key");
    let typed = || key().with("content-type", "application/json; charset=utf-8");
    assert_eq!(key().send(ping()).await.status, 415);
    let plain = key().with("content-type", "text/plain").send(ping()).await;
    assert_eq!(
        (plain.status, &plain.json()["code"]),
        (415, &json!("BAD_REQUEST"))
    );
    let html = typed().with("accept", "text/html").send(ping()).await;
    assert_eq!(html.status, 406);
    for accept in [
        None,
        Some("*/*"),
        Some("text/event-stream;q=1, application/json;q=0.1"),
    ] {
        let asked = accept.map_or_else(typed, |accept| typed().with("accept", accept));
        let got = asked.send(ping()).await;
        assert_eq!(got.header("content-type"), "application/json", "{accept:?}");
        assert_eq!(got.json(), json!({"jsonrpc": "2.0", "id": 1, "result": {}}));
    }
    let streamed = typed()
        .with("accept", "text/event-stream")
        .send(ping())
        .await;
    assert_eq!(streamed.header("content-type"), "text/event-stream");
    let event = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n";
    assert_eq!(streamed.body, event.as_bytes());
}

#[tokio::test]
async fn an_event_is_one_line_whatever_the_output_holds() {
    let body = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\
        \"params\":{\"name\":\"fake.echo\",\"arguments\":{\"a\":\r\n1}}}";
    let asked = bare("POST")
        .with("authorization", "Bearer alice-key")
        .with("content-type", "application/json")
        .with("accept", "text/event-stream");
    let got = asked.send(body).await;
    let text = String::from_utf8(got.body).unwrap();
    let data = text.strip_prefix("event: message\ndata: ").unwrap();
    let data = data.strip_suffix("\n\n").unwrap();
    assert!(!data.contains(['\n', '\r']));
    let answer: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        answer["result"]["structuredContent"]["echo"],
        json!({"a": 1})
    );
    let exact = answer["result"]["content"][0]["text"].as_str().unwrap();
    assert!(
        exact.contains("{\"a\":\r\n1}"),
        "the text block keeps every byte"
    );
}

#[tokio::test]
async fn arguments_pass_byte_for_byte() {
    let arguments =
        r#"{"z":1.0000000000000000000001,"a":"\u0000\ud83d\ude00","a":12345678901234567890123}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"fake.echo","arguments":{arguments}}}}}"#
    );
    let got = post().send(body).await;
    let text = String::from_utf8(got.body).unwrap();
    let spliced = format!(r#""structuredContent":{{"caller":"alice","echo":{arguments}}}"#);
    assert!(text.contains(&spliced), "{text}");
}

#[tokio::test]
async fn the_callers_corr_id_is_kept_if_it_can_be_repeated() {
    for good in ["abc-1.2:3_4", "a\"b"] {
        let got = post().with("x-corr-id", good).send(ping()).await;
        assert_eq!(got.header("x-corr-id"), good);
    }
    for odd in ["", "a b", &"x".repeat(129)] {
        let got = post().with("x-corr-id", odd).send(ping()).await;
        assert_eq!(got.header("x-corr-id"), "corr-new", "{odd}");
    }
    let body = request("tools/call", &json!({"name": "fake.refuse"}));
    let got = post().with("x-corr-id", "mine").send(body).await;
    let text = got.json()["result"]["content"][0]["text"].to_string();
    assert!(text.contains("mine"), "{text}");
}

#[tokio::test]
async fn what_is_no_message_is_refused() {
    let table = [
        ("", -32700),
        ("{", -32700),
        ("{} x", -32700),
        ("7", -32600),
        ("{}", -32600),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, -32600),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b"}}"#,
            -32602,
        ),
    ];
    for (body, code) in table {
        let got = post().send(body).await;
        assert_eq!((got.status, got.code()), (400, Some(code)), "{body}");
    }
    let not_utf8 = post()
        .send(&b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\"}"[..])
        .await;
    assert_eq!((not_utf8.status, not_utf8.code()), (400, Some(-32700)));
}

#[tokio::test]
async fn a_body_past_the_limit_is_refused() {
    let limit = Options::max_message_bytes(LIMIT);
    let got = post().send(vec![b' '; limit + 1]).await;
    assert_eq!(
        (got.status, &got.json()["code"]),
        (413, &json!("TOO_LARGE"))
    );
    let fits = ping() + &" ".repeat(limit - ping().len());
    let fits = post().send(fits).await;
    assert_eq!(fits.status, 200);
}

#[tokio::test]
async fn the_older_era_answers_errors_with_200() {
    let unknown = post().send(request("nope", &json!({}))).await;
    assert_eq!((unknown.status, unknown.code()), (200, Some(-32601)));
    let tool = post()
        .send(request("tools/call", &json!({"name": "nope"})))
        .await;
    assert_eq!((tool.status, tool.code()), (200, Some(-32602)));
    let body = request(
        "initialize",
        &json!({"protocolVersion": MODERN, "capabilities": {}}),
    );
    let got = post().send(body).await;
    assert_eq!(got.json()["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(got.header("mcp-session-id"), "");
}

#[tokio::test]
async fn notifications_and_responses_are_accepted_in_the_older_era() {
    for body in [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    ] {
        for version in [None, Some("2025-06-18")] {
            let asked = version.map_or_else(post, |v| post().with("mcp-protocol-version", v));
            let got = asked.send(body).await;
            assert_eq!((got.status, got.body.len()), (202, 0), "{body}");
        }
        let unknown = post()
            .with("mcp-protocol-version", "1999-01-01")
            .send(body)
            .await;
        assert_eq!((unknown.status, unknown.code()), (400, Some(-32022)));
    }
}

#[tokio::test]
async fn batches_are_for_the_revisions_that_had_them() {
    let batch = format!("[{},{}]", ping(), ping());
    for version in [None, Some("2025-03-26")] {
        let asked = version.map_or_else(post, |v| post().with("mcp-protocol-version", v));
        let got = asked.send(batch.clone()).await;
        assert_eq!(got.status, 200);
        assert_eq!(got.json().as_array().unwrap().len(), 2);
    }
    for version in ["2025-06-18", "2025-11-25", MODERN] {
        let got = post()
            .with("mcp-protocol-version", version)
            .send(batch.clone())
            .await;
        assert_eq!((got.status, got.code()), (400, Some(-32600)), "{version}");
    }
    let silent = post().send(r#"[{"jsonrpc":"2.0","method":"n"}]"#).await;
    assert_eq!((silent.status, silent.body.len()), (202, 0));
}

#[tokio::test]
async fn a_stateless_request_needs_no_handshake() {
    let body = request("server/discover", &with_meta(MODERN, json!({})));
    let got = modern("server/discover").send(body).await;
    assert_eq!(got.status, 200);
    assert_eq!(got.json()["result"]["supportedVersions"][0], MODERN);
    let body = request(
        "tools/call",
        &with_meta(MODERN, json!({"name": "fake.echo"})),
    );
    let got = modern("tools/call")
        .with("mcp-name", "fake.echo")
        .send(body)
        .await;
    assert_eq!(got.json()["result"]["resultType"], "complete");
    let body = request(
        "tools/call",
        &with_meta(MODERN, json!({"name": "fake_echo"})),
    );
    let got = modern("tools/call")
        .with("mcp-name", "fake.echo")
        .send(body)
        .await;
    assert_eq!(got.json()["result"]["isError"], false);
    let body = request("tools/call", &with_meta(MODERN, json!({"name": "nope"})));
    let got = modern("tools/call")
        .with("mcp-name", "nope")
        .send(body)
        .await;
    assert_eq!((got.status, got.code()), (200, Some(-32602)));
}

#[tokio::test]
async fn stateless_headers_must_agree_with_the_body() {
    let list = request("tools/list", &with_meta(MODERN, json!({})));
    let call = request(
        "tools/call",
        &with_meta(MODERN, json!({"name": "fake.echo"})),
    );
    let version_only = || post().with("mcp-protocol-version", MODERN);
    let table = [
        (modern("tools/call"), &list, "another method"),
        (modern("TOOLS/LIST"), &list, "another case"),
        (version_only(), &list, "no method"),
        (post().with("mcp-method", "tools/list"), &list, "no version"),
        (
            modern("tools/list").with("mcp-method", "tools/list"),
            &list,
            "twice",
        ),
        (modern("tools/call"), &call, "no name"),
        (
            modern("tools/call").with("mcp-name", "fake.refuse"),
            &call,
            "another name",
        ),
    ];
    for (asked, body, why) in table {
        let got = asked.send(body.clone()).await;
        assert_eq!((got.status, got.code()), (400, Some(-32020)), "{why}");
        assert_eq!(got.json()["id"], 1, "{why}");
    }
    let other = request("tools/list", &with_meta("v999", json!({})));
    let got = modern("tools/list").send(other.clone()).await;
    assert_eq!(
        (got.status, got.code()),
        (400, Some(-32020)),
        "versions differ"
    );
    let asked = post()
        .with("mcp-protocol-version", "v999")
        .with("mcp-method", "tools/list");
    let got = asked.send(other).await;
    assert_eq!((got.status, got.code()), (400, Some(-32022)));
    assert_eq!(got.json()["error"]["data"]["requested"], "v999");
}

#[tokio::test]
async fn stateless_envelopes_and_methods_are_checked() {
    let got = modern("tools/list")
        .send(request("tools/list", &json!({})))
        .await;
    assert_eq!((got.status, got.code()), (400, Some(-32602)));
    for method in ["initialize", "ping", "logging/setLevel", "unknown/method"] {
        let body = request(method, &with_meta(MODERN, json!({})));
        let got = modern(method).send(body).await;
        assert_eq!((got.status, got.code()), (404, Some(-32601)), "{method}");
    }
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#;
    assert_eq!(modern("x").send(notification).await.status, 202);
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let got = modern("x").send(response).await;
    assert_eq!((got.status, got.code()), (400, Some(-32600)));
}
