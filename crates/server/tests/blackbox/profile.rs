//! Profiles: a micronode and amnesia leave nothing behind, and everybody can see which it is.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::harness::{KEY, Launch, Server, run};
use crate::http::Request;

/// Starts without a data directory being named, at home in the launch's directory.
pub fn start(launch: &Launch, args: &[&str]) -> Server {
    let home = launch.dir().to_str().unwrap().to_owned();
    let launch = launch.clone().env("HOME", &home).env("TMPDIR", &home);
    let mut command: Command = launch.bare_command();
    command.args(["serve", "--bind", "127.0.0.1:0"]).args(args);
    Server::watch(command, launch)
}

/// What the server has opened that is a file on a disk. What it got from whoever started the tests does not count: they
/// have it open, too.
pub fn open_files(server: &Server) -> Vec<String> {
    let inherited = files_of("self");
    let mut files = files_of(&server.id().to_string());
    files.retain(|file| !inherited.contains(file));
    files
}

/// The files on a disk that a process has open.
fn files_of(process: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{process}/fd")).unwrap() {
        let Ok(target) = std::fs::read_link(entry.unwrap().path()) else {
            continue;
        };
        let target = target.to_string_lossy().into_owned();
        let special = ["/dev/", "/proc/"];
        if target.starts_with('/') && !special.iter().any(|dir| target.starts_with(dir)) {
            files.push(target);
        }
    }
    files
}

/// How many files and directories there are in a directory.
pub fn files_in(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

/// Gives it something that a durable server would have written down.
fn use_it(server: &Server) {
    let send = json!({"topic": "t", "idem_key": "k", "payload_b64": "aGk="});
    server.post("/v1/send", &send).expect(200);
    server.create_plain("x");
    let held = server.take("w");
    server.complete(&held, &json!(1));
}

#[test]
fn a_micronode_and_amnesia_leave_no_file_and_say_so() {
    for (args, profile) in [
        (&["--profile", "micronode"][..], "micronode"),
        (&["--amnesia"], "macronode"),
    ] {
        // No key is given: the one that is made must not be written down either.
        let launch = Launch::without_key();
        let mut server = start(&launch, args);
        let log = server.logged("aga_");
        let key = log
            .split_whitespace()
            .find(|word| word.starts_with("aga_"))
            .unwrap()
            .to_owned();
        server.use_key(Some(&key));
        use_it(&server);
        assert_eq!(open_files(&server), Vec::<String>::new(), "{args:?}");
        let config = server.get("/v1/config").expect(200);
        assert_eq!(config["durability"], "none");
        assert_eq!(config["dlq_profile"], "ephemeral");
        assert_eq!(config["profile"], profile);
        let sample =
            format!("mailbox_profile_info{{profile=\"{profile}\",dlq_profile=\"ephemeral\"}}");
        assert_eq!(server.metric(&sample), Some(1.0));
        server.send_bare(&Request::get("/readyz")).expect(200);
        let log = server.stop().stderr;
        assert!(log.contains("ephemeral"), "{log}");
        assert_eq!(
            log.contains("DLQ will be ephemeral per policy"),
            profile == "macronode",
            "{log}"
        );
        assert_eq!(files_in(launch.dir()), 0, "{args:?}");
    }
}

#[test]
fn a_macronode_is_durable_and_says_so() {
    let server = Server::start();
    let config = server.get("/v1/config").expect(200);
    assert_eq!(config["profile"], "macronode");
    assert_eq!(config["dlq_profile"], "durable");
}

#[test]
fn who_keeps_nothing_is_not_told_where_to_keep_it() {
    for (args, named) in [
        (&["--data-dir", "d"][..], "data_dir"),
        (&["--store", "sqlite"], "store"),
    ] {
        for forgetful in [&["--profile", "micronode"][..], &["--amnesia"]] {
            let launch = Launch::new();
            let mut command = launch.bare_command();
            command.arg("serve").args(forgetful).args(args);
            let ended = run(command);
            assert_eq!(ended.status.code(), Some(2), "{ended:?}");
            assert!(ended.complaint().contains(named), "{ended:?}");
            assert_eq!(files_in(launch.dir()), 0);
        }
    }
}

#[test]
fn the_environment_of_the_specification_is_understood() {
    let launch = Launch::without_key()
        .env("SVCMBX_PROFILE", "micronode")
        .env("SVCMBX_BIND_ADDR", "127.0.0.1:0")
        .env("SVCMBX_VISIBILITY_DEFAULT", "2s")
        .env("MAILBOX_SHARDS", "3")
        .env("ASYNCGATE_API_KEY", KEY);
    let mut command = launch.bare_command();
    command.arg("serve");
    let server = Server::watch(command, launch);
    assert_eq!(server.get("/v1/config").expect(200)["profile"], "micronode");
    server.logged("MAILBOX_SHARDS is deprecated");
}

#[test]
fn what_this_build_does_not_have_and_what_cannot_be_stop_the_start() {
    for (args, key) in [
        (&["--tls"][..], "tls.enabled"),
        (&["--t-replay", "9s"], "mailbox.t_replay"),
        (&["--backoff-max", "1ms"], "mailbox.backoff_max"),
        (&["--shards", "0"], "mailbox.ready_shards"),
    ] {
        let launch = Launch::new().args(args);
        let ended = launch.refused();
        assert!(ended.complaint().contains(key), "{ended:?}");
        assert_eq!(ended.status.code(), Some(2));
        assert!(!launch.data().exists());
    }
}
