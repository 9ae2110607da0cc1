//! Bounds: what is clamped, what is refused, and what just fits.

use std::thread;

use serde_json::{Value, json};

use crate::calls::{Held, millis, text};
use crate::harness::{Launch, Server};
use crate::http::Request;
use crate::input::Scene;

const MIB: usize = 1_048_576;

/// A JSON text whose encoding has exactly so many bytes.
fn string_of(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

#[test]
fn a_payload_of_a_mebibyte_passes_and_a_byte_more_does_not() {
    let server = Server::start();
    let input = |bytes| format!(r#"{{"type":"x","payload":{}}}"#, string_of(bytes));
    let created = server
        .send(Request::post("/v1/tasks", input(MIB)))
        .expect(201);
    let before = server.ledger();
    let over = server.send(Request::post("/v1/tasks", input(MIB + 1)));
    assert_eq!(over.refused(413, "TOO_LARGE")["limit"], MIB);
    assert_eq!(server.ledger(), before);
    let task = server.task(&text(&created["task_id"]));
    assert_eq!(task["payload"].as_str().unwrap().len(), MIB - 2);
    let held = server.take("w");
    assert_eq!(held.record["payload"], task["payload"]);
}

#[test]
fn a_result_may_be_as_large_as_a_payload() {
    let server = Server::start();
    server.create_plain("x");
    let held = server.take("w");
    let target = format!("/v1/tasks/{}/complete", held.task_id);
    let input = |bytes| {
        format!(
            r#"{{"lease_id":"{}","worker_id":"w","artifacts":[1],"result":{}}}"#,
            held.lease_id,
            string_of(bytes)
        )
    };
    let over = server.send(Request::post(&target, input(MIB + 1)));
    over.refused(413, "TOO_LARGE");
    assert_eq!(server.status(&held.task_id), "leased");
    server.send(Request::post(&target, input(MIB))).expect(200);
    let result = server.task(&held.task_id)["result"]["result"].clone();
    assert_eq!(result.as_str().unwrap().len(), MIB - 2);
    for receipt in server.inbox("alice") {
        assert!(receipt["body"].to_string().len() <= 65_536);
    }
}

#[test]
fn what_is_too_large_for_a_receipt_is_left_out_and_can_be_fetched() {
    let server = Server::start();
    let finish = |bytes: usize| -> Value {
        let id = server.create_plain("x");
        let held = server.take("w");
        server.complete(&held, &json!("x".repeat(bytes - 2)));
        let mut story = server.story(&id);
        assert_eq!(story.len(), 4);
        story.remove(2)["body"].clone()
    };
    let small = finish(60_000);
    assert_eq!(small["result_payload"].as_str().unwrap().len(), 59_998);
    assert_eq!(small.get("how_to_retrieve"), None);
    let large = finish(65_536);
    assert_eq!(large.get("result_payload"), None);
    assert_eq!(
        large["artifacts"][0]["url"], "s3://bucket/key",
        "the proof stays"
    );
    let how = text(&large["how_to_retrieve"]);
    let target = how.strip_prefix("GET ").expect("a request to make");
    let result = server.get(target).expect(200)["result"]["result"].clone();
    assert_eq!(result.as_str().unwrap().len(), 65_534);
}

#[test]
fn artifacts_have_a_number_and_a_size_that_they_may_not_exceed() {
    let scene = Scene::set();
    let artifact = |n: usize| json!({"type": "s3", "url": format!("s3://bucket/{n}")});
    let many: Vec<Value> = (0..101).map(artifact).collect();
    let large = json!([{"url": "x".repeat(65_536)}]);
    for artifacts in [json!(many), large] {
        let more = json!({"artifacts": artifacts});
        scene
            .server
            .under(&scene.held, "complete", &more)
            .refused(400, "LIMIT_EXCEEDED");
    }
    scene.nothing_has_changed();
    let more = json!({"artifacts": many[..100]});
    scene
        .server
        .under(&scene.held, "complete", &more)
        .expect(200);
    let result = &scene.server.task(&scene.held.task_id)["result"];
    assert_eq!(result["artifacts"].as_array().unwrap().len(), 100);
}

#[test]
fn a_body_past_the_limit_is_refused_however_it_comes() {
    let scene = Scene::set();
    let body = format!(r#"{{"type":"x","payload":{}}}"#, string_of(2 * MIB));
    let answer = scene.server.send(Request::post("/v1/tasks", body.clone()));
    answer.refused(413, "TOO_LARGE");
    let chunks: Vec<&[u8]> = body.as_bytes().chunks(50_000).collect();
    let answer = scene.server.send(Request::chunked("/v1/tasks", &chunks));
    answer.refused(413, "TOO_LARGE");
    let spaces = format!("{}{{\"type\":\"x\"}}", " ".repeat(3 * MIB));
    let answer = scene.server.send(Request::post("/v1/tasks", spaces));
    answer.refused(413, "TOO_LARGE");
    let endless = Request::post("/v1/tasks", vec![b'x'; 40 * MIB]);
    let sent = scene.server.connect().send(&scene.server.with_key(endless));
    if let Ok(answer) = sent {
        answer.refused(413, "TOO_LARGE");
    }
    scene.nothing_has_changed();
}

#[test]
fn chunked_bodies_are_read_as_others_are() {
    let server = Server::start();
    let chunks: [&[u8]; 4] = [b"{\"ty", b"pe\":\"x\",\"payload\":[1", b",2]", b"}"];
    let created = server
        .send(Request::chunked("/v1/tasks", &chunks))
        .expect(201);
    let task = server.task(&text(&created["task_id"]));
    assert_eq!(task["payload"], json!([1, 2]));
}

#[test]
fn a_client_that_asks_first_is_told_to_go_on() {
    let server = Server::start();
    let request = Request::post("/v1/tasks", r#"{"type":"x"}"#).header("Expect", "100-continue");
    let request = server.with_key(request);
    let mut connection = server.connect();
    connection
        .write(request.head(server.address).as_bytes())
        .unwrap();
    assert_eq!(connection.read_one().unwrap().status, 100);
    connection.write(&request.encoded_body()).unwrap();
    connection.read_one().unwrap().expect(201);
}

#[test]
fn one_connection_serves_many_requests() {
    let server = Server::start();
    let mut connection = server.connect();
    let create = server.with_key(Request::post("/v1/tasks", r#"{"type":"x"}"#));
    for _ in 0..3 {
        connection.send(&create).unwrap().expect(201);
        let refused = server.with_key(Request::post("/v1/tasks", "{"));
        connection
            .send(&refused)
            .unwrap()
            .refused(400, "BAD_REQUEST");
    }
}

#[test]
fn list_limits_are_clamped_above_and_refused_below() {
    let server = Server::start();
    for n in 0..205 {
        server.create(&json!({"type": "x", "principal_id": "alice", "payload": n}));
    }
    let lists = [
        ("/v1/tasks?principal_id=alice", "tasks"),
        ("/v1/receipts?principal_id=alice", "receipts"),
        ("/v1/receipts/ledger?receipt_type=task.assigned", "receipts"),
        (
            "/v1/obligations/open?principal_id=alice",
            "open_obligations",
        ),
    ];
    for (target, items) in lists {
        for (limit, expected) in [("&limit=201", 200), ("&limit=4294967295", 200), ("", 50)] {
            let page = server.get(&format!("{target}{limit}")).expect(200);
            assert_eq!(
                page[items].as_array().unwrap().len(),
                expected,
                "{target}{limit}"
            );
            assert_ne!(page["next_cursor"], Value::Null);
        }
        for limit in ["0", "-1", "x", "", "1.5", "1e2", "%31%30%00"] {
            server
                .get(&format!("{target}&limit={limit}"))
                .refused(400, "BAD_REQUEST");
        }
    }
    let bootstrap = "/v1/bootstrap?principal_id=alice&max_items=";
    let page = server.get(&format!("{bootstrap}999")).expect(200);
    assert_eq!(
        page["attention"]["inbox_receipts"]
            .as_array()
            .unwrap()
            .len(),
        200
    );
    server
        .get(&format!("{bootstrap}0"))
        .refused(400, "BAD_REQUEST");
}

#[test]
fn lease_times_are_clamped_above_and_refused_below() {
    let server = Server::start();
    for wished in [1_801, 99_999, i64::MAX] {
        server.create_plain("x");
        let held = server.take_for("w", wished);
        let lease = server.task(&held.task_id)["lease"].clone();
        let lasts = millis(&lease["expires_at"]) - millis(&lease["created_at"]);
        assert_eq!(lasts, 1_800_000, "wished {wished}");
        let more = json!({"extend_by_seconds": wished});
        let renewed = server.under(&held, "renew", &more).expect(200);
        let lasts = millis(&renewed["expires_at"]) - millis(&lease["created_at"]);
        assert!(
            (1_800_000..1_860_000).contains(&lasts),
            "wished {wished}: {lasts}"
        );
        server.complete(&held, &json!(1));
    }
    let id = server.create_plain("x");
    for wished in [0, -1, i64::MIN] {
        let claim = json!({"worker_id": "w", "lease_ttl_seconds": wished});
        server
            .post("/v1/leases/claim", &claim)
            .refused(400, "BAD_REQUEST");
    }
    let held = server.claim(&json!({"worker_id": "w"})).remove(0);
    let before = server.task(&id);
    let lease = &before["lease"];
    let lasts = millis(&lease["expires_at"]) - millis(&lease["created_at"]);
    assert_eq!(lasts, 300_000, "the default");
    for wished in [0, -1, i64::MIN] {
        let more = json!({"extend_by_seconds": wished});
        server
            .under(&held, "renew", &more)
            .refused(400, "BAD_REQUEST");
    }
    assert_eq!(server.task(&id), before);
}

#[test]
fn numbers_out_of_bounds_are_refused() {
    let scene = Scene::set();
    for (field, value) in [("max_tasks", 0), ("max_tasks", 1_001), ("wait_seconds", 61)] {
        let claim = json!({"worker_id": "w", field: value});
        scene
            .server
            .post("/v1/leases/claim", &claim)
            .refused(400, "BAD_REQUEST");
    }
    for wait in ["61", "-1", "x", "1.5"] {
        let target = format!("/v1/tasks/{}?wait_seconds={wait}", scene.held.task_id);
        scene.server.get(&target).refused(400, "BAD_REQUEST");
    }
    for (field, value) in [
        ("max_attempts", json!(0)),
        ("delay_seconds", json!(-1)),
        ("delay_seconds", json!(i64::MAX)),
        ("principal_id", json!("")),
        ("principal_id", json!("x".repeat(257))),
        ("principal_id", json!("a\u{0}b")),
        ("principal_kind", json!("system")),
        ("idempotency_key", json!("")),
        ("idempotency_key", json!("x".repeat(257))),
        ("idempotency_key", json!("a\nb")),
        ("type", json!("")),
        ("type", json!("x".repeat(257))),
        ("type", json!("a\u{7f}b")),
        ("payload_pointer", json!("x".repeat(5_000))),
        ("requirements", json!({"capabilities": vec!["c"; 65]})),
        ("requirements", json!({"capabilities": [""]})),
        ("requirements", json!({"tags": ["x".repeat(257)]})),
    ] {
        let mut input = json!({"type": "x", "principal_id": "alice"});
        input[field] = value;
        scene
            .server
            .post("/v1/tasks", &input)
            .refused(400, "BAD_REQUEST");
    }
    let kind_alone = json!({"type": "x", "principal_kind": "agent"});
    scene
        .server
        .post("/v1/tasks", &kind_alone)
        .refused(400, "BAD_REQUEST");
    scene.nothing_has_changed();
}

#[test]
fn a_claim_takes_up_to_a_hundred() {
    let server = Server::start();
    for _ in 0..103 {
        server.create_plain("x");
    }
    let held: Vec<Held> = server.claim(&json!({"worker_id": "w", "max_tasks": 100}));
    assert_eq!(held.len(), 100);
    assert_eq!(
        server
            .claim(&json!({"worker_id": "w", "max_tasks": 100}))
            .len(),
        3
    );
}

#[test]
fn the_depth_of_a_value_has_a_bound() {
    let scene = Scene::set();
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let create = |payload: String| {
        let body = format!(r#"{{"type":"x","payload":{payload}}}"#);
        scene.server.send(Request::post("/v1/tasks", body))
    };
    create(nested(10_000)).refused(400, "BAD_REQUEST");
    let objects = format!("{}1{}", r#"{"a":"#.repeat(10_000), "}".repeat(10_000));
    create(objects).refused(400, "BAD_REQUEST");
    for (call, field) in [
        ("complete", "result"),
        ("progress", "progress"),
        ("fail", "error"),
    ] {
        let body = format!(
            r#"{{"lease_id":"{}","worker_id":"w","{field}":{}}}"#,
            scene.held.lease_id,
            nested(10_000)
        );
        let target = format!("/v1/tasks/{}/{call}", scene.held.task_id);
        let answer = scene.server.send(Request::post(&target, body));
        answer.refused(400, "BAD_REQUEST");
    }
    scene.nothing_has_changed();
    create(nested(100)).expect(201);
}

#[test]
fn limits_can_be_set() {
    let server = Launch::new()
        .set("max_payload_bytes=2048")
        .set("max_list_limit=3")
        .set("default_list_limit=2")
        .set("max_lease_ttl_seconds=400")
        .start();
    let config = server.get("/v1/config").expect(200);
    assert_eq!(config["max_payload_bytes"], 2048);
    for payload in ["x".repeat(10), "x".repeat(2_046)] {
        server.create(&json!({"type": "x", "payload": payload}));
    }
    let over = json!({"type": "x", "payload": "x".repeat(2_047)});
    server.post("/v1/tasks", &over).refused(413, "TOO_LARGE");
    for _ in 0..2 {
        server.create(&json!({"type": "x"}));
    }
    let count = |target: &str| {
        server.get(target).expect(200)["tasks"]
            .as_array()
            .unwrap()
            .len()
    };
    assert_eq!((count("/v1/tasks"), count("/v1/tasks?limit=200")), (2, 3));
    let held = server.take_for("w", 1_000);
    let lease = &server.task(&held.task_id)["lease"];
    assert_eq!(
        millis(&lease["expires_at"]) - millis(&lease["created_at"]),
        400_000
    );
}

#[test]
fn a_queue_that_is_full_turns_callers_away_and_loses_nothing() {
    const CALLERS: usize = 40;
    const TASKS: usize = 10;
    let server = Launch::new().set("writer.queue_jobs=16").start();
    let turned_away: usize = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                scope.spawn({
                    let server = &server;
                    move || insist(server, caller, TASKS)
                })
            })
            .collect();
        callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum()
    });
    let counted = server.metric("asyncgate_store_turned_away_total");
    assert_eq!(counted, Some(turned_away as f64));
    assert_eq!(server.metric("asyncgate_store_waiting_jobs"), Some(0.0));
    assert_eq!(server.ledger().len(), CALLERS * TASKS, "each task once");
}

/// Creates so many tasks, each until it is accepted; gives back how often it was turned away.
fn insist(server: &Server, caller: usize, tasks: usize) -> usize {
    let mut connection = server.connect();
    let mut turned_away = 0;
    for task in 0..tasks {
        let input = json!({"type": "x", "idempotency_key": format!("{caller}-{task}")});
        let request = server.with_key(Request::post("/v1/tasks", input.to_string()));
        loop {
            let answer = connection.send(&request).unwrap();
            if answer.status == 201 {
                break;
            }
            answer.refused(503, "UNAVAILABLE");
            assert!(answer.header("Retry-After").is_some(), "{answer:?}");
            turned_away += 1;
        }
    }
    turned_away
}

#[test]
fn the_smallest_queue_still_takes_the_largest_payload() {
    let server = Launch::new().set("writer.queue_bytes=1048576").start();
    let body = format!(r#"{{"type":"x","payload":{}}}"#, string_of(MIB));
    server.send(Request::post("/v1/tasks", body)).expect(201);
}
