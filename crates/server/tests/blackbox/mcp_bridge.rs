//! `asyncgate mcp --url`: a client on standard streams, and a server that runs elsewhere.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use serde_json::{Value, json};

use crate::calls::text;
use crate::harness::{KEY, Launch, Server, Talk, run};
use crate::mcp::{ERAS, Era, happy_path, message, outcome};

/// The command that passes messages on to a server.
fn bridge_to(url: &str) -> Command {
    let mut command = Launch::new().bare_command();
    // It reads and writes no file, so it needs no directory of its own.
    command.args(["mcp", "--url", url]).current_dir("/");
    command
}

fn bridge(server: &Server) -> Talk {
    Talk::start(bridge_to(&format!("http://{}", server.address)))
}

fn heard(talk: &Talk) -> Value {
    serde_json::from_str(&talk.hear()).unwrap()
}

fn call_message(era: Era, id: u32, tool: &str, arguments: Value) -> String {
    let params = json!({"name": tool, "arguments": arguments});
    message(era, id, "tools/call", params).to_string()
}

fn shake_hands(talk: &mut Talk) {
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    talk.say(&message(Era::Handshake, 0, "initialize", hello).to_string());
    let answer = heard(talk);
    assert_eq!(answer["result"]["serverInfo"]["name"], "asyncgate");
    talk.say(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
}

#[test]
fn a_task_goes_the_whole_way_over_the_bridge_in_both_eras() {
    for era in ERAS {
        let server = Server::start();
        let mut talk = bridge(&server);
        if era == Era::Handshake {
            shake_hands(&mut talk);
        }
        happy_path(|tool, arguments| {
            talk.say(&call_message(era, 7, tool, arguments));
            let answer = heard(&talk);
            assert_eq!(answer["id"], 7, "{answer}");
            outcome(&answer)
        });
        let ended = talk.end();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("", ""));
        let listed = server.get("/v1/tasks").expect(200);
        assert_eq!(listed["tasks"].as_array().unwrap().len(), 3);
    }
}

#[test]
fn toolsets_are_passed_on() {
    let server = Server::start();
    let list = message(Era::Stateless, 1, "tools/list", json!({})).to_string();
    // The address of the endpoint is as good as that of the server.
    let mut command = bridge_to(&format!("http://{}/mcp/", server.address));
    command.args(["--tools", "mailbox,ops"]);
    let mut talk = Talk::start(command);
    talk.say(&list);
    let answer = heard(&talk).to_string();
    assert!(answer.contains("mailbox_purge") && !answer.contains("asyncgate_create_task"));
    talk.end();
    let mut command = bridge_to(&format!("http://{}", server.address));
    command.args(["--tools", "nothing"]);
    let mut talk = Talk::start(command);
    talk.say(&list);
    let error = heard(&talk)["error"].clone();
    assert!(text(&error["message"]).contains("nothing"), "{error}");
    assert_eq!(error["data"]["code"], "BAD_REQUEST");
    talk.end();
}

#[test]
fn nonsense_is_answered_by_the_server() {
    let server = Server::start();
    let mut talk = bridge(&server);
    for (line, code) in [
        ("nonsense", -32700),
        ("7", -32600),
        (r#"{"jsonrpc":"2.0","id":1,"method":"nothing"}"#, -32601),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nothing"}}"#,
            -32602,
        ),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"né\r\n"}}"#,
            -32602,
        ),
    ] {
        talk.say("");
        talk.say(line);
        assert_eq!(heard(&talk)["error"]["code"], code, "{line}");
    }
    let payload = r#"{"z":1.0,"a":123456789012345678901234567890,"e":1e300}"#;
    talk.say(&format!(
        r#"{{"jsonrpc":"2.0","id":"é","method":"tools/call","params":{{"name":"asyncgate_create_task","arguments":{{"type":"x","payload":{payload}}}}}}}"#
    ));
    let created = heard(&talk);
    assert_eq!(created["id"], "é");
    let id = text(&created["result"]["structuredContent"]["task_id"]);
    talk.say(&call_message(
        Era::Stateless,
        2,
        "asyncgate.get_task",
        json!({"task_id": id}),
    ));
    let line = talk.hear();
    assert!(line.contains(&format!(r#""payload":{payload}"#)), "{line}");
}

#[test]
fn a_call_that_waits_holds_up_nobody_and_can_be_cancelled() {
    let server = Server::start();
    let mut talk = bridge(&server);
    let wait = json!({"worker_id": "w", "wait_seconds": 60, "accept_types": ["none"]});
    talk.say(&call_message(
        Era::Handshake,
        1,
        "asyncgate_lease_next",
        wait,
    ));
    talk.say(&call_message(
        Era::Handshake,
        2,
        "asyncgate_get_config",
        json!({}),
    ));
    assert_eq!(heard(&talk)["id"], 2);
    talk.say(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#);
    // The end waits for calls under way, and this one would wait longer than any test may.
    let ended = talk.end();
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""));
}

#[test]
fn the_end_of_the_input_waits_for_answers() {
    let server = Server::start();
    let mut talk = bridge(&server);
    for id in 1..=20 {
        talk.say(&call_message(
            Era::Stateless,
            id,
            "asyncgate_get_config",
            json!({}),
        ));
    }
    let ended = talk.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    let mut ids: Vec<u64> = ended
        .stdout
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["id"]
                .as_u64()
                .unwrap()
        })
        .collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=20).collect::<Vec<_>>());
}

