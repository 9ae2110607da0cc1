//! Readiness and what operators are told: saturation, and the stream of events.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{DEADLINE, Launch, Server, eventually};
use crate::http::Request;

fn ready(server: &Server) -> (u16, Value) {
    let answer = server.send_bare(&Request::get("/readyz"));
    (answer.status, answer.json())
}

fn send(server: &Server, topic: &str, n: u32) -> u16 {
    let message = json!({"topic": topic, "idem_key": n.to_string(), "payload_b64": "aGk="});
    server.post("/v1/send", &message).status
}

#[test]
fn receivers_that_hold_all_they_may_make_the_server_not_ready() {
    let server = Launch::new()
        .args(&["--global-inflight", "20", "--max-messages", "20"])
        .start();
    assert_eq!(ready(&server).0, 200);
    for n in 0..21 {
        assert_eq!(send(&server, "t", n), 200);
    }
    let hold = json!({"topic": "t", "visibility_ms": 60_000});
    let got = server.post("/v1/recv", &hold).expect(200);
    server.post("/v1/recv", &hold).refused(429, "E_SATURATED");
    let body = eventually("it is saturated", || {
        let (status, body) = ready(&server);
        (status == 503).then_some(body)
    });
    assert_eq!(body["degraded"], true);
    assert_eq!(body["missing"], json!(["saturated"]));
    let reason = body["reason"].as_str().unwrap();
    assert!(reason.contains("mailbox.global_inflight"), "{reason}");
    assert!(body["retry_after"].as_u64().unwrap() > 0);
    for message in got["messages"].as_array().unwrap() {
        let ack = format!("/v1/ack/{}", message["msg_id"].as_str().unwrap());
        server.post(&ack, &json!({})).expect(200);
    }
    eventually("it has recovered", || {
        (ready(&server).0 == 200).then_some(())
    });
}

#[test]
fn a_full_memory_of_sends_is_told_everywhere() {
    let server = Launch::new()
        .set("mailbox.dedup_capacity=20")
        .args(&["--default-visibility", "1s", "--t-replay", "4s"])
        .start();
    let mut n = 0;
    let refused = eventually("the memory is full", || {
        n += 1;
        let message = json!({"topic": "t", "idem_key": n.to_string(), "payload_b64": "aGk="});
        let answer = server.post("/v1/send", &message);
        (answer.status == 429).then(|| answer.json())
    });
    assert_eq!(refused["queue"], "dedup");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("remembered"), "{message}");
    let body = eventually("it is not ready", || {
        let (status, body) = ready(&server);
        // It may have been forgotten again meanwhile.
        send(&server, "t", 1_000 + n);
        n += 1;
        (status == 503).then_some(body)
    });
    assert_eq!(body["missing"], json!(["saturated"]));
    let reason = body["reason"].as_str().unwrap();
    assert!(reason.contains("mailbox.dedup_capacity"), "{reason}");
    eventually("the metric says so", || {
        send(&server, "t", 1_000 + n);
        n += 1;
        let filled = server.metric(r#"saturation{queue="dedup",topic_class=""}"#);
        filled.filter(|filled| *filled >= 0.9)
    });
    eventually("it has recovered", || {
        (ready(&server).0 == 200).then_some(())
    });
}

#[test]
fn one_full_topic_concerns_nobody_else() {
    let server = Launch::new()
        .args(&["--shards", "1", "--shard-cap", "5"])
        .start();
    for n in 0..5 {
        assert_eq!(send(&server, "busy", n), 200);
    }
    assert_eq!(send(&server, "busy", 5), 429);
    assert_eq!(send(&server, "busy", 0), 200, "a duplicate is answered");
    assert_eq!(send(&server, "other", 0), 200);
    // Long enough for it to have been looked at.
    thread::sleep(Duration::from_millis(1_500));
    assert_eq!(ready(&server).0, 200);
}

/// The next event of a kind on a stream that stays open.
fn next_event(reader: &mut impl BufRead, topic: &str) -> Value {
    let mut line = String::new();
    loop {
        line.clear();
        let read = reader.read_line(&mut line).unwrap();
        assert!(read > 0, "the stream has ended");
        if line.trim_end() == format!("event: {topic}") {
            line.clear();
            reader.read_line(&mut line).unwrap();
            return serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap();
        }
    }
}

#[test]
fn admins_are_told_what_happens() {
    let server = Launch::new()
        .args(&["--max-attempts", "2", "--default-visibility", "250ms"])
        .args(&["--backoff-base", "1ms", "--backoff-max", "1ms"])
        .set("mailbox.topic_classes=user:=user_inbox")
        .start();
    let answer = server.send_bare(&Request::get("/v1/events"));
    answer.refused(401, "UNAUTHORIZED");

    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    let request = server.with_key(Request::get("/v1/events"));
    let head = request.head(server.address);
    stream.write_all(head.as_bytes()).unwrap();
    let mut reader = BufReader::new(stream);
    let health = next_event(&mut reader, "mailbox.health");
    assert_eq!(health["ok"], true);
    assert_eq!(health["profile"], "macronode");
    let state = next_event(&mut reader, "mailbox.readyz");
    assert_eq!(state["ready"], true);
    assert_eq!(state["missing"], json!([]));
    assert!(state["ts"].is_string());

    // Its first receiver lets the time pass, the second gives it back: that was the last.
    assert_eq!(send(&server, "user:1:inbox", 1), 200);
    let receive = json!({"topic": "user:1:inbox"});
    server.post("/v1/recv", &receive).expect(200);
    let requeue = next_event(&mut reader, "mailbox.scanner.requeue");
    assert_eq!(requeue["count"], 1);
    let hold = json!({"topic": "user:1:inbox", "wait_seconds": 20, "visibility_ms": 60_000});
    let got = server.post("/v1/recv", &hold).expect(200);
    let nack = format!(
        "/v1/nack/{}",
        got["messages"][0]["msg_id"].as_str().unwrap()
    );
    server
        .post(&nack, &json!({"reason": "E_PARSE"}))
        .expect(200);
    let moved = next_event(&mut reader, "mailbox.dlq.moved");
    assert_eq!(moved["topic_class"], "user_inbox");
    assert_eq!(moved["reason"], "E_PARSE");
    assert_eq!(moved["count"], 1);
    for _ in 0..12 {
        let wrong = Request::post("/v1/send", "{}").bearer("wrong");
        server.send_bare(&wrong).refused(401, "E_CAP_AUTH");
    }
    let burst = next_event(&mut reader, "mailbox.auth.revoked");
    assert_eq!(burst["scope"], "send");
    assert!(burst["samples"].as_u64().unwrap() >= 10, "{burst}");
    // The stream does not hold up the end.
    server.stop();
}
