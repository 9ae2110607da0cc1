//! The command line as a person and as a program sees it: tables, JSON, exit codes, one line when
//! something is wrong.

use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Ended, KEY, Launch, Server, eventually, run};

/// A server, and the command line pointed at it.
pub struct Scene {
    pub server: Server,
}

impl Scene {
    pub fn set() -> Self {
        Self {
            server: Server::start(),
        }
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = self.server.launch().bare_command();
        command
            .args(line.split_whitespace())
            .env("ASYNCGATE_URL", format!("http://{}", self.server.address))
            .env("ASYNCGATE_API_KEY", KEY);
        command
    }

    #[track_caller]
    pub fn run(&self, line: &str) -> Ended {
        run(self.command(line))
    }

    /// What a command prints, which must end well.
    #[track_caller]
    pub fn says(&self, line: &str) -> String {
        let ended = self.run(line);
        assert!(ended.status.success(), "{line}: {ended:?}");
        ended.stdout.trim_end().to_owned()
    }

    #[track_caller]
    pub fn says_json(&self, line: &str) -> Value {
        serde_json::from_str(&self.says(&format!("{line} --json"))).unwrap()
    }

    /// That a command ends with this code, one line on stderr that has `words`, and nothing else.
    #[track_caller]
    pub fn ends(&self, line: &str, code: i32, words: &str) {
        ends(&self.run(line), code, words);
    }
}

#[track_caller]
pub fn ends(ended: &Ended, code: i32, words: &str) {
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    let stderr = ended.stderr.trim_end();
    assert!(
        stderr.starts_with("asyncgate: ") && stderr.contains(words),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        !stderr.contains("backtrace") && !stderr.contains("panicked"),
        "{stderr}"
    );
}

/// The form of a task's id that tables print.
pub fn short(id: &str) -> &str {
    let last = id.rsplit('-').next().unwrap();
    last.trim_start_matches('0')
}

/// The text with ids and times made equal, so that it can be compared.
fn plain(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let uuid = word.len() == 36 && word.matches('-').count() == 4;
        let ulid = word.len() == 26 && word.starts_with("01");
        let id = uuid || ulid;
        let time = word.len() == 24 && word.ends_with('Z') && word.starts_with("20");
        words.push(match (id, time) {
            (true, _) => "ID".to_owned(),
            (_, true) => "TIME".to_owned(),
            _ => word.to_owned(),
        });
    }
    words.join(" ")
}

/// Lines, each with its spaces folded.
pub fn lines(text: &str) -> Vec<String> {
    let folded = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(|line| plain(&folded(line))).collect()
}

#[test]
fn a_task_is_created_listed_worked_on_and_waited_for() {
    let scene = Scene::set();
    let id = scene.says("task create echo --payload {\"to\":\"world\"} --as alice --priority -3");
    assert_eq!(plain(&id), "ID");
    assert_eq!(
        lines(&scene.says("task list")),
        [
            "TASK STATUS TYPE OWNER FAILED CREATED",
            &format!("{} queued echo agent/alice 0/3 TIME", short(&id))
        ]
    );
    assert_eq!(
        lines(&scene.says("obligations --as alice")),
        [
            "TASK TYPE SINCE STATE INSTRUCTIONS",
            &format!("{} echo TIME queued", short(&id))
        ]
    );
    let mut worker = scene.command("worker --id w1 --json").spawn().unwrap();
    assert_eq!(
        lines(&scene.says(&format!("task wait {id} --timeout 60")))[..6],
        [
            "task ID",
            "type echo",
            "status succeeded",
            "owner agent/alice",
            "payload {\"to\":\"world\"}",
            "failed 0 of 3",
        ]
    );
    worker.kill().unwrap();
    worker.wait().unwrap();
    assert_eq!(scene.says("obligations --as alice"), "nothing is owed");
    let types: Vec<String> = lines(&scene.says("receipts --as alice"))[1..]
        .iter()
        .map(|line| line.split(' ').nth(2).unwrap().to_owned())
        .collect();
    assert_eq!(
        types,
        ["task.assigned", "task.completed", "task.result_ready"]
    );
    assert_eq!(
        lines(&scene.says(&format!("receipts --task {id}"))).len(),
        1 + 4
    );
}

#[test]
fn every_listing_is_json_for_programs() {
    let scene = Scene::set();
    let created = scene.says_json("task create echo --as service/billing");
    assert_eq!(created["duplicate"], false);
    let id = created["task_id"].as_str().unwrap();
    assert_eq!(
        scene.says_json(&format!("task get {id}"))["created_by"],
        json!({"kind": "service", "id": "billing"})
    );
    assert_eq!(
        scene.says_json("task list --status queued")[0]["task_id"],
        id
    );
    assert_eq!(
        scene
            .says_json("receipts --as service/billing")
            .as_array()
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        scene.says_json("obligations --as service/billing")[0]["task_id"],
        id
    );
    assert_eq!(scene.says_json("ledger head")["seq"], 1);
    assert_eq!(scene.says_json("verify")[0]["open_obligations"], 1);
    assert_eq!(
        scene.says_json(&format!("task cancel {id} --reason x"))["status"],
        "canceled"
    );
}

