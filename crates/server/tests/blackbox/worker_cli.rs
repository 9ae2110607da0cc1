//! `asyncgate worker` with commands of the user's own.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::cli::{Scene, lines};
use crate::harness::{Talk, eventually};

/// A worker that does tasks of type `t` by a command line.
fn worker(scene: &Scene, flags: &str, line: &str) -> Talk {
    let mut command = scene.command(&format!("worker --id w1 --type t {flags} --exec"));
    command
        .arg(line)
        .env("PATH", std::env::var_os("PATH").unwrap());
    Talk::start(command)
}

fn create(scene: &Scene, payload: &str) -> String {
    scene.says(&format!(
        "task create t --as alice -q --max-attempts 2 --payload {payload}"
    ))
}

/// The task when it has ended.
fn ended(scene: &Scene, id: &str) -> Value {
    let ended = scene.run(&format!("task wait {id} --timeout 60 --json"));
    serde_json::from_str(&ended.stdout).unwrap()
}

fn file(scene: &Scene, name: &str) -> PathBuf {
    scene.server.launch().dir().join(name)
}

/// What a command wrote into a file, once it has.
fn written(scene: &Scene, name: &str) -> String {
    eventually(name, || {
        let text = std::fs::read_to_string(file(scene, name)).ok();
        text.filter(|text| text.ends_with('\n'))
    })
}

/// Whether a process has ended. Nobody may have taken note of the end of an orphan.
fn is_gone(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().unwrap().starts_with(" Z"))
        || !PathBuf::from(format!("/proc/{pid}")).exists()
}

#[test]
fn a_command_gets_the_payload_and_its_output_is_the_result() {
    let scene = Scene::set();
    let echo = worker(&scene, "", "cat");
    assert_eq!(echo.hear(), "w1 waits for tasks of type t");
    let id = create(&scene, "{\"b\":1.50,\"a\":[2]}");
    let task = ended(&scene, &id);
    assert_eq!(task["status"], "succeeded", "{task}");
    let result = scene.says(&format!("task get {id}"));
    assert!(lines(&result).contains(&"result {\"b\":1.50,\"a\":[2]}".to_owned()));
    assert_eq!(task["result"]["delivery_proof"]["target"], "task");
    assert_eq!(scene.says("obligations --as alice"), "nothing is owed");
    drop(echo);

    let text = worker(
        &scene,
        "",
        "echo \"$ASYNCGATE_TASK_TYPE $ASYNCGATE_ATTEMPT $ASYNCGATE_OWNER\"; \
        echo $ASYNCGATE_TASK_ID $ASYNCGATE_LEASE_ID $ASYNCGATE_WORKER_ID $ASYNCGATE_URL",
    );
    let id = create(&scene, "1");
    let task = ended(&scene, &id);
    let said = task["result"]["result"].as_str().unwrap();
    let receipts = scene.says_json(&format!("receipts --task {id}"));
    let lease = receipts
        .as_array()
        .unwrap()
        .iter()
        .find_map(|one| one["lease_id"].as_str());
    let (lease, url) = (lease.unwrap(), format!("http://{}", scene.server.address));
    assert_eq!(said, format!("t 0 agent/alice\n{id} {lease} w1 {url}"));
    let types: Vec<&str> = receipts
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["receipt_type"].as_str().unwrap())
        .collect();
    assert!(types.contains(&"task.started"), "{types:?}");
    drop(text);
}

#[test]
fn a_program_runs_without_a_shell() {
    let scene = Scene::set();
    let mut command = scene.command("worker --type t -- printf %s $HOME;exit");
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let _worker = Talk::start(command);
    let id = create(&scene, "1");
    assert_eq!(ended(&scene, &id)["result"]["result"], "$HOME;exit");
}

#[test]
fn artifacts_come_from_a_file_and_without_proof_the_task_is_still_owed() {
    let scene = Scene::set();
    let named = worker(
        &scene,
        "--no-proof",
        "echo s3://b/x > $ASYNCGATE_ARTIFACTS_FILE",
    );
    let id = create(&scene, "1");
    let task = ended(&scene, &id);
    assert_eq!(
        task["result"]["artifacts"],
        json!([{"type": "url", "url": "s3://b/x"}])
    );
    assert_eq!(task["result"]["result"], Value::Null);
    assert_eq!(scene.says("obligations --as alice"), "nothing is owed");
    drop(named);
    let _silent = worker(&scene, "--no-proof", "true");
    let id = create(&scene, "2");
    assert_eq!(ended(&scene, &id)["status"], "succeeded");
    let owed = scene.says("obligations --as alice");
    assert!(owed.contains("succeeded, not proved"), "{owed}");
}

