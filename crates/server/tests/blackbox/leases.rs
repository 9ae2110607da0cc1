//! Leases as fencing tokens, and deadlines that are kept.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::calls::{Held, millis, types};
use crate::harness::{Launch, Server, eventually};
use crate::http::Request;

/// A task whose time has come is taken up much sooner than a claim waits. How soon exactly is shown where a test
/// decides the time, in the tests of the engine; this is for a machine that compiles meanwhile.
const PROMPT: Duration = Duration::from_secs(20);

/// A server that offers a task again as soon as its lease has ended.
fn without_jitter() -> Server {
    Launch::new().set("expiry_jitter_max_seconds=0").start()
}

/// Takes the next task, waiting for it, and says how long that took.
fn wait_for_task(server: &Server, worker: &str, ttl: i64) -> (Held, Duration) {
    let start = Instant::now();
    let claim = json!({"worker_id": worker, "wait_seconds": 60, "lease_ttl_seconds": ttl});
    let mut held = server.claim(&claim);
    assert_eq!(held.len(), 1, "nothing came in a minute");
    (held.remove(0), start.elapsed())
}

#[test]
fn a_lease_that_ends_gives_the_task_to_the_next_worker_in_time() {
    let server = without_jitter();
    let id = server.create_plain("x");
    let lost = server.take_for("lost", 1);
    let (next, waited) = wait_for_task(&server, "next", 300);
    assert_eq!(next.task_id, id);
    assert_ne!(next.lease_id, lost.lease_id);
    assert!(waited < Duration::from_secs(1) + PROMPT, "{waited:?}");
    let ended = millis(&lost.record["expires_at"]);
    let taken = millis(&server.task(&id)["lease"]["created_at"]);
    assert!(taken >= ended, "taken {} ms before the end", ended - taken);
    assert_eq!(next.record["attempt"], 0, "an expiry burns no attempt");
    let task = server.task(&id);
    assert_eq!(
        (&task["attempt"], &task["lease_expiries"]),
        (&json!(0), &json!(1))
    );
}

#[test]
fn an_ended_lease_leaves_a_receipt_and_discharges_nothing() {
    let server = without_jitter();
    let id = server.create_plain("x");
    let lost = server.take_for("lost", 3);
    server.under(&lost, "running", &json!({})).expect(200);
    eventually("the lease ends", || {
        (server.status(&id) == "queued").then_some(())
    });
    let story = server.story(&id);
    assert_eq!(
        types(&story),
        [
            "task.assigned",
            "task.accepted",
            "task.started",
            "lease.expired"
        ]
    );
    let expired = &story[3];
    assert_eq!(expired["lease_id"], lost.lease_id);
    assert_eq!(
        expired["from"],
        json!({"kind": "system", "id": "asyncgate"})
    );
    assert_eq!(expired["to"], json!({"kind": "agent", "id": "alice"}));
    assert_eq!(expired["body"]["previous_worker_id"], "lost");
    assert_eq!(expired["body"]["attempt"], 0);
    assert_eq!(expired["body"]["requeued"], true);
    assert_eq!(server.obligations("alice").len(), 1);
    assert_eq!(server.metric("asyncgate_leases_expired_total"), Some(1.0));
}

#[test]
fn a_stale_lease_changes_nothing_whoever_holds_the_task_now() {
    let server = without_jitter();
    let id = server.create_plain("x");
    let stale = server.take_for("w", 1);
    eventually("the lease ends", || {
        (server.status(&id) == "queued").then_some(())
    });
    server.is_fenced(&stale);
    let current = server.take("w");
    assert_eq!(current.task_id, id);
    server.is_fenced(&stale);
    server.complete(&current, &json!("current"));
    server.is_fenced(&stale);
    assert_eq!(server.task(&id)["result"]["result"], "current");
}

#[test]
fn a_lease_counts_until_its_end_and_not_a_moment_longer() {
    let server = without_jitter();
    server.create_plain("x");
    let held = server.take_for("w", 3);
    let first = eventually("the lease is refused", || {
        let answer = server.under(&held, "progress", &json!({"progress": 1}));
        (answer.status != 200).then_some(answer)
    });
    first.refused(409, "LEASE_INVALID_OR_EXPIRED");
    let last = server.ledger().iter().rev().find_map(|receipt| {
        (receipt["receipt_type"] == "task.progress").then(|| millis(&receipt["created_at"]))
    });
    assert!(last.unwrap() < millis(&held.record["expires_at"]));
}

