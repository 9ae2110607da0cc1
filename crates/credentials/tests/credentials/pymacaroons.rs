//! The Python implementation of macaroons: what is minted here verifies there, and what is minted or narrowed
//! there verifies here, in both versions.

use std::{
    ffi::OsString,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
};

use asyncgate_credentials::macaroon::{Macaroon, RootKey, mint};

const SECRET: &str = "a secret that both sides know";
const CAVEATS: [&str; 3] = [
    "op = send,recv",
    "topic = user:42:*",
    "time < 2030-01-01T00:00:00.000Z",
];

/// The folder with the library; none, with a word about it, where it is not installed.
fn library() -> Option<OsString> {
    let folder = std::env::var_os("ASYNCGATE_TEST_PYMACAROONS");
    if folder.is_none() {
        eprintln!("SKIPPED: ASYNCGATE_TEST_PYMACAROONS is not set; `cargo xtask test` installs it");
    }
    folder
}

/// Runs a command of the script. Returns the lines that it printed.
fn python(folder: &OsString, command: &str, lines: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/credentials/reference.py");
    let mut child = Command::new("python3")
        .arg(script)
        .args([command, SECRET])
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines.join("\n").as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complained}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

fn root() -> RootKey {
    RootKey::derive(SECRET.as_bytes())
}

fn caveats(count: usize) -> Vec<String> {
    CAVEATS[..count]
        .iter()
        .map(|&caveat| caveat.to_owned())
        .collect()
}

#[test]
fn what_is_minted_here_verifies_there() {
    let Some(folder) = library() else { return };
    for count in 0..=CAVEATS.len() {
        let minted = mint(&root(), "mac-1", &caveats(count)).unwrap().encode();
        let mut lines = vec![minted.as_str()];
        lines.extend(&CAVEATS[..count]);
        assert_eq!(python(&folder, "verify", &lines), ["good"]);
        // A changed caveat, so that the answer is known to mean something.
        if count > 0 {
            lines[1] = "op = admin";
            assert_eq!(python(&folder, "verify", &lines), ["bad"]);
        }
    }
}

#[test]
fn what_is_minted_there_verifies_here() {
    let Some(folder) = library() else { return };
    for command in ["mint-v1", "mint-v2"] {
        let said = python(&folder, command, &[&["mac-1"][..], &CAVEATS[..]].concat());
        let read = Macaroon::decode(&said[0]).unwrap();
        assert!(read.verify(&root()).is_ok(), "{command}");
        assert_eq!(read, mint(&root(), "mac-1", &caveats(3)).unwrap());
    }
}

#[test]
fn what_is_narrowed_there_verifies_here() {
    let Some(folder) = library() else { return };
    let minted = mint(&root(), "mac-1", &caveats(2)).unwrap();
    let said = python(&folder, "narrow", &[minted.encode().as_str(), CAVEATS[2]]);
    let narrowed = Macaroon::decode(&said[0]).unwrap();
    assert_eq!(narrowed, minted.attenuate(CAVEATS[2]).unwrap());
    assert_eq!(narrowed.verify(&root()).unwrap().len(), 3);
}

/// A genuine caveat of a third party, as a client could add it.
#[test]
fn a_third_partys_caveat_of_there_is_recognised_here() {
    let Some(folder) = library() else { return };
    for command in ["third-party-v1", "third-party-v2"] {
        let said = python(&folder, command, &["mac-1"]);
        let read = Macaroon::decode(&said[0]).unwrap();
        assert!(read.verify(&root()).is_ok(), "{command}");
        assert!(read.caveats()[0].third_party.is_some());
    }
}
