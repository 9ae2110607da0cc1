//! Byte for byte: what is sent as JSON comes back as it was written, and is compared as what it means.

use std::collections::HashMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::calls::text;
use crate::harness::Server;
use crate::http::Request;

/// Texts that a parser would rewrite.
const TEXTS: [&str; 27] = [
    r#"{"z":1,"a":2,"m":{"y":1,"b":2}}"#,
    "1",
    "1.0",
    "1.00",
    "-0",
    "-0.0",
    "1e300",
    "1E+2",
    "1e-400",
    "123456789012345678901234567890",
    "-123456789012345678901234567890.10",
    "0.1000000000000000055511151231257827",
    "18446744073709551616",
    "9007199254740993",
    r#""\u0000""#,
    r#"{"\u0000":"\u0000"}"#,
    r#""\ud83d\ude00 tail""#,
    r#""\ud83d\ude00 \u00e9 \/ \b\f\n\r\t""#,
    "\"\u{1f600} \u{e9} / \u{2028} \u{7f}\"",
    r#"{"a":1,"a":2,"a":[]}"#,
    "[ 1 ,\t2\n,\r\n3 ]",
    "{ }",
    "[\t]",
    r#""""#,
    "true",
    "null",
    r#"[[[{"":[null,false,{"x":"]}"}]}]]]"#,
];

/// The member of an object, as it is written.
#[track_caller]
fn raw(object: &str, path: &[&str]) -> String {
    let mut here = object.to_owned();
    for name in path {
        here = match name.parse::<usize>() {
            Ok(n) => {
                let items: Vec<Box<RawValue>> = serde_json::from_str(&here).unwrap();
                items[n].get().to_owned()
            }
            Err(_) => {
                let members: HashMap<String, Box<RawValue>> = serde_json::from_str(&here).unwrap();
                let member = members
                    .get(*name)
                    .unwrap_or_else(|| panic!("{path:?} in {here}"));
                member.get().to_owned()
            }
        };
    }
    here
}

