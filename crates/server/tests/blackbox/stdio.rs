//! `asyncgate mcp`: the same tools over standard streams, on the same data directory.

use std::process::Command;
use std::time::Instant;

use serde_json::{Value, json};

use crate::calls::text;
use crate::harness::{DEADLINE, Launch, Talk};
use crate::mcp::{ERAS, Era, happy_path, message, outcome};

fn talk(launch: &Launch) -> Talk {
    Talk::start(launch.command("mcp"))
}

fn call_message(era: Era, id: u32, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    message(era, id, "tools/call", params).to_string()
}

/// Calls a tool and hears its outcome.
fn call(talk: &mut Talk, era: Era, tool: &str, arguments: Value) -> Result<Value, Value> {
    talk.say(&call_message(era, 7, tool, arguments));
    let answer: Value = serde_json::from_str(&talk.hear()).unwrap();
    assert_eq!(answer["id"], 7, "{answer}");
    outcome(&answer)
}

#[test]
fn a_task_goes_the_whole_way_over_stdio_in_both_eras() {
    for era in ERAS {
        let launch = Launch::without_key();
        let mut talk = talk(&launch);
        if era == Era::Handshake {
            let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
            talk.say(&message(era, 1, "initialize", hello).to_string());
            let answer: Value = serde_json::from_str(&talk.hear()).unwrap();
            assert_eq!(answer["result"]["serverInfo"]["name"], "asyncgate");
            talk.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        }
        happy_path(|tool, arguments| call(&mut talk, era, tool, arguments));
        let ended = talk.end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(ended.stdout, "", "stdout belongs to the protocol");
    }
}

#[test]
fn what_is_done_over_stdio_is_there_for_the_server_and_the_other_way_round() {
    let launch = Launch::new();
    let server = launch.start();
    let by_rest = server.create(&json!({"type": "by-rest"}));
    server.stop();
    let mut talk = talk(&launch);
    let read = call(
        &mut talk,
        Era::Stateless,
        "asyncgate.get_task",
        json!({"task_id": by_rest}),
    );
    assert_eq!(read.unwrap()["type"], "by-rest");
    let arguments = json!({"type": "by-stdio", "payload": [1.5]});
    let created = call(
        &mut talk,
        Era::Stateless,
        "asyncgate.create_task",
        arguments,
    )
    .unwrap();
    assert_eq!(talk.end().status.code(), Some(0));
    let server = launch.start();
    let task = server.task(&text(&created["task_id"]));
    assert_eq!(
        (&task["type"], &task["payload"]),
        (&json!("by-stdio"), &json!([1.5]))
    );
    assert_eq!(
        task["created_by"],
        json!({"kind": "service", "id": "admin"})
    );
}

#[test]
fn a_call_that_waits_does_not_hold_up_others() {
    let launch = Launch::without_key();
    let mut talk = talk(&launch);
    let wait = json!({"worker_id": "w", "wait_seconds": 60});
    talk.say(&call_message(
        Era::Handshake,
        1,
        "asyncgate.lease_next",
        wait,
    ));
    let start = Instant::now();
    let config = call(&mut talk, Era::Handshake, "asyncgate.get_config", json!({}));
    assert_eq!(config.unwrap()["durability"], "fsync");
    talk.say(&call_message(
        Era::Handshake,
        2,
        "asyncgate.create_task",
        json!({"type": "x"}),
    ));
    let mut answers: Vec<Value> = (0..2)
        .map(|_| serde_json::from_str(&talk.hear()).unwrap())
        .collect();
    answers.sort_by_key(|answer| answer["id"].as_u64());
    let leased = outcome(&answers[0]).unwrap();
    let created = outcome(&answers[1]).unwrap();
    assert_eq!(leased["tasks"][0]["task_id"], created["task_id"]);
    assert!(start.elapsed() < DEADLINE / 2, "{:?}", start.elapsed());
    assert_eq!(talk.end().status.code(), Some(0));
}

#[test]
fn nonsense_on_stdin_is_answered_and_survived() {
    let launch = Launch::without_key();
    let mut talk = talk(&launch);
    for (line, code) in [
        ("nonsense", -32700),
        ("{", -32700),
        ("7", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"nothing"}"#, -32601),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}"#,
            -32602,
        ),
    ] {
        talk.say(line);
        let answer: Value = serde_json::from_str(&talk.hear()).unwrap();
        assert_eq!(answer["error"]["code"], code, "{line}: {answer}");
    }
    let huge = "x".repeat(3 << 20);
    talk.say(&huge);
    let answer: Value = serde_json::from_str(&talk.hear()).unwrap();
    assert!(answer["error"]["code"].is_i64(), "{answer}");
    let config = call(&mut talk, Era::Stateless, "asyncgate.get_config", json!({}));
    assert_eq!(config.unwrap()["receipt_mode"], "standalone");
    assert_eq!(talk.end().status.code(), Some(0));
}

#[test]
fn bytes_survive_stdio_and_a_message_is_one_line() {
    let launch = Launch::without_key();
    let mut talk = talk(&launch);
    let payload =
        r#"{"z":1.0,"a":123456789012345678901234567890,"e":1e300,"s":"\u0000\ud83d\ude00\n"}"#;
    talk.say(&format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"asyncgate.create_task","arguments":{{"type":"x","payload":{payload}}}}}}}"#
    ));
    let created: Value = serde_json::from_str(&talk.hear()).unwrap();
    let id = text(&created["result"]["structuredContent"]["task_id"]);
    let get = call_message(
        Era::Handshake,
        2,
        "asyncgate.get_task",
        json!({"task_id": id}),
    );
    talk.say(&get);
    let line = talk.hear();
    assert!(line.contains(&format!(r#""payload":{payload}"#)), "{line}");
}

#[test]
fn a_signal_ends_it_and_answered_calls_are_kept() {
    let launch = Launch::new();
    let mut talk = talk(&launch);
    let arguments = json!({"type": "x"});
    let created = call(
        &mut talk,
        Era::Stateless,
        "asyncgate.create_task",
        arguments,
    )
    .unwrap();
    let wait = json!({"worker_id": "w", "wait_seconds": 60, "accept_types": ["none"]});
    talk.say(&call_message(
        Era::Stateless,
        1,
        "asyncgate.lease_next",
        wait,
    ));
    let pid = talk.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-s", "TERM", &pid])
            .status()
            .unwrap()
            .success()
    );
    let ended = talk.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let server = launch.start();
    assert_eq!(server.status(&text(&created["task_id"])), "queued");
}
