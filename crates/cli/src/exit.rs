//! Exit codes: which end of a command has which code.

use std::process::ExitCode;

use asyncgate_client::{Error, Kind};

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
";

/// A failure that a command expects: its exit code says which one it is.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Exit {
    code: u8,
    message: String,
}

impl Exit {
    fn new(code: u8, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message }
    }

    /// The command line contradicts itself, or names something that does not exist.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    /// The server refused a part of what it was asked, and did the rest.
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(3, message)
    }

    /// The task failed, was canceled, or did not end in time.
    pub fn task_not_done(message: impl Into<String>) -> Self {
        Self::new(6, message)
    }

    /// The ledger, or a file that belongs to it, is broken.
    pub fn broken(message: impl Into<String>) -> Self {
        Self::new(7, message)
    }

    /// The server decided, and the decision is no.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(8, message)
    }
}

/// Returns the exit code of a failed command; nothing if the error says nothing about it.
pub fn exit_code(error: &anyhow::Error) -> Option<ExitCode> {
    if let Some(exit) = error.downcast_ref::<Exit>() {
        return Some(ExitCode::from(exit.code));
    }
    let error = error.downcast_ref::<Error>()?;
    let code = match error.kind() {
        Kind::Refused(body) if body.code.http_status() == 404 => 4,
        Kind::Refused(_) => 3,
        Kind::Unreachable | Kind::Timeout => 5,
        Kind::Invalid => 2,
        Kind::Protocol | _ => 1,
    };
    Some(ExitCode::from(code))
}