#[test]
fn the_exit_code_decides_and_stderr_is_the_error() {
    let scene = Scene::set();
    let line = "read code; echo first >&2; echo \"no ink: $code\" >&2; exit $code";
    let _worker = worker(&scene, "--retry-on 9", line);
    let id = create(&scene, "3");
    let task = ended(&scene, &id);
    assert_eq!(task["status"], "failed");
    assert_eq!(task["attempt"], 1, "no second try: {task}");
    let error = &task["result"]["error"];
    assert_eq!(error["kind"], "exec");
    assert_eq!(error["message"], "exit code 3: first\nno ink: 3");
    assert_eq!(error["details"]["exit_code"], 3);
    for code in ["75", "9", "127"] {
        let id = create(&scene, code);
        let task = eventually("it will be tried again", || {
            let task = scene.says_json(&format!("task get {id}"));
            (task["attempt"] == 1).then_some(task)
        });
        assert_eq!(task["status"], "queued", "{code}: {task}");
    }
}

#[test]
fn too_much_output_fails_the_task() {
    let scene = Scene::set();
    let _worker = worker(&scene, "", "head -c 1048577 /dev/zero | tr '\\0' x");
    let task = ended(&scene, &create(&scene, "1"));
    assert_eq!(task["status"], "failed");
    let message = task["result"]["error"]["message"].as_str().unwrap();
    assert!(message.contains("ASYNCGATE_ARTIFACTS_FILE"), "{message}");
}

#[test]
fn the_lease_is_renewed_while_a_command_runs() {
    let scene = Scene::set();
    let wait = "while [ ! -e go ]; do sleep 0.05; done; echo done";
    let _worker = worker(&scene, "--lease-ttl 6", wait);
    let id = create(&scene, "1");
    eventually("it was renewed", || {
        let task = scene.says_json(&format!("task get {id}"));
        task["lease"]["renewals"]
            .as_u64()
            .filter(|renewals| *renewals >= 2)
    });
    std::fs::write(file(&scene, "go"), "").unwrap();
    let task = ended(&scene, &id);
    assert_eq!(task["result"]["result"], "done");
    assert_eq!(
        (&task["attempt"], &task["lease_expiries"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn a_cancelled_task_ends_its_command_and_all_that_it_started() {
    let scene = Scene::set();
    // The first ends when it is asked to; the other two do not hear.
    let line = "trap 'echo asked > asked; exit 0' TERM; \
        (trap '' TERM; sleep 600 & echo $! > grandchild; exec sleep 601) & echo $! > child; \
        echo $$ > leader; while :; do sleep 0.05; done";
    let worker = worker(&scene, "--lease-ttl 2 --kill-after 5", line);
    let id = create(&scene, "1");
    let pids = ["leader", "child", "grandchild"].map(|name| written(&scene, name));
    for pid in &pids {
        assert!(!is_gone(pid.trim()), "{pid}");
    }
    scene.says(&format!("task cancel {id}"));
    assert_eq!(written(&scene, "asked"), "asked\n");
    for pid in pids {
        eventually("the whole group is gone", || {
            is_gone(pid.trim()).then_some(())
        });
    }
    while !worker.hear().contains("lost") {}
}

#[test]
fn a_command_that_does_not_hear_is_killed_when_its_time_is_over() {
    let scene = Scene::set();
    let line = "trap '' TERM; echo $$ > leader; while :; do sleep 0.05; done";
    let _worker = worker(&scene, "--timeout 3 --kill-after 1", line);
    let id = create(&scene, "1");
    let leader = written(&scene, "leader");
    let task = eventually("it will be tried again", || {
        let task = scene.says_json(&format!("task get {id}"));
        (task["attempt"] == 1).then_some(task)
    });
    assert_eq!(task["status"], "queued", "{task}");
    eventually("it is gone", || is_gone(leader.trim()).then_some(()));
}

#[test]
fn what_a_command_leaves_running_ends_with_it() {
    let scene = Scene::set();
    // It keeps stdout open, so the result would not be complete without its end.
    let _worker = worker(
        &scene,
        "--kill-after 1",
        "sleep 600 & echo $! > left; echo done",
    );
    let id = create(&scene, "1");
    assert_eq!(ended(&scene, &id)["result"]["result"], "done");
    let left = written(&scene, "left");
    eventually("it is gone", || is_gone(left.trim()).then_some(()));
}

#[test]
fn a_worker_that_stops_lets_its_command_finish() {
    let scene = Scene::set();
    let line = "echo $$ > leader; while [ ! -e go ]; do sleep 0.05; done; echo done";
    let worker = worker(&scene, "", line);
    let id = create(&scene, "1");
    written(&scene, "leader");
    let pid = worker.id().to_string();
    let sent = Command::new("kill").args(["-s", "TERM", &pid]).status();
    assert!(sent.unwrap().success());
    // It has half a minute to finish, and it does.
    std::fs::write(file(&scene, "go"), "").unwrap();
    assert_eq!(ended(&scene, &id)["result"]["result"], "done");
    let ended = worker.wait();
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stdout.contains("1 completed"), "{ended:?}");
}

#[test]
fn a_command_needs_a_type_and_a_type_a_command() {
    let scene = Scene::set();
    for line in [
        "worker --exec true",
        "worker --type t --exec true -- true",
        "worker --type t --exec true --retry-on 0",
    ] {
        assert_eq!(scene.run(line).status.code(), Some(2), "{line}");
    }
    scene.ends("worker --type t", 2, "--exec");
}
