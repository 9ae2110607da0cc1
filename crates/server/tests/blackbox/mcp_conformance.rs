//! The conformance suite of MCP, against the real binary: its scenarios for authorization servers.
//!
//! The suite waits for somebody with a browser: it prints an address, and goes on when the browser was sent back to
//! it. So the test reads along, and is that person. Node runs the suite itself and not by `npx`, so that ending the
//! process ends all of it.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::{Launch, Server, Talk};
use crate::http::{Connection, Request};
use crate::oauth;

const SUITE: &str = "node_modules/@modelcontextprotocol/conformance/dist/index.js";
const NODE: &str = "node_modules/node/bin/node";

/// A port that was free a moment ago. If another program takes it first, the suite fails loudly.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Logs in where the suite asks for it, and goes where the browser is sent.
fn log_in(server: &Server, address: &str, callback: SocketAddr) {
    let path = address.strip_prefix(&format!("http://{}", server.address));
    let (page, cookie) = oauth::page_at(server, path.unwrap());
    let sent = oauth::log_in_to(server, &page, &cookie);
    let target = sent.strip_prefix(&format!("http://{callback}")).unwrap();
    let mut browser = Connection::open(callback).unwrap();
    let answer = browser.send(&Request::get(target).header("Connection", "close"));
    assert_eq!(answer.unwrap().status, 200);
}

#[test]
fn the_conformance_suite_of_mcp_passes_the_authorization_server() {
    let Some(folder) = oauth::client("ASYNCGATE_TEST_MCP_CONFORMANCE") else {
        return;
    };
    let server = Launch::new().start();
    oauth::let_in(&server);
    oauth::public_keys(&server);
    let callback = free_address();
    let redirect = format!("http://{callback}/callback");
    let client = oauth::register_at(&server, &redirect, false, &["tasks:read"]);
    let folder = Path::new(&folder);
    let mut command = Command::new(folder.join(NODE));
    command
        .arg(folder.join(SUITE))
        .args([
            "authorization",
            "--url",
            &format!("http://{}", server.address),
        ])
        .args(["--client-id", client["client_id"].as_str().unwrap()])
        .args(["--port", &callback.port().to_string()])
        .current_dir(server.launch().dir())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let suite = Talk::start(command);
    let mut said = String::new();
    while !said.contains("Total:") {
        let line = suite.hear();
        said.push_str(&line);
        said.push('\n');
        if line.contains("/oauth/authorize?") {
            log_in(&server, &line, callback);
        }
    }
    let ended = suite.end();
    assert!(ended.status.success(), "{said}{ended:?}");
    // How many checks a scenario makes depends on what the server offers.
    for scenario in [
        "authorization-server-metadata-endpoint:",
        "authorization-code-grant:",
        "Total:",
    ] {
        let verdict = said.lines().find(|line| line.contains(scenario));
        let passed = |line: &str| line.ends_with(", 0 failed") && !line.contains(": 0 passed");
        assert!(verdict.is_some_and(passed), "{scenario} {said}");
    }
}
