//! Admission on an emulator of DynamoDB: two servers share it, it goes away.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Command, Stdio};

use asyncgate_store::conformance::{Program, free_port};
use serde_json::{Value, json};

use crate::harness::{Launch, Server, eventually, run};
use crate::http::{Connection, Request, Response};

const SPACE: &str = "0101010101010101010101010101010101010101010101010101010101010101";

/// A dynalite with one table, gone when dropped.
struct Dynalite {
    port: u16,
    _program: Program,
}

impl Dynalite {
    /// None, with a word about it, where there is no such program.
    fn start() -> Option<Self> {
        let Some(program) = std::env::var_os("ASYNCGATE_TEST_DYNALITE") else {
            eprintln!(
                "SKIPPED: ASYNCGATE_TEST_DYNALITE is not set; `cargo xtask test` installs it"
            );
            return None;
        };
        let port = free_port();
        let mut command = Command::new("node");
        command
            .arg(program)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["--createTableMs", "0"])
            .stdout(Stdio::null());
        let _program = Program::start(&mut command);
        let dynalite = Self { port, _program };
        eventually("dynalite listens", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        let column = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
        let table = json!({
            "TableName": "gate",
            "AttributeDefinitions": [column("pk"), column("sk")],
            "KeySchema": [
                { "AttributeName": "pk", "KeyType": "HASH" },
                { "AttributeName": "sk", "KeyType": "RANGE" },
            ],
            "BillingMode": "PAY_PER_REQUEST",
        });
        let made = dynalite.ask("CreateTable", &table);
        assert_eq!(made.status, 200, "{made:?}");
        Some(dynalite)
    }

    fn ask(&self, operation: &str, input: &Value) -> Response {
        let scope = "k/20260101/eu-west-1/dynamodb/aws4_request";
        let signature =
            format!("AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=s");
        let request = Request::new("POST", "/")
            .header("content-type", "application/x-amz-json-1.0")
            .header("x-amz-date", "20260101T000000Z")
            .header("x-amz-target", &format!("DynamoDB_20120810.{operation}"))
            .header("authorization", &signature)
            .body(input.to_string());
        let address = (Ipv4Addr::LOCALHOST, self.port).into();
        Connection::open(address).unwrap().send(&request).unwrap()
    }

    fn launch(&self) -> Launch {
        let backend = format!(
            "admission.backend=dynamodb://gate?endpoint=http://127.0.0.1:{}",
            self.port
        );
        Launch::new()
            .env("AWS_REGION", "eu-west-1")
            .env("AWS_ACCESS_KEY_ID", "AKID")
            .env("AWS_SECRET_ACCESS_KEY", "s3cret")
            .set(&backend)
    }
}

fn nonce(server: &Server, text: &str) -> (u16, Value) {
    let input = json!({ "namespace": SPACE, "nonce": text, "ttl_secs": 600 });
    let answer = server.post("/v1/host/nonces/check", &input);
    (answer.status, answer.json())
}

#[test]
fn two_servers_share_what_dynamodb_knows() {
    let Some(dynalite) = Dynalite::start() else {
        return;
    };
    let (one, other) = (dynalite.launch().start(), dynalite.launch().start());
    let (status, accepted) = nonce(&one, "AQID");
    assert_eq!(
        (status, &accepted["result"]),
        (200, &json!("accepted")),
        "{accepted}"
    );
    assert_eq!(accepted["provenance"]["backend"], "dynamodb");
    assert_eq!(nonce(&other, "AQID").1["result"], "replay");
    drop(dynalite);
    let (status, answer) = nonce(&one, "AgID");
    assert_eq!((status, &answer["code"]), (503, &json!("HOST_UNAVAILABLE")));
    for log in [one.log(), other.log()] {
        assert!(!log.contains("s3cret"), "{log}");
    }
}

#[test]
fn what_is_missing_stops_the_start_and_the_setting_is_shown() {
    let backend = "admission.backend=dynamodb://gate?region=eu-west-1";
    let ended = Launch::new().set(backend).refused();
    assert!(
        ended.complaint().contains("AWS_ACCESS_KEY_ID"),
        "{}",
        ended.complaint()
    );
    let key = |launch: Launch| {
        launch
            .env("AWS_ACCESS_KEY_ID", "AKID")
            .env("AWS_SECRET_ACCESS_KEY", "s3cret")
    };
    let ended = key(Launch::new())
        .set("admission.backend=dynamodb://gate")
        .refused();
    let complaint = ended.complaint();
    assert!(
        complaint.contains("AWS_REGION") && !complaint.contains("s3cret"),
        "{complaint}"
    );
    let launch = key(Launch::new()).env(
        "ASYNCGATE_ADMISSION_BACKEND",
        "dynamodb://gate?endpoint=http://127.0.0.1:8000&region=eu-west-1",
    );
    let mut command = launch.bare_command();
    command.args(["config", "show"]).current_dir("/");
    let shown = run(command);
    let setting = "dynamodb://gate?region=eu-west-1&endpoint=http://127.0.0.1:8000";
    assert!(shown.stdout.contains(setting), "{shown:?}");
}
