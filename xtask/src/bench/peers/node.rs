//! Queues whose only client is one for Node: a driver of ours uses it as their own documents say, and tells the rate.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::bench::cost::Measured;
use crate::bench::{Bench, CONNECTIONS, family};
use crate::services::queues;

/// The part that all drivers share.
const WINDOW: &str = include_str!("window.mjs");

/// A server, and how the tasks come to it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The source of the driver.
    pub driver: &'static str,
    /// The folder in which the driver's packages are.
    pub packages: &'a Path,
    /// The server's process and port.
    pub pid: u32,
    pub port: u16,
    /// The number of tasks in a call.
    pub batch: usize,
    pub payload: &'a str,
}

impl Run<'_> {
    /// Measures tasks per second, and the server's processor time for each.
    pub fn measure(&self, bench: &Bench) -> Result<Measured> {
        let settings = json!({
            "port": self.port,
            "in_flight": CONNECTIONS,
            "batch": self.batch,
            "payload": self.payload,
            "warmup": bench.seconds(2, 1).as_secs(),
            "seconds": bench.seconds(10, 3).as_secs(),
        });
        let mut driver = Driver::start(self.packages, self.driver, &settings)?;
        driver.expect("ready")?;
        let before = family::cpu_time(self.pid)?;
        let told = driver.line()?;
        let used = family::cpu_time(self.pid)?.saturating_sub(before);
        let (tasks, elapsed) = told_by(&told)?;
        driver.end()?;
        Ok(Measured::of(tasks, elapsed, used))
    }
}

/// Starts a service that goes on until it is dropped, and waits until it listens.
pub fn serve(packages: &Path, source: &str, port: u16) -> Result<Driver> {
    let settings = json!({ "port": port, "payload": "null" });
    let mut service = Driver::start(packages, source, &settings)?;
    service.expect("ready")?;
    Ok(service)
}

/// The driver's process. It ends by itself; when something fails before, it is killed.
pub struct Driver {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Driver {
    fn start(folder: &Path, source: &str, settings: &Value) -> Result<Self> {
        // A module finds the packages that lie beside it.
        fs::write(folder.join("window.mjs"), WINDOW)?;
        fs::write(folder.join("driver.mjs"), source)?;
        let mut child = Command::new(queues::node()?)
            .arg(folder.join("driver.mjs"))
            .arg(settings.to_string())
            .current_dir(folder)
            .env("NODE_ENV", "production")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start Node")?;
        let stdout = child.stdout.take().context("no stdout")?;
        Ok(Self {
            child,
            lines: BufReader::new(stdout).lines(),
        })
    }

    fn line(&mut self) -> Result<String> {
        let line = self.lines.next().context("the driver ended too early")?;
        Ok(line?)
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        match self.line()? {
            line if line == wanted => Ok(()),
            line => bail!("the driver told {line:?} instead of {wanted:?}"),
        }
    }

    fn end(mut self) -> Result<()> {
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the driver failed: {status}");
        }
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Reads `{"tasks":70000,"seconds":10.001}`.
fn told_by(line: &str) -> Result<(f64, Duration)> {
    let told: Value = serde_json::from_str(line).unwrap_or_default();
    let (tasks, seconds) = (told["tasks"].as_f64(), told["seconds"].as_f64());
    match tasks.zip(seconds) {
        Some((tasks, seconds)) if tasks > 0.0 && seconds > 0.0 => {
            Ok((tasks, Duration::try_from_secs_f64(seconds)?))
        }
        _ => bail!("the driver told {line:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_is_read_from_the_line() {
        let told = told_by(r#"{"tasks":70000,"seconds":2.5}"#).unwrap();
        assert_eq!(told, (70_000.0, Duration::from_millis(2_500)));
    }

    #[test]
    fn a_line_without_work_is_an_error() {
        for line in [
            "",
            "Error: connect",
            r#"{"tasks":1}"#,
            r#"{"tasks":0,"seconds":2.5}"#,
            r#"{"tasks":5,"seconds":0}"#,
            r#"{"tasks":"5","seconds":1}"#,
        ] {
            assert!(told_by(line).is_err(), "{line}");
        }
    }
}
