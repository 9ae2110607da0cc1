//! Compressed bodies: unpacked, bounded, refused.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use serde_json::json;

use crate::harness::Server;
use crate::http::Request;

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn deflate(plain: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

fn packed(target: &str, coding: &str, body: Vec<u8>) -> Request {
    Request::post(target, body).header("Content-Encoding", coding)
}

fn send(key: &str) -> Vec<u8> {
    let message = json!({"topic": "t", "idem_key": key, "payload_b64": "aGVsbG8="});
    message.to_string().into_bytes()
}

#[test]
fn packed_bodies_are_as_good_as_plain_ones_on_every_route() {
    let server = Server::start();
    for (coding, body) in [
        ("gzip", gzip(&send("a"))),
        ("deflate", deflate(&send("b"))),
        ("identity", send("c")),
    ] {
        server.send(packed("/v1/send", coding, body)).expect(200);
    }
    let task = gzip(br#"{"type":"x","payload":[1,2.50]}"#);
    server.send(packed("/v1/tasks", "gzip", task)).expect(201);
    let got = server.post("/v1/recv", &json!({"topic": "t"})).expect(200);
    assert_eq!(got["messages"].as_array().unwrap().len(), 3);
}

/// The most memory that the process has had, in kibibytes.
fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let mut lines = status.lines();
    let line = lines.find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_bomb_is_refused_and_counted_and_not_unpacked() {
    let server = Server::start();
    let before = memory(&server);
    for size in [1 << 16, 1 << 20, 256 << 20] {
        let bomb = gzip(&vec![b' '; size]);
        let answer = server.send(packed("/v1/send", "gzip", bomb.clone()));
        answer.refused(400, "E_SCHEMA");
        let answer = server.send(packed("/v1/tasks", "gzip", bomb));
        answer.refused(400, "BAD_REQUEST");
    }
    assert!(memory(&server) < before + (64 << 10), "it was unpacked");
    let counted = server.metric("rejected_total{reason=\"ratio_cap\"}");
    assert_eq!(counted, Some(6.0));
    let good = packed("/v1/send", "gzip", gzip(&send("a")));
    server.send(good).expect(200);
}

#[test]
fn what_cannot_be_unpacked_is_refused() {
    let server = Server::start();
    let whole = gzip(&send("a"));
    for (coding, body) in [
        ("gzip", send("a")),
        ("gzip", whole[..whole.len() - 4].to_vec()),
        ("gzip", Vec::new()),
        ("deflate", whole.clone()),
        ("br", whole.clone()),
        ("gzip, gzip", gzip(&whole)),
        // Members that unpack to nothing, each of which costs work.
        ("gzip", gzip(b"").repeat(10_000)),
    ] {
        let answer = server.send(packed("/v1/send", coding, body));
        answer.refused(400, "E_SCHEMA");
    }
}

#[test]
fn messages_of_mcp_may_be_packed_too() {
    let server = Server::start();
    let arguments: serde_json::Value = serde_json::from_slice(&send("a")).unwrap();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "mailbox.send", "arguments": arguments}});
    let call = call.to_string().into_bytes();
    let mcp = |coding: &str, body: Vec<u8>| {
        let request = packed("/mcp", coding, body).header("Content-Type", "application/json");
        server.send(request)
    };
    for (coding, body) in [
        ("gzip", gzip(&call)),
        ("deflate", deflate(&call)),
        ("identity", call.clone()),
    ] {
        let answer = mcp(coding, body).expect(200);
        assert_eq!(answer["result"]["isError"], false, "{answer}");
    }
    for (coding, body) in [
        ("gzip", call.clone()),
        ("gzip", gzip(&call)[..40].to_vec()),
        ("br", call.clone()),
    ] {
        mcp(coding, body).refused(400, "BAD_REQUEST");
    }
    let before = memory(&server);
    mcp("gzip", gzip(&vec![b' '; 256 << 20])).refused(400, "BAD_REQUEST");
    assert!(memory(&server) < before + (64 << 10), "it was unpacked");
    let counted = server.metric("rejected_total{reason=\"ratio_cap\"}");
    assert_eq!(counted, Some(1.0));
}
