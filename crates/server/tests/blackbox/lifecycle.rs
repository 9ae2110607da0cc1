//! The other ways of a task: called off, given back, failed, retried, kept longer, done without proof.

use serde_json::{Value, json};

use crate::calls::{Held, members, millis, text, types};
use crate::harness::{Launch, Server};

fn cancel(server: &Server, id: &str, input: &Value) -> crate::http::Response {
    server.post(&format!("/v1/tasks/{id}/cancel"), input)
}

#[test]
fn a_queued_task_is_called_off_once_and_for_all() {
    let server = Server::start();
    let id = server.create_plain("x");
    let input = json!({"reason": "no longer needed", "principal_id": "alice"});
    let answer = cancel(&server, &id, &input).expect(200);
    assert_eq!(answer, json!({"ok": true, "status": "canceled"}));
    let task = server.task(&id);
    assert_eq!(task["status"], "canceled");
    assert_eq!(task["result"]["outcome"], "canceled");
    assert_eq!(
        task["result"]["error"],
        json!({"reason": "no longer needed"})
    );
    server.nothing_to_take();
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
    let inbox = server.inbox("alice");
    assert_eq!(
        types(&inbox),
        ["task.assigned", "task.canceled", "task.result_ready"]
    );
    assert_eq!(inbox[1]["parents"], json!([inbox[0]["receipt_id"]]));
    assert_eq!(inbox[1]["from"], json!({"kind": "agent", "id": "alice"}));
    assert_eq!(inbox[1]["body"]["reason"], "no longer needed");

    let before = server.ledger();
    cancel(&server, &id, &json!({})).expect(200);
    assert_eq!(server.ledger(), before, "calling off again changes nothing");
}

#[test]
fn a_task_that_has_ended_otherwise_cannot_be_called_off() {
    let server = Server::start();
    for (call, status) in [("complete", "succeeded"), ("fail", "failed")] {
        let id = server.create_plain("x");
        let held = server.take("w");
        let more = json!({"error": "broken"});
        let more = if call == "fail" { more } else { json!({}) };
        server.under(&held, call, &more).expect(200);
        let before = server.ledger();
        let refusal = cancel(&server, &id, &json!({})).refused(409, "INVALID_STATE_TRANSITION");
        assert_eq!(refusal["status"], status);
        assert_eq!(server.ledger(), before);
    }
}

#[test]
fn a_task_that_is_given_back_can_be_taken_at_once_and_counts_no_failure() {
    let server = Server::start();
    let id = server.create_plain("x");
    let first = server.take("one");
    server.under(&first, "running", &json!({})).expect(200);
    let answer = server.under(&first, "release", &json!({})).expect(200);
    assert_eq!(answer, json!({"ok": true}));
    let task = server.task(&id);
    assert_eq!(
        (&task["status"], &task["attempt"]),
        (&json!("queued"), &json!(0))
    );
    assert_eq!(task["lease_expiries"], 0);
    let second = server.take("two");
    assert_eq!(second.task_id, id);
    assert_ne!(second.lease_id, first.lease_id);
    server.is_fenced(&first);
    assert_eq!(
        types(&server.story(&id)),
        [
            "task.assigned",
            "task.accepted",
            "task.started",
            "lease.released",
            "task.accepted"
        ]
    );
}

fn failing(server: &Server, retryable: Option<bool>) -> (Held, Value) {
    let held = server.take("w");
    let mut more = json!({"error": {"why": "disk", "try": held.record["attempt"]}});
    if let Some(retryable) = retryable {
        more["retryable"] = json!(retryable);
    }
    let answer = server.under(&held, "fail", &more).expect(200);
    (held, answer)
}

