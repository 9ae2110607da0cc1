//! `cargo xtask tidy`: the house rules that no compiler checks.
//!
//! Each rule is a function from plain data to a list of complaints; this module gathers the data and
//! fails if anybody complained.

mod architecture;
mod direction;
mod publish;
mod sources;

use std::fs;

use anyhow::{Context, Result, bail};

use crate::process;

pub fn run() -> Result<()> {
    let root = process::root();
    let metadata = process::metadata()?;
    let packages = direction::packages(&metadata)?;
    let mut complaints = direction::complaints(&packages);
    complaints.extend(publish::complaints(&metadata));
    complaints.extend(publish::file_complaints(package_files)?);
    complaints.extend(direction::core_complaints(&core_tree()?));
    complaints.extend(sources::complaints(&root)?);

    let manifest = fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    match fs::read_to_string(root.join("ARCHITECTURE.md")) {
        Ok(document) => {
            complaints.extend(architecture::complaints(&manifest, &packages, &document)?);
        }
        Err(error) => complaints.push(format!("ARCHITECTURE.md cannot be read: {error}")),
    }

    if complaints.is_empty() {
        println!("tidy: {} crates, nothing to complain of", packages.len());
        return Ok(());
    }
    for complaint in &complaints {
        eprintln!("tidy: {complaint}");
    }
    bail!("{} complaint(s)", complaints.len());
}

/// Returns the files that a package of a crate would hold, one in each line.
fn package_files(name: &str) -> Result<String> {
    process::output(process::cargo().args([
        "package",
        "--list",
        "--allow-dirty",
        "--quiet",
        "--package",
        name,
    ]))
}

/// Returns the names of everything that `core` depends on, one in each line.
fn core_tree() -> Result<String> {
    process::output(process::cargo().args([
        "tree",
        "--package",
        "asyncgate-core",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]))
}
