//! Restarts: orderly ones forget nothing, and `kill -9` under load loses nothing that was answered.

use std::thread;

use serde_json::{Value, json};

use crate::calls::{millis, text, types};
use crate::harness::{Launch, Server, eventually};
use crate::journal::{Journal, verify_ledger, verify_stories};

#[test]
fn an_orderly_restart_forgets_nothing() {
    let server = Server::start();
    server.create_plain("done");
    let done = server.take("w");
    server.complete(&done, &json!({"n": 1}));
    let leased = server.create_plain("leased");
    let held = server.take("w");
    server.under(&held, "running", &json!({})).expect(200);
    server
        .under(&held, "progress", &json!({"progress": 40}))
        .expect(200);
    let delayed = server.create(&json!({"type": "delayed", "delay_seconds": 3_600}));
    let queued = server.create_plain("queued");
    server.get("/v1/bootstrap?principal_id=alice").expect(200);
    let look = |server: &Server| {
        let tasks = server.get("/v1/tasks").expect(200);
        let relationship = server
            .get("/v1/obligations/open?principal_id=alice")
            .expect(200)["relationship"]["first_seen_at"]
            .clone();
        (
            tasks,
            server.ledger(),
            server.obligations("alice"),
            relationship,
        )
    };
    let before = look(&server);
    let server = server.restart();
    assert_eq!(look(&server), before);
    assert_eq!(before.0["tasks"].as_array().unwrap().len(), 4);
    assert_eq!(server.status(&leased), "running");
    assert_eq!(
        server.take("w").task_id,
        queued,
        "what was queued can be taken"
    );
    server.nothing_to_take();
    assert_eq!(server.status(&delayed), "queued");
}

#[test]
fn keys_hold_after_a_restart() {
    let server = Server::start();
    let input = json!({"type": "x", "payload": {"a": 1}, "idempotency_key": "k"});
    let first = server.post("/v1/tasks", &input).expect(201);
    let server = server.restart();
    let again = server.post("/v1/tasks", &input).expect(200);
    assert_eq!(again["task_id"], first["task_id"]);
    let other = json!({"type": "x", "payload": {"a": 2}, "idempotency_key": "k"});
    server
        .post("/v1/tasks", &other)
        .refused(422, "IDEMPOTENCY_CONFLICT");
    assert_eq!(server.ledger().len(), 1);
}

#[test]
fn a_live_lease_survives_a_restart_and_one_that_ended_meanwhile_does_not() {
    let launch = Launch::new().set("expiry_jitter_max_seconds=0");
    let server = launch.start();
    let live_id = server.create_plain("x");
    let live = server.take("w");
    let brief_id = server.create_plain("x");
    let brief = server.take_for("w", 1);
    assert_eq!((&live.task_id, &brief.task_id), (&live_id, &brief_id));
    let server = server.restart();
    server
        .under(&live, "progress", &json!({"progress": 1}))
        .expect(200);
    eventually("the brief lease ends", || {
        (server.status(&brief_id) == "queued").then_some(())
    });
    server.is_fenced(&brief);
    server.under(&live, "renew", &json!({})).expect(200);
    server.complete(&live, &json!("after the restart"));
    assert_eq!(server.status(&live_id), "succeeded");
    assert_eq!(server.take("w").task_id, brief_id);
}

#[test]
fn the_repeat_of_a_lost_answer_is_known_after_a_restart() {
    let server = Server::start();
    server.create_plain("x");
    let held = server.take("w");
    let first = server.complete(&held, &json!(1));
    let server = server.restart();
    let again = server.complete(&held, &json!(2));
    assert_eq!(again["duplicate"], true);
    assert_eq!(again["receipt_id"], first["receipt_id"]);
    assert_eq!(server.task(&held.task_id)["result"]["result"], 1);
}

#[test]
fn places_cursors_and_times_go_on_after_a_restart() {
    let server = Server::start();
    server.create_plain("x");
    let before = server.ledger().pop().unwrap();
    let cursor = text(&before["receipt_id"]);
    let server = server.restart();
    server.create_plain("x");
    let target = format!("/v1/receipts?principal_id=alice&since_receipt_id={cursor}");
    let page = server.get(&target).expect(200);
    let after = &page["receipts"][0];
    assert_eq!(page["receipts"].as_array().unwrap().len(), 1);
    assert_eq!(after["seq"], 2);
    assert!(after["receipt_id"].as_str() > before["receipt_id"].as_str());
    assert!(millis(&after["created_at"]) >= millis(&before["created_at"]));
}