#[test]
fn a_failure_ends_the_task_unless_it_is_said_to_be_worth_a_retry() {
    let server = Server::start();
    for retryable in [None, Some(false)] {
        let id = server.create_plain("x");
        let (_, answer) = failing(&server, retryable);
        assert_eq!(
            members(&answer),
            ["duplicate", "ok", "receipt_id", "requeued"]
        );
        assert_eq!(
            (&answer["ok"], &answer["requeued"]),
            (&json!(true), &json!(false))
        );
        let task = server.task(&id);
        assert_eq!(
            (&task["status"], &task["attempt"]),
            (&json!("failed"), &json!(1))
        );
        assert_eq!(task["result"]["outcome"], "failed");
        assert_eq!(task["result"]["error"], json!({"why": "disk", "try": 0}));
        assert_eq!(task["result"]["result"], Value::Null);
        let story = server.story(&id);
        assert_eq!(
            types(&story),
            [
                "task.assigned",
                "task.accepted",
                "task.failed",
                "task.result_ready"
            ]
        );
        assert_eq!(story[2]["receipt_id"], answer["receipt_id"]);
        assert_eq!(story[2]["parents"], json!([story[0]["receipt_id"]]));
    }
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
}

#[test]
fn a_failure_is_retried_while_attempts_are_left_and_the_last_one_counts_too() {
    let server = Server::start();
    let id = server.create(&json!({
        "type": "x", "principal_id": "alice", "max_attempts": 2, "retry_backoff_seconds": 0,
    }));
    let (first, answer) = failing(&server, Some(true));
    assert_eq!(answer["requeued"], true);
    millis(&answer["next_eligible_at"]);
    let task = server.task(&id);
    assert_eq!(
        (&task["status"], &task["attempt"]),
        (&json!("queued"), &json!(1))
    );
    assert_eq!(task.get("result"), None);
    assert_eq!(
        server.obligations("alice").len(),
        1,
        "a retry discharges nothing"
    );
    server.is_fenced(&first);

    let (second, answer) = failing(&server, Some(true));
    assert_eq!(second.record["attempt"], 1);
    assert_eq!(answer["requeued"], false);
    let task = server.task(&id);
    assert_eq!(
        (&task["status"], &task["attempt"]),
        (&json!("failed"), &json!(2))
    );
    assert_eq!(task["result"]["error"], json!({"why": "disk", "try": 1}));
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
    let inbox = server.inbox("alice");
    assert_eq!(
        types(&inbox),
        [
            "task.assigned",
            "task.retry_scheduled",
            "task.failed",
            "task.result_ready"
        ]
    );
    assert_eq!(inbox[1]["parents"], json!([]));
}

#[test]
fn the_delay_before_a_retry_doubles_and_has_an_end() {
    let server = Server::start();
    let create = |backoff: i64| {
        server.create(&json!({
            "type": "x", "max_attempts": 9, "retry_backoff_seconds": backoff,
        }))
    };
    for (backoff, delay_ms) in [(30, 30_000), (700, 700_000), (100_000, 900_000)] {
        let id = create(backoff);
        let (_, answer) = failing(&server, Some(true));
        let task = server.task(&id);
        assert_eq!(task["next_eligible_at"], answer["next_eligible_at"]);
        let delay = millis(&answer["next_eligible_at"]) - millis(&task["updated_at"]);
        assert_eq!(delay, delay_ms, "after a backoff of {backoff} s");
        server.nothing_to_take();
    }
}

#[test]
fn a_lease_can_be_kept_longer_and_never_gets_shorter() {
    let server = Server::start();
    let id = server.create_plain("x");
    let held = server.take_for("w", 100);
    let first = millis(&held.record["expires_at"]);
    let more = json!({"extend_by_seconds": 600});
    let answer = server.under(&held, "renew", &more).expect(200);
    assert_eq!(members(&answer), ["expires_at", "ok"]);
    let longer = millis(&answer["expires_at"]);
    assert!(longer >= first + 500_000, "{answer}");
    let lease = server.task(&id)["lease"].clone();
    assert_eq!(
        (&lease["renewals"], &lease["expires_at"]),
        (&json!(1), &answer["expires_at"])
    );
    let more = json!({"extend_by_seconds": 1});
    let answer = server.under(&held, "renew", &more).expect(200);
    assert_eq!(millis(&answer["expires_at"]), longer);
}