#[test]
fn a_cancelled_task_is_lost_to_its_worker() {
    let server = Server::start();
    let id = server.create_plain("x");
    let held = server.take("w");
    server.under(&held, "running", &json!({})).expect(200);
    server
        .post(&format!("/v1/tasks/{id}/cancel"), &json!({}))
        .expect(200);
    assert_eq!(server.status(&id), "canceled");
    server.is_fenced(&held);
    assert_eq!(server.task(&id)["result"]["outcome"], "canceled");
}

#[test]
fn the_call_that_ended_a_task_may_be_repeated_and_nothing_else() {
    let server = Server::start();
    let id = server.create_plain("x");
    let held = server.take("w");
    let first = server.complete(&held, &json!("first"));
    let before = (server.task(&id), server.ledger());
    let again = server.complete(&held, &json!("second"));
    assert_eq!(again["ok"], true);
    assert_eq!(again["duplicate"], true);
    assert_eq!(again["receipt_id"], first["receipt_id"]);
    assert_eq!(
        (server.task(&id), server.ledger()),
        before,
        "the first result stands"
    );
    server.is_fenced_from(&held, &["running", "progress", "renew", "release"]);
    let fail = server.under(&held, "fail", &json!({"error": "x"}));
    assert_eq!(fail.status, 409, "another outcome: {fail:?}");
    let other = Held {
        worker: "other".to_owned(),
        ..held.clone()
    };
    server.is_fenced(&other);
    assert_eq!((server.task(&id), server.ledger()), before);
}

