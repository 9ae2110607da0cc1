//! Lists: their order, their pages, their filters, and which task a claim takes first.

use std::collections::BTreeSet;
use std::thread;

use serde_json::{Value, json};

use crate::calls::{text, types};
use crate::harness::Server;

fn ids(tasks: &[Value]) -> Vec<String> {
    tasks.iter().map(|task| text(&task["task_id"])).collect()
}

/// Every task of a list, through pages of this size.
fn all_tasks(server: &Server, query: &str, limit: usize) -> Vec<Value> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = server
            .get(&format!("/v1/tasks?limit={limit}{query}{cursor}"))
            .expect(200);
        let here = page["tasks"].as_array().unwrap();
        assert!(here.len() <= limit);
        found.extend(here.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[test]
fn tasks_are_listed_newest_first_in_pages() {
    let server = Server::start();
    let mut created: Vec<String> = (0..7).map(|_| server.create_plain("x")).collect();
    let other = server.create(&json!({"type": "y", "principal_id": "bob"}));
    created.reverse();
    for limit in [1, 3, 7, 200] {
        let found = all_tasks(&server, "&principal_id=alice", limit);
        assert_eq!(ids(&found), created, "in pages of {limit}");
    }
    let everyone = all_tasks(&server, "", 3);
    assert_eq!(everyone.len(), 8, "an admin sees all of the tenant");
    assert_eq!(everyone[0]["task_id"], other);
    assert_eq!(
        everyone[0],
        server.task(&other),
        "a list tells what reading tells"
    );
    let owned = all_tasks(&server, "&created_by=bob", 3);
    assert_eq!(ids(&owned), [other], "the older name of the filter");
}

#[test]
fn tasks_are_found_by_status_and_type() {
    let server = Server::start();
    let done = server.create_plain("a");
    server.complete(&server.take("w"), &json!(1));
    let leased = server.create_plain("b");
    let held = server.take("w");
    let queued = server.create_plain("a");
    let find = |query: &str| ids(&all_tasks(&server, query, 1));
    assert_eq!(find("&status=succeeded"), [done.as_str()]);
    assert_eq!(find("&status=leased"), [leased.as_str()]);
    assert_eq!(find("&status=queued"), [queued.as_str()]);
    assert_eq!(find("&type=a"), [queued.as_str(), done.as_str()]);
    assert_eq!(find("&type=a&status=succeeded"), [done.as_str()]);
    assert_eq!(find("&status=failed"), Vec::<String>::new());
    server.under(&held, "running", &json!({})).expect(200);
    assert_eq!(find("&status=running"), [leased.as_str()]);
    server
        .under(&held, "fail", &json!({"error": "x"}))
        .expect(200);
    assert_eq!(find("&status=failed"), [leased]);
    server
        .post(&format!("/v1/tasks/{queued}/cancel"), &json!({}))
        .expect(200);
    assert_eq!(find("&status=canceled"), [queued]);
}

#[test]
fn pages_of_receipts_are_exclusive_and_stable_while_others_write() {
    let server = Server::start();
    for _ in 0..5 {
        server.create_plain("x");
    }
    let target = "/v1/receipts?principal_id=alice&limit=2";
    let first = server.get(target).expect(200);
    let next = text(&first["next_cursor"]);
    server.create_plain("x");
    let second = server
        .get(&format!("{target}&since_receipt_id={next}"))
        .expect(200);
    let places = |page: &Value| -> Vec<u64> {
        let receipts = page["receipts"].as_array().unwrap();
        receipts
            .iter()
            .map(|receipt| receipt["seq"].as_u64().unwrap())
            .collect()
    };
    assert_eq!((places(&first), places(&second)), (vec![1, 2], vec![3, 4]));
    for limit in [1, 2, 3, 6, 200] {
        let all = server.pages("/v1/receipts?principal_id=alice", "receipts", limit);
        assert_eq!(all.len(), 6, "in pages of {limit}");
    }
    let by_alias = server
        .get("/v1/receipts?to_kind=agent&to_id=alice")
        .expect(200);
    assert_eq!(by_alias["receipts"].as_array().unwrap().len(), 6);
}

#[test]
fn a_reader_that_keeps_its_cursor_gets_every_later_receipt_once() {
    let server = Server::start();
    let target = "/v1/receipts?principal_id=alice";
    let empty = server.get(target).expect(200);
    assert_eq!(
        empty,
        json!({"receipts": [], "cursor": null, "next_cursor": null})
    );
    server.create_plain("x");
    let page = server.get(target).expect(200);
    assert_eq!(page["next_cursor"], Value::Null);
    let cursor = text(&page["cursor"]);
    let target = format!("{target}&since_receipt_id={cursor}");
    assert_eq!(server.get(&target).expect(200)["receipts"], json!([]));
    let held = server.take("w");
    server.complete(&held, &json!(1));
    let news = server.get(&target).expect(200);
    let receipts = news["receipts"].as_array().unwrap();
    assert_eq!(types(receipts), ["task.completed", "task.result_ready"]);
}

#[test]
fn obligations_come_in_pages_and_closed_ones_fall_out() {
    let server = Server::start();
    let created: Vec<String> = (0..5).map(|_| server.create_plain("x")).collect();
    let held = server.take("w");
    assert_eq!(held.task_id, created[0], "the oldest goes first");
    server.complete(&held, &json!(1));
    for limit in [1, 2, 4, 200] {
        let target = "/v1/obligations/open?principal_id=alice";
        let open = server.pages(target, "open_obligations", limit);
        assert_eq!(ids(&open), created[1..], "in pages of {limit}");
    }
    assert_eq!(server.obligations("bob"), Vec::<Value>::new());
    let closed = server.inbox("alice")[0]["receipt_id"].clone();
    let since = format!(
        "/v1/obligations/open?principal_id=alice&since_receipt_id={}",
        text(&closed)
    );
    let open = server.get(&since).expect(200);
    assert_eq!(
        open["open_obligations"].as_array().unwrap().len(),
        4,
        "a closed obligation still names a place"
    );
}

#[test]
fn the_highest_priority_goes_first_and_then_the_oldest() {
    let server = Server::start();
    let create = |priority: i32| {
        server.create(&json!({"type": "x", "priority": priority, "principal_id": "alice"}))
    };
    let order = [create(0), create(5), create(-3), create(5), create(0)];
    let expected = [&order[1], &order[3], &order[0], &order[4], &order[2]];
    let held = server.claim(&json!({"worker_id": "w", "max_tasks": 3}));
    let taken: Vec<&String> = held.iter().map(|held| &held.task_id).collect();
    assert_eq!(taken, expected[..3]);
    let held = server.claim(&json!({"worker_id": "w", "max_tasks": 100}));
    let taken: Vec<&String> = held.iter().map(|held| &held.task_id).collect();
    assert_eq!(taken, expected[3..]);
}

#[test]
fn a_worker_gets_only_what_it_can_do_and_accepts() {
    let server = Server::start();
    let create = |task_type: &str, capabilities: Value| {
        server.create(&json!({
            "type": task_type,
            "requirements": {"capabilities": capabilities},
        }))
    };
    let both = create("render", json!(["gpu", "fonts"]));
    let gpu = create("train", json!(["gpu"]));
    let plain = create("train", json!([]));
    let take = |claim: Value| -> Vec<String> {
        let held = server.claim(&claim);
        for held in &held {
            server.under(held, "release", &json!({})).expect(200);
        }
        held.into_iter().map(|held| held.task_id).collect()
    };
    let claim = |capabilities: Value, accept: Value| {
        take(json!({
            "worker_id": "w",
            "capabilities": capabilities,
            "accept_types": accept,
            "max_tasks": 10,
        }))
    };
    assert_eq!(claim(json!([]), Value::Null), [plain.as_str()]);
    assert_eq!(claim(json!(["fonts"]), Value::Null), [plain.as_str()]);
    assert_eq!(
        claim(json!(["tpu", "gpu"]), Value::Null),
        [gpu.as_str(), plain.as_str()]
    );
    assert_eq!(
        claim(json!(["fonts", "gpu"]), Value::Null),
        [both.as_str(), gpu.as_str(), plain.as_str()]
    );
    assert_eq!(claim(json!(["fonts", "gpu"]), json!(["render"])), [both]);
    assert_eq!(
        claim(json!(["gpu"]), json!(["render"])),
        Vec::<String>::new()
    );
    assert_eq!(claim(json!(["gpu"]), json!(["x", "train"])), [gpu, plain]);
}

#[test]
fn workers_that_claim_at_the_same_time_never_get_the_same_task() {
    const TASKS: usize = 60;
    let server = Server::start();
    let created: BTreeSet<String> = (0..TASKS).map(|_| server.create_plain("x")).collect();
    let taken: Vec<String> = thread::scope(|scope| {
        let workers: Vec<_> = (0..8)
            .map(|n| {
                let claim = json!({"worker_id": format!("w{n}"), "max_tasks": 1 + n % 3});
                let server = &server;
                scope.spawn(move || {
                    let claims = std::iter::repeat_with(|| server.claim(&claim));
                    let claims = claims.take_while(|held| !held.is_empty());
                    claims
                        .flatten()
                        .map(|held| held.task_id)
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        let taken = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap());
        taken.collect()
    });
    assert_eq!(taken.len(), TASKS, "none twice");
    assert_eq!(
        taken.into_iter().collect::<BTreeSet<_>>(),
        created,
        "none forgotten"
    );
}
