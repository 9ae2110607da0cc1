//! The end of a command that failed: its exit code, and what is said about it.

use std::process::ExitCode;

use asyncgate_client::{Error, Kind};
use serde::Serialize;

use crate::{output, plain::plain_json};

/// The list of exit codes that `--help` shows.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  something unexpected; the line on stderr says what
  2  the command line or the settings are wrong
  3  the server refused; the line on stderr has its code
  4  no such task, receipt or message
  5  the server cannot be reached or does not answer in time
  6  the task did not end well, or not in time (task wait)
  7  the ledger is broken (verify)
  8  the limit says no (limit check), or the nonce was used before (nonce check)

With --json the line on stderr is an object: code, message, status (of HTTP), corr_id, exit_code.
";

/// What to do without a key.
const NO_KEY: &str = "the server wants an API key: set ASYNCGATE_API_KEY to the one that it printed at its \
                      first start or was given (or use --key, or a profile), or run `asyncgate login`";

/// A failure that a command expects: its exit code says which one it is.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Exit {
    exit_code: u8,
    code: &'static str,
    message: String,
}

impl Exit {
    fn new(exit_code: u8, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            exit_code,
            code,
            message,
        }
    }

    /// The command line contradicts itself, or names something that does not exist.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(2, "USAGE", message)
    }

    /// The server refused a part of what it was asked, and did the rest.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(3, "REFUSED", message)
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(4, "NOT_FOUND", message)
    }

    /// The task failed, was canceled, or did not end in time.
    pub fn task_not_done(message: impl Into<String>) -> Self {
        Self::new(6, "TASK_NOT_DONE", message)
    }

    /// The ledger, or a file that belongs to it, is broken.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(7, "LEDGER_BROKEN", message)
    }

    /// The server decided, and the decision is no.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(8, "DENIED", message)
    }
}

/// What a failed command says to programs.
#[derive(Debug, Serialize)]
struct Complaint<'a> {
    /// The server's code, or one of the command line itself.
    code: &'a str,
    message: String,
    /// The HTTP status of the server's answer.
    status: Option<u16>,
    corr_id: Option<&'a str>,
    exit_code: u8,
}

/// Says why a command failed, in one line on stderr, and returns its exit code.
pub fn complain(error: &anyhow::Error, json: bool) -> ExitCode {
    let complaint = Complaint::of(error);
    if json {
        let object = serde_json::to_string(&complaint).unwrap_or_default();
        output::mutter(&plain_json(&object));
    } else {
        output::complain(&complaint.message);
    }
    ExitCode::from(complaint.exit_code)
}

impl<'a> Complaint<'a> {
    fn of(error: &'a anyhow::Error) -> Self {
        // The whole chain of causes on one line: scripts and people both read it.
        let call = error.downcast_ref::<Error>();
        let message = match call {
            Some(call) if call.needs_key() => NO_KEY.to_owned(),
            _ => format!("{error:#}"),
        };
        let (exit_code, code) = match (error.downcast_ref::<Exit>(), call) {
            (Some(exit), _) => (exit.exit_code, exit.code),
            (None, Some(error)) => of_call(error),
            (None, None) => (1, "FAILED"),
        };
        let refusal = call.and_then(Error::refusal);
        Self {
            code,
            message,
            status: refusal.map(|body| body.code.http_status()),
            corr_id: refusal.map(|body| body.corr_id.as_str()),
            exit_code,
        }
    }
}

fn of_call(error: &Error) -> (u8, &'static str) {
    match error.kind() {
        Kind::Refused(body) if body.code.http_status() == 404 => (4, body.code.as_str()),
        Kind::Refused(body) => (3, body.code.as_str()),
        Kind::Unreachable => (5, "UNREACHABLE"),
        Kind::Timeout => (5, "TIMEOUT"),
        Kind::Invalid => (2, "USAGE"),
        Kind::Protocol | _ => (1, "PROTOCOL"),
    }
}
