//! The binary that is handed out, started as a user starts it, on a directory of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::load::http::Head;
use super::open_folder;
use crate::process;

pub const KEY: &str = "a-shared-key-for-benchmarks-only";
/// The data directory within a server's folder.
pub const DATA: &str = "data";
const STDERR: &str = "stderr";

/// Builds the binary that is handed out and returns its path.
pub fn build() -> Result<PathBuf> {
    Ok(dist(&["--package", "asyncgate-server"])?.join("asyncgate"))
}

/// Builds something as it is handed out and returns its folder.
pub fn dist(what: &[&str]) -> Result<PathBuf> {
    built("dist", what)
}

/// Builds something in a profile that has a folder of its own, and returns that folder.
pub fn built(profile: &str, what: &[&str]) -> Result<PathBuf> {
    process::run(
        process::cargo()
            .args(["build", "--profile", profile])
            .args(what),
    )?;
    Ok(target()?.join(profile))
}

/// Returns cargo's folder for build output.
pub fn target() -> Result<PathBuf> {
    let metadata = process::metadata()?;
    let target = metadata["target_directory"]
        .as_str()
        .context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target))
}

#[derive(Debug)]
pub struct Server {
    child: Child,
    pub addr: SocketAddr,
    data: PathBuf,
    /// The folder; it is removed after the process has ended, because `Drop` ends the process first.
    folder: TempDir,
}

impl Server {
    /// Starts on an empty folder below `scratch`, with default settings except for the address, the folder,
    /// the key and the given ones.
    pub fn start(binary: &Path, scratch: &Path, settings: &[(&str, &str)]) -> Result<Self> {
        let settings = [&[("ASYNCGATE_API_KEY", KEY)], settings].concat();
        Self::start_in(binary, open_folder(scratch)?, &settings)
    }

    /// Starts on a folder that may hold data, with default settings except for the address, the folder and the given
    /// ones. Without a key in the settings, the keys in the folder count.
    pub fn start_in(binary: &Path, folder: TempDir, settings: &[(&str, &str)]) -> Result<Self> {
        let (child, addr) = spawn(binary, folder.path(), settings)?;
        Ok(Self {
            child,
            addr,
            data: folder.path().join(DATA),
            folder,
        })
    }

    /// Starts a server that has ended once more, on the same data and at another port.
    pub fn start_again(&mut self, binary: &Path, settings: &[(&str, &str)]) -> Result<()> {
        (self.child, self.addr) = spawn(binary, self.folder.path(), settings)?;
        Ok(())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn head(&self) -> Head {
        Head::new(&self.addr.to_string(), KEY)
    }

    /// Resident memory in bytes: all of it, and the part that is not a file's pages.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        Ok((
            kib_line(&status, "VmRSS:")? * 1024,
            kib_line(&status, "RssAnon:")? * 1024,
        ))
    }

    /// The most resident memory that it has had so far, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        Ok(kib_line(&status, "VmHWM:")? * 1024)
    }

    pub fn data_dir(&self) -> &Path {
        &self.data
    }

    /// Returns what it has written to stderr so far.
    pub fn said(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join(STDERR))?)
    }

    /// Processor time used so far.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_time(&self.child.id().to_string())
    }

    pub fn disk(&self) -> Result<u64> {
        size_of(&self.data)
    }

    /// Asks it to end, waits until it has, and returns the size of the data it leaves on disk.
    pub fn stop(mut self) -> Result<u64> {
        self.end()?;
        self.disk()
    }

    /// Asks it to end and waits until it has. Its data stays.
    pub fn end(&mut self) -> Result<()> {
        // The shell's own `kill`: a machine without procps has no other.
        process::run(Command::new("sh").args(["-c", &format!("kill -TERM {}", self.child.id())]))?;
        for _ in 0..1500 {
            if let Some(status) = self.child.try_wait()? {
                if !status.success() {
                    bail!("the server ended with {status}");
                }
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the server does not end within 30 s of SIGTERM");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already. Its directory is removed with it, so a hard stop loses nothing.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts the process in its folder. Returns it and where it listens.
fn spawn(binary: &Path, dir: &Path, settings: &[(&str, &str)]) -> Result<(Child, SocketAddr)> {
    let log = dir.join(STDERR);
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("ASYNCGATE_") || name.starts_with("SVCMBX_") {
            command.env_remove(name);
        }
    }
    let mut child = command
        .args(["serve", "--bind", "127.0.0.1:0", "--data-dir"])
        .arg(dir.join(DATA))
        // By the environment, because older servers, which are measured in turns, do not know the setting.
        .env("ASYNCGATE_DRAIN_GRACE", "0s")
        .envs(settings.iter().copied())
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&log)?)
        .spawn()
        .with_context(|| format!("cannot start {}", binary.display()))?;
    match address(&mut child) {
        Ok(addr) => Ok((child, addr)),
        Err(error) => {
            drop(child.kill());
            drop(child.wait());
            let said = fs::read_to_string(&log).unwrap_or_default();
            Err(error.context(format!("the server does not start; it said:\n{said}")))
        }
    }
}

