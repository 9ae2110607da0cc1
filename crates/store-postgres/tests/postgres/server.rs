//! A private PostgreSQL for tests: its own data directory, socket directory and port, on loopback only.
//!
//! PostgreSQL refuses to run as root. So root starts it as the user `postgres`, which the Debian package creates, by a
//! program that becomes the server, so that its process is the one that is ended.

use std::{
    fs::File,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use asyncgate_store::conformance::{PATIENCE, Program, free_port};
use tempfile::TempDir;

const INSTALLED: &str = "/usr/lib/postgresql";

/// Returns the folder of the newest version's programs.
fn binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir(INSTALLED).ok()?;
    let mut versions: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let version = path.file_name()?.to_str()?.parse().ok()?;
            Some((version, path.join("bin")))
        })
        .filter(|(_, bin)| bin.join("initdb").exists())
        .collect();
    versions.sort();
    versions.pop().map(|(_, bin)| bin)
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.starts_with(b"0\n")
}

/// One server.
#[derive(Debug)]
pub struct Server {
    port: u16,
    bin: PathBuf,
    settings: Vec<&'static str>,
    program: Mutex<Option<Program>>,
    databases: AtomicU32,
    dir: TempDir,
}

/// Whether what is committed must survive the machine, or only the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    Machine,
    Process,
}

impl Server {
    /// Returns the server that the tests of this program share, or says that the test is skipped. It is started for the first
    /// of them and ends with the last.
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = shared.upgrade() {
            return Some(server);
        }
        let server = Arc::new(Self::start(Durability::Process)?);
        *shared = Arc::downgrade(&server);
        Some(server)
    }

    /// Starts a server, or says that the test is skipped.
    pub fn start(durability: Durability) -> Option<Self> {
        let Some(bin) = binaries() else {
            eprintln!("SKIPPED: there is no PostgreSQL here; `cargo xtask test` installs it");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        if is_root() {
            run(Command::new("chown").arg("postgres").arg(dir.path()));
        }
        let mut settings = vec!["max_connections=200", "shared_buffers=32MB"];
        if durability == Durability::Process {
            settings.push("fsync=off");
        }
        let server = Self {
            port: free_port(),
            bin,
            settings,
            program: Mutex::new(None),
            databases: AtomicU32::new(0),
            dir,
        };
        let mut initdb = server.tool("initdb");
        initdb.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]);
        initdb
            .args(["--username=postgres", "-D"])
            .arg(server.data());
        run(&mut initdb);
        server.restart();
        Some(server)
    }

    /// Ends it as a crash does.
    pub fn kill(&self) {
        let program = self.program.lock().unwrap_or_else(PoisonError::into_inner);
        drop({ program }.take());
    }

    /// Starts it again on its port, and waits until it answers.
    pub fn restart(&self) {
        self.kill();
        for _ in 0..PATIENCE.as_millis() / 50 {
            let log = self.dir.path().join("log");
            let log = File::options().create(true).append(true).open(log).unwrap();
            let mut postgres = self.tool("postgres");
            postgres.arg("-D").arg(self.data());
            postgres.args(["-p", &self.port.to_string(), "-h", "127.0.0.1", "-k"]);
            postgres.arg(self.dir.path());
            for setting in &self.settings {
                postgres.args(["-c", setting]);
            }
            postgres.stdin(Stdio::null());
            postgres.stdout(log.try_clone().unwrap()).stderr(log);
            let program = Program::start(&mut postgres);
            *self.program.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
            if self.answers() {
                return;
            }
            // The processes of the server that was killed may still hold its memory.
            self.kill();
        }
        panic!("PostgreSQL does not start");
    }

    fn answers(&self) -> bool {
        for _ in 0..100 {
            let mut ready = Command::new(self.bin.join("pg_isready"));
            ready.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ready.current_dir("/").status().unwrap().success() {
                return TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok();
            }
            thread::sleep(Duration::from_millis(20));
        }
        false
    }

    /// Makes an empty database. Returns its address.
    pub fn database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("test_{number}");
        self.sql("postgres", &format!("CREATE DATABASE {name}"));
        self.address(&name)
    }

    fn address(&self, name: &str) -> String {
        let port = self.port;
        format!("host=127.0.0.1 port={port} user=postgres dbname={name}")
    }

    /// Runs a statement with the client program.
    pub fn sql(&self, database: &str, sql: &str) {
        let mut psql = Command::new(self.bin.join("psql"));
        psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        psql.args(["-p", &self.port.to_string(), "-U", "postgres"]);
        psql.args(["-d", database, "-c", sql]);
        run(psql.current_dir("/"));
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Returns a program that works on the data directory, as the user that owns it.
    fn tool(&self, name: &str) -> Command {
        let path: &Path = &self.bin.join(name);
        let mut command = match is_root() {
            false => Command::new(path),
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
                command.arg(path);
                command
            }
        };
        // The user postgres may not be allowed into the directory that we were started from.
        command.current_dir("/");
        command
    }
}

/// Runs a program, which must succeed.
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}
