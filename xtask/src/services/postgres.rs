//! A private PostgreSQL: its own data directory, socket directory and port.
//!
//! PostgreSQL refuses to run as root. So commands of the root user run through `runuser` as the user
//! `postgres`, which the Debian package creates.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::apt;
use super::running::free_port;
use crate::process;

/// The version that the figures are stated against; another one is used if only that is installed.
const PREFERRED: &str = "15";
const INSTALLED: &str = "/usr/lib/postgresql";
const START_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Postgres {
    cluster: Cluster,
    /// A child in the foreground, not started through `pg_ctl start`, so that Ctrl-C reaches it too.
    child: Child,
}

impl Postgres {
    pub fn install() -> Result<()> {
        apt::ensure("postgresql", || binaries().is_some())
    }

    /// Creates a cluster under `dir`, which must exist, and starts it with every commit fsynced.
    pub fn start(dir: &Path) -> Result<Self> {
        Self::install()?;
        let cluster = Cluster::create(dir)?;
        let log = File::create(cluster.log())?;
        let child = cluster
            .tool("postgres")
            .arg("-D")
            .arg(cluster.data())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start PostgreSQL")?;
        // Owned before the wait, so that a start that fails leaves no process behind.
        let mut server = Self { cluster, child };
        server.await_ready()?;
        Ok(server)
    }

    /// Returns the version, for example "PostgreSQL 15.18".
    pub fn version(&self) -> Result<String> {
        let binary = self.cluster.bin.join("postgres");
        let text = process::output(Command::new(binary).arg("--version"))?;
        let number = text.split_whitespace().nth(2).unwrap_or_default();
        Ok(format!("PostgreSQL {number}"))
    }

    /// The process that all others of this server descend from.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn port(&self) -> u16 {
        self.cluster.port
    }

    /// Returns a client program of the same version, set up to reach this server over loopback TCP.
    pub fn client(&self, name: &str) -> Command {
        let mut command = Command::new(self.cluster.bin.join(name));
        let port = self.cluster.port.to_string();
        command.args(["-h", "127.0.0.1", "-U", "postgres", "-p", &port]);
        command.current_dir("/");
        command
    }

    fn await_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while process::output(self.client("pg_isready").arg("--quiet")).is_err() {
            if self.child.try_wait()?.is_some() || started.elapsed() > START_TIMEOUT {
                let log = fs::read_to_string(self.cluster.log()).unwrap_or_default();
                bail!("PostgreSQL does not start; its log:\n{log}");
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // pg_ctl reads the pid from the data directory, so that no other server is ever touched.
        if self.cluster.data().join("postmaster.pid").exists() {
            let mut stop = self.cluster.tool("pg_ctl");
            stop.args(["--wait", "--silent", "--mode=fast", "stop", "-D"]);
            if let Err(error) = process::output(stop.arg(self.cluster.data())) {
                eprintln!("PostgreSQL was not stopped: {error:#}");
                drop(self.child.kill());
            }
        }
        drop(self.child.wait());
    }
}

/// The files of a server, and the programs that work on them.
#[derive(Debug)]
struct Cluster {
    as_root: bool,
    bin: PathBuf,
    dir: PathBuf,
    port: u16,
}

impl Cluster {
    fn create(dir: &Path) -> Result<Self> {
        let cluster = Self {
            as_root: apt::is_root()?,
            bin: binaries().with_context(|| format!("no PostgreSQL below {INSTALLED}"))?,
            dir: dir.to_path_buf(),
            port: free_port()?,
        };
        if cluster.as_root {
            process::run(Command::new("chown").arg("postgres").arg(dir))?;
        }
        let mut initdb = cluster.tool("initdb");
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "-D"]);
        process::output(initdb.arg(cluster.data()))?;
        let settings = cluster.data().join("postgresql.auto.conf");
        fs::write(&settings, cluster.settings())
            .with_context(|| format!("cannot write {}", settings.display()))?;
        Ok(cluster)
    }

    fn settings(&self) -> String {
        format!(
            "listen_addresses = '127.0.0.1'\nport = {}\nunix_socket_directories = '{}'\n\
             max_connections = 200\nfsync = on\nsynchronous_commit = on\nfull_page_writes = on\n\
             shared_buffers = 256MB\nmax_wal_size = 4GB\n",
            self.port,
            self.dir.display()
        )
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Returns a program that works on the data directory, as the user that owns it.
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

/// Returns the folder of the preferred version's programs, otherwise of the newest version's.
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
