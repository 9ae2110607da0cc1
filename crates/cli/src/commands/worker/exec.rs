//! Tasks that are done by a command: the payload goes in, the result comes out, and the exit code decides.

use std::{
    ffi::OsString, io::ErrorKind, os::unix::process::ExitStatusExt as _, process::ExitStatus,
    time::Duration,
};

use asyncgate_client::{Cause, Context, Failure, Outcome, Payload};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json, value::RawValue};
use tempfile::NamedTempFile;
use tokio::process::Command;

use super::{
    process::{Ended, Process},
    said::{Bounded, Tail},
};
use crate::show::{short, who};

/// The largest result that a server takes by default.
const MAX_RESULT: usize = 1 << 20;

/// A command that does tasks.
#[derive(Debug)]
pub struct Exec {
    /// The program and its arguments.
    pub command: Vec<OsString>,
    pub worker_id: String,
    /// The exit codes of failures that may not happen again.
    pub retry_on: Vec<u8>,
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// True if a success without artifacts counts as delivered.
    pub proves: bool,
    /// True if the command's stderr is not passed on.
    pub quiet: bool,
}

impl Exec {
    pub async fn handle(&self, context: Context, payload: Payload) -> Result<Outcome, Failure> {
        // If the server is not told, the owner sees the task leased instead of running.
        let _ = context.start().await;
        let artifacts = tempfile::Builder::new().prefix("asyncgate-").tempfile();
        let artifacts = artifacts.map_err(|error| cannot("make a file for artifacts", &error))?;
        let mut command = self.command(&context, &artifacts);
        let mut process =
            Process::start(&mut command).map_err(|error| cannot("start the command", &error))?;
        let label = (!self.quiet).then(|| short(&context.task().task_id));
        let (mut out, mut err) = (Bounded::new(MAX_RESULT), Tail::new(label));
        let running = process.run(
            payload.text().as_bytes(),
            |bytes| out.take(bytes),
            |bytes| err.take(bytes),
            self.kill_after,
            context.cancelled(),
        );
        let running = running.await;
        let status = match running.map_err(|error| cannot("wait for the command", &error))? {
            Ended::Exited(status) => status,
            Ended::Stopped(cause) => return Err(stopped(cause)),
        };
        // What the command left running must not go on without a lease.
        drop(process);
        let said = err.end();
        if !status.success() {
            return Err(self.failure(status, &said));
        }
        let Some(stdout) = out.all() else {
            let message = "stdout has more than 1 MiB: put the result elsewhere, and name the place in \
                           the file ASYNCGATE_ARTIFACTS_FILE";
            return Err(Failure::permanent(message).of_kind("exec"));
        };
        self.outcome(stdout, &artifacts)
    }

    fn command(&self, context: &Context, artifacts: &NamedTempFile) -> Command {
        let task = context.task();
        let mut words = self.command.iter();
        let mut command = Command::new(words.next().cloned().unwrap_or_default());
        command
            .args(words)
            .env("ASYNCGATE_TASK_ID", &task.task_id)
            .env("ASYNCGATE_TASK_TYPE", &task.task_type)
            .env("ASYNCGATE_LEASE_ID", &task.lease_id)
            .env("ASYNCGATE_WORKER_ID", &self.worker_id)
            .env("ASYNCGATE_URL", context.client().address())
            .env("ASYNCGATE_OWNER", who(&task.created_by))
            .env("ASYNCGATE_ATTEMPT", task.attempt.to_string())
            .env("ASYNCGATE_ARTIFACTS_FILE", artifacts.path());
        if let Some(pointer) = &task.payload_pointer {
            command.env("ASYNCGATE_PAYLOAD_POINTER", pointer);
        }
        command
    }

    fn failure(&self, status: ExitStatus, said: &str) -> Failure {
        let (how, details) = match (status.code(), status.signal()) {
            (Some(code), _) => (format!("exit code {code}"), json!({ "exit_code": code })),
            (None, signal) => {
                let signal = signal.unwrap_or_default();
                (
                    format!("ended by signal {signal}"),
                    json!({ "signal": signal }),
                )
            }
        };
        let message = match said {
            "" => format!("{how}, and nothing on stderr"),
            said => format!("{how}: {said}"),
        };
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let failure = match code.is_none_or(|code| self.retry_on.contains(&code)) {
            true => Failure::retryable(message),
            false => Failure::permanent(message),
        };
        failure.of_kind("exec").with_details(details)
    }

