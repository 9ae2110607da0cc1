//! Batches of tasks over HTTP and on the command line.

use serde_json::{Value, json};

use crate::{
    cli::{Scene, ends, lines},
    harness::{Server, Talk},
};

fn codes(answer: &Value) -> Vec<&str> {
    let results = answer["results"].as_array().unwrap();
    let codes = results.iter().map(|result| result["code"].as_str());
    codes.map(|code| code.unwrap_or("ok")).collect()
}

#[test]
fn a_thousand_tasks_are_created_claimed_and_finished_by_three_calls() {
    let server = Server::start();
    // Bodies may be larger than those of single calls.
    let payload = "x".repeat(8_000);
    let tasks = vec![json!({ "type": "t", "payload": payload }); 1_000];
    let created = server
        .post("/v1/tasks/batch", &json!({ "tasks": tasks }))
        .expect(200);
    assert!(codes(&created).iter().all(|code| *code == "ok"));
    let claim = json!({ "worker_id": "w", "max_tasks": 1_000 });
    let mut finished = 0;
    while finished < 1_000 {
        // A claim that would answer with too much ends early.
        let claimed = server.post("/v1/leases/claim", &claim).expect(200);
        let item = |task: &Value| {
            json!({
                "task_id": task["task_id"], "lease_id": task["lease_id"],
                "complete": { "delivery_proof": { "target": "t" } },
            })
        };
        let items: Vec<Value> = claimed["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(item)
            .collect();
        assert!(!items.is_empty());
        finished += items.len();
        let report = json!({ "worker_id": "w", "items": items });
        let answer = server.post("/v1/leases/finish/batch", &report).expect(200);
        assert!(codes(&answer).iter().all(|code| *code == "ok"));
        let again = server.post("/v1/leases/finish/batch", &report).expect(200);
        let results = again["results"].as_array().unwrap();
        assert!(results.iter().all(|result| result["duplicate"] == true));
    }
    let head = server.get("/v1/ledger/head").json();
    assert_eq!(head["open_obligations"], 0, "{head}");
}

#[test]
fn each_line_of_a_file_is_a_task() {
    let scene = Scene::set();
    let send = |flags: &str, lines: &[&str]| {
        let mut talk = Talk::start(scene.command(&format!("task create --batch - {flags}")));
        for line in lines {
            talk.say(line);
        }
        talk.end()
    };
    let good = r#"{"type":"greet","payload":{"name":"Ada"},"idempotency_key":"ada"}"#;
    let ended = send("--as alice", &[good, "", good]);
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(lines(&ended.stdout), ["ID", "ID (was there before)"]);
    let broken = [good, "{", r#"{"type":""}"#, r#"{"type":"greet"}"#];
    let ended = send("--as alice -q", &broken);
    assert_eq!(lines(&ended.stdout), ["ID", "ID"]);
    assert_eq!(ended.status.code(), Some(3));
    assert!(
        ended.stderr.contains("2 of 4 tasks were not created"),
        "{ended:?}"
    );
    assert!(ended.stderr.contains("line 2"), "{ended:?}");
    let ended = send("--as alice --json", &broken);
    let told: Vec<Value> = ended
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let codes: Vec<&Value> = told.iter().map(|line| &line["code"]).collect();
    let bad = json!("BAD_REQUEST");
    assert_eq!(codes, [&Value::Null, &bad, &bad, &Value::Null]);
    assert_eq!(
        scene
            .says_json("task list --as alice")
            .as_array()
            .unwrap()
            .len(),
        3
    );
    ends(
        &scene.run("task create --batch /nowhere"),
        1,
        "cannot read /nowhere",
    );
    let both = scene.run("task create greet --batch -");
    assert_eq!(both.status.code(), Some(2), "{both:?}");
}
