//! The README's first steps, pasted into a shell as they stand.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use crate::harness::{Launch, eventually};

const README: &str = include_str!("../../../../README.md");

/// The indented blocks of a section, each with the paragraphs before it left out.
fn blocks(section: &str) -> Vec<String> {
    let start = README.find(&format!("\n## {section}\n")).expect(section) + 1;
    let text = &README[start..];
    let text = &text[..text[1..].find("\n## ").map_or(text.len(), |end| end + 1)];
    let mut blocks = Vec::new();
    for paragraph in text.split("\n\n") {
        let lines: Option<Vec<&str>> = paragraph
            .lines()
            .map(|line| line.strip_prefix("    "))
            .collect();
        blocks.extend(lines.map(|lines| lines.join("\n")));
    }
    blocks
}

#[test]
fn every_command_of_the_two_minutes_can_be_pasted() {
    let launch = Launch::without_key().env("ASYNCGATE_API_KEY", "secret");
    let server = launch.start();
    let address = server.address.to_string();
    let blocks = blocks("Two minutes");
    assert!(blocks.len() >= 8, "{blocks:#?}");
    let script = format!("set -eu\n{}\n", blocks.join("\n"));
    let script = script.replace("localhost:8080", &address);
    assert!(!script.contains('…'), "a placeholder:\n{script}");

    let programs = Path::new(env!("CARGO_BIN_EXE_asyncgate")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let said = launch.dir().join("said");
    let (out, err) = (
        File::create(&said).unwrap(),
        launch.dir().join("complaints"),
    );
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("ASYNCGATE_URL", format!("http://{address}"))
        .env("HOME", launch.dir())
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(launch.dir())
        // What the script leaves running ends with the test.
        .process_group(0)
        .stdout(out)
        .stderr(File::create(&err).unwrap())
        .spawn()
        .unwrap();
    let group = format!("-{}", shell.id());
    let status = eventually("the script ends", || shell.try_wait().unwrap());
    let left = Command::new("kill")
        .args(["-s", "KILL", "--", &group])
        .output();
    drop(left);
    let said = std::fs::read_to_string(said).unwrap();
    let complaints = std::fs::read_to_string(err).unwrap();
    assert!(status.success(), "{status}\n{complaints}\n{said}");
    for words in [
        "durability",
        "TASK  ",
        "nothing is owed",
        "Hello Ada",
        "agent/alice asked for echo",
        "\"ok\":true",
        "paint the fence",
        "done",
        "99 of 100 left",
        "accepted",
        "laptop stolen",
    ] {
        assert!(said.contains(words), "{words}:\n{said}\n{complaints}");
    }
    assert_eq!(complaints, "", "nothing to complain of");
}

#[test]
fn the_first_command_starts_the_server() {
    let first = blocks("Start").remove(0);
    let first = first.lines().next().unwrap();
    let words = first.split('#').next().unwrap();
    assert_eq!(words.trim(), "cargo run --release -- serve");
}
