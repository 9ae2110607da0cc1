//! The command line as somebody meets it who has never seen it: what is owed, what comes next, what is
//! wrong and what to do about it.

use serde_json::{Value, json};

use crate::{
    cli::{Scene, ends, lines, short},
    harness::{Launch, eventually, run},
};

#[test]
fn the_bare_command_prints_the_help() {
    let launch = Launch::new();
    let ended = run(launch.bare_command());
    assert!(ended.status.success(), "{ended:?}");
    for words in ["Usage: asyncgate", "serve", "Examples:", "Exit codes:"] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    assert!(!launch.dir().join("data").exists(), "nothing was served");
}

#[test]
fn a_list_says_that_there_is_more_and_how_to_get_it() {
    let scene = Scene::set();
    for _ in 0..5 {
        scene.says("task create echo --as alice");
    }
    for list in ["task list", "obligations --as alice", "receipts --as alice"] {
        let ids = scene.says(&format!("{list} --all -q"));
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!(ids.len(), 5, "{list}");
        let ended = scene.run(&format!("{list} --limit 2"));
        assert_eq!(ended.stdout.lines().count(), 1 + 2, "{ended:?}");
        let note = ended.complaint();
        assert!(note.contains("2 shown") && note.contains("--all"), "{note}");
        let cursor = note.rsplit(' ').next().unwrap();
        let rest = scene.run(&format!("{list} -q --cursor {cursor}"));
        assert_eq!(rest.stdout.lines().collect::<Vec<_>>(), ids[2..], "{list}");
        assert_eq!(rest.stderr, "", "the end is the end");

        let ended = scene.run(&format!("{list} --limit 2 --json"));
        let note: Value = serde_json::from_str(ended.complaint()).unwrap();
        assert_eq!(note, json!({ "next_cursor": cursor }), "{list}");
    }
    for topic in ["a", "b", "c"] {
        scene.says(&format!("mail send {topic} x"));
    }
    let ended = scene.run("mail topics --limit 2");
    assert!(ended.complaint().contains("--cursor"), "{ended:?}");
    assert_eq!(scene.run("task list --limit 0").status.code(), Some(2));
    assert_eq!(
        scene.run("task list --limit 2 --all").status.code(),
        Some(2)
    );
}

#[test]
fn a_task_shows_who_holds_it_what_failed_and_when_it_is_tried_again() {
    let scene = Scene::set();
    let server = &scene.server;
    let id = scene.says("task create greet --as alice");
    let shown = |what: &str| -> Option<String> {
        let lines = lines(&scene.says(&format!("task get {id}")));
        let prefix = format!("{what} ");
        let mut found = lines.iter().filter_map(|line| line.strip_prefix(&prefix));
        found.next().map(str::to_owned)
    };
    assert_eq!(shown("next try"), None);
    assert_eq!(shown("expiries"), None);
    let held = server.take("w1");
    assert_eq!(shown("leased").unwrap(), "by worker/w1 until TIME");
    assert_eq!(shown("lease").unwrap(), "ID");
    let state = &lines(&scene.says("obligations --as alice"))[1];
    assert!(state.ends_with("leased by worker/w1"), "{state}");
    let failure = json!({"retryable": true, "error": {"why": "rain"}});
    server.under(&held, "fail", &failure).expect(200);
    assert_eq!(shown("next try").unwrap(), "TIME");
    assert_eq!(shown("failed").unwrap(), "1 of 3");

    let expiring = scene.says("task create expire --as bob");
    let claim = json!({"worker_id": "w2", "lease_ttl_seconds": 1, "accept_types": ["expire"]});
    server.post("/v1/leases/claim", &claim).expect(200);
    eventually("the lease ran out", || {
        let text = scene.says(&format!("task get {expiring}"));
        lines(&text)
            .contains(&"expiries 1".to_owned())
            .then_some(())
    });
}

#[test]
fn what_succeeded_without_proof_is_still_owed_and_says_so() {
    let scene = Scene::set();
    scene.says("task create greet --as alice");
    let held = scene.server.take("w1");
    let unproven = json!({"result": "hello"});
    scene.server.under(&held, "complete", &unproven).expect(200);
    let owed = &lines(&scene.says("obligations --as alice"))[1];
    assert!(owed.ends_with("succeeded, not proved"), "{owed}");
}

#[test]
fn the_short_form_of_an_id_and_its_beginning_name_the_task() {
    let scene = Scene::set();
    let id = scene.says("task create echo --as alice");
    let other = scene.says("task create echo --as alice");
    let (short, beginning) = (short(&id), &id[..id.len() - 1]);
    for name in [short, beginning] {
        let task = scene.says_json(&format!("task get {name}"));
        assert_eq!(task["task_id"], id.as_str(), "{name}");
        let told = scene.says_json(&format!("receipts --task {name}"));
        assert_eq!(told[0]["task_id"], id.as_str(), "{name}");
        let story = scene.says(&format!("verify --explain {name}"));
        assert!(story.contains("alice asked for echo"), "{story}");
    }
    scene.ends(
        &format!("verify --data-dir data --explain {short}"),
        2,
        "whole id",
    );
    // Both were created within seconds, which is all that the first digits say.
    let ambiguous = scene.run(&format!("task cancel {}", &id[..6]));
    ends(&ambiguous, 2, &id);
    ends(&ambiguous, 2, &other);
    scene.ends("task cancel 0123", 4, "newest 200 tasks");
    let wrong = format!("{short}f");
    scene.ends(&format!("task get {wrong}"), 4, "TASK_NOT_FOUND");
    assert_eq!(scene.says(&format!("task cancel {short}")), "canceled");
    scene.ends(&format!("task wait {short} --timeout 5"), 6, "canceled");
}

