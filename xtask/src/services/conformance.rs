//! The conformance suite of MCP, which tests drive the authorization server with.

use std::ffi::OsString;

use super::npm::Set;

/// The suite, and a Node for it: it needs version 22, which many systems do not have yet.
const SUITE: Set = Set {
    name: "mcp-conformance",
    packages: &[
        "@modelcontextprotocol/conformance@0.2.0-alpha.12",
        "node@22.20.0",
    ],
    program: "node_modules/@modelcontextprotocol/conformance/dist/index.js",
};

/// Installs the suite. Returns the variable by which tests find it; none, with a word about it, where it
/// cannot be installed: the tests with our own requests say nearly as much.
pub fn install() -> Option<(&'static str, OsString)> {
    match SUITE.install() {
        Ok(folder) => Some(("ASYNCGATE_TEST_MCP_CONFORMANCE", folder.into())),
        Err(error) => {
            eprintln!("skipped: the conformance suite of MCP cannot be installed: {error:#}");
            None
        }
    }
}
