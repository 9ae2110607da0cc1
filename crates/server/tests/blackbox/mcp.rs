//! MCP over HTTP: the same path of a task through tools, in both eras of the protocol.

use serde_json::{Value, json};

use crate::calls::{Held, is_id, text, types};
use crate::harness::{KEY, Launch, Server};
use crate::http::{Request, Response};

const STATELESS: &str = "2026-07-28";

/// Which rules a client follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// 2025-11-25 and older.
    Handshake,
    /// 2026-07-28.
    Stateless,
}

pub const ERAS: [Era; 2] = [Era::Handshake, Era::Stateless];

/// A request as a client of this era writes it.
pub fn message(era: Era, id: u32, method: &str, mut params: Value) -> Value {
    if era == Era::Stateless {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientCapabilities": {},
        });
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// The request that carries a message, with the headers that its era asks for.
fn carry(era: Era, message: &Value) -> Request {
    carry_to("/mcp", era, message)
}

pub fn carry_to(target: &str, era: Era, message: &Value) -> Request {
    let request = Request::post(target, message.to_string())
        .header("Accept", "application/json, text/event-stream");
    if era == Era::Handshake {
        return request.header("MCP-Protocol-Version", "2025-11-25");
    }
    let request = request
        .header("MCP-Protocol-Version", STATELESS)
        .header("Mcp-Method", message["method"].as_str().unwrap());
    match message["params"]["name"].as_str() {
        Some(name) => request.header("Mcp-Name", name),
        None => request,
    }
}

#[track_caller]
fn ask(server: &Server, era: Era, method: &str, params: Value) -> Response {
    server.send(carry(era, &message(era, 1, method, params)))
}

/// What a tool said: its output, or the body of its refusal.
#[track_caller]
pub fn outcome(answer: &Value) -> Result<Value, Value> {
    let result = &answer["result"];
    let block = &result["content"][0];
    assert_eq!(block["type"], "text", "{answer}");
    let said: Value = serde_json::from_str(block["text"].as_str().unwrap()).unwrap();
    match result["isError"].as_bool() {
        Some(false) => {
            assert_eq!(result["structuredContent"], said, "{answer}");
            Ok(said)
        }
        Some(true) => {
            assert_eq!(result.get("structuredContent"), None, "{answer}");
            Err(said)
        }
        None => panic!("{answer}"),
    }
}

#[track_caller]
pub fn call(server: &Server, era: Era, tool: &str, arguments: Value) -> Result<Value, Value> {
    let params = json!({"name": tool, "arguments": arguments});
    outcome(&ask(server, era, "tools/call", params).expect(200))
}

