//! The start: who may call, what is told to operators, and what never is.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::{Value, json};

use crate::calls::text;
use crate::harness::{KEY, Launch, Server, Talk, eventually, run};
use crate::http::Request;

/// The key in what a first start says on stderr.
#[track_caller]
pub fn key_in(log: &str) -> String {
    let words: Vec<&str> = log
        .split_whitespace()
        .filter(|word| word.starts_with("aga_"))
        .collect();
    assert_eq!(words.len(), 1, "a key, once:\n{log}");
    words[0].to_owned()
}

#[test]
fn the_first_start_makes_a_key_and_shows_it_once() {
    let mut server = Launch::without_key().start();
    let key = key_in(&server.logged("serving"));
    server.get("/v1/config").refused(401, "UNAUTHORIZED");
    server.use_key(Some(&key));
    let id = server.create(&json!({"type": "x"}));
    assert_eq!(
        server.task(&id)["created_by"],
        json!({"kind": "service", "id": "admin"})
    );
    let mut wrong = key.clone();
    wrong.pop();
    wrong.push(if key.ends_with('x') { 'y' } else { 'x' });
    let answer = server.send_bare(&Request::get("/v1/config").bearer(&wrong));
    answer.refused(401, "UNAUTHORIZED");

    let launch = server.launch().clone();
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(launch.data()), 0o700);
    server.stop();
    for file in std::fs::read_dir(launch.data()).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        let content = std::fs::read(&path).unwrap();
        let holds = |text: &str| {
            content
                .windows(text.len())
                .any(|part| part == text.as_bytes())
        };
        assert!(!holds(&key[16..]), "only a hash is kept");
    }

    let mut server = launch.start();
    server.get("/v1/config").refused(401, "UNAUTHORIZED");
    server.use_key(Some(&key));
    assert_eq!(server.status(&id), "queued");
    let ended = server.stop();
    assert!(
        !ended.stderr.contains("aga_"),
        "shown once: {}",
        ended.stderr
    );
}

#[test]
fn a_shared_key_makes_no_other_and_is_required() {
    let server = Server::start();
    server
        .send_bare(&Request::get("/v1/config"))
        .refused(401, "UNAUTHORIZED");
    server.get("/v1/config").expect(200);
    assert!(!server.stop().stderr.contains("aga_"));
}

#[test]
fn the_insecure_mode_asks_nobody_and_warns_loudly() {
    let server = Launch::without_key()
        .env("ALLOW_INSECURE_DEV", "true")
        .start();
    let id = server.create(&json!({"type": "x"}));
    assert_eq!(server.status(&id), "queued");
    let any = Request::get("/v1/config").bearer("whatever");
    server.send_bare(&any).expect(200);
    // A page that gave its own name the address of this machine.
    let rebound = Request::get("/v1/config").header("Host", "evil.example");
    server.send_bare(&rebound).refused(403, "FORBIDDEN");
    let log = server.stop().stderr;
    assert!(
        log.contains("WARN") && log.contains("ALLOW_INSECURE_DEV"),
        "{log}"
    );
    assert!(!log.contains("aga_"), "no key is made: {log}");
}

#[test]
fn the_insecure_mode_is_for_loopback_only() {
    for bind in ["0.0.0.0:0", "[::]:0"] {
        let launch = Launch::without_key()
            .env("ALLOW_INSECURE_DEV", "true")
            .bind(Some(bind));
        let ended = launch.refused();
        assert!(
            ended.complaint().contains("allow_insecure_dev"),
            "{ended:?}"
        );
        assert!(!launch.data().exists());
    }
    let both = Launch::new().env("ALLOW_INSECURE_DEV", "true").refused();
    assert!(both.complaint().contains("allow_insecure_dev"), "{both:?}");
}

#[test]
fn serve_without_any_argument_keeps_its_data_in_the_working_directory() {
    let launch = Launch::new().env("ASYNCGATE_BIND", "127.0.0.1:0");
    let mut command = launch.bare_command();
    command.arg("serve");
    let server = Server::watch(command, launch.clone());
    server.create_plain("x");
    assert!(launch.dir().join("data/asyncgate.db").exists());
    server.stop();
}

#[test]
fn it_says_one_line_on_stdout_and_ends_well() {
    let talk = Talk::start(Launch::new().command("serve"));
    let line = talk.hear();
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    let pid = talk.id().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &pid]).status();
    assert!(sent.unwrap().success());
    let ended = talk.wait();
    assert_eq!(
        ended.status.code(),
        Some(0),
        "SIGINT ends it as SIGTERM does"
    );
    assert_eq!(ended.stdout, "", "nothing else on stdout");
}

