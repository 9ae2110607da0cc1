//! Bad input: each is refused with the one error body, none is the server's fault, and none leaves
//! a trace.

use serde_json::{Value, json};

use crate::calls::Held;
use crate::harness::Server;
use crate::http::{Request, Response};

/// A well-formed id that names nothing.
const NOBODY: &str = "01890000-0000-7000-8000-000000000001";

/// A server with a task in a worker's hands, and what must be the same after all bad input.
pub struct Scene {
    pub server: Server,
    pub held: Held,
    before: (Value, Vec<Value>),
}

impl Scene {
    pub fn set() -> Self {
        let server = Server::start();
        server.create_plain("held");
        let held = server.take("w");
        server.create_plain("queued");
        let before = Self::state(&server);
        Self {
            server,
            held,
            before,
        }
    }

    fn state(server: &Server) -> (Value, Vec<Value>) {
        (server.get("/v1/tasks").expect(200), server.ledger())
    }

    #[track_caller]
    pub fn nothing_has_changed(&self) {
        assert_eq!(Self::state(&self.server), self.before);
    }

    /// The targets of all calls that take a body.
    pub fn posts(&self) -> Vec<String> {
        let Held { task_id, .. } = &self.held;
        let receipt = self.before.1[0]["receipt_id"].as_str().unwrap();
        vec![
            "/v1/tasks".to_owned(),
            format!("/v1/tasks/{task_id}/cancel"),
            format!("/v1/tasks/{task_id}/running"),
            format!("/v1/tasks/{task_id}/progress"),
            format!("/v1/tasks/{task_id}/complete"),
            format!("/v1/tasks/{task_id}/fail"),
            "/v1/leases/claim".to_owned(),
            "/v1/leases/renew".to_owned(),
            "/v1/leases/release".to_owned(),
            format!("/v1/receipts/{receipt}/ack"),
        ]
    }

    /// The targets of all calls without a body.
    pub fn gets(&self) -> Vec<String> {
        let Held { task_id, .. } = &self.held;
        let receipt = self.before.1[0]["receipt_id"].as_str().unwrap();
        vec![
            "/v1/tasks".to_owned(),
            format!("/v1/tasks/{task_id}"),
            "/v1/obligations/open".to_owned(),
            "/v1/bootstrap".to_owned(),
            "/v1/receipts".to_owned(),
            format!("/v1/receipts/{receipt}"),
            format!("/v1/receipts/ledger?task_id={task_id}"),
            "/v1/ledger".to_owned(),
            "/v1/ledger/head".to_owned(),
            "/v1/config".to_owned(),
            "/v1/health".to_owned(),
        ]
    }

    pub fn post(&self, target: &str, body: impl Into<Vec<u8>>) -> Response {
        self.server.send(Request::post(target, body))
    }
}

#[test]
fn bodies_that_are_no_json_object_are_refused_everywhere() {
    let scene = Scene::set();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let deep_object = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    let bodies: [&[u8]; 22] = [
        b"{",
        b"}",
        b"{]",
        b"{\"type\":\"x\"",
        b"{\"type\":\"x\",}",
        b"{\"type\":\"x\"}{}",
        b"{\"type\":\"x\"} trailing",
        b"{'type':'x'}",
        b"{type:\"x\"}",
        b"{\"type\":\"x\\q\"}",
        b"{\"type\":\"line\nbreak\"}",
        b"{\"type\":NaN}",
        b"[]",
        b"[\"x\"]",
        b"[\"x\",{},null,null,null,null,null,null,null,null,null,null,null,null,null]",
        b"\"x\"",
        b"null",
        b"7",
        b"\xff\xfe",
        b"\0",
        deep.as_bytes(),
        deep_object.as_bytes(),
    ];
    for target in scene.posts() {
        for body in bodies {
            let answer = scene.post(&target, body);
            answer.refused(400, "BAD_REQUEST");
        }
    }
    scene.nothing_has_changed();
}