#[test]
fn errors_are_objects_for_programs() {
    let scene = Scene::set();
    let wrong = |line: &str, exit: i32| -> Value {
        let ended = scene.run(&format!("{line} --json"));
        assert_eq!(ended.status.code(), Some(exit), "{ended:?}");
        let object: Value = serde_json::from_str(ended.complaint()).unwrap();
        assert_eq!(object["exit_code"], exit, "{object}");
        object
    };
    let nobody = "0190a0b0-0000-7000-8000-000000000000";
    let refused = wrong(&format!("task get {nobody}"), 4);
    assert_eq!(refused["code"], "TASK_NOT_FOUND");
    assert_eq!(refused["status"], 404);
    assert_eq!(refused["corr_id"].as_str().unwrap().len(), 36);
    assert!(!refused["message"].as_str().unwrap().is_empty());
    let bad = wrong("task create echo --payload {bad", 2);
    assert_eq!(
        (&bad["code"], &bad["status"]),
        (&json!("USAGE"), &Value::Null)
    );
    assert_eq!(bad["corr_id"], Value::Null);
    let unknown = wrong("task list --nonsense", 2);
    assert_eq!(unknown["code"], "USAGE");
    assert!(unknown["message"].as_str().unwrap().contains("--nonsense"));
    let gone = wrong("task list --url http://127.0.0.1:1", 5);
    assert_eq!(gone["code"], "UNREACHABLE");
    let waiting = scene.says("task create nobody-does-this");
    let late = wrong(&format!("task wait {waiting} --timeout 0"), 6);
    assert_eq!(late["code"], "TASK_NOT_DONE");
}

#[test]
fn a_missing_key_is_named_with_what_to_do() {
    let scene = Scene::set();
    for line in ["task list", "mail topics", "obligations", "worker --id w"] {
        let mut command = scene.command(line);
        command.env_remove("ASYNCGATE_API_KEY");
        let ended = run(command);
        ends(&ended, 3, "set ASYNCGATE_API_KEY");
    }
    // A server that asks nobody needs none.
    let open = Launch::without_key().env("ALLOW_INSECURE_DEV", "true");
    let scene = Scene {
        server: open.start(),
    };
    let mut command = scene.command("task list");
    command.env_remove("ASYNCGATE_API_KEY");
    assert_eq!(run(command).stdout, "nothing\n");
}

#[test]
fn what_others_wrote_cannot_drive_the_terminal() {
    let scene = Scene::set();
    let server = &scene.server;
    // Names take no control characters, but they take marks that reverse what follows.
    let id =
        server.create(&json!({"type": "\u{202e}evil", "payload": "a", "principal_id": "alice"}));
    let held = server.take("w1");
    let failure = json!({"error": "\u{1b}[2J\u{9b}2J"});
    server.under(&held, "fail", &failure).expect(200);
    for line in [
        "task list".to_owned(),
        format!("task get {id}"),
        format!("verify --explain {id}"),
    ] {
        let text = scene.says(&line);
        let bad = |char: char| (char.is_control() && char != '\n') || char == '\u{202e}';
        assert!(!text.contains(bad), "{line}: {text:?}");
        assert!(text.contains("\\u{202e}evil"), "{line}: {text:?}");
    }
}

#[test]
fn the_status_tells_how_the_server_is() {
    let scene = Scene::set();
    scene.says("task create echo --as alice");
    scene.says("task create echo --as alice");
    scene.server.take("w1");
    scene.says("mail send jobs x");
    let status = lines(&scene.says("status"));
    let line = |name: &str| {
        let prefix = format!("{name} ");
        let mut found = status.iter().filter_map(|line| line.strip_prefix(&prefix));
        found.next().unwrap_or_default().to_owned()
    };
    assert_eq!(line("server"), format!("http://{}", scene.server.address));
    assert_eq!(line("ready"), "yes");
    assert_eq!(line("durability"), "fsync (macronode)");
    let tasks = "1 queued, 1 leased, 0 running, 0 succeeded, 0 failed, 0 canceled";
    assert_eq!(line("tasks"), tasks);
    assert_eq!(line("ledger"), "3 receipts, 2 open obligations");
    assert!(line("jobs").starts_with("1 0 0 0"), "{status:?}");
    assert!(!line("version").is_empty() && !line("head").is_empty());

    let status = scene.says_json("status");
    assert_eq!(status["readiness"]["ready"], true);
    assert_eq!(status["tasks"]["queued"], 1);
    assert_eq!(status["ledger"]["receipts"], 3);
    assert_eq!(status["topics"][0]["topic"], "jobs");
    let mut command = scene.command("status");
    command.env_remove("ASYNCGATE_API_KEY");
    ends(&run(command), 3, "set ASYNCGATE_API_KEY");
    scene.ends(
        "status --url http://127.0.0.1:1",
        5,
        "is the server running?",
    );
}

#[test]
fn a_server_that_is_not_ready_or_keeps_its_metrics_elsewhere_says_so() {
    let launch = Launch::new().args(&["--metrics", "127.0.0.1:0"]);
    let scene = Scene {
        server: launch.start(),
    };
    let status = scene.says_json("status");
    assert_eq!(status["tasks"], Value::Null);
    assert_eq!(status["readiness"]["ready"], true);

    // Receivers hold all that they may hold.
    let launch = Launch::new().args(&["--global-inflight", "1"]);
    let scene = Scene {
        server: launch.start(),
    };
    scene.says("mail send jobs x");
    scene.says("mail recv jobs --visibility 600");
    eventually("it is saturated", || {
        let ended = scene.run("status");
        (ended.status.code() == Some(3)).then(|| {
            assert!(ended.stdout.contains("no: saturated"), "{ended:?}");
            assert!(
                ended.complaint().contains("does not take new work"),
                "{ended:?}"
            );
        })
    });
}