#[test]
fn liveness_and_readiness_are_told_to_everyone() {
    let server = Server::start();
    let alive = server.send_bare(&Request::get("/healthz"));
    assert_eq!(alive.expect(200), json!({"status": "ok"}));
    let ready = server.send_bare(&Request::get("/readyz"));
    assert_eq!(ready.expect(200), json!({"status": "ready"}));
    for target in ["/healthz", "/readyz", "/metrics"] {
        let wrong = server.send_bare(&Request::new("POST", target));
        wrong.refused(405, "METHOD_NOT_ALLOWED");
        assert!(wrong.header("Allow").is_some(), "{wrong:?}");
    }
}

#[test]
fn every_answer_has_a_correlation_id() {
    let server = Server::start();
    for target in [
        "/healthz",
        "/readyz",
        "/metrics",
        "/openapi.json",
        "/v1/health",
        "/nothing",
    ] {
        let answer = server.send_bare(&Request::get(target));
        assert!(answer.header("X-Corr-Id").is_some(), "{target}: {answer:?}");
    }
}

#[test]
fn metrics_count_what_happens() {
    let server = Server::start();
    // The first use of the key leaves an entry in the audit log, in a commit of its own.
    server.get("/v1/config").expect(200);
    eventually("the entry is written", || {
        (server.metric("asyncgate_store_commits_total") == Some(1.0)).then_some(())
    });
    for _ in 0..3 {
        server.create_plain("x");
    }
    let held = server.take("w");
    server.complete(&held, &json!(1));
    server.take("w");
    server.get("/v1/tasks/x").refused(400, "BAD_REQUEST");
    let answer = server.send_bare(&Request::get("/metrics"));
    assert_eq!(answer.status, 200);
    let kind = answer.header("Content-Type").unwrap();
    assert!(kind.starts_with("application/openmetrics-text"), "{kind}");
    for (sample, value) in [
        ("asyncgate_tasks{status=\"queued\"}", 1.0),
        ("asyncgate_tasks{status=\"leased\"}", 1.0),
        ("asyncgate_tasks{status=\"running\"}", 0.0),
        ("asyncgate_tasks{status=\"succeeded\"}", 1.0),
        ("asyncgate_tasks_created_total", 3.0),
        ("asyncgate_claims_total", 2.0),
        ("asyncgate_leases_granted_total", 2.0),
        ("asyncgate_leases_expired_total", 0.0),
        ("asyncgate_waiting_calls", 0.0),
        (
            "asyncgate_requests_total{operation=\"create_task\",code=\"OK\"}",
            3.0,
        ),
        (
            "asyncgate_requests_total{operation=\"get_task\",code=\"BAD_REQUEST\"}",
            1.0,
        ),
        (
            "asyncgate_request_seconds_count{operation=\"create_task\"}",
            3.0,
        ),
        ("asyncgate_store_commits_total", 7.0),
        ("asyncgate_store_commit_seconds_count", 7.0),
        ("asyncgate_store_jobs_per_commit_sum", 7.0),
        ("asyncgate_store_commit_failures_total", 0.0),
        ("asyncgate_store_waiting_jobs", 0.0),
        ("asyncgate_store_turned_away_total", 0.0),
    ] {
        assert_eq!(
            server.metric(sample),
            Some(value),
            "{sample} in\n{}",
            answer.text()
        );
    }
    well_formed(answer.text());
}

/// Checks the text format: every sample belongs to a described family, and the end is marked.
#[track_caller]
fn well_formed(text: &str) {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut families = Vec::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            let kind = words.next().unwrap();
            assert!(["HELP", "TYPE", "UNIT"].contains(&kind), "{line}");
            families.push(words.next().unwrap().to_owned());
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}"));
        let bare = name.split('{').next().unwrap();
        let known = families
            .iter()
            .any(|family| bare.starts_with(family.as_str()));
        assert!(known, "{line}");
    }
}

/// The operations of the contract.
const OPERATIONS: [(&str, &str); 21] = [
    ("post", "/v1/tasks"),
    ("get", "/v1/tasks/{task_id}"),
    ("get", "/v1/tasks"),
    ("post", "/v1/tasks/{task_id}/cancel"),
    ("get", "/v1/obligations/open"),
    ("get", "/v1/bootstrap"),
    ("get", "/v1/receipts"),
    ("get", "/v1/receipts/{receipt_id}"),
    ("get", "/v1/receipts/ledger"),
    ("post", "/v1/receipts/{receipt_id}/ack"),
    ("post", "/v1/leases/claim"),
    ("post", "/v1/leases/renew"),
    ("post", "/v1/leases/release"),
    ("post", "/v1/tasks/{task_id}/running"),
    ("post", "/v1/tasks/{task_id}/progress"),
    ("post", "/v1/tasks/{task_id}/complete"),
    ("post", "/v1/tasks/{task_id}/fail"),
    ("get", "/v1/ledger"),
    ("get", "/v1/ledger/head"),
    ("get", "/v1/config"),
    ("get", "/v1/health"),
];

