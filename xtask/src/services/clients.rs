//! Programs that make clients of an OpenAPI document. Tests run what they make.

use std::ffi::OsString;

use anyhow::{Context, Result};

use super::{npm, pip};

const PURPOSE: &str = "the generator of clients is for the tests of what it makes";

/// openapi-python-client, what it needs, and what its clients need. It can do without the program that makes
/// its code look nicer.
const PYTHON: pip::Set = pip::Set {
    name: "openapi-python-client",
    packages: &[
        "openapi-python-client==0.29.1",
        "annotated-doc==0.0.6",
        "annotated-types==0.8.0",
        "anyio==4.16.0",
        "attrs==26.1.0",
        "certifi==2026.10.18",
        "h11==0.16.0",
        "httpcore==1.0.9",
        "httpx==0.28.1",
        "idna==3.20",
        "jinja2==3.1.6",
        "markdown-it-py==4.3.0",
        "markupsafe==3.0.4",
        "mdurl==0.1.2",
        "pydantic==2.14.3",
        "pydantic-core==2.50.4",
        "pygments==2.21.0",
        "rich==15.0.0",
        "ruamel.yaml==0.19.1",
        "shellingham==1.5.4",
        "typer==0.27.3",
        "typing-extensions==4.16.0",
        "typing-inspection==0.4.5",
    ],
    modules: "openapi_python_client.cli, httpx, attrs",
};

const NODE: npm::Set = npm::Set {
    name: "openapi-typescript",
    packages: &[
        "openapi-typescript@7.13.0",
        "openapi-fetch@0.17.0",
        "typescript@5.9.3",
    ],
    program: "node_modules/openapi-typescript/bin/cli.js",
};

/// Installs them. Returns the variables by which tests find them.
pub fn install() -> Result<Vec<(&'static str, OsString)>> {
    let python = PYTHON.install().context(PURPOSE)?;
    let node = NODE.install().context(PURPOSE)?;
    Ok(vec![
        ("ASYNCGATE_TEST_OPENAPI_PYTHON", python.into()),
        ("ASYNCGATE_TEST_OPENAPI_NODE", node.into()),
    ])
}