    fn outcome(&self, stdout: &[u8], artifacts: &NamedTempFile) -> Result<Outcome, Failure> {
        let outcome = match result(stdout) {
            Some(result) => Outcome::json(&result)?,
            None => Outcome::empty(),
        };
        // A command that deleted the file has named nothing.
        let named = match std::fs::read_to_string(artifacts.path()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(cannot("read the file of artifacts", &error));
            }
            named => named.unwrap_or_default(),
        };
        match pointers(&named) {
            Some(pointers) => outcome.with_artifacts(&pointers),
            None if self.proves => {
                let proof = json!({ "target": "task", "status": "the command exited with 0" });
                outcome.with_delivery_proof(&proof)
            }
            None => Ok(outcome),
        }
    }
}

/// Returns the result that a command wrote: JSON as it is, text as a string, other bytes in base64.
fn result(stdout: &[u8]) -> Option<Box<RawValue>> {
    let Ok(text) = std::str::from_utf8(stdout) else {
        let bytes = json!({ "base64": BASE64_STANDARD.encode(stdout) });
        return serde_json::value::to_raw_value(&bytes).ok();
    };
    if text.trim().is_empty() {
        return None;
    }
    let json = RawValue::from_string(text.trim().to_owned()).ok();
    // The last line break belongs to the terminal, as in the shell's $(...).
    let text = text.trim_end_matches(['\r', '\n']);
    json.or_else(|| serde_json::value::to_raw_value(text).ok())
}

/// Returns the pointers that a command named: JSON as it is, or one URL a line.
fn pointers(named: &str) -> Option<Box<RawValue>> {
    let named = named.trim();
    if named.is_empty() {
        return None;
    }
    if let Ok(json) = RawValue::from_string(named.to_owned()) {
        return Some(json);
    }
    let lines = named.lines().map(str::trim).filter(|line| !line.is_empty());
    let pointers: Vec<Value> = lines
        .map(|url| json!({ "type": "url", "url": url }))
        .collect();
    serde_json::value::to_raw_value(&pointers).ok()
}

fn cannot(what: &str, error: &std::io::Error) -> Failure {
    Failure::retryable(format!("the worker cannot {what}: {error}")).of_kind("exec")
}

/// The runtime knows by the cause what becomes of the task; this is for those who look.
fn stopped(cause: Cause) -> Failure {
    Failure::retryable(format!("the command was stopped: {cause:?}")).of_kind("exec")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_json_or_text_or_bytes() {
        for (stdout, json) in [
            (&b""[..], None),
            (b" \n", None),
            (
                b"{\"b\": 1.50, \"a\": 2}\n",
                Some("{\"b\": 1.50, \"a\": 2}"),
            ),
            (b"42", Some("42")),
            (b"Hello\nAda\n", Some("\"Hello\\nAda\"")),
            (b"{bad", Some("\"{bad\"")),
            (b"\xff\xfe", Some("{\"base64\":\"//4=\"}")),
        ] {
            assert_eq!(result(stdout).as_ref().map(|raw| raw.get()), json);
        }
    }

    #[test]
    fn artifacts_are_json_or_lines() {
        let pointers = |named| pointers(named).map(|raw| raw.get().to_owned());
        assert_eq!(pointers("\n"), None);
        assert_eq!(
            pointers("[{\"type\":\"s3\"}]\n").unwrap(),
            "[{\"type\":\"s3\"}]"
        );
        assert_eq!(
            pointers("s3://b/x\n\ns3://b/y\n").unwrap(),
            r#"[{"type":"url","url":"s3://b/x"},{"type":"url","url":"s3://b/y"}]"#
        );
    }

    #[test]
    fn the_exit_code_decides_whether_to_try_again() {
        let exec = Exec {
            command: Vec::new(),
            worker_id: "w".to_owned(),
            retry_on: vec![75, 9],
            kill_after: Duration::ZERO,
            proves: true,
            quiet: true,
        };
        for (raw, retry, message) in [
            (75 << 8, true, "exit code 75: no ink"),
            (9 << 8, true, "exit code 9: no ink"),
            (1 << 8, false, "exit code 1: no ink"),
            (9, true, "ended by signal 9: no ink"),
        ] {
            let failure = exec.failure(ExitStatus::from_raw(raw), "no ink");
            assert_eq!(failure.is_retryable(), retry, "{raw}");
            assert_eq!(failure.message(), message);
        }
    }
}
