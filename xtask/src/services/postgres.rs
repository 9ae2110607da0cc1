//! A private PostgreSQL: its own data directory, socket directory and port.
//!
//! PostgreSQL refuses to run as root, so that a root user's commands go through `runuser` as the
//! user `postgres`, whom the Debian package creates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::{apt, free_port};
use crate::process;

/// The version that the figures are stated against; another one is used if only that is installed.
const PREFERRED: &str = "15";
const INSTALLED: &str = "/usr/lib/postgresql";

#[derive(Debug)]
pub struct Postgres {
    as_root: bool,
    bin: PathBuf,
    dir: PathBuf,
    port: u16,
}

impl Postgres {
    pub fn install() -> Result<()> {
        apt::ensure("postgresql", || binaries().is_some())
    }

    /// Creates a cluster under `dir`, which must exist, and starts it with every commit fsynced.
    pub fn start(dir: &Path) -> Result<Self> {
        Self::install()?;
        let bin = binaries().context("no PostgreSQL below /usr/lib/postgresql")?;
        let server = Self {
            as_root: apt::is_root()?,
            bin,
            dir: dir.to_path_buf(),
            port: free_port()?,
        };
        if server.as_root {
            process::run(Command::new("chown").arg("postgres").arg(dir))?;
        }
        let data = dir.join("data");
        process::output(
            server
                .tool("initdb")
                .args(["--auth=trust", "--encoding=UTF8", "--locale=C", "-D"])
                .arg(&data),
        )?;
        server.configure(&data)?;
        let log = dir.join("log");
        process::output(
            server
                .tool("pg_ctl")
                .args(["--wait", "--silent", "start", "-D"])
                .arg(&data)
                .arg("-l")
                .arg(&log),
        )
        .with_context(|| {
            format!(
                "PostgreSQL does not start; its log:\n{}",
                fs::read_to_string(&log).unwrap_or_default()
            )
        })?;
        Ok(server)
    }

    /// As in "PostgreSQL 15.18".
    pub fn version(&self) -> Result<String> {
        let text = process::output(Command::new(self.bin.join("postgres")).arg("--version"))?;
        let number = text.split_whitespace().nth(2).unwrap_or_default();
        Ok(format!("PostgreSQL {number}"))
    }

    /// A client program of the same version, aimed at this server over loopback TCP.
    pub fn client(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.args([
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
            "-p",
            &self.port.to_string(),
        ]);
        command.current_dir("/");
        command
    }

    fn configure(&self, data: &Path) -> Result<()> {
        let settings = format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\nmax_connections = 200\n\
             fsync = on\nsynchronous_commit = on\nfull_page_writes = on\nshared_buffers = 256MB\nmax_wal_size = 4GB\n",
            self.port,
            self.dir.display()
        );
        let path = data.join("postgresql.auto.conf");
        fs::write(&path, settings).with_context(|| format!("cannot write {}", path.display()))
    }

    /// A program that works on the data directory, as the user that owns it.
    fn tool(&self, name: &str) -> Command {
        let path = self.bin.join(name);
        let mut command = if self.as_root {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        // The user postgres may not be allowed into the directory that we were started from.
        command.current_dir("/");
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // pg_ctl reads the pid from the data directory, so that no other server is ever touched.
        let data = self.dir.join("data");
        if !data.join("postmaster.pid").exists() {
            return;
        }
        let mut stop = self.tool("pg_ctl");
        if let Err(error) = process::output(
            stop.args(["--wait", "--silent", "--mode=fast", "stop", "-D"])
                .arg(data),
        ) {
            eprintln!("PostgreSQL was not stopped: {error:#}");
        }
    }
}

/// The folder of the preferred version's programs, else of the newest one's.
fn binaries() -> Option<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(INSTALLED)
        .ok()?
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin")))
        })
        .filter(|(_, bin)| bin.join("postgres").exists() && bin.join("pgbench").exists())
        .collect();
    versions.sort();
    let preferred = versions
        .iter()
        .find(|(version, _)| version.to_string() == PREFERRED);
    preferred.or(versions.last()).map(|(_, bin)| bin.clone())
}
