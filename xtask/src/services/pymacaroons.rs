//! The Python implementation of macaroons, which tests compare ours with.

use std::ffi::OsString;

use super::pip::Set;

/// The library, and what it imports.
const LIBRARY: Set = Set {
    name: "pymacaroons",
    packages: &[
        "pymacaroons==0.13.0",
        "cffi==2.1.1",
        "pycparser==3.12",
        "pynacl==1.6.2",
        "six==1.17.0",
    ],
    modules: "pymacaroons",
};

/// Installs the library. Returns the variable by which tests find it; none, with a word about it, where it
/// cannot be installed: the published vectors say nearly as much.
pub fn install() -> Option<(&'static str, OsString)> {
    match LIBRARY.install() {
        Ok(folder) => Some(("ASYNCGATE_TEST_PYMACAROONS", folder.into())),
        Err(error) => {
            eprintln!("skipped: pymacaroons cannot be installed: {error:#}");
            None
        }
    }
}
