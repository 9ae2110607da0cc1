//! Admission through the real binary: settings, reload, restart, the command line.

use serde_json::{Value, json};

use crate::{
    cli::Scene,
    harness::{Launch, Server, eventually},
};

const SPACE: &str = "0101010101010101010101010101010101010101010101010101010101010101";
const KEY: &str = "0202020202020202020202020202020202020202020202020202020202020202";

fn check(server: &Server, policy: &str, key: &str, cost: i64) -> Value {
    let input = json!({ "policy": policy, "key": key, "cost": cost });
    server.post("/v1/limits/check", &input).expect(200)
}

fn nonce(server: &Server, text: &str) -> Value {
    let input = json!({ "namespace": SPACE, "nonce": text, "ttl_secs": 600 });
    server.post("/v1/host/nonces/check", &input).expect(200)
}

#[test]
fn what_was_decided_outlives_the_process() {
    let server = Launch::new().start();
    assert_eq!(check(&server, "throttled", "k", 7)["remaining"], 3);
    // An orderly end writes what limits have counted. A crash may forget their last second, and nothing else.
    let server = server.restart();
    assert_eq!(nonce(&server, "AQID")["result"], "accepted");
    let input = json!({ "namespace": SPACE, "window_secs": 7_776_000, "limit": 5 });
    let count = |server: &Server| {
        server
            .post("/v1/host/counters/increment", &input)
            .expect(200)
    };
    assert_eq!(count(&server)["count"], 1);
    let subject = json!({ "subject": { "kind": "holder_key", "key": KEY } });
    let revoked = server.post("/v1/host/revocations", &subject).expect(201);
    let server = server.kill().start();
    let replay = nonce(&server, "AQID");
    assert_eq!(replay["result"], "replay");
    assert_eq!(replay["provenance"]["backend"], "sqlite");
    let left = check(&server, "throttled", "k", 0)["remaining"].as_u64();
    assert!(left.is_some_and(|left| left < 10), "the bucket is not new");
    assert_eq!(count(&server)["count"], 2);
    let asked = server
        .post("/v1/host/revocations/check", &subject)
        .expect(200);
    assert_eq!(asked["revoked_at"], revoked["revoked_at"]);
    let hash = revoked["subject"]["hash"].as_str().unwrap();
    let listed = server.get("/v1/host/revocations").expect(200);
    assert_eq!(listed["revocations"][0]["subject"]["hash"], hash);
    let health = server.get("/v1/host/health").expect(200);
    assert_eq!(health["status"], "healthy");
    assert_eq!(health["counter_store"]["failure_mode"], "open");
}

#[test]
fn policies_come_from_the_file_and_change_with_sighup() {
    let policies = |limit: u32, more: &str| {
        format!(
            "[limits.policies.api]\nkind = \"fixed_window\"\nlimit = {limit}\nwindow_secs = 86400\n{more}\n\
             [limits.policies.slow]\nkind = \"token_bucket\"\ncapacity = 2\nrefill_per_minute = 0.5\n\
             [limits.policies.pin]\nkind = \"sequential_delay\"\nstages = [{{ delay = 0 }}, {{ delay = 60, batchSize = 2 }}]\n\
             [limits]\ntiers = {{ trusted = [\"friend\"] }}\n"
        )
    };
    let server = Launch::new().file("s.toml", &policies(1, "")).start();
    assert_eq!(check(&server, "api", "k", 1)["allowed"], true);
    assert_eq!(check(&server, "api", "k", 1)["allowed"], false);
    assert_eq!(
        check(&server, "slow", "k", 1)["retry_after_secs"],
        Value::Null
    );
    check(&server, "slow", "k", 1);
    let wait = check(&server, "slow", "k", 1)["retry_after_secs"].as_u64();
    assert!(
        wait.is_some_and(|wait| (110..=120).contains(&wait)),
        "{wait:?}"
    );
    assert_eq!(check(&server, "pin", "k", 1)["counter"], 1);
    assert_eq!(check(&server, "pin", "k", 1)["allowed"], false);
    assert_eq!(check(&server, "client", "friend", 0)["tier"], "trusted");
    let path = server.launch().dir().join("s.toml");
    // A mistake changes nothing.
    std::fs::write(&path, policies(0, "")).unwrap();
    server.signal("HUP");
    server.logged("the settings stay as they were");
    assert_eq!(check(&server, "api", "k", 1)["limit"], 1);
    // What was counted stays counted under another limit.
    std::fs::write(&path, policies(3, "")).unwrap();
    server.signal("HUP");
    let limited = eventually("the new limit", || {
        let limited = check(&server, "api", "k", 0);
        (limited["limit"] == 3).then_some(limited)
    });
    assert_eq!(limited["remaining"], 2);
    // Tried out: it would refuse, and does not.
    std::fs::write(&path, policies(1, "shadow = true")).unwrap();
    server.signal("HUP");
    eventually("shadow mode", || {
        (check(&server, "api", "k", 1)["shadowed"] == true).then_some(())
    });
    assert_eq!(check(&server, "api", "k", 1)["allowed"], true);
}

