//! The official Python client of MCP, which tests drive the server with.

use std::ffi::OsString;

use super::pip::Set;

/// The client, and what it imports.
const CLIENT: Set = Set {
    name: "mcp",
    packages: &[
        "mcp==2.3.0",
        "mcp-types==2.3.0",
        "annotated-types==0.8.0",
        "anyio==4.16.0",
        "attrs==26.1.0",
        "cffi==2.1.1",
        "click==8.5.1",
        "cryptography==50.0.2",
        "h11==0.16.0",
        "httpcore2==2.16.0",
        "httpx2==2.16.0",
        "idna==3.20",
        "jsonschema==4.26.0",
        "jsonschema-specifications==2025.9.1",
        "opentelemetry-api==1.45.2",
        "pycparser==3.12",
        "pydantic==2.14.3",
        "pydantic-core==2.50.4",
        "pyjwt==2.15.1",
        "python-multipart==0.0.33",
        "referencing==0.37.0",
        "rpds-py==2026.9.1",
        "sse-starlette==3.7.0",
        "starlette==1.10.0",
        "truststore==0.10.5",
        "typing-extensions==4.16.0",
        "typing-inspection==0.4.5",
        "uvicorn==0.54.0",
    ],
    modules: "mcp, mcp.client.stdio, mcp.client.streamable_http",
};

/// Installs the client. Returns the variable by which tests find it; none, with a word about it, where it
/// cannot be installed: the tests with our own messages say nearly as much.
pub fn install() -> Option<(&'static str, OsString)> {
    match CLIENT.install() {
        Ok(folder) => Some(("ASYNCGATE_TEST_MCP", folder.into())),
        Err(error) => {
            eprintln!("skipped: the official client of MCP cannot be installed: {error:#}");
            None
        }
    }
}