fn create(server: &Server, payload: &str) -> String {
    let body = format!(r#"{{"type":"x","principal_id":"alice","payload": {payload} }}"#);
    let created = server.send(Request::post("/v1/tasks", body)).expect(201);
    text(&created["task_id"])
}

fn task_text(server: &Server, id: &str) -> String {
    server.get(&format!("/v1/tasks/{id}")).text().to_owned()
}

#[test]
fn payloads_come_back_as_they_were_sent() {
    let server = Server::start();
    let ids: Vec<String> = TEXTS
        .iter()
        .map(|payload| create(&server, payload))
        .collect();
    for (id, payload) in ids.iter().zip(TEXTS) {
        assert_eq!(raw(&task_text(&server, id), &["payload"]), payload, "read");
    }
    let list = server.get("/v1/tasks?limit=200");
    let claim = server.post(
        "/v1/leases/claim",
        &json!({"worker_id": "w", "max_tasks": 100}),
    );
    for (n, payload) in TEXTS.iter().enumerate() {
        let newest_first = (TEXTS.len() - 1 - n).to_string();
        let listed = raw(list.text(), &["tasks", &newest_first, "payload"]);
        assert_eq!(&listed, payload, "listed");
        let leased = raw(claim.text(), &["tasks", &n.to_string(), "payload"]);
        assert_eq!(&leased, payload, "leased");
    }
    let server = server.restart();
    for (id, payload) in ids.iter().zip(TEXTS) {
        assert_eq!(
            raw(&task_text(&server, id), &["payload"]),
            payload,
            "read after a restart"
        );
    }
}

/// Creates and takes a task, and makes this call under its lease, with this field as it is written.
fn report(server: &Server, call: &str, field: &str, value: &str) -> String {
    let id = create(server, "0");
    let held = server.take("w");
    let target = format!("/v1/tasks/{id}/{call}");
    let body = format!(
        "{{\"lease_id\":\"{}\",\"worker_id\":\"w\",\"{field}\":\n{value}\t}}",
        held.lease_id
    );
    server.send(Request::post(&target, body)).expect(200);
    id
}

#[test]
fn results_errors_and_progress_come_back_as_they_were_sent() {
    let server = Server::start();
    for value in TEXTS {
        let id = report(&server, "complete", "result", value);
        let task = task_text(&server, &id);
        assert_eq!(raw(&task, &["result", "result"]), value);
        let id = report(&server, "fail", "error", value);
        let task = task_text(&server, &id);
        assert_eq!(raw(&task, &["result", "error"]), value);
        let id = report(&server, "progress", "progress", value);
        let task = task_text(&server, &id);
        assert_eq!(raw(&task, &["progress"]), value);
    }
}

#[test]
fn receipts_repeat_results_and_artifacts_as_they_were_sent() {
    let server = Server::start();
    for value in TEXTS.into_iter().filter(|value| *value != "null") {
        let id = report(&server, "complete", "result", value);
        let story = server.get(&format!("/v1/receipts/ledger?task_id={id}"));
        for receipt in ["2", "3"] {
            let path = ["receipts", receipt, "body", "result_payload"];
            assert_eq!(raw(story.text(), &path), value);
        }
        let id = report(&server, "complete", "artifacts", value);
        let task = task_text(&server, &id);
        assert_eq!(raw(&task, &["result", "artifacts"]), value);
    }
}

/// Creates with a key; answers status, id and what else was told.
fn keyed(server: &Server, key: &str, rest: &str) -> (u16, Value) {
    let body = format!(r#"{{"idempotency_key":"{key}","principal_id":"alice",{rest}}}"#);
    let answer = server.send(Request::post("/v1/tasks", body));
    (answer.status, answer.json())
}

#[test]
fn a_key_is_held_against_the_meaning_of_a_payload_not_its_spelling() {
    let server = Server::start();
    let same = [
        ("1", "1.0"),
        ("100", "1e2"),
        ("-0", "0"),
        (r#"{"b":1,"a":[1, 2]}"#, r#" { "a" : [1,2.0] , "b" : 1 } "#),
        (r#""\u0041\n""#, r#""A\u000a""#),
        (r#""\ud83d\ude00""#, "\"\u{1f600}\""),
        (r#""\/""#, r#""/""#),
        (
            "123456789012345678901234567890",
            "1.2345678901234567890123456789e29",
        ),
    ];
    for (n, (first, second)) in same.iter().enumerate() {
        let key = format!("same-{n}");
        let payload = |text: &str| format!(r#""type":"x","payload":{text}"#);
        let (status, created) = keyed(&server, &key, &payload(first));
        assert_eq!(status, 201);
        let (status, again) = keyed(&server, &key, &payload(second));
        assert_eq!(
            (status, &again["task_id"]),
            (200, &created["task_id"]),
            "{first} {second}"
        );
        assert_eq!(again["duplicate"], true);
        let id = text(&created["task_id"]);
        assert_eq!(
            raw(&task_text(&server, &id), &["payload"]),
            *first,
            "the first stands"
        );
    }
}

#[test]
fn a_key_that_is_used_for_something_else_is_refused() {
    let server = Server::start();
    let other = [
        ("1", "2"),
        ("1", r#""1""#),
        ("1e300", "2e300"),
        ("9007199254740992", "9007199254740993"),
        ("0.1", "0.10000000000000001"),
        ("[1,2]", "[2,1]"),
        (r#""\u0000""#, r#""""#),
        (r#"{"a":1}"#, r#"{"a":1,"b":null}"#),
        ("null", "false"),
    ];
    for (n, (first, second)) in other.iter().enumerate() {
        let key = format!("other-{n}");
        let (_, created) = keyed(&server, &key, &format!(r#""type":"x","payload":{first}"#));
        let (status, refusal) = keyed(&server, &key, &format!(r#""type":"x","payload":{second}"#));
        assert_eq!(status, 422, "{first} {second}: {refusal}");
        assert_eq!(refusal["code"], "IDEMPOTENCY_CONFLICT");
        assert_eq!(refusal["task_id"], created["task_id"]);
    }
}

#[test]
fn type_pointer_and_requirements_count_as_content_and_the_rest_does_not() {
    let server = Server::start();
    let first =
        r#""type":"x","payload":1,"payload_pointer":"p","requirements":{"capabilities":["a","b"]}"#;
    let (status, created) = keyed(&server, "k", first);
    assert_eq!(status, 201);
    let before = server.ledger();
    for (from, to) in [
        (r#""type":"x""#, r#""type":"y""#),
        (r#""payload_pointer":"p""#, r#""payload_pointer":"q""#),
        (r#","payload_pointer":"p""#, ""),
        (r#"["a","b"]"#, r#"["a"]"#),
        (r#""payload":1,"#, ""),
    ] {
        let changed = first.replace(from, to);
        assert_ne!(changed, first);
        let body = format!(r#"{{"idempotency_key":"k","principal_id":"alice",{changed}}}"#);
        let answer = server.send(Request::post("/v1/tasks", body));
        answer.refused(422, "IDEMPOTENCY_CONFLICT");
    }
    for more in [
        r#""priority":9"#,
        r#""delay_seconds":60"#,
        r#""max_attempts":7"#,
        r#""retry_backoff_seconds":7"#,
    ] {
        let (status, again) = keyed(&server, "k", &format!("{first},{more}"));
        assert_eq!(
            (status, &again["task_id"]),
            (200, &created["task_id"]),
            "{more}"
        );
    }
    assert_eq!(server.ledger(), before);
    assert_eq!(server.task(&text(&created["task_id"]))["priority"], 0);
}

#[test]
fn keys_belong_to_their_owner() {
    let server = Server::start();
    let create = |owner: &str| {
        server.post(
            "/v1/tasks",
            &json!({"type": owner, "idempotency_key": "k", "principal_id": owner}),
        )
    };
    let alice = create("alice").expect(201);
    let bob = create("bob").expect(201);
    assert_ne!(alice["task_id"], bob["task_id"]);
    let of_kind = json!({
        "type": "z", "idempotency_key": "k", "principal_id": "alice", "principal_kind": "service",
    });
    server.post("/v1/tasks", &of_kind).expect(201);
    assert_eq!(create("alice").expect(200)["task_id"], alice["task_id"]);
}

#[test]
fn a_key_outlives_its_task() {
    let server = Server::start();
    let create = || server.post("/v1/tasks", &json!({"type": "x", "idempotency_key": "k"}));
    let first = create().expect(201);
    server.complete(&server.take("w"), &json!(1));
    let again = create().expect(200);
    assert_eq!(again["task_id"], first["task_id"]);
    assert_eq!(
        (&again["status"], &again["duplicate"]),
        (&json!("succeeded"), &json!(true))
    );
    server.nothing_to_take();
}

#[test]
fn calls_at_the_same_time_with_one_key_make_one_task() {
    let server = Server::start();
    let answers: Vec<(u16, String)> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..16)
            .map(|_| {
                scope.spawn(|| {
                    let input = json!({"type": "x", "payload": [1], "idempotency_key": "k"});
                    let answer = server.post("/v1/tasks", &input);
                    (answer.status, text(&answer.json()["task_id"]))
                })
            })
            .collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let new = answers.iter().filter(|(status, _)| *status == 201).count();
    assert_eq!(new, 1, "{answers:?}");
    assert!(
        answers.iter().all(|(_, id)| *id == answers[0].1),
        "{answers:?}"
    );
    assert_eq!(server.ledger().len(), 1);
}
