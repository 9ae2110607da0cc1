//! Packages of npm, each set in a folder of its own beside the build's other files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use super::apt;
use super::pip::runs;
use crate::process;

/// Programs or libraries of Node, and all that they need.
#[derive(Debug)]
pub struct Set {
    pub name: &'static str,
    /// Packages with their versions.
    pub packages: &'static [&'static str],
    /// A file that must be there afterwards.
    pub program: &'static str,
}

impl Set {
    /// Installs the set unless it is there. Returns its folder.
    pub fn install(&self) -> Result<PathBuf> {
        let folder = process::root().join("target/tools").join(self.name);
        if folder.join(self.program).exists() {
            return Ok(folder);
        }
        for (program, package) in [("node", "nodejs"), ("npm", "npm")] {
            apt::ensure(package, || runs(Command::new(program).arg("--version")))?;
        }
        fs::create_dir_all(&folder)?;
        eprintln!("installing {}", self.name);
        process::run(
            Command::new("npm")
                .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
                .arg(&folder)
                .args(self.packages),
        )?;
        match folder.join(self.program).exists() {
            true => Ok(folder),
            false => bail!(
                "npm installed {}, but {} is not there",
                self.name,
                self.program
            ),
        }
    }
}