#[test]
fn fields_that_nobody_knows_are_refused_everywhere() {
    let scene = Scene::set();
    let lease = &scene.held.lease_id;
    let worker = json!({"lease_id": lease, "worker_id": "w"});
    for target in scene.posts() {
        let mut input = match target.rsplit('/').next().unwrap() {
            "tasks" => json!({"type": "x"}),
            "running" | "complete" => worker.clone(),
            "progress" => json!({"lease_id": lease, "worker_id": "w", "progress": 1}),
            "fail" => json!({"lease_id": lease, "worker_id": "w", "error": 1}),
            "renew" | "release" => {
                json!({"task_id": scene.held.task_id, "lease_id": lease, "worker_id": "w"})
            }
            _ => json!({}),
        };
        input["surprise"] = json!(1);
        let refusal = scene
            .post(&target, input.to_string())
            .refused(400, "BAD_REQUEST");
        let message = refusal["message"].as_str().unwrap();
        assert!(message.contains("surprise"), "{target}: {message}");
        let query = format!("{target}?surprise=1");
        scene.post(&query, "{}").refused(400, "BAD_REQUEST");
    }
    for body in [
        r#"{"type":"x","requirements":{"capabilities":[],"cpu":4}}"#,
        r#"{"type":"x","type":"x"}"#,
        r#"{"type":"x","principal_id":"a","principal_ai":"b"}"#,
        r#"{"type":"x","tenant_id":"other"}"#,
        r#"{"type":"x","status":"succeeded"}"#,
    ] {
        scene.post("/v1/tasks", body).refused(400, "BAD_REQUEST");
    }
    scene.nothing_has_changed();
}

#[test]
fn query_parameters_that_nobody_knows_are_refused_everywhere() {
    let scene = Scene::set();
    for target in scene.gets() {
        let separator = if target.contains('?') { '&' } else { '?' };
        for extra in ["surprise=1", "surprise", "LIMIT=1", "surprise=%00"] {
            let target = format!("{target}{separator}{extra}");
            scene.server.get(&target).refused(400, "BAD_REQUEST");
        }
        scene.server.get(&target).expect(200);
    }
    for target in [
        "/v1/tasks?limit=1&limit=2",
        "/v1/receipts?principal_id=a&to_id=a",
    ] {
        scene.server.get(target).refused(400, "BAD_REQUEST");
    }
    scene.nothing_has_changed();
}

#[test]
fn wrong_types_are_refused() {
    let scene = Scene::set();
    for (field, values) in [
        ("type", json!([1, null, true, ["x"], {"a": 1}])),
        ("payload_pointer", json!([1, {}])),
        (
            "requirements",
            json!([1, "gpu", ["gpu"], {"capabilities": "gpu"}, {"capabilities": [1]}]),
        ),
        (
            "priority",
            json!(["1", 1.5, 2_147_483_648_i64, -2_147_483_649_i64, {}]),
        ),
        ("idempotency_key", json!([1, []])),
        ("max_attempts", json!(["3", -1, 1.5, 4_294_967_296_i64])),
        ("retry_backoff_seconds", json!(["3", -1, 0.5])),
        ("delay_seconds", json!(["3", 0.5, []])),
        ("principal_kind", json!(["robot", "Agent", "", 1])),
        ("principal_id", json!([1, {}, []])),
    ] {
        for value in values.as_array().unwrap() {
            let mut input = json!({"type": "x", "principal_id": "a"});
            input[field] = value.clone();
            scene
                .server
                .post("/v1/tasks", &input)
                .refused(400, "BAD_REQUEST");
        }
    }
    for (field, values) in [
        ("worker_id", json!([1, {}])),
        ("worker_kind", json!(["robot", 1])),
        ("capabilities", json!(["gpu", {"gpu": true}, [1], [null]])),
        ("accept_types", json!(["x", [1]])),
        ("max_tasks", json!(["1", 1.5, -1, 4_294_967_296_i64])),
        ("lease_ttl_seconds", json!(["1", 1.5, {}])),
        ("wait_seconds", json!(["1", 0.5, -1])),
    ] {
        for value in values.as_array().unwrap() {
            let mut input = json!({"worker_id": "w"});
            input[field] = value.clone();
            scene
                .server
                .post("/v1/leases/claim", &input)
                .refused(400, "BAD_REQUEST");
        }
    }
    let retryable = json!({"error": 1, "retryable": "yes"});
    scene
        .server
        .under(&scene.held, "fail", &retryable)
        .refused(400, "BAD_REQUEST");
    scene.nothing_has_changed();
}

