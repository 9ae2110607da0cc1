//! The official Python client of MCP, against the real binary: over HTTP, over stdio on a data directory,
//! and over the bridge to a running server.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{KEY, Launch, PATIENT};

const ASYNCGATE: &str = env!("CARGO_BIN_EXE_asyncgate");

/// The folder with the client; none, with a word about it, where it is not installed.
fn client() -> Option<OsString> {
    let folder = std::env::var_os("ASYNCGATE_TEST_MCP");
    if folder.is_none() {
        eprintln!("SKIPPED: ASYNCGATE_TEST_MCP is not set; `cargo xtask test` installs it");
    }
    folder
}

/// Tells the whole story over a transport.
#[track_caller]
fn drive(folder: &OsString, args: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/blackbox/official_client.py");
    let output = Command::new("python3")
        .arg(script)
        .args(args)
        .env("PYTHONPATH", folder)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("ASYNCGATE_API_KEY", KEY)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert_eq!(said.matches("good").count(), 2, "{said}");
}

#[test]
fn the_official_client_is_served_over_http() {
    let Some(folder) = client() else { return };
    let server = Launch::new().start();
    drive(
        &folder,
        &["http", &format!("http://{}/mcp", server.address)],
    );
}

#[test]
fn the_official_client_is_served_over_the_bridge() {
    let Some(folder) = client() else { return };
    let server = Launch::new().start();
    let url = format!("http://{}", server.address);
    drive(&folder, &["stdio", ASYNCGATE, "mcp", "--url", &url]);
}

#[test]
fn the_official_client_is_served_over_stdio() {
    let Some(folder) = client() else { return };
    let launch = Launch::new();
    let data = launch.data().to_str().unwrap();
    // As patient with a slow disk as the servers of the other tests.
    let stdio = ["stdio", ASYNCGATE, "mcp", "--data-dir", data];
    drive(&folder, &[&stdio[..], &["--set", PATIENT]].concat());
}
