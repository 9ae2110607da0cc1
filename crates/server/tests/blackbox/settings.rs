//! Settings: where they come from, which wins, and what a mistake in them is answered with.

use serde_json::json;

use crate::harness::{KEY, Launch, Server, eventually, run};

/// A setting that callers can see.
const SEEN: &str = "default_lease_ttl_seconds";

fn seen(server: &Server) -> i64 {
    server.get("/v1/config").expect(200)[SEEN].as_i64().unwrap()
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
    let launch = Launch::new();
    assert_eq!(seen(&launch.start()), 300);
    let launch = Launch::new().file("s.toml", "default_lease_ttl_seconds = 100\n");
    assert_eq!(seen(&launch.start()), 100);
    let launch = launch.env("DEFAULT_LEASE_TTL_SECONDS", "150");
    assert_eq!(
        seen(&launch.start()),
        150,
        "the bare name of the specification"
    );
    let launch = launch.env("ASYNCGATE_DEFAULT_LEASE_TTL_SECONDS", "200");
    assert_eq!(seen(&launch.start()), 200);
    let launch = launch.set("default_lease_ttl_seconds=250");
    assert_eq!(seen(&launch.start()), 250);
}

#[test]
fn the_file_may_be_toml_yaml_or_json() {
    for (name, content) in [
        (
            "s.toml",
            "default_lease_ttl_seconds = 77\n[log]\nlevel = \"debug\"\n",
        ),
        (
            "s.yaml",
            "default_lease_ttl_seconds: 77\nlog:\n  level: debug\n",
        ),
        ("s.yml", "default_lease_ttl_seconds: 77\n"),
        (
            "s.json",
            r#"{"default_lease_ttl_seconds": 77, "log": {"level": "debug"}}"#,
        ),
    ] {
        assert_eq!(
            seen(&Launch::new().file(name, content).start()),
            77,
            "{name}"
        );
    }
    let launch = Launch::new();
    let path = launch.dir().join("by-env.toml");
    std::fs::write(&path, "default_lease_ttl_seconds = 78\n").unwrap();
    let launch = launch.env("ASYNCGATE_CONFIG", path.to_str().unwrap());
    assert_eq!(seen(&launch.start()), 78);
}

/// Checks that a start is refused with one line that names `key`, and that nothing was made.
#[track_caller]
fn stops(launch: &Launch, key: &str) {
    let ended = launch.refused();
    let line = ended.complaint();
    assert!(line.contains(key), "{key} is not named: {line}");
    assert_eq!(ended.status.code(), Some(2), "{line}");
    assert!(!launch.data().exists(), "{line}");
}