#[test]
fn what_went_wrong_is_one_line_and_an_exit_code() {
    let scene = Scene::set();
    let nobody = "0190a0b0-0000-7000-8000-000000000000";
    scene.ends("task create echo --payload {bad", 2, "not JSON");
    scene.ends(
        "task create echo --payload @nowhere",
        1,
        "cannot read nowhere",
    );
    scene.ends(&format!("task get {nobody}"), 4, "TASK_NOT_FOUND");
    scene.ends("task get 7", 3, "BAD_REQUEST");
    scene.ends("task list --key wrong", 3, "check the key");
    scene.ends("task list --profile nobody", 1, "nobody");
    let id = scene.says("task create echo");
    scene.says(&format!("task cancel {id}"));
    scene.ends("task list --url ftp://x", 2, "ftp");
    let ended = scene.run(&format!("task wait {id} --timeout 5"));
    ends(&ended, 6, "canceled");
    assert!(ended.stdout.contains("canceled"));
    let waiting = scene.says("task create nobody-does-this");
    ends(
        &scene.run(&format!("task wait {waiting} --timeout 0")),
        6,
        "not ended in time",
    );
}

#[test]
fn a_server_that_is_not_there_is_said_so() {
    let launch = Launch::new();
    let mut command = launch.bare_command();
    command.args(["task", "list", "--url", "http://127.0.0.1:1"]);
    ends(&run(command), 5, "is the server running?");
}

#[test]
fn a_profile_names_the_server_and_the_key() {
    let scene = Scene::set();
    let dir = scene.server.launch().dir().join("asyncgate");
    std::fs::create_dir(&dir).unwrap();
    let profile = format!(
        "[here]\nurl = \"http://{}\"\nkey = \"{KEY}\"\n",
        scene.server.address
    );
    std::fs::write(dir.join("profiles.toml"), profile).unwrap();
    let launch = Launch::without_key();
    let command = |name: &str| {
        let mut command = launch.bare_command();
        command
            .args(["task", "list", "--profile", name])
            .env("XDG_CONFIG_HOME", scene.server.launch().dir());
        run(command)
    };
    assert_eq!(command("here").stdout, "nothing\n");
    ends(&command("there"), 1, "no section `there`");
}

#[test]
fn an_export_verifies_offline_and_tampering_is_named() {
    let scene = Scene::set();
    for n in 0..3 {
        scene.says(&format!("task create echo --payload {n} --as alice"));
    }
    let path = scene.server.launch().dir().join("ledger.ndjson");
    scene.says("ledger export ledger.ndjson");
    let head = scene.says_json("ledger head");
    let key = head["public_key"].as_str().unwrap();
    let known = format!("{}:{}", head["seq"], head["link"].as_str().unwrap());
    let good = scene.says(&format!(
        "verify ledger.ndjson --public-key {key} --known-head {known}"
    ));
    assert_eq!(lines(&good)[0], "the ledger is whole");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("alice", "alive", 1)).unwrap();
    scene.ends("verify ledger.ndjson", 7, "line 2, receipt 1");
    let cut: Vec<&str> = text.lines().take(3).collect();
    std::fs::write(&path, cut.join("\n")).unwrap();
    scene.ends("verify ledger.ndjson", 7, "cut short");
    std::fs::write(&path, &text).unwrap();
    let other = "00".repeat(31) + "01";
    scene.ends(
        &format!("verify ledger.ndjson --public-key {other}"),
        7,
        "is signed with",
    );
    scene.ends("verify nowhere.ndjson", 1, "cannot read nowhere.ndjson");
    // Standard output is a file as good as any.
    assert_eq!(scene.says("ledger export").lines().count(), 5);
}

#[test]
fn a_data_directory_is_verified_beside_the_running_server() {
    let scene = Scene::set();
    let id = scene.says("task create echo --as alice");
    let good = scene.says("verify --data-dir data");
    assert!(good.starts_with("the ledger is whole"), "{good}");
    let story = scene.says(&format!("verify --data-dir data --explain {id}"));
    assert!(story.contains("agent/alice asked for echo"), "{story}");
    let drawn = scene.says(&format!("verify --explain {id} --mermaid"));
    assert!(drawn.starts_with("sequenceDiagram"), "{drawn}");
    let nobody = "0190a0b0-0000-7000-8000-000000000000";
    scene.ends(&format!("verify --explain {nobody}"), 2, "no receipt");
    scene.ends("verify --data-dir nowhere", 1, "nowhere");
}

#[test]
fn a_full_pipe_or_a_reader_that_left_is_no_failure() {
    let scene = Scene::set();
    for _ in 0..20 {
        scene.says("task create echo");
    }
    let mut child = scene.command("task list").spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_worker_stops_in_good_order() {
    let scene = Scene::set();
    let id = scene.says("task create sleep_then_return --payload {\"seconds\":0.2,\"return\":7}");
    let worker = scene.command("worker --id w --json").spawn().unwrap();
    let pid = worker.id();
    eventually("the task has succeeded", || {
        let task = scene.says_json(&format!("task get {id}"));
        (task["status"] == "succeeded").then_some(())
    });
    let killed = Command::new("kill")
        .args(["-TERM", &pid.to_string()])
        .status();
    assert!(killed.unwrap().success());
    let ended = worker.wait_with_output().unwrap();
    assert!(ended.status.success());
    let summary: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(summary["completed"], 1);
}

#[test]
fn the_demo_tells_its_story_to_the_end() {
    let launch = Launch::new();
    let mut command = launch.bare_command();
    command.arg("demo");
    let ended = run(command);
    assert!(ended.status.success(), "{ended:?}");
    for words in [
        "w1 is killed",
        "lease.expired",
        "attempt 0",
        "Succeeded",
        "verified, 0 obligations open",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
}