#[test]
fn the_failure_that_ended_a_task_may_be_repeated() {
    let server = Server::start();
    let id = server.create_plain("x");
    let held = server.take("w");
    let fail = |error: &str| {
        server
            .under(&held, "fail", &json!({"error": error}))
            .expect(200)
    };
    let first = fail("first");
    let before = (server.task(&id), server.ledger());
    let again = fail("second");
    assert_eq!(
        (&again["duplicate"], &again["requeued"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(again["receipt_id"], first["receipt_id"]);
    let complete = server.under(&held, "complete", &json!({"artifacts": [1]}));
    assert_eq!(complete.status, 409, "another outcome: {complete:?}");
    assert_eq!((server.task(&id), server.ledger()), before);
}

#[test]
fn a_lease_belongs_to_one_worker_and_one_task() {
    let server = Server::start();
    server.create_plain("x");
    server.create_plain("x");
    let mine = server.take("mine");
    let yours = server.take("yours");
    server.is_fenced(&Held {
        worker: "yours".to_owned(),
        ..mine.clone()
    });
    server.is_fenced(&Held {
        lease_id: yours.lease_id.clone(),
        ..mine.clone()
    });
    server.is_fenced(&Held {
        task_id: yours.task_id.clone(),
        ..mine.clone()
    });
    let made_up = "01890000-0000-7000-8000-000000000001".to_owned();
    server.is_fenced(&Held {
        lease_id: made_up,
        ..mine.clone()
    });
    let last = if mine.lease_id.ends_with('0') {
        '1'
    } else {
        '0'
    };
    let forged = format!("{}{last}", &mine.lease_id[..35]);
    server.is_fenced(&Held {
        lease_id: forged,
        ..mine.clone()
    });
    server.complete(&mine, &json!(1));
}

#[test]
fn a_renewed_lease_outlives_one_that_is_not() {
    let server = without_jitter();
    let kept_id = server.create_plain("x");
    let lost_id = server.create_plain("x");
    let kept = server.take_for("w", 3);
    server
        .under(&kept, "renew", &json!({"extend_by_seconds": 60}))
        .expect(200);
    let lost = server.take_for("w", 3);
    assert_eq!((&kept.task_id, &lost.task_id), (&kept_id, &lost_id));
    eventually("the other lease ends", || {
        (server.status(&lost_id) == "queued").then_some(())
    });
    assert_eq!(server.status(&kept_id), "leased");
    server.complete(&kept, &json!(1));
}

#[test]
fn a_delay_ends_on_time_and_not_before() {
    let server = Server::start();
    let id = server.create(&json!({"type": "x", "delay_seconds": 3, "principal_id": "alice"}));
    server.nothing_to_take();
    let task = server.task(&id);
    assert_eq!(task["status"], "queued");
    let due = millis(&task["next_eligible_at"]);
    assert_eq!(due - millis(&task["created_at"]), 3_000);
    let (held, waited) = wait_for_task(&server, "w", 300);
    assert_eq!(held.task_id, id);
    assert!(waited < Duration::from_secs(3) + PROMPT, "{waited:?}");
    assert!(millis(&server.task(&id)["lease"]["created_at"]) >= due);
}

#[test]
fn a_retry_comes_on_time_and_not_before() {
    let server = Server::start();
    let id = server.create(&json!({"type": "x", "retry_backoff_seconds": 3}));
    let held = server.take("w");
    let more = json!({"error": "x", "retryable": true});
    let answer = server.under(&held, "fail", &more).expect(200);
    server.nothing_to_take();
    let (again, waited) = wait_for_task(&server, "w", 300);
    assert_eq!((&again.task_id, &again.record["attempt"]), (&id, &json!(1)));
    assert!(waited < Duration::from_secs(3) + PROMPT, "{waited:?}");
    let taken = millis(&server.task(&id)["lease"]["created_at"]);
    assert!(taken >= millis(&answer["next_eligible_at"]));
}

#[test]
fn the_jitter_after_an_ended_lease_is_bounded_by_its_setting() {
    let server = Launch::new().set("expiry_jitter_max_seconds=2").start();
    for _ in 0..20 {
        server.create_plain("x");
    }
    let claim = json!({"worker_id": "w", "max_tasks": 20, "lease_ttl_seconds": 1});
    assert_eq!(server.claim(&claim).len(), 20);
    eventually("all leases end", || {
        (server.metric("asyncgate_leases_expired_total") == Some(20.0)).then_some(())
    });
    let tasks = server.get("/v1/tasks").expect(200);
    let delays: Vec<i64> = tasks["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| millis(&task["next_eligible_at"]) - expired_at(&server, &task["task_id"]))
        .collect();
    assert!(
        delays.iter().all(|delay| (0..=2_000).contains(delay)),
        "{delays:?}"
    );
    assert!(delays.iter().any(|delay| *delay != delays[0]), "{delays:?}");
}

fn expired_at(server: &Server, id: &Value) -> i64 {
    let story = server.story(id.as_str().unwrap());
    let expired = story
        .iter()
        .find(|receipt| receipt["receipt_type"] == "lease.expired");
    millis(&expired.unwrap()["created_at"])
}

#[test]
fn more_than_three_expiries_leave_one_anomaly() {
    let server = without_jitter();
    let id = server.create_plain("x");
    for expiries in 1..=5 {
        let (held, _) = wait_for_task(&server, "w", 1);
        assert_eq!(held.task_id, id);
        eventually("the lease ends", || {
            (server.task(&id)["lease_expiries"] == expiries).then_some(())
        });
        let story = server.story(&id);
        let anomalies = types(&story)
            .iter()
            .filter(|name| **name == "system.anomaly")
            .count();
        assert_eq!(anomalies, usize::from(expiries > 3), "after {expiries}");
    }
    assert_eq!(server.task(&id)["attempt"], 0);
}

/// 001 §11: killing a worker mid-task does not corrupt state; the lease expires and the task requeues.
#[test]
fn a_worker_that_dies_in_the_middle_of_a_call_loses_the_task_and_nothing_else() {
    let server = without_jitter();
    let id = server.create_plain("x");
    let lost = server.take_for("lost", 3);
    server
        .under(&lost, "progress", &json!({"progress": {"percent": 50}}))
        .expect(200);
    let input = lost.input(&json!({"result": "half", "artifacts": [{"url": "s3://half"}]}));
    let target = format!("/v1/tasks/{id}/complete");
    let request = server.with_key(Request::post(&target, input.to_string()));
    let head = request.head(server.address);
    let body = request.encoded_body();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body[..body.len() / 2]).unwrap();
    drop(stream);

    let (next, _) = wait_for_task(&server, "next", 300);
    assert_eq!((&next.task_id, &next.record["attempt"]), (&id, &json!(0)));
    let task = server.task(&id);
    assert_eq!(task["progress"], json!({"percent": 50}));
    assert_eq!(task.get("result"), None);
    server.is_fenced(&lost);
    server.complete(&next, &json!("whole"));
    assert_eq!(server.task(&id)["result"]["result"], "whole");
    assert_eq!(
        types(&server.story(&id)),
        [
            "task.assigned",
            "task.accepted",
            "task.progress",
            "lease.expired",
            "task.accepted",
            "task.completed",
            "task.result_ready"
        ]
    );
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
}
