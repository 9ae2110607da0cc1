//! What the path of a task leaves behind: receipts, obligations, and the ways to find them.

use serde_json::{Value, json};

use crate::calls::{has_members, is_id, members, millis, types};
use crate::happy::{OWNER, owner, system, taken, worker};
use crate::harness::Server;
use crate::http::Request;

#[test]
fn an_obligation_is_open_until_the_proof_and_closed_after_it() {
    let server = Server::start();
    let held = taken(&server);
    let open = server.obligations(OWNER);
    assert_eq!(types(&open), ["task.assigned"]);
    let assigned = &open[0];
    assert_eq!(assigned["task_id"], held.task_id);
    assert_eq!((&assigned["from"], &assigned["to"]), (&owner(), &owner()));
    assert_eq!(assigned["parents"], json!([]));
    server.complete(&held, &json!("done"));
    assert_eq!(server.obligations(OWNER), Vec::<Value>::new());
}

#[test]
fn the_list_of_obligations_says_who_asks_and_who_answers() {
    let server = Server::start();
    let target = format!("/v1/obligations/open?principal_id={OWNER}&principal_instance_id=laptop");
    let open = server.get(&target).expect(200);
    assert_eq!(
        members(&open),
        [
            "cursor",
            "next_cursor",
            "open_obligations",
            "relationship",
            "server"
        ]
    );
    let told = &open["server"];
    assert_eq!(
        members(told),
        ["environment", "instance_id", "name", "uptime", "version"]
    );
    assert_eq!(told["name"], "AsyncGate");
    assert_eq!(told["instance_id"], "asyncgate-1");
    let relationship = &open["relationship"];
    assert_eq!(relationship["principal_kind"], "agent");
    assert_eq!(relationship["principal_id"], OWNER);
    assert_eq!(relationship["principal_instance_id"], "laptop");
    assert_eq!(relationship["sessions_count"], 1);
    assert!(millis(&relationship["last_seen_at"]) >= millis(&relationship["first_seen_at"]));
    let elsewhere = target.replace("laptop", "phone");
    let again = server.get(&elsewhere).expect(200);
    assert_eq!(again["relationship"]["sessions_count"], 2);
    assert_eq!(
        again["relationship"]["first_seen_at"],
        relationship["first_seen_at"]
    );
}

#[test]
fn the_inbox_of_a_success_holds_exactly_three_receipts() {
    let server = Server::start();
    let held = taken(&server);
    let done = server.complete(&held, &json!({"pages": 12}));
    let inbox = server.inbox(OWNER);
    assert_eq!(
        types(&inbox),
        ["task.assigned", "task.completed", "task.result_ready"]
    );
    let [assigned, completed, ready] = inbox.as_slice() else {
        unreachable!("three")
    };
    assert_eq!(completed["receipt_id"], done["receipt_id"]);
    assert_eq!(completed["parents"], json!([assigned["receipt_id"]]));
    assert_eq!(ready["parents"], json!([completed["receipt_id"]]));
    assert_eq!((&completed["from"], &ready["from"]), (&worker(), &system()));
    assert_eq!((&completed["to"], &ready["to"]), (&owner(), &owner()));
    assert_eq!(completed["lease_id"], held.lease_id);
    assert_eq!(completed["body"]["result_payload"], json!({"pages": 12}));
    assert_eq!(
        completed["body"]["artifacts"],
        json!([{"type": "s3", "url": "s3://bucket/key"}])
    );
    assert_eq!(ready["body"]["status"], "succeeded");
    assert_eq!(assigned["body"]["type"], "report.render");
    for receipt in &inbox {
        assert_eq!(receipt["task_id"], held.task_id);
        assert_eq!(receipt["asyncgate_instance"], "asyncgate-1");
        assert_eq!(receipt["tenant_id"], assigned["tenant_id"]);
        is_id(&receipt["receipt_id"]);
        millis(&receipt["created_at"]);
        let hash = receipt["hash"].as_str().unwrap();
        assert!(hash.starts_with("b3:") && hash.len() == 67, "{hash}");
        assert_eq!(receipt.get("delivered_at"), None);
    }
    has_members(
        assigned,
        &[
            "asyncgate_instance",
            "body",
            "created_at",
            "from",
            "hash",
            "parents",
            "receipt_id",
            "receipt_type",
            "seq",
            "task_id",
            "tenant_id",
            "to",
        ],
    );
}

#[test]
fn the_ledger_is_found_by_task_by_lease_and_by_type() {
    let server = Server::start();
    let held = taken(&server);
    server.under(&held, "running", &json!({})).expect(200);
    server.complete(&held, &json!(1));
    let other = server.create_plain("other");
    let story = server.story(&held.task_id);
    assert_eq!(
        types(&story),
        [
            "task.assigned",
            "task.accepted",
            "task.started",
            "task.completed",
            "task.result_ready"
        ]
    );
    let by_lease = format!("/v1/receipts/ledger?lease_id={}", held.lease_id);
    assert_eq!(server.pages(&by_lease, "receipts", 200), story[1..]);
    let by_type = "/v1/receipts/ledger?receipt_type=task.assigned";
    let assigned = server.pages(by_type, "receipts", 200);
    assert_eq!(assigned.len(), 2);
    assert_eq!(
        (&assigned[0], &assigned[1]["task_id"]),
        (&story[0], &json!(other))
    );
    assert_eq!(server.ledger().len(), 6);
    assert_eq!(server.ledger_by_type(), server.ledger());
}