#[test]
fn what_is_missing_is_named() {
    let scene = Scene::set();
    let target = |call: &str| format!("/v1/tasks/{}/{call}", scene.held.task_id);
    for (target, body, missing) in [
        ("/v1/tasks".to_owned(), "", "type"),
        ("/v1/tasks".to_owned(), "{}", "type"),
        (target("running"), "{}", "lease_id"),
        (target("progress"), "{}", "lease_id"),
        (target("complete"), "", "lease_id"),
        (target("fail"), r#"{"lease_id":"x"}"#, "error"),
        ("/v1/leases/renew".to_owned(), "{}", "task_id"),
        (
            "/v1/leases/release".to_owned(),
            r#"{"task_id":"x"}"#,
            "lease_id",
        ),
    ] {
        let refusal = scene.post(&target, body).refused(400, "BAD_REQUEST");
        let message = refusal["message"].as_str().unwrap();
        assert!(message.contains(missing), "{target}: {message}");
    }
    scene.nothing_has_changed();
}

#[test]
fn bytes_that_are_no_utf_8_are_refused() {
    let scene = Scene::set();
    for body in [
        &b"{\"type\":\"\xff\"}"[..],
        b"{\"type\":\"x\",\"payload\":\"\xc3\x28\"}",
        b"{\"type\":\"x\",\"payload\":{\"\xed\xa0\x80\":1}}",
        b"{\"type\":\"x\",\"\xff\":1}",
        b"\xef\xbb\xbf{\"type\":\"x\"}",
        b"{\"type\":\"x\",\"payload\":\"\xf8\x88\x80\x80\x80\"}",
    ] {
        scene.post("/v1/tasks", body).refused(400, "BAD_REQUEST");
    }
    scene.nothing_has_changed();
}

#[test]
fn numbers_that_others_cannot_read_are_refused_on_every_way_in() {
    let scene = Scene::set();
    let hooks = crate::ingress::launch(crate::ingress::HOOKS).start();
    let digits = "7".repeat(5_000);
    let before = hooks.get("/v1/tasks").expect(200);
    for number in [
        digits.as_str(),
        "1e400",
        "-1E+99999999999999999999",
        &format!("0.{digits}"),
    ] {
        let task = format!(r#"{{"type":"x","payload":{{"a":[{number}]}}}}"#);
        scene
            .post("/v1/tasks", task.as_bytes())
            .refused(400, "BAD_REQUEST");
        let typed = format!(r#"{{"type":"x","priority":{number}}}"#);
        scene
            .post("/v1/tasks", typed.as_bytes())
            .refused(400, "BAD_REQUEST");
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"asyncgate.create_task","arguments":{task}}}}}"#
        );
        let result = scene.server.send(Request::post("/mcp", call)).expect(200);
        assert_eq!(result["result"]["isError"], true, "{result}");
        let domain = format!(r#"{{"type":"DisableDomainRequest","extra":{number}}}"#);
        let domain = Request::post("/domain/disable", domain);
        scene.server.send_bare(&domain).expect(400);
        let mut message = crate::ingress::message("n").to_string();
        message.truncate(message.len() - 1);
        let message = format!(r#"{message},"a":{number}}}"#);
        let sent = hooks.send_bare(&crate::ingress::signed("hooks", message));
        assert_eq!(sent.expect(400)["code"], "BAD_REQUEST");
    }
    let id = format!(r#"{{"jsonrpc":"2.0","id":{digits},"method":"ping"}}"#);
    let answer = scene.server.send(Request::post("/mcp", id));
    assert!(!answer.text().contains(&digits), "the id came back");
    scene.nothing_has_changed();
    assert_eq!(hooks.get("/v1/tasks").expect(200), before);
}

#[test]
fn names_in_a_query_that_are_no_utf_8_are_refused() {
    let scene = Scene::set();
    for target in [
        "/v1/receipts?principal_id=%ff",
        "/v1/tasks?type=%c3%28",
        "/v1/obligations/open?principal_id=a%80",
    ] {
        scene.server.get(target).refused(400, "BAD_REQUEST");
    }
    let target = "/v1/tasks?principal_id=%ff";
    scene
        .post(target, r#"{"type":"x"}"#)
        .refused(400, "BAD_REQUEST");
    scene.nothing_has_changed();
}

#[test]
fn ids_that_are_none_are_refused_and_ids_of_nothing_are_not_found() {
    let scene = Scene::set();
    let Held {
        task_id, lease_id, ..
    } = &scene.held;
    let no_ids = [
        "x",
        "0",
        "%00",
        "..",
        "%2e%2e%2f",
        "01890000-0000-7000-8000-00000000000",
        "01890000-0000-7000-8000-0000000000011",
        "01890000x0000-7000-8000-000000000001",
        "g1890000-0000-7000-8000-000000000001",
        "%7B01890000-0000-7000-8000-000000000001%7D",
        "\u{661}1890000-0000-7000-8000-00000000001",
    ];
    for id in no_ids {
        for target in [format!("/v1/tasks/{id}"), format!("/v1/receipts/{id}")] {
            let answer = scene.server.get(&target);
            assert!(matches!(answer.status, 400 | 404), "{target}: {answer:?}");
            answer.refused(answer.status, answer.json()["code"].as_str().unwrap());
        }
        let body = json!({"task_id": id, "lease_id": lease_id, "worker_id": "w"});
        scene
            .server
            .post("/v1/leases/renew", &body)
            .refused(400, "BAD_REQUEST");
        let body = json!({"task_id": task_id, "lease_id": id, "worker_id": "w"});
        scene
            .server
            .post("/v1/leases/renew", &body)
            .refused(400, "BAD_REQUEST");
    }
    let receipt = scene.before.1[0]["receipt_id"].as_str().unwrap();
    // The last digits of an id are random: another id at the same place is another id.
    let forged = |id: &str| {
        let last = if id.ends_with('0') { '1' } else { '0' };
        format!("{}{last}", &id[..35])
    };
    for id in [
        NOBODY,
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
        "a5d0c07a-9c5b-4f0e-9d46-2f4c2f3f9f10",
        &forged(task_id),
        &forged(receipt),
    ] {
        scene
            .server
            .get(&format!("/v1/tasks/{id}"))
            .refused(404, "TASK_NOT_FOUND");
        scene
            .server
            .get(&format!("/v1/receipts/{id}"))
            .refused(404, "RECEIPT_NOT_FOUND");
        let cancel = format!("/v1/tasks/{id}/cancel");
        scene
            .server
            .post(&cancel, &json!({}))
            .refused(404, "TASK_NOT_FOUND");
        let ack = format!("/v1/receipts/{id}/ack");
        scene
            .server
            .post(&ack, &json!({}))
            .refused(404, "RECEIPT_NOT_FOUND");
        let stranger = Held {
            task_id: id.to_owned(),
            ..scene.held.clone()
        };
        for call in ["running", "complete", "renew", "release"] {
            let answer = scene.server.under(&stranger, call, &json!({}));
            answer.refused(404, "TASK_NOT_FOUND");
        }
        let listed = scene
            .server
            .get(&format!("/v1/receipts/ledger?task_id={id}"))
            .expect(200);
        assert_eq!(listed["receipts"], json!([]), "{id}");
    }
    scene
        .server
        .get(&format!("/v1/tasks/{lease_id}"))
        .refused(404, "TASK_NOT_FOUND");
    scene
        .server
        .get(&format!("/v1/receipts/{lease_id}"))
        .refused(404, "RECEIPT_NOT_FOUND");
    scene.nothing_has_changed();
}

#[test]
fn cursors_that_name_no_receipt_are_refused() {
    let scene = Scene::set();
    let Held { task_id, .. } = &scene.held;
    for cursor in [
        "x",
        "",
        NOBODY,
        task_id,
        "ffffffff-ffff-7fff-bfff-ffffffffffff",
    ] {
        for target in [
            format!("/v1/receipts?since_receipt_id={cursor}"),
            format!("/v1/receipts/ledger?task_id={task_id}&since_receipt_id={cursor}"),
            format!("/v1/obligations/open?since_receipt_id={cursor}"),
            format!("/v1/bootstrap?since_receipt_id={cursor}"),
            format!("/v1/ledger?since_receipt_id={cursor}"),
        ] {
            scene.server.get(&target).refused(400, "BAD_REQUEST");
        }
    }
    for cursor in ["x", "1", "%00", "01890000"] {
        scene
            .server
            .get(&format!("/v1/tasks?cursor={cursor}"))
            .refused(400, "BAD_REQUEST");
    }
    for query in [
        "",
        "?receipt_type=nonsense",
        "?receipt_type=",
        "?task_id=x",
        "?lease_id=",
    ] {
        scene
            .server
            .get(&format!("/v1/receipts/ledger{query}"))
            .refused(400, "BAD_REQUEST");
    }
    let two = format!("/v1/receipts/ledger?task_id={task_id}&receipt_type=task.assigned");
    scene.server.get(&two).refused(400, "BAD_REQUEST");
    scene.nothing_has_changed();
}