#[test]
fn a_bad_value_stops_the_start_with_one_line_that_names_the_key() {
    for value in ["0", "-1", "x", "", "1.5", "99999999999999999999"] {
        let pair = format!("{SEEN}={value}");
        stops(&Launch::new().set(&pair), SEEN);
        if !value.is_empty() {
            stops(
                &Launch::new().env("ASYNCGATE_DEFAULT_LEASE_TTL_SECONDS", value),
                SEEN,
            );
            let named = Launch::new().env("DEFAULT_LEASE_TTL_SECONDS", value);
            stops(&named, SEEN);
        }
    }
    stops(
        &Launch::new().file("s.toml", "default_lease_ttl_seconds = \"soon\"\n"),
        SEEN,
    );
    stops(
        &Launch::new().file("s.toml", "default_lease_ttl_seconds = [1]\n"),
        SEEN,
    );
    stops(
        &Launch::new().file("s.yaml", "default_lease_ttl_seconds: {a: 1}\n"),
        SEEN,
    );
    stops(
        &Launch::new().file("s.json", r#"{"default_lease_ttl_seconds": null}"#),
        SEEN,
    );
    stops(&Launch::new().bind(Some("nowhere")), "bind");
    stops(&Launch::new().bind(Some("127.0.0.1")), "bind");
    stops(&Launch::new().arg("--store").arg("paper"), "store");
    stops(&Launch::new().arg("--log-level").arg("loud"), "log.level");
    stops(&Launch::new().arg("--log-format").arg("xml"), "log.format");
    stops(
        &Launch::new().set("receipts.locatability=maybe"),
        "receipts.locatability",
    );
    stops(
        &Launch::without_key().env("ALLOW_INSECURE_DEV", "maybe"),
        "allow_insecure_dev",
    );
}

#[test]
fn values_that_contradict_each_other_stop_the_start() {
    let launch = Launch::new().set("max_lease_ttl_seconds=100");
    stops(&launch, SEEN);
    stops(
        &Launch::new().set("default_list_limit=201"),
        "default_list_limit",
    );
}

#[test]
fn a_value_that_is_overruled_is_checked_too() {
    let launch = Launch::new().file("s.toml", "default_lease_ttl_seconds = \"soon\"\n");
    stops(&launch.set("default_lease_ttl_seconds=100"), SEEN);
}

#[test]
fn a_key_that_nobody_knows_stops_the_start_unless_it_is_a_variable() {
    stops(&Launch::new().set("defualt_priority=1"), "default_priority");
    stops(&Launch::new().file("s.toml", "surprise = 1\n"), "surprise");
    stops(
        &Launch::new().file("s.yaml", "log:\n  levle: info\n"),
        "log.level",
    );
    stops(
        &Launch::new().file("s.json", r#"{"http": {"surprise": 1}}"#),
        "http.surprise",
    );
    let server = Launch::new().env("ASYNCGATE_DEFAULT_PRIORTY", "1").start();
    server.logged("ASYNCGATE_DEFAULT_PRIORTY is not a setting");
}

#[test]
fn a_file_that_cannot_be_read_stops_the_start_with_one_line() {
    for (name, content) in [
        ("s.toml", "not toml at all ]["),
        ("s.toml", "a = 1\na = 2\n"),
        ("s.yaml", "a: [1,\nb: }"),
        ("s.json", "{\"a\": "),
        ("s.json", "[1]"),
        ("s.ini", "a=1"),
    ] {
        stops(&Launch::new().file(name, content), name);
    }
    stops(
        &Launch::new().arg("--config").arg("missing.toml"),
        "missing.toml",
    );
}

#[test]
fn secrets_are_not_taken_from_the_command_line_and_never_shown() {
    let launch = Launch::without_key().set("api_key=secret-on-the-command-line");
    let ended = launch.refused();
    assert!(ended.complaint().contains("api_key"), "{ended:?}");
    assert!(!ended.stderr.contains("secret-on"), "{ended:?}");
    let bad = Launch::without_key()
        .env("ASYNCGATE_API_KEY", "with a space in it")
        .refused();
    assert!(bad.complaint().contains("api_key"), "{bad:?}");
    assert!(!bad.stderr.contains("space in it"), "{bad:?}");
    for extra in [&["config", "show"][..], &["config", "show", "--json"]] {
        let mut command = Launch::new().bare_command();
        command.args(extra).current_dir("/");
        let shown = run(command);
        assert!(shown.status.success(), "{shown:?}");
        assert!(shown.stdout.contains("api_key"), "{shown:?}");
        assert!(!shown.stdout.contains(KEY), "{shown:?}");
    }
}

#[test]
fn a_key_may_come_from_a_file() {
    let launch = Launch::without_key().file("s.toml", "api_key = \"key-from-the-file-1234\"\n");
    let mut server = launch.start();
    server.get("/v1/config").refused(401, "UNAUTHORIZED");
    server.use_key(Some("key-from-the-file-1234"));
    server.get("/v1/config").expect(200);
}

#[test]
fn a_hang_up_reads_the_settings_again() {
    let launch = Launch::new().file(
        "s.toml",
        "default_lease_ttl_seconds = 100\nmax_payload_bytes = 4096\n",
    );
    let server = launch.start();
    assert_eq!(seen(&server), 100);
    let id = server.create_plain("x");
    let launch = launch.file(
        "s.toml",
        "default_lease_ttl_seconds = 120\nmax_payload_bytes = 2048\n",
    );
    server.signal("HUP");
    eventually("the new value is in force", || {
        (seen(&server) == 120).then_some(())
    });
    let large = json!({"type": "x", "payload": "x".repeat(3_000)});
    server.post("/v1/tasks", &large).refused(413, "TOO_LARGE");
    launch.file("s.toml", "default_lease_ttl_seconds = \"broken\"\n");
    server.signal("HUP");
    server.logged("stay as they were");
    assert_eq!(seen(&server), 120, "a mistake harms nobody");
    assert_eq!(server.status(&id), "queued");
    server.stop();
}

#[test]
fn the_settings_can_be_checked_without_a_start() {
    let check = |launch: Launch| {
        let mut command = launch.bare_command();
        command.args(["config", "check"]);
        run(command)
    };
    let good = check(Launch::new());
    assert!(good.status.success(), "{good:?}");
    let bad = check(Launch::new().env("ASYNCGATE_STORE", "paper"));
    assert_eq!(bad.status.code(), Some(2), "{bad:?}");
    assert!(bad.complaint().contains("store"), "{bad:?}");
}

/// Readers copy from the guide, so what it shows must be right.
#[test]
fn the_settings_of_the_guide_are_right() {
    let guide = include_str!("../../../../docs/ADMISSION.md");
    let blocks = guide
        .split("\n\n")
        .filter(|block| block.starts_with("    ["));
    let shown: Vec<String> = blocks.map(|block| block.replace("\n    ", "\n")).collect();
    assert!(shown.len() >= 8, "the guide shows settings");
    let launch = Launch::new().env("GITHUB_SECRET", "s");
    let path = launch.dir().join("guide.toml");
    std::fs::write(&path, shown.join("\n")).unwrap();
    let mut command = launch.bare_command();
    command.args(["config", "check", "--config"]).arg(path);
    let checked = run(command);
    assert!(checked.status.success(), "{}", checked.stderr);
}