/// 001 §11: an agent can query tasks and results after time passes and recover context; and
/// replaying `create_task` with the same key does not duplicate.
#[test]
fn an_agent_that_comes_back_later_finds_its_context() {
    let server = Server::start();
    let create = |server: &Server| {
        server.post(
            "/v1/tasks",
            &json!({"type": "report", "principal_id": "alice", "idempotency_key": "monday"}),
        )
    };
    let id = text(&create(&server).expect(201)["task_id"]);
    let launch = server.kill();

    // While the agent is away a worker does the task, and the server is started again.
    let server = launch.start();
    server.complete(&server.take("w"), &json!({"answer": 42}));
    let launch = server.kill();

    let server = launch.start();
    let again = create(&server).expect(200);
    assert_eq!(
        (&again["task_id"], &again["status"]),
        (&json!(id), &json!("succeeded"))
    );
    let mine = server.get("/v1/tasks?principal_id=alice").expect(200);
    assert_eq!(mine["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(mine["tasks"][0]["result"]["result"], json!({"answer": 42}));
    assert_eq!(
        types(&server.inbox("alice")),
        ["task.assigned", "task.completed", "task.result_ready"]
    );
    assert_eq!(server.obligations("alice"), Vec::<Value>::new());
    server.nothing_to_take();
}

#[test]
fn what_was_answered_survives_a_kill_at_once() {
    let mut launch = Launch::new();
    for round in 1..=5 {
        let server = launch.start();
        let id = server.create_plain("x");
        launch = server.kill();
        let server = launch.start();
        assert_eq!(server.status(&id), "queued", "round {round}");
        let held = server.take("w");
        launch = server.kill();
        let server = launch.start();
        assert_eq!(server.task(&id)["lease"]["lease_id"], held.lease_id);
        server.complete(&held, &json!(round));
        launch = server.kill();
        let server = launch.start();
        assert_eq!(server.task(&id)["result"]["result"], round);
        server.nothing_to_take();
        launch = server.kill();
    }
}

#[test]
fn nothing_acknowledged_is_lost_to_a_kill_under_load() {
    const ROUNDS: usize = 4;
    let journal = Journal::default();
    let mut launch = Launch::new();
    for round in 0..ROUNDS {
        let server = launch.start();
        let enough = journal.promises() + 150 + round * 97;
        thread::scope(|scope| {
            scope.spawn(|| journal.load(&server, 6, round));
            eventually("enough was promised", || {
                (journal.promises() >= enough).then_some(())
            });
            server.signal("KILL");
        });
        launch = server.launch().clone();
        server.wait();
    }
    let server = launch.start();
    let ledger = verify_ledger(&server);
    verify_stories(&server, &ledger);
    journal.verify(&server);
    journal.verify_claimable(&server);
    verify_ledger(&server);
    assert!(journal.promises() > 600);
    server.stop();
}

#[test]
fn a_stop_under_load_answers_or_refuses_and_loses_nothing() {
    let journal = Journal::default();
    let launch = Launch::new();
    let server = launch.start();
    thread::scope(|scope| {
        scope.spawn(|| journal.load(&server, 6, 0));
        eventually("enough was promised", || {
            (journal.promises() >= 200).then_some(())
        });
        server.signal("TERM");
    });
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let server = launch.start();
    let ledger = verify_ledger(&server);
    verify_stories(&server, &ledger);
    journal.verify(&server);
    journal.verify_claimable(&server);
}

#[test]
fn a_server_in_memory_forgets_and_says_so() {
    let server = Launch::new().arg("--store").arg("memory").start();
    assert_eq!(server.get("/v1/config").expect(200)["durability"], "none");
    server.create_plain("x");
    let held = server.take("w");
    server.complete(&held, &json!(1));
    assert_eq!(server.inbox("alice").len(), 3);
    server.logged("store = memory");
    assert!(!server.launch().data().exists(), "nothing is kept");
    let server = server.restart();
    assert_eq!(server.ledger(), Vec::<Value>::new());
}
