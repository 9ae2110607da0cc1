//! Packages of Python, each set in a folder of its own beside the build's other files.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::apt;
use crate::process;

/// A program or library of Python, and all that it needs.
#[derive(Debug)]
pub struct Set {
    pub name: &'static str,
    /// Packages with their versions. Nothing else is installed, so that every machine has the same.
    pub packages: &'static [&'static str],
    /// The modules that must be there afterwards.
    pub modules: &'static str,
}

impl Set {
    /// Installs the set unless it is there. Returns the folder in which Python finds it.
    pub fn install(&self) -> Result<PathBuf> {
        let folder = process::root().join("target/tools").join(self.name);
        // Written last, so that an interrupted installation is not taken for a complete one.
        let whole = folder.join("complete");
        if whole.exists() {
            return Ok(folder);
        }
        apt::ensure("python3-pip", || {
            runs(Command::new("python3").args(["-m", "pip", "--version"]))
        })?;
        fs::create_dir_all(&folder)?;
        eprintln!("installing {}", self.name);
        process::run(
            Command::new("python3")
                .args(["-m", "pip", "install", "--quiet", "--upgrade", "--no-deps"])
                .args(["--root-user-action", "ignore", "--target"])
                .arg(&folder)
                .args(self.packages),
        )?;
        process::run(
            Command::new("python3")
                .env("PYTHONPATH", &folder)
                .args(["-c", &format!("import {}", self.modules)]),
        )
        .with_context(|| format!("{} was installed, but not all that it needs", self.name))?;
        fs::write(whole, "")?;
        Ok(folder)
    }
}

/// Returns true if a command can be run and succeeds.
pub(super) fn runs(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
