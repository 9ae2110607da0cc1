//! SIGHUP: what is applied, what waits for a restart, and what is refused.

use serde_json::json;

use crate::harness::{Launch, eventually};

const BEFORE: &str = r#"
bind = "127.0.0.1:0"
[mailbox]
ready_shards = 8
[log]
format = "json"
"#;

const AFTER: &str = r#"
bind = "127.0.0.1:1"
[limits]
max_body_bytes = "1KiB"
[mailbox]
max_bytes = "1KiB"
ready_shards = 4
[log]
format = "text"
"#;

#[test]
fn a_hang_up_applies_what_is_safe_and_names_what_must_wait() {
    let launch = Launch::new().bind(None).file("s.toml", BEFORE);
    let server = launch.start();
    let send = |key: &str| {
        let payload = "eHh4".repeat(1_000);
        json!({"topic": "t", "idem_key": key, "payload_b64": payload})
    };
    server.post("/v1/send", &send("a")).expect(200);
    launch.clone().file("s.toml", AFTER);
    server.signal("HUP");
    let mut tries = 0;
    eventually("the new limit is in force", || {
        // A repetition of what was accepted before is answered as such.
        tries += 1;
        let sent = server.post("/v1/send", &send(&tries.to_string()));
        (sent.status == 413).then_some(())
    });
    // The lines come after the settings are in force.
    let find = |key: &str| {
        eventually(key, || {
            let log = server.log();
            let told = |line: &&str| line.contains("config.reload") && line.contains(key);
            log.lines().find(told).map(str::to_owned)
        })
    };
    assert!(find("limits.max_body_bytes").contains("1KiB"));
    for waits in ["\"bind\"", "mailbox.ready_shards"] {
        let line = find(waits);
        let warned = line.contains("next start") && line.contains("WARN");
        assert!(warned, "{line}");
    }
    // The log itself has changed its looks.
    server.signal("HUP");
    let line = find("nothing to apply");
    assert!(!line.starts_with('{'), "{line}");
}

#[test]
fn a_secret_that_changes_is_not_shown() {
    let launch = Launch::without_key().file("s.toml", "api_key = \"first-key-of-the-file\"\n");
    let server = launch.start();
    launch
        .clone()
        .file("s.toml", "api_key = \"second-key-of-the-file\"\n");
    server.signal("HUP");
    let log = server.logged("***");
    assert!(!log.contains("key-of-the-file"), "{log}");
}

#[test]
fn a_mistake_changes_nothing_at_all() {
    let launch = Launch::new().file("s.toml", "[limits]\nmax_body_bytes = \"1MiB\"\n");
    let server = launch.start();
    launch.clone().file(
        "s.toml",
        "[limits]\nmax_body_bytes = \"600KiB\"\n[mailbox]\nt_replay = \"1s\"\n",
    );
    server.signal("HUP");
    let log = server.logged("stay as they were");
    assert!(log.contains("mailbox.t_replay"), "{log}");
    let payload = "eHh4".repeat(250_000);
    let large = json!({"topic": "t", "idem_key": "k", "payload_b64": payload});
    server.post("/v1/send", &large).expect(200);
}
