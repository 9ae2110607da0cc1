//! Installs Debian packages that are missing.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::process;

/// Package lists are refreshed at most once in a run; a fresh machine has none.
static UPDATED: OnceLock<()> = OnceLock::new();

/// Installs `package` unless `present` returns true.
pub fn ensure(package: &str, present: impl Fn() -> bool) -> Result<()> {
    if present() {
        return Ok(());
    }
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("{package} is missing and there is no apt-get here; install {package} and run again");
    }
    if !is_root()? {
        bail!("{package} is missing; run `sudo apt-get install {package}` and try again");
    }
    if UPDATED.get().is_none() {
        eprintln!("refreshing the package lists");
        process::run(apt_get().args(["update", "-qq"]))?;
        UPDATED.get_or_init(|| ());
    }
    eprintln!("installing {package}");
    process::run(apt_get().args(["install", "-y", "-qq", "--no-install-recommends", package]))?;
    if !present() {
        bail!("{package} was installed, but what it should bring is not there");
    }
    Ok(())
}

/// Returns true if this process runs as root, without a C call.
pub fn is_root() -> Result<bool> {
    let id = process::output(Command::new("id").arg("-u")).context("cannot tell who runs this")?;
    Ok(id.trim() == "0")
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_installed_when_it_is_there() {
        ensure("a-package-that-does-not-exist", || true).unwrap();
    }
}