#[test]
fn a_server_that_is_down_is_told_of_and_the_bridge_lives() {
    let server = Server::start();
    let mut talk = bridge(&server);
    talk.say(&call_message(
        Era::Stateless,
        1,
        "asyncgate_get_config",
        json!({}),
    ));
    outcome(&heard(&talk)).unwrap();
    server.stop();
    for id in 2..4 {
        talk.say(r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#);
        talk.say(&call_message(
            Era::Stateless,
            id,
            "asyncgate_get_config",
            json!({}),
        ));
        let answer = heard(&talk);
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!(id), &json!(-32000))
        );
        let said = text(&answer["error"]["message"]);
        assert!(said.contains("is the server running?"), "{said}");
    }
    talk.say("[]");
    assert_eq!(heard(&talk)["id"], Value::Null);
    let ended = talk.end();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(
        ended
            .stderr
            .contains("nothing listens at http://127.0.0.1:"),
        "{ended:?}"
    );
    assert!(!ended.stderr.contains(KEY));
}

#[test]
fn a_bad_key_is_told_of_and_never_shown() {
    let server = Server::start();
    let mut command = bridge_to(&format!("http://{}", server.address));
    let wrong = "a-key-that-opens-nothing";
    command
        .env_remove("ASYNCGATE_API_KEY")
        .args(["--api-key", wrong]);
    let mut talk = Talk::start(command);
    talk.say(&call_message(
        Era::Handshake,
        1,
        "asyncgate_get_config",
        json!({}),
    ));
    let error = heard(&talk)["error"].clone();
    assert_eq!(error["data"]["code"], "UNAUTHORIZED");
    assert!(text(&error["message"]).contains("check the key"), "{error}");
    talk.say(&call_message(Era::Handshake, 2, "mailbox.send", json!({})));
    let error = heard(&talk)["error"].clone();
    assert_eq!(error["data"]["code"], "E_CAP_AUTH");
    let ended = talk.end();
    assert!(!format!("{ended:?}{error}").contains(wrong), "{ended:?}");
    let mut command = bridge_to(&format!("http://{}", server.address));
    command.env_remove("ASYNCGATE_API_KEY");
    let mut talk = Talk::start(command);
    talk.say(&call_message(
        Era::Stateless,
        1,
        "asyncgate_get_config",
        json!({}),
    ));
    let error = heard(&talk)["error"].clone();
    assert!(text(&error["message"]).contains("--api-key"), "{error}");
    talk.end();
}

#[test]
fn what_is_about_a_server_of_its_own_does_not_go_with_an_address() {
    for (args, word) in [
        (&["--data-dir", "x"][..], "--data-dir"),
        (&["--set", "bind=127.0.0.1:0"], "--set"),
        (&["--config", "x.toml"], "--config"),
    ] {
        let mut command = bridge_to("http://127.0.0.1:1");
        command.args(args);
        let ended = run(command);
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert!(ended.complaint().contains(word), "{ended:?}");
    }
    let ended = run(bridge_to("localhost:8080"));
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.complaint().contains("http://"), "{ended:?}");
}

