//! Contracts of tasks on a real server: deadlines that end tasks, names that are given twice, texts that are
//! none, and what the command line tells of them.

use serde_json::{Value, json};

use crate::calls::{millis, text};
use crate::cli::Scene;
use crate::harness::Server;
use crate::http::Request;
use crate::mcp::{ERAS, carry_to, message};

#[test]
fn a_deadline_ends_a_task_that_a_worker_still_holds() {
    let server = Server::start();
    let id = server.create(&json!({
        "type": "x", "principal_id": "alice", "instructions": "Quick!",
        "timeouts": {"deadline_seconds": 3, "lease_ttl_seconds": 120},
    }));
    let held = server.take_for("slow", 300);
    assert_eq!(held.record["instructions"], "Quick!");
    let ended = server
        .get(&format!("/v1/tasks/{id}?wait_seconds=30"))
        .expect(200);
    assert_eq!(ended["status"], "failed");
    assert_eq!(ended["result"]["error"], json!({"code": "deadline"}));
    let late = millis(&ended["result"]["completed_at"]) - millis(&ended["deadline_at"]);
    assert!(late >= 0, "{late} ms");
    server
        .under(&held, "complete", &json!({"artifacts": ["x"]}))
        .refused(409, "LEASE_INVALID_OR_EXPIRED");
    assert!(server.obligations("alice").is_empty());
    let story = server.story(&id);
    assert_eq!(
        story[2]["from"],
        json!({"kind": "system", "id": "asyncgate"})
    );
}

#[test]
fn a_principal_in_query_and_body_must_be_the_same() {
    let server = Server::start();
    for (target, body, status) in [
        (
            "/v1/tasks?principal_id=a",
            r#"{"type":"x","principal_ai":"a"}"#,
            201,
        ),
        (
            "/v1/tasks?principal_id=a",
            r#"{"type":"x","principal_id":"a"}"#,
            201,
        ),
        (
            "/v1/tasks?principal_id=a&principal_kind=human",
            r#"{"type":"x","principal_kind":"human"}"#,
            201,
        ),
        (
            "/v1/tasks",
            r#"{"type":"x","principal_id":"a","principal_ai":"a"}"#,
            201,
        ),
        (
            "/v1/tasks?principal_id=a",
            r#"{"type":"x","principal_ai":"b"}"#,
            400,
        ),
        (
            "/v1/tasks?principal_id=a",
            r#"{"type":"x","principal_id":"b"}"#,
            400,
        ),
        (
            "/v1/tasks",
            r#"{"type":"x","principal_id":"a","principal_ai":"b"}"#,
            400,
        ),
    ] {
        let answer = server.send(Request::post(target, body)).expect(status);
        if status == 201 {
            let task = server.task(&text(&answer["task_id"]));
            assert_eq!(task["created_by"]["id"], "a", "{target} {body}");
        }
    }
}

#[test]
fn a_text_with_half_a_character_is_refused_over_rest_and_mcp() {
    let server = Server::start();
    let input = r#"{"type":"x","payload":{"deep":["\ud83d"]}}"#;
    server
        .send(Request::post("/v1/tasks", input))
        .refused(400, "BAD_REQUEST");
    for era in ERAS {
        let call =
            json!({"name": "asyncgate_create_task", "arguments": {"type": "x", "payload": "@"}});
        let call = message(era, 1, "tools/call", call);
        let body = call.to_string().replace("\"@\"", r#""\ud83d""#);
        let request = carry_to("/mcp?tools=all", era, &call).body(body);
        let answer: Value = server.send(request).json();
        let refused = answer["result"]["isError"] == true || answer["error"].is_object();
        assert!(refused, "{answer}");
    }
    assert!(server.ledger().is_empty());
}

#[test]
fn the_command_line_writes_contracts_and_shows_them() {
    let scene = Scene::set();
    let line = "task create render --as alice --instructions quickly --deadline 2099-01-05T11:00:00Z \
                --success-criteria {\"pages\":3} --lease-ttl 60 --max-lease-expiries 1 -q";
    let id = scene.says(line);
    let task = scene.says_json(&format!("task get {id}"));
    assert_eq!(task["instructions"], "quickly");
    assert_eq!(task["success_criteria"], json!({"pages": 3}));
    assert_eq!(task["deadline_at"], "2099-01-05T11:00:00.000Z");
    let timeouts = json!({"lease_ttl_seconds": 60, "deadline_at": "2099-01-05T11:00:00.000Z"});
    assert_eq!(
        (&task["timeouts"], &task["max_lease_expiries"]),
        (&timeouts, &json!(1))
    );
    let held = scene.server.take("bob");
    let fail = json!({"error": {"why": "net"}, "retryable": true, "retry_after_seconds": 600});
    scene.server.under(&held, "fail", &fail).expect(200);
    let told = scene.says(&format!("task get {id}"));
    for words in [
        "2099-01-05T11:00:00.000Z",
        "last error",
        "net",
        "next try",
        "deadline",
    ] {
        assert!(told.contains(words), "{words} in {told}");
    }
    let seconds = scene.says("task create render --as alice --deadline 3600 -q");
    let task = scene.says_json(&format!("task get {seconds}"));
    assert_eq!(task["timeouts"], json!({"deadline_seconds": 3600}));
}