#[test]
fn a_receipt_is_read_bare_and_never_changes() {
    let server = Server::start();
    let held = taken(&server);
    for receipt in server.story(&held.task_id) {
        let id = receipt["receipt_id"].as_str().unwrap();
        assert_eq!(
            server.get(&format!("/v1/receipts/{id}")).expect(200),
            receipt
        );
    }
}

#[test]
fn acknowledging_a_receipt_is_recorded_and_closes_nothing() {
    let server = Server::start();
    let held = taken(&server);
    let assigned = server.inbox(OWNER).remove(0);
    let id = assigned["receipt_id"].as_str().unwrap();
    let target = format!("/v1/receipts/{id}/ack");
    let answer = server
        .post(&target, &json!({"principal_id": OWNER}))
        .expect(200);
    assert_eq!(answer, json!({"ok": true}));
    let last = server.story(&held.task_id).pop().unwrap();
    assert_eq!(last["receipt_type"], "receipt.acknowledged");
    assert_eq!(last["from"], json!({"kind": "agent", "id": OWNER}));
    assert_eq!(last["parents"], json!([id]));
    assert_eq!(server.obligations(OWNER), [assigned]);
    server.send(Request::new("POST", &target)).expect(200);
}

#[test]
fn bootstrap_is_deprecated_and_alone_marks_receipts_as_delivered() {
    let server = Server::start();
    let held = taken(&server);
    server.complete(&held, &json!(1));
    let target = format!("/v1/bootstrap?agent_id={OWNER}&agent_instance_id=laptop&max_items=2");
    let answer = server.get(&target);
    let body = answer.expect(200);
    assert_eq!(answer.header("X-AsyncGate-Deprecated"), Some("true"));
    assert_eq!(answer.header("Deprecation"), Some("true"));
    assert_eq!(
        answer.header("Link"),
        Some("</v1/obligations/open>; rel=\"successor-version\"")
    );
    assert_eq!(
        members(&body),
        ["attention", "cursor", "relationship", "server", "warnings"]
    );
    let attention = &body["attention"];
    for empty in [
        "assigned_tasks",
        "waiting_results",
        "running_or_scheduled",
        "anomalies",
    ] {
        assert_eq!(attention[empty], json!([]), "{empty}");
    }
    let receipts = attention["inbox_receipts"].as_array().unwrap();
    // Without a place it gives the newest.
    assert_eq!(types(receipts), ["task.completed", "task.result_ready"]);
    assert_eq!(
        body["cursor"]["latest_receipt_id"],
        receipts[1]["receipt_id"]
    );

    let marked: Vec<bool> = server
        .inbox(OWNER)
        .iter()
        .map(|receipt| receipt.get("delivered_at").is_some())
        .collect();
    assert_eq!(marked, [false, true, true], "only what was handed over");
    let first = server.inbox(OWNER)[1]["delivered_at"].clone();
    millis(&first);
    let again = server.get(&target).expect(200);
    assert_eq!(
        again["attention"]["inbox_receipts"][0]["delivered_at"],
        first
    );
    let since = receipts[0]["receipt_id"].as_str().unwrap();
    let rest = server
        .get(&format!("{target}&since_receipt_id={since}"))
        .expect(200);
    let rest = rest["attention"]["inbox_receipts"].as_array().unwrap();
    assert_eq!(types(rest), ["task.result_ready"]);
}

#[test]
fn nothing_but_bootstrap_has_the_headers_of_deprecation() {
    let server = Server::start();
    for target in [
        "/v1/obligations/open",
        "/v1/receipts",
        "/v1/tasks",
        "/v1/config",
    ] {
        let answer = server.get(target);
        answer.expect(200);
        assert_eq!(answer.header("Deprecation"), None, "{target}");
        assert_eq!(answer.header("X-AsyncGate-Deprecated"), None, "{target}");
    }
}

#[test]
fn the_end_of_the_ledger_is_told_and_stays_the_same_over_a_restart() {
    let server = Server::start();
    let empty = server.get("/v1/ledger/head").expect(200);
    assert_eq!(
        (&empty["seq"], &empty["open_obligations"]),
        (&json!(0), &json!(0))
    );
    let held = taken(&server);
    let head = server.get("/v1/ledger/head").expect(200);
    let ledger = server.ledger();
    assert_eq!(
        (&head["seq"], &head["open_obligations"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(head["link"], ledger[1]["link"]);
    assert_ne!(ledger[0]["link"], ledger[1]["link"]);
    let launch = server.kill();
    let server = launch.start();
    let again = server.get("/v1/ledger/head").expect(200);
    for part in ["tenant_id", "seq", "link", "open_obligations", "public_key"] {
        assert_eq!(again[part], head[part], "{part}");
    }
    assert_eq!(server.ledger(), ledger);
    server.complete(&held, &json!(1));
    let closed = server.get("/v1/ledger/head").expect(200);
    assert_eq!(
        (&closed["seq"], &closed["open_obligations"]),
        (&json!(4), &json!(0))
    );
    assert_ne!(closed["link"], head["link"]);
}
