//! Admission on a real Redis: two servers share it, it goes away, it comes back.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use asyncgate_store::conformance::{Program, free_port};
use serde_json::{Value, json};

use crate::harness::{Launch, Server, eventually, run};

const SPACE: &str = "0101010101010101010101010101010101010101010101010101010101010101";

/// One Redis that keeps nothing, gone when dropped.
struct Redis {
    port: u16,
    _program: Program,
}

impl Redis {
    /// None, with a word about it, where there is no such program.
    fn start() -> Option<Self> {
        Self::start_at(free_port())
    }

    fn start_at(port: u16) -> Option<Self> {
        Self::start_with(port, &[])
    }

    fn start_with(port: u16, args: &[&str]) -> Option<Self> {
        let mut command = Command::new("redis-server");
        command
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--requirepass", "s3cret"])
            .args(args)
            .stdout(Stdio::null());
        let Some(_program) = Program::try_start(&mut command) else {
            eprintln!("SKIPPED: there is no redis-server here; `cargo xtask test` installs it");
            return None;
        };
        let redis = Self { port, _program };
        eventually("Redis listens", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()
        });
        Some(redis)
    }

    fn address(&self) -> String {
        format!("redis://:s3cret@127.0.0.1:{}", self.port)
    }
}

fn launch(redis: &Redis) -> Launch {
    let address = redis.address();
    Launch::new().env("ASYNCGATE_ADMISSION_BACKEND", &address)
}

fn nonce(server: &Server, text: &str) -> (u16, Value) {
    let input = json!({ "namespace": SPACE, "nonce": text, "ttl_secs": 600 });
    let answer = server.post("/v1/host/nonces/check", &input);
    (answer.status, answer.json())
}

/// Asks with one nonce after another until the server has an answer of Redis; returns the nonce and the answer.
/// A nonce whose answer was lost may have been used, so none is asked about twice.
fn connected(server: &Server) -> (String, Value) {
    let mut number = 100;
    eventually("connected", || {
        number += 1;
        let text = format!("A{number}");
        let (status, answer) = nonce(server, &text);
        (status == 200).then_some((text, answer))
    })
}

#[test]
fn two_servers_share_what_redis_knows() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let (one, other) = (launch(&redis).start(), launch(&redis).start());
    let (used, accepted) = connected(&one);
    assert_eq!(accepted["result"], "accepted");
    assert_eq!(accepted["provenance"]["backend"], "redis");
    let replay = eventually("the other is connected", || {
        let (status, answer) = nonce(&other, &used);
        (status == 200).then_some(answer)
    });
    assert_eq!(replay["result"], "replay");
}

#[test]
fn without_redis_the_failure_modes_count() {
    let Some(redis) = Redis::start() else {
        return;
    };
    let server = launch(&redis).start();
    connected(&server);
    let port = redis.port;
    drop(redis);
    let (status, answer) = nonce(&server, "AgID");
    assert_eq!((status, &answer["code"]), (503, &json!("HOST_UNAVAILABLE")));
    let input = json!({ "policy": "throttled", "key": "k" });
    let open = server.post("/v1/limits/check", &input).expect(200);
    assert_eq!(open["allowed"], true);
    assert_eq!(open["provenance"]["source"], "failure_mode");
    let _redis = Redis::start_at(port).unwrap();
    connected(&server);
}

#[test]
fn a_password_is_not_for_the_command_line_and_not_for_complaints() {
    let backend = "admission.backend=redis://:s3cret@localhost";
    let ended = Launch::new().set(backend).refused();
    assert!(
        ended.complaint().contains("ASYNCGATE_ADMISSION_BACKEND"),
        "{}",
        ended.complaint()
    );
    for format in [&["config", "show"][..], &["config", "show", "--json"]] {
        let address = "redis://:s3cret@localhost/3";
        let launch = Launch::new().env("ASYNCGATE_ADMISSION_BACKEND", address);
        let mut command = launch.bare_command();
        command.args(format).current_dir("/");
        let shown = run(command);
        assert!(
            shown.stdout.contains("redis://localhost:6379/3"),
            "{shown:?}"
        );
        assert!(!shown.stdout.contains("s3cret"), "{shown:?}");
    }
    for (address, complaint) in [
        ("rediss+tls://:s3cret@localhost", "must begin with"),
        ("rediss://:s3cret@localhost?cert=/c.pem", "cert and key"),
        ("rediss://:s3cret@localhost?ca=/none.pem", "ca=/none.pem"),
    ] {
        let file = format!("[admission]\nbackend = \"{address}\"\n");
        let ended = Launch::new().file("s.toml", &file).refused();
        let told = ended.complaint();
        assert!(told.contains("admission.backend"), "{told}");
        assert!(told.contains(complaint), "{told}");
        assert!(!told.contains("s3cret"), "{told}");
    }
}

/// The files of the certificates that the tests of the host have.
fn file(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../host-redis/tests/redis/tls");
    folder.join(name).to_str().unwrap().to_owned()
}

#[test]
fn by_tls_a_certificate_that_is_not_trusted_is_a_failure_of_the_host() {
    let port = free_port();
    let secure = [
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file("server.pem"),
        "--tls-key-file",
        &file("server.key"),
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        &file("ca.pem"),
    ];
    let Some(_redis) = Redis::start_with(free_port(), &secure) else {
        return;
    };
    let launch = |root: &str| {
        let address = format!("rediss://:s3cret@localhost:{port}?ca={}", file(root));
        Launch::new().env("ASYNCGATE_ADMISSION_BACKEND", &address)
    };
    let trusting = launch("ca.pem").start();
    let (used, accepted) = connected(&trusting);
    assert_eq!(accepted["result"], "accepted");
    assert_eq!(nonce(&trusting, &used).1["result"], "replay");
    let other = launch("other_ca.pem").start();
    let (status, answer) = nonce(&other, "AgID");
    assert_eq!((status, &answer["code"]), (503, &json!("HOST_UNAVAILABLE")));
    let input = json!({ "policy": "throttled", "key": "k" });
    let open = other.post("/v1/limits/check", &input).expect(200);
    assert_eq!(open["provenance"]["source"], "failure_mode");
    // On a busy machine the first line may say that dialling took too long. The next dialling tells the cause.
    eventually("the log tells why", || {
        let log = other.log();
        let told = |line: &str| {
            line.contains("no connection to Redis") && line.contains("invalid peer certificate")
        };
        log.lines().any(told).then_some(())
    });
    for server in [trusting, other] {
        assert!(!server.log().contains("s3cret"));
    }
}
