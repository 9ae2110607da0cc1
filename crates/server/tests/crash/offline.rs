//! What `asyncgate verify --data-dir` says of the files, with no server running.

use std::path::Path;
use std::process::Command;

use crate::ask::Verdict;

/// The first thing that is wrong in a data directory, if anything is.
pub fn verify(data: &Path) -> Verdict<()> {
    let output = Command::new(env!("CARGO_BIN_EXE_asyncgate"))
        .arg("verify")
        .arg("--data-dir")
        .arg(data)
        .output()
        .unwrap();
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = said.starts_with("asyncgate: ") && !said.contains("panicked");
    assert!(
        told && matches!(output.status.code(), Some(1 | 7)),
        "{output:?}"
    );
    Err(said)
}