/// The whole path of a task, through whatever carries a tool call.
pub fn happy_path(mut call: impl FnMut(&str, Value) -> Result<Value, Value>) {
    let mut done = |tool: &str, arguments: Value| {
        let answered = call(&format!("asyncgate.{tool}"), arguments);
        answered.unwrap_or_else(|refusal| panic!("{tool}: {refusal}"))
    };
    let create = json!({
        "type": "render", "payload": {"n": 1.5}, "principal_id": "alice", "idempotency_key": "k",
    });
    let created = done("create_task", create.clone());
    is_id(&created["task_id"]);
    assert_eq!(created["duplicate"], false);
    let again = done("create_task", create);
    assert_eq!(
        (&again["task_id"], &again["duplicate"]),
        (&created["task_id"], &json!(true))
    );
    let task_id = text(&created["task_id"]);
    let owed = done("list_open_obligations", json!({"principal_id": "alice"}));
    assert_eq!(
        types(owed["open_obligations"].as_array().unwrap()),
        ["task.assigned"]
    );

    let claimed = done("lease_next", json!({"worker_id": "w", "max_tasks": 2}));
    let leased = &claimed["tasks"][0];
    assert_eq!(
        (&leased["task_id"], &leased["payload"]),
        (&json!(task_id), &json!({"n": 1.5}))
    );
    let under = |more: Value| {
        let mut input =
            json!({"task_id": task_id, "lease_id": leased["lease_id"], "worker_id": "w"});
        for (name, value) in more.as_object().unwrap() {
            input[name] = value.clone();
        }
        input
    };
    assert_eq!(done("start_task", under(json!({}))), json!({"ok": true}));
    assert_eq!(
        done("report_progress", under(json!({"progress": 50}))),
        json!({"ok": true})
    );
    assert_eq!(
        done("renew_lease", under(json!({"extend_by_seconds": 60})))["ok"],
        true
    );
    let read = done("get_task", json!({"task_id": task_id}));
    assert_eq!(
        (&read["status"], &read["progress"]),
        (&json!("running"), &json!(50))
    );
    let proof = json!({"result": {"pages": 3}, "artifacts": [{"url": "s3://out"}]});
    let completed = done("complete", under(proof));
    assert_eq!(completed["duplicate"], false);
    let read = done("get_task", json!({"task_id": task_id, "wait_seconds": 10}));
    assert_eq!(read["result"]["result"], json!({"pages": 3}));

    let inbox = done("list_receipts", json!({"principal_id": "alice"}));
    let receipts = inbox["receipts"].as_array().unwrap();
    assert_eq!(
        types(receipts),
        ["task.assigned", "task.completed", "task.result_ready"]
    );
    let receipt_id = &completed["receipt_id"];
    assert_eq!(
        done("get_receipt", json!({"receipt_id": receipt_id})),
        receipts[1]
    );
    assert_eq!(
        done("ack_receipt", json!({"receipt_id": receipt_id})),
        json!({"ok": true})
    );
    let story = done("list_ledger", json!({"task_id": task_id}));
    assert_eq!(story["receipts"].as_array().unwrap().len(), 7);
    let owed = done("list_open_obligations", json!({"principal_id": "alice"}));
    assert_eq!(owed["open_obligations"], json!([]));
    let begun = done("bootstrap", json!({"principal_id": "alice"}));
    assert_eq!(
        begun["attention"]["inbox_receipts"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    let other = done(
        "create_task",
        json!({"type": "other", "principal_id": "alice"}),
    );
    let claimed = done("lease_next", json!({"worker_id": "w"}));
    let held = json!({
        "task_id": other["task_id"], "lease_id": claimed["tasks"][0]["lease_id"], "worker_id": "w",
    });
    assert_eq!(done("release_lease", held), json!({"ok": true}));
    let claimed = done("lease_next", json!({"worker_id": "w"}));
    let failed = json!({
        "task_id": other["task_id"], "lease_id": claimed["tasks"][0]["lease_id"], "worker_id": "w",
        "error": {"why": "x"},
    });
    assert_eq!(done("fail", failed)["requeued"], false);
    let third = done(
        "create_task",
        json!({"type": "third", "principal_id": "alice"}),
    );
    let canceled = done(
        "cancel_task",
        json!({"task_id": third["task_id"], "reason": "enough"}),
    );
    assert_eq!(canceled, json!({"ok": true, "status": "canceled"}));
    let listed = done("list_tasks", json!({"principal_id": "alice", "limit": 2}));
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 2);
    assert_ne!(listed["next_cursor"], Value::Null);
    assert_eq!(done("get_config", json!({}))["receipt_mode"], "standalone");
}

#[test]
fn a_task_goes_the_whole_way_through_tools_in_both_eras() {
    for era in ERAS {
        let server = Server::start();
        happy_path(|tool, arguments| call(&server, era, tool, arguments));
        // What tools did is what REST shows.
        assert_eq!(
            server.get("/v1/tasks").expect(200)["tasks"]
                .as_array()
                .unwrap()
                .len(),
            3
        );
    }
}

#[test]
fn each_era_begins_in_its_own_way() {
    let server = Server::start();
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let result = ask(&server, Era::Handshake, "initialize", hello).expect(200)["result"].clone();
    assert_eq!(result["protocolVersion"], "2025-11-25");
    assert_eq!(result["serverInfo"]["name"], "asyncgate");
    assert!(result["capabilities"]["tools"].is_object());
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(server.send(carry(Era::Handshake, &ready)).status, 202);
    ask(&server, Era::Handshake, "ping", json!({})).expect(200);

    let found = ask(&server, Era::Stateless, "server/discover", json!({})).expect(200);
    let versions = found["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!(STATELESS)) && versions.contains(&json!("2025-11-25")));
    for (era, method) in [
        (Era::Stateless, "ping"),
        (Era::Handshake, "server/discover"),
    ] {
        let answer = ask(&server, era, method, json!({})).json();
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
}

#[test]
fn refusals_of_a_tool_are_results_that_a_model_can_read() {
    let server = Server::start();
    for era in ERAS {
        let nobody = "01890000-0000-7000-8000-000000000001";
        for (tool, arguments, code) in [
            ("create_task", json!({}), "BAD_REQUEST"),
            (
                "create_task",
                json!({"type": "x", "surprise": 1}),
                "BAD_REQUEST",
            ),
            ("create_task", json!({"type": 1}), "BAD_REQUEST"),
            ("get_task", json!({"task_id": nobody}), "TASK_NOT_FOUND"),
            ("get_task", json!({"task_id": "x"}), "BAD_REQUEST"),
            (
                "get_receipt",
                json!({"receipt_id": nobody}),
                "RECEIPT_NOT_FOUND",
            ),
            ("lease_next", json!({"max_tasks": 1_001}), "BAD_REQUEST"),
            (
                "list_receipts",
                json!({"since_receipt_id": nobody}),
                "BAD_REQUEST",
            ),
            ("list_tasks", json!({"limit": 0}), "BAD_REQUEST"),
        ] {
            let tool = format!("asyncgate.{tool}");
            let refusal = call(&server, era, &tool, arguments).unwrap_err();
            assert_eq!(refusal["code"], code, "{tool}: {refusal}");
            assert_eq!(refusal["error"], code.to_ascii_lowercase());
            assert!(!text(&refusal["message"]).is_empty());
            is_id(&refusal["corr_id"]);
        }
    }
    assert_eq!(server.ledger(), Vec::<Value>::new());
}

#[test]
fn the_fence_stands_for_tools_too() {
    let server = Server::start();
    server.create_plain("x");
    let stale = server.take("w");
    server.under(&stale, "release", &json!({})).expect(200);
    let held: Held = server.take("w");
    let before = server.ledger();
    let arguments = json!({
        "task_id": stale.task_id, "lease_id": stale.lease_id, "worker_id": "w", "artifacts": [1],
    });
    for era in ERAS {
        let refusal = call(&server, era, "asyncgate.complete", arguments.clone()).unwrap_err();
        assert_eq!(refusal["code"], "LEASE_INVALID_OR_EXPIRED");
    }
    assert_eq!(server.ledger(), before);
    let mut arguments = arguments;
    arguments["lease_id"] = json!(held.lease_id);
    call(&server, Era::Stateless, "asyncgate.complete", arguments).unwrap();
    server.under(&held, "complete", &json!({})).expect(200);
}

#[test]
fn wrong_messages_are_protocol_errors() {
    let server = Server::start();
    let code = |answer: &Response| answer.json()["error"]["code"].as_i64();
    for era in ERAS {
        let unknown = json!({"name": "asyncgate.nothing", "arguments": {}});
        let answer = ask(&server, era, "tools/call", unknown);
        assert_eq!((answer.status, code(&answer)), (200, Some(-32602)));
        let array = json!({"name": "asyncgate.get_config", "arguments": []});
        let answer = ask(&server, era, "tools/call", array);
        assert_eq!(code(&answer), Some(-32602), "{answer:?}");
    }
    for body in ["", "{", "[", "7", "{}", "\u{0}"] {
        let answer = server.send(Request::post("/mcp", body));
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
        assert!(
            matches!(code(&answer), Some(-32700 | -32600)),
            "{body}: {answer:?}"
        );
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for body in [
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{deep}}}"#),
        format!(r#"{{"jsonrpc":"2.0","id":{deep},"method":"tools/list"}}"#),
    ] {
        let answer = server.send(Request::post("/mcp", body));
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(code(&answer).is_some(), "{answer:?}");
    }
    let list = message(Era::Stateless, 1, "tools/list", json!({}));
    let mismatch = Request::post("/mcp", list.to_string())
        .header("MCP-Protocol-Version", STATELESS)
        .header("Mcp-Method", "tools/call");
    let answer = server.send(mismatch);
    assert_eq!((answer.status, code(&answer)), (400, Some(-32020)));
    let mut future = list.clone();
    future["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] = json!("2099-01-01");
    let future = Request::post("/mcp", future.to_string())
        .header("MCP-Protocol-Version", "2099-01-01")
        .header("Mcp-Method", "tools/list");
    let answer = server.send(future);
    assert_eq!((answer.status, code(&answer)), (400, Some(-32022)));
    let answer = ask(&server, Era::Stateless, "nothing/at-all", json!({}));
    assert_eq!((answer.status, code(&answer)), (404, Some(-32601)));
}

#[test]
fn strange_pages_and_strangers_are_refused() {
    let server = Launch::new()
        .set("mcp.allowed_origins=https://console.example.com")
        .start();
    let list = message(Era::Handshake, 1, "tools/list", json!({}));
    let from = |origin: &str| carry(Era::Handshake, &list).header("Origin", origin);
    for origin in [
        "http://evil.example.com",
        "http://localhost.evil.example.com",
        "https://console.example.com.evil.example.com",
        "http://console.example.com",
        "null",
    ] {
        server.send(from(origin)).refused(403, "FORBIDDEN");
        server.send_bare(&from(origin)).refused(403, "FORBIDDEN");
    }
    for origin in [
        "http://localhost:3000",
        "http://127.0.0.1",
        "https://console.example.com",
    ] {
        server.send(from(origin)).expect(200);
    }
    let answer = server.send_bare(&carry(Era::Handshake, &list));
    answer.refused(401, "UNAUTHORIZED");
    assert!(
        answer
            .header("WWW-Authenticate")
            .unwrap()
            .starts_with("Bearer")
    );
    let wrong = carry(Era::Handshake, &list).bearer(&format!("{KEY}x"));
    server.send_bare(&wrong).refused(401, "UNAUTHORIZED");
    // Who says in the headers what is called is told in the words of that plane.
    let params = json!({"name": "mailbox.send", "arguments": {}});
    let send = message(Era::Stateless, 1, "tools/call", params);
    let wrong = carry(Era::Stateless, &send).bearer(&format!("{KEY}x"));
    server.send_bare(&wrong).refused(401, "E_CAP_AUTH");
    let failures = server.metric("auth_failures_total{scope=\"send\"}");
    assert_eq!(failures, Some(1.0));
    // And so is who does not, if the message is small.
    let params = json!({"name": "mailbox_send", "arguments": {}});
    let send = message(Era::Handshake, 1, "tools/call", params);
    let wrong = carry(Era::Handshake, &send).bearer(&format!("{KEY}x"));
    server.send_bare(&wrong).refused(401, "E_CAP_AUTH");
    let failures = server.metric("auth_failures_total{scope=\"send\"}");
    assert_eq!(failures, Some(2.0));
    let params = json!({"name": "asyncgate.get_config", "arguments": {}});
    let config = message(Era::Stateless, 1, "tools/call", params);
    let wrong = carry(Era::Stateless, &config).bearer(&format!("{KEY}x"));
    server.send_bare(&wrong).refused(401, "UNAUTHORIZED");
    for method in ["GET", "DELETE", "PUT"] {
        let answer = server.send(Request::new(method, "/mcp"));
        answer.refused(405, "METHOD_NOT_ALLOWED");
        assert_eq!(answer.header("Allow"), Some("POST"));
    }
    let plain = Request::new("POST", "/mcp").header("Content-Type", "text/plain");
    assert_eq!(server.send(plain.body(list.to_string())).status, 415);
}

#[test]
fn payloads_pass_through_tools_byte_for_byte() {
    let server = Server::start();
    let payload = r#"{"z":1.0,"a":123456789012345678901234567890,"a":"\u0000\ud83d\ude00","e":1e300, "s":[ 1 ]}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"asyncgate.create_task","arguments":{{"type":"x","payload":{payload}}}}}}}"#
    );
    let created = server.send(Request::post("/mcp", body)).expect(200);
    let id = text(&created["result"]["structuredContent"]["task_id"]);
    let rest = server.get(&format!("/v1/tasks/{id}"));
    let member = format!(r#""payload":{payload}"#);
    assert!(rest.text().contains(&member), "{rest:?}");
    let params = json!({"name": "asyncgate.get_task", "arguments": {"task_id": id}});
    let tool = ask(&server, Era::Handshake, "tools/call", params);
    assert!(tool.text().contains(&member), "{tool:?}");
}

#[test]
fn a_payload_of_a_mebibyte_passes_through_tools_and_more_does_not() {
    let server = Server::start();
    let create = |bytes: usize| {
        let arguments = json!({"type": "x", "payload": "x".repeat(bytes - 2)});
        call(&server, Era::Stateless, "asyncgate.create_task", arguments)
    };
    create(1_048_576).unwrap();
    assert_eq!(create(1_048_577).unwrap_err()["code"], "TOO_LARGE");
    let huge = json!({"type": "x", "payload": "x".repeat(17 << 20)});
    let params = json!({"name": "asyncgate.create_task", "arguments": huge});
    let request = server.with_key(carry(
        Era::Stateless,
        &message(Era::Stateless, 1, "tools/call", params),
    ));
    server.send_bare(&request).refused(413, "TOO_LARGE");
    assert_eq!(server.ledger().len(), 1);
}
