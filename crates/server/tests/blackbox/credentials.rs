//! Credentials that end or are refused: what ends with them, and what operators are told.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{DEADLINE, KEY, Launch, Server, eventually};
use crate::http::Request;
use crate::start::key_in;

const OTHER_TENANT: &str = "00000000-0000-7000-8000-0000000000aa";

fn records(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Adds the key of an admin of another tenant to the stored ones, and returns it.
fn add_key(server: &Server) -> String {
    let elsewhere = Launch::without_key().start();
    let key = key_in(&elsewhere.logged("serving"));
    let mut record = records(&elsewhere.launch().data().join("keys.json"))["keys"][0].clone();
    record["tenant_id"] = json!(OTHER_TENANT);
    let path = server.launch().data().join("keys.json");
    let mut stored = records(&path);
    stored["keys"].as_array_mut().unwrap().push(record);
    std::fs::write(&path, stored.to_string()).unwrap();
    key
}

fn remove_last_key(server: &Server) {
    let path = server.launch().data().join("keys.json");
    let mut stored = records(&path);
    stored["keys"].as_array_mut().unwrap().pop();
    std::fs::write(&path, stored.to_string()).unwrap();
}

/// An answer that goes on, after its first line.
struct Following(BufReader<TcpStream>);

impl Following {
    fn open(server: &Server, request: Request) -> Self {
        let request = request.header("Connection", "close");
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream
            .write_all(request.head(server.address).as_bytes())
            .unwrap();
        stream.write_all(&request.encoded_body()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        Self(reader)
    }

    /// Waits for the end, and returns everything that came before it.
    fn until_its_end(mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        text
    }
}

/// The lines of the log about an event.
fn told(log: &str, event: &str) -> Vec<Value> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok());
    lines
        .filter(|line: &Value| line["event"] == event)
        .collect()
}

#[test]
fn events_and_streams_are_of_one_tenant_and_end_with_their_key() {
    let launch = Launch::without_key().args(&["--cap-cache-ttl", "500ms"]);
    let mut server = launch.start();
    let first = key_in(&server.logged("serving"));
    server.use_key(Some(&first));
    let other = add_key(&server);
    eventually("the new key is known", || {
        let answer = server.send_bare(&Request::get("/v1/config").bearer(&other));
        (answer.status == 200).then_some(())
    });

    let wish = json!({"topic": "t"}).to_string();
    let streamed = |key: &str| Request::post("/v1/recv/stream", wish.clone()).bearer(key);
    let ours = Following::open(&server, streamed(&first));
    let theirs = Following::open(&server, streamed(&other));
    let events = Following::open(&server, Request::get("/v1/events").bearer(&other));
    let tier = json!({"tier": "trusted"}).to_string();
    for (client, key) in [("one-of-ours", &first), ("one-of-theirs", &other)] {
        let target = format!("/v1/admin/tiers/{client}");
        let request = Request::new("PUT", &target).body(tier.clone()).bearer(key);
        server.send_bare(&request).expect(200);
    }
    remove_last_key(&server);
    let seen = events.until_its_end();
    assert!(seen.contains("mailbox.readyz"), "{seen}");
    assert!(seen.contains("one-of-theirs"), "{seen}");
    assert!(!seen.contains("one-of-ours"), "{seen}");
    theirs.until_its_end();

    // The other stream goes on, and so does its key.
    server.send_message("t", "a", "aGk=");
    let mut line = String::new();
    let mut ours = ours;
    while !line.contains("\"idem_key\":\"a\"") {
        line.clear();
        assert!(ours.0.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    drop(ours);

    let id = &other[4..16];
    let lines = told(&server.log(), "auth.revoked");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["key_id"], id);
    assert_eq!(lines[0]["tenant"], OTHER_TENANT);
    assert_eq!(lines[0]["reason"], "removed");
    let log = server.stop().stderr;
    assert!(!log.contains(&other[16..]), "{log}");
}

#[test]
fn a_refused_credential_leaves_a_line_that_does_not_hold_it() {
    // Each comes from an address of its own, since an address has one line a minute.
    let proxy = "server.trusted_proxies=127.0.0.1";
    let server = Launch::new().set(proxy).start();
    let tool = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for (n, (request, cause)) in [
        (Request::get("/v1/tasks"), "there is no credential"),
        (
            Request::get("/v1/tasks").bearer("wrong-secret"),
            "it is not the shared key",
        ),
        (
            Request::get("/v1/events").bearer("wrong-secret"),
            "it is not the shared key",
        ),
        (
            Request::post("/mcp", tool).bearer("wrong-secret"),
            "it is not the shared key",
        ),
        (
            Request::post("/v1/send", "{}").bearer("wrong-secret"),
            "it is not the shared key",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let corr_id = format!("refused-{n}");
        let client = format!("10.0.0.{n}");
        let request = request.header("X-Forwarded-For", &client);
        let answer = server.send_bare(&request.header("X-Corr-Id", &corr_id));
        assert_eq!(answer.status, 401, "{answer:?}");
        server.logged(&corr_id);
        let lines = told(&server.log(), "auth.denied");
        let lines: Vec<_> = lines
            .iter()
            .filter(|line| line["corr_id"] == *corr_id)
            .collect();
        assert_eq!(lines.len(), 1, "{corr_id}: {lines:?}");
        assert_eq!(lines[0]["cause"], cause);
        assert_eq!(lines[0]["remote_addr"], *client);
    }
    let log = server.stop().stderr;
    assert!(!log.contains("wrong-secret") && !log.contains(KEY), "{log}");
}

#[test]
fn a_flood_of_wrong_credentials_does_not_flood_the_log() {
    let hooks = crate::ingress::launch(crate::ingress::HOOKS);
    let server = hooks.start();
    let wrong = Request::get("/v1/tasks").bearer("wrong-secret");
    let unsigned = Request::post("/v1/ingress/hooks", "{}");
    for _ in 0..50 {
        assert_eq!(server.send_bare(&wrong).status, 401);
        assert_eq!(server.send_bare(&unsigned).status, 401);
    }
    // Every refusal is counted, whether or not it has a line.
    let counted = r#"asyncgate_ingress_messages_total{ingress="hooks",result="INVALID_SIGNATURE"}"#;
    assert_eq!(server.metric(counted), Some(50.0));
    let log = server.stop().stderr;
    for event in ["auth.denied", "ingress.refused"] {
        // A minute may have ended meanwhile.
        let lines = told(&log, event).len();
        assert!((1..=3).contains(&lines), "{event}: {lines} lines");
    }
}

#[test]
fn a_revocation_leaves_a_line() {
    let server = Server::start();
    let subject = json!({"kind": "issuer_key", "hash": "ab".repeat(32)});
    let revoke = json!({"subject": subject});
    for status in [201, 200] {
        server.post("/v1/host/revocations", &revoke).expect(status);
    }
    let target = format!("/v1/host/revocations/issuer_key/{}", "ab".repeat(32));
    server.send(Request::new("DELETE", &target)).expect(200);
    server.logged("revocation_removed");
    let log = server.log();
    for event in ["revocation_added", "revocation_removed"] {
        let lines = told(&log, event);
        assert_eq!(lines.len(), 1, "{event}: {log}");
        assert_eq!(
            lines[0]["subject"],
            format!("issuer_key/{}", "ab".repeat(32))
        );
        assert_eq!(lines[0]["principal"], "service/admin");
    }
}