/// A server that says what a test wants, and tells which heads it was sent.
struct Puppet {
    address: SocketAddr,
    heads: mpsc::Receiver<String>,
}

impl Puppet {
    /// Answers each request with what `say` makes of its body.
    fn start(say: fn(&str) -> String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, heads) = mpsc::channel();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let sender = sender.clone();
                thread::spawn(move || answer(stream.unwrap(), &sender, say));
            }
        });
        Self { address, heads }
    }

    fn bridge(&self) -> Talk {
        Talk::start(bridge_to(&format!("http://{}", self.address)))
    }
}

/// Answers the one request of a connection.
fn answer(stream: TcpStream, heads: &mpsc::Sender<String>, say: fn(&str) -> String) {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).unwrap() == 0 {
            return;
        }
    }
    let head = head.to_ascii_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    heads.send(head).unwrap();
    let answer = say(&String::from_utf8(body).unwrap());
    reader.into_inner().write_all(answer.as_bytes()).unwrap();
}

/// The id of the request in a body.
fn id(body: &str) -> Value {
    serde_json::from_str::<Value>(body).unwrap()["id"].clone()
}

#[test]
fn answers_may_come_as_a_stream_of_events() {
    let puppet = Puppet::start(|body| {
        let id = id(body);
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nConnection: close\r\n\r\n\
             : hello\n\nevent: message\ndata: {{\"jsonrpc\":\"2.0\",\ndata: \"method\":\"notifications/progress\"}}\n\n\
             data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n"
        )
    });
    let mut talk = puppet.bridge();
    talk.say(r#"{"jsonrpc":"2.0","id":7,"method":"tools/list"}"#);
    assert_eq!(heard(&talk)["method"], "notifications/progress");
    assert_eq!(
        heard(&talk),
        json!({"jsonrpc": "2.0", "id": 7, "result": {}})
    );
    let ended = talk.end();
    assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""));
}

#[test]
fn what_is_no_answer_is_told_of() {
    for (say, word) in [
        (
            (|_| {
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 99\r\n\r\ndata: {".to_owned()
            }) as fn(&str) -> String,
            "broke off",
        ),
        (
            |_| {
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {}\n".to_owned()
            },
            "broke off",
        ),
        (
            |_| "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "no answer",
        ),
        (
            |_| "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>".to_owned(),
            "502",
        ),
        (|_| "SSH-2.0-OpenSSH\r\n".to_owned(), "not an HTTP server"),
    ] {
        let puppet = Puppet::start(say);
        let mut talk = puppet.bridge();
        talk.say(r#"{"jsonrpc":"2.0","id":"x","method":"tools/list"}"#);
        let answer = heard(&talk);
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&json!("x"), &json!(-32000))
        );
        assert!(text(&answer["error"]["message"]).contains(word), "{answer}");
        let ended = talk.end();
        assert_eq!((ended.status.code(), ended.stdout.as_str()), (Some(0), ""));
    }
}

#[test]
fn headers_say_what_the_message_says() {
    let puppet = Puppet::start(|body| {
        let body = format!(
            "{{\"jsonrpc\":\"2.0\",\r\n\"id\":{},\"result\":{{\"protocolVersion\":\"2025-06-18\"}}}}",
            id(body)
        );
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    });
    let mut talk = puppet.bridge();
    let mut sent = |message: &Value| {
        talk.say(&message.to_string());
        heard(&talk);
        puppet.heads.recv().unwrap()
    };
    let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
    let head = sent(&message(Era::Handshake, 1, "initialize", hello));
    assert!(head.starts_with("post /mcp http/1.1\r\n"), "{head}");
    assert!(head.contains(&format!("authorization: bearer {KEY}\r\n")));
    assert!(head.contains("accept: application/json, text/event-stream\r\n"));
    assert!(!head.contains("mcp-protocol-version"), "{head}");
    let head = sent(&message(Era::Handshake, 2, "tools/list", json!({})));
    assert!(
        head.contains("mcp-protocol-version: 2025-06-18\r\nmcp-method: tools/list\r\n"),
        "{head}"
    );
    let call = json!({"name": "mailbox.send", "arguments": {}});
    let head = sent(&message(Era::Stateless, 3, "tools/call", call));
    let expected =
        "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: mailbox.send\r\n";
    assert!(head.contains(expected), "{head}");
    assert_eq!(talk.end().status.code(), Some(0));
}