#[test]
fn settings_that_make_no_sense_stop_the_start() {
    for (content, words) in [
        ("[limits.policies.x]\nkind = \"magic\"\n", "limits.policies"),
        (
            "[limits.policies.x]\nkind = \"fixed_window\"\nlimit = 1\nwindow_secs = 0\n",
            "x: window_secs",
        ),
        (
            "[limits]\ntiers = { trusted = [\"a\"], batch = [\"a\"] }\n",
            "a is listed in two tiers",
        ),
        (
            "[admission]\nnonce_failure_mode = \"maybe\"\n",
            "admission.nonce_failure_mode",
        ),
        (
            "[admission.revocation]\ncache_ttl_secs = 600\n",
            "admission.revocation.cache_ttl_secs",
        ),
        (
            "[admission.revocation]\nprotected_keys = [\"xyz\"]\n",
            "admission.revocation.protected_keys",
        ),
        ("[admission]\nbackend = \"floppy\"\n", "admission.backend"),
    ] {
        let ended = Launch::new().file("s.toml", content).refused();
        assert_eq!(ended.status.code(), Some(2));
        assert!(ended.complaint().contains(words), "{}", ended.complaint());
    }
}

#[test]
fn a_protected_key_cannot_be_revoked_and_the_attempt_is_told() {
    let protected = format!("[admission.revocation]\nprotected_keys = [\"{KEY}\"]\n");
    let server = Launch::new().file("s.toml", &protected).start();
    for kind in ["issuer_key", "holder_key"] {
        let subject = json!({ "subject": { "kind": kind, "key": KEY } });
        let refused = server.post("/v1/host/revocations", &subject).expect(403);
        assert_eq!(refused["code"], "PROTECTED_KEY");
        let asked = server
            .post("/v1/host/revocations/check", &subject)
            .expect(200);
        assert_eq!(asked["result"], "valid");
    }
    server.logged("protected_key_refused");
    let refused = server.metric("asyncgate_protected_key_refused_total");
    assert_eq!(refused, Some(2.0));
}

#[test]
fn the_minimal_backend_allows_everything_and_says_so() {
    let server = Launch::new().set("admission.backend=minimal").start();
    for _ in 0..2 {
        let answer = nonce(&server, "AQID");
        assert_eq!(answer["result"], "accepted");
        assert_eq!(answer["provenance"]["backend"], "minimal");
    }
    let subject = json!({ "subject": { "kind": "holder_key", "key": KEY } });
    let refused = server.post("/v1/host/revocations", &subject).expect(503);
    assert_eq!(refused["code"], "HOST_UNAVAILABLE");
}

#[test]
fn what_was_decided_is_counted() {
    let server = Launch::new().start();
    nonce(&server, "AQID");
    nonce(&server, "AQID");
    check(&server, "throttled", "k", 10);
    check(&server, "throttled", "k", 1);
    for (sample, value) in [
        (
            "tenuo_host_operation_total{operation=\"check_nonce\",result=\"success\"}",
            1.0,
        ),
        (
            "tenuo_host_operation_total{operation=\"check_nonce\",result=\"replay\"}",
            1.0,
        ),
        (
            "tenuo_host_operation_total{operation=\"check_limit\",result=\"exceeded\"}",
            1.0,
        ),
        (
            "tenuo_host_operation_duration_seconds_count{operation=\"check_nonce\",result=\"replay\"}",
            1.0,
        ),
        (
            "tenuo_host_circuit_breaker_state{component=\"nonce_store\"}",
            0.0,
        ),
        (
            "asyncgate_limit_decisions_total{policy=\"throttled\",result=\"refused\"}",
            1.0,
        ),
    ] {
        assert_eq!(server.metric(sample), Some(value), "{sample}");
    }
    // A row of a limit is written a moment later.
    eventually("both rows are counted", || {
        (server.metric("asyncgate_admission_rows") == Some(2.0)).then_some(())
    });
}

#[test]
fn the_command_line_asks_too() {
    let scene = Scene {
        server: Launch::new().start(),
    };
    let allowed = scene.says("limit check throttled 10.0.0.1 --cost 10");
    assert_eq!(allowed, "allowed, 0 of 10 left");
    assert_eq!(
        scene.says("limit peek client c"),
        "allowed, 99 of 100 left (standard)"
    );
    let refused = scene.run("limit check throttled 10.0.0.1");
    assert_eq!(refused.status.code(), Some(8));
    assert!(
        refused.stdout.starts_with("refused, again in "),
        "{refused:?}"
    );
    scene.ends("limit check nothing k", 4, "UNKNOWN_POLICY");
    let policies = scene.says_json("limit policies");
    assert_eq!(policies[1]["policy"], "client");
    assert_eq!(
        scene.says(&format!("nonce check {SPACE} hello")),
        "accepted"
    );
    let replay = scene.run(&format!("nonce check {SPACE} aGVsbG8 --base64"));
    assert_eq!(replay.status.code(), Some(8));
    assert_eq!(replay.stdout.trim_end(), "replay");

    let line = format!("revoke holder_key {KEY} --reason lost");
    let revoked = scene.says(&line);
    assert_eq!(
        scene.says(&line),
        format!("{revoked}  (was revoked before)")
    );
    let listed = scene.says("revocations");
    let (kind, hash) = revoked.split_once('/').unwrap();
    assert!(listed.contains(hash) && listed.contains("lost"), "{listed}");
    let undo = format!("revoke --undo {kind} {hash}");
    assert_eq!(scene.says(&undo), "taken back");
    scene.ends(&undo, 4, "NOT_FOUND");
    assert_eq!(scene.says("revocations"), "nothing");
}
