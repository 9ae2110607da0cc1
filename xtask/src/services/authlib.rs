//! Authlib, a Python client of OAuth, which tests drive the server with.

use std::ffi::OsString;

use super::pip::Set;

/// The library, and what it imports.
const LIBRARY: Set = Set {
    name: "authlib",
    packages: &[
        "authlib==1.9.5",
        "certifi==2026.10.18",
        "cffi==2.1.1",
        "charset-normalizer==3.5.2",
        "cryptography==50.0.2",
        "idna==3.20",
        "joserfc==1.8.0",
        "pycparser==3.12",
        "requests==2.34.2",
        "urllib3==2.8.0",
    ],
    modules: "authlib.integrations.requests_client, joserfc.jwt",
};

/// Installs the library. Returns the variable by which tests find it; none, with a word about it, where it
/// cannot be installed: the tests with our own requests say nearly as much.
pub fn install() -> Option<(&'static str, OsString)> {
    match LIBRARY.install() {
        Ok(folder) => Some(("ASYNCGATE_TEST_AUTHLIB", folder.into())),
        Err(error) => {
            eprintln!("skipped: Authlib cannot be installed: {error:#}");
            None
        }
    }
}