#[test]
fn the_description_of_the_interface_is_served_and_whole() {
    let server = Server::start();
    let answer = server.send_bare(&Request::get("/openapi.json"));
    let document = answer.expect(200);
    assert!(
        text(&document["openapi"]).starts_with("3.1"),
        "{}",
        document["openapi"]
    );
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    for (method, path) in OPERATIONS {
        let operation = &document["paths"][path][method];
        assert!(operation.is_object(), "{method} {path}");
        assert!(operation["responses"].is_object(), "{method} {path}");
        assert!(!text(&operation["operationId"]).is_empty());
    }
    unresolved(&document, &document);
    let printed = run(openapi_command());
    assert!(printed.status.success());
    let printed: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(printed, document);
}

fn openapi_command() -> Command {
    let mut command = Launch::new().bare_command();
    command.arg("openapi").current_dir("/");
    command
}

/// Checks that every reference in the document leads somewhere.
fn unresolved(document: &Value, here: &Value) {
    match here {
        Value::Object(object) => {
            if let Some(Value::String(target)) = object.get("$ref") {
                let pointer = target
                    .strip_prefix('#')
                    .expect("a reference into the document");
                assert!(
                    document.pointer(pointer).is_some(),
                    "{target} leads nowhere"
                );
            }
            for inner in object.values() {
                unresolved(document, inner);
            }
        }
        Value::Array(items) => items.iter().for_each(|inner| unresolved(document, inner)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn secrets_and_payloads_never_reach_the_log() {
    const MARK: &str = "marked-content-5b1f";
    for format in ["text", "json"] {
        let server = Launch::new()
            .arg("--log-level")
            .arg("trace")
            .arg("--log-format")
            .arg(format)
            .start();
        let marked = json!({MARK: [MARK]});
        let input = json!({
            "type": "x", "payload": marked, "idempotency_key": MARK, "payload_pointer": MARK,
        });
        let create =
            Request::post("/v1/tasks", input.to_string()).header("X-Corr-Id", "corr-of-mine");
        server.send(create).expect(201);
        let held = server.take("w");
        server
            .under(&held, "progress", &json!({"progress": marked}))
            .expect(200);
        server
            .under(
                &held,
                "complete",
                &json!({"result": marked, "artifacts": marked}),
            )
            .expect(200);
        let broken = format!("{{\"type\":\"x\",\"payload\":\"{MARK}");
        server
            .send(Request::post("/v1/tasks", broken))
            .refused(400, "BAD_REQUEST");
        let unknown = format!("{{\"type\":\"x\",\"{MARK}\":1}}");
        let request =
            Request::post("/v1/tasks", unknown).header("X-Corr-Id", "corr-of-the-refused");
        server.send(request).refused(400, "BAD_REQUEST");
        let conflict = json!({"type": "y", "payload": MARK, "idempotency_key": MARK});
        server
            .post("/v1/tasks", &conflict)
            .refused(422, "IDEMPOTENCY_CONFLICT");
        let wrong = Request::get("/v1/config").bearer(MARK);
        server.send_bare(&wrong).refused(401, "UNAUTHORIZED");
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "asyncgate.create_task", "arguments": {"type": "x", "payload": MARK, "surprise": MARK}},
        });
        server.post("/mcp", &call).expect(200);
        let ended = server.stop();
        let log = &ended.stderr;
        for secret in [KEY, MARK] {
            let line = log.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{format}");
        }
        assert!(
            log.contains("corr-of-the-refused"),
            "refusals can be found by their id:\n{log}"
        );
        if format == "json" {
            for line in log.lines() {
                serde_json::from_str::<Value>(line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            }
        }
    }
}

#[test]
fn without_its_lock_file_a_directory_still_belongs_to_one_server() {
    let server = Server::start();
    let launch = server.launch().clone();
    std::fs::remove_file(launch.data().join("asyncgate.lock")).unwrap();
    let ended = launch.refused();
    assert!(ended.complaint().contains("in use by another"), "{ended:?}");
    server.create_plain("x");
    server.stop();
    launch.start().stop();
}

#[test]
fn a_data_directory_that_everybody_may_write_is_warned_of() {
    let warning = "everybody on this machine may write into the data directory";
    let launch = Launch::new();
    launch.start().stop();
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(launch.data(), open).unwrap();
    let log = launch.start().stop().stderr;
    let line = log.lines().find(|line| line.contains(warning)).expect(&log);
    assert!(line.contains("WARN"), "{line}");
    assert!(!Server::start().stop().stderr.contains(warning));
}

#[test]
fn a_settings_file_names_paths_from_where_it_lies() {
    let launch = Launch::new();
    let conf = launch.dir().join("conf");
    std::fs::create_dir(&conf).unwrap();
    std::fs::write(
        conf.join("a.toml"),
        "data_dir = \"state\"\ndrain_grace = \"0s\"\n",
    )
    .unwrap();
    let mut command = launch.bare_command();
    command.args(["serve", "--bind", "127.0.0.1:0", "--config", "conf/a.toml"]);
    let server = Server::watch(command, launch.clone());
    assert!(conf.join("state/asyncgate.db").exists());
    server.stop();
}