/// Returns the processor time of a process (`self` for our own), user and system.
pub fn cpu_time(pid: &str) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; the fields after it are numbers.
    let after = stat.rsplit_once(") ").context("an odd /proc stat line")?.1;
    let ticks: u64 = after
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    // Linux counts in hundredths of a second for user space on every architecture.
    Ok(Duration::from_millis(ticks * 10))
}

fn address(child: &mut Child) -> Result<SocketAddr> {
    let stdout = child.stdout.take().context("no stdout")?;
    let mut lines = BufReader::new(stdout).lines();
    for line in lines.by_ref() {
        let line = line?;
        let addr = line.strip_prefix("listening on http://");
        let addr = addr.or_else(|| line.strip_prefix("listening on https://"));
        if let Some(addr) = addr {
            let addr = addr
                .trim()
                .parse()
                .with_context(|| format!("not an address: {addr}"))?;
            // Its later output must be read, or it would block on a full pipe.
            thread::spawn(move || lines.for_each(drop));
            return Ok(addr);
        }
    }
    bail!("it ended without saying where it listens");
}

fn kib_line(status: &str, name: &str) -> Result<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .with_context(|| format!("no {name}"))?;
    line.trim()
        .trim_end_matches(" kB")
        .parse()
        .with_context(|| format!("odd {name} {line}"))
}

fn size_of(path: &Path) -> Result<u64> {
    let metadata = fs::symlink_metadata(path)?;
    if !metadata.is_dir() {
        return Ok(metadata.len());
    }
    let mut sum = 0;
    for entry in fs::read_dir(path)? {
        sum += size_of(&entry?.path())?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_processor_time_is_readable() {
        assert!(cpu_time("self").unwrap() < Duration::from_secs(3600));
    }

    #[test]
    fn memory_lines_are_read_in_kib() {
        let status = "Name:\tx\nVmRSS:\t    2048 kB\nRssAnon:\t      12 kB\n";
        assert_eq!(kib_line(status, "VmRSS:").unwrap(), 2048);
        assert!(kib_line(status, "VmSwap:").is_err());
    }

    #[test]
    fn a_directory_weighs_what_its_files_do() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("a")).unwrap();
        fs::write(dir.path().join("a/b"), [0; 1000]).unwrap();
        fs::write(dir.path().join("c"), [0; 24]).unwrap();
        assert_eq!(size_of(dir.path()).unwrap(), 1024);
    }

    #[test]
    fn a_binary_that_only_fails_is_reported_with_what_it_said() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let fake = dir.path().join("fake");
        fs::write(&fake, "#!/bin/sh\necho bad config >&2\nexit 2\n").unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        let error = format!("{:#}", Server::start(&fake, dir.path(), &[]).unwrap_err());
        assert!(error.contains("bad config"), "{error}");
    }
}