#[test]
fn more_than_ten_renewals_succeed_and_leave_one_anomaly() {
    let server = Server::start();
    server.create_plain("x");
    let held = server.take("w");
    for renewals in 1..=13 {
        server.under(&held, "renew", &json!({})).expect(200);
        let anomalies = server
            .ledger()
            .iter()
            .filter(|receipt| receipt["receipt_type"] == "system.anomaly")
            .count();
        assert_eq!(anomalies, usize::from(renewals > 10), "after {renewals}");
    }
    let anomaly = server.inbox("alice").pop().unwrap();
    assert_eq!(anomaly["receipt_type"], "system.anomaly");
    assert_eq!(anomaly["body"]["kind"], "excessive_lease_renewals");
    assert_eq!(anomaly["to"]["id"], "alice");
}

#[test]
fn a_success_without_proof_leaves_the_obligation_open_until_proof_comes() {
    let server = Server::start();
    let id = server.create_plain("x");
    let held = server.take("w");
    let unproved = json!({"result": {"n": 1}, "artifacts": []});
    let first = server.under(&held, "complete", &unproved).expect(200);
    assert_eq!(first["duplicate"], false);
    assert_eq!(server.status(&id), "succeeded");
    assert_eq!(
        server.obligations("alice").len(),
        1,
        "an empty list proves nothing"
    );
    let inbox = server.inbox("alice");
    assert_eq!(
        types(&inbox),
        ["task.assigned", "task.completed", "task.result_ready"]
    );
    assert_eq!(inbox[1]["parents"], json!([]));

    let repeated = server.under(&held, "complete", &unproved).expect(200);
    assert_eq!(repeated["duplicate"], true, "without news it is a repeat");
    assert_eq!(server.inbox("alice"), inbox);

    let proof = json!({"result": {"n": 2}, "artifacts": {"url": "s3://late"}});
    let late = server.under(&held, "complete", &proof).expect(200);
    assert_eq!(late["duplicate"], false);
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
    let result = server.task(&id)["result"].clone();
    assert_eq!(result["result"], json!({"n": 1}), "the first result stands");
    assert_eq!(
        result["artifacts"],
        json!({"url": "s3://late"}),
        "the late proof is shown"
    );
    let inbox = server.inbox("alice");
    assert_eq!(types(&inbox)[3..], ["task.completed"]);
    assert_eq!(inbox[3]["receipt_id"], late["receipt_id"]);
    assert_eq!(inbox[3]["parents"], json!([inbox[0]["receipt_id"]]));

    let again = server.under(&held, "complete", &proof).expect(200);
    assert_eq!(again["duplicate"], true);
    assert_eq!(server.inbox("alice"), inbox);
}

#[test]
fn proof_of_delivery_is_proof_too() {
    let server = Server::start();
    server.create_plain("x");
    let held = server.take("w");
    let more = json!({"delivery_proof": {"target": "queue:out", "status": "succeeded"}});
    server.under(&held, "complete", &more).expect(200);
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
}

#[test]
fn a_strict_server_wants_the_proof_at_once() {
    let server = Launch::new().set("receipts.locatability=strict").start();
    assert_eq!(
        server.get("/v1/config").expect(200)["locatability"],
        "strict"
    );
    let id = server.create_plain("x");
    let held = server.take("w");
    let before = server.ledger();
    for more in [
        json!({}),
        json!({"artifacts": []}),
        json!({"artifacts": {}, "result": 1}),
    ] {
        server
            .under(&held, "complete", &more)
            .refused(400, "BAD_REQUEST");
    }
    assert_eq!(
        (server.status(&id), server.ledger()),
        ("leased".to_owned(), before)
    );
    server.complete(&held, &json!(1));
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
}

#[test]
fn hashes_are_equal_for_equal_statements_only() {
    let server = Server::start();
    let id = server.create_plain("x");
    let held = server.take("w");
    for percent in [1, 1, 2] {
        let more = json!({"progress": {"percent": percent}});
        server.under(&held, "progress", &more).expect(200);
    }
    let story = server.story(&id);
    let hash = |n: usize| text(&story[n]["hash"]);
    assert_eq!(types(&story)[2..], ["task.progress"; 3]);
    assert_eq!(hash(2), hash(3));
    assert_ne!(hash(3), hash(4));
}
