//! The commands that talk to a running server, or look at a ledger: one file each.
//!
//! Every command prints a table or a few lines for people, and one JSON document with `--json` for
//! programs. What went wrong goes to stderr in one line, and into the exit code.

mod completions;
mod demo;
mod ledger;
mod limit;
mod mail;
mod nonce;
mod obligations;
mod receipts;
mod remote;
mod revoke;
mod show;
mod task;
mod verify;
mod worker;

use std::process::ExitCode;

use clap::Subcommand;

pub use completions::Completions;
pub use demo::Demo;
pub use verify::Verify;

/// The exit codes, for `--help` and the README.
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

/// What can be asked of a running server.
#[derive(Debug, Subcommand)]
pub enum RemoteCommand {
    /// Create, read, list, cancel and wait for tasks.
    #[command(subcommand)]
    Task(task::Task),
    /// List an inbox, or the receipts of a task, a lease or a type.
    Receipts(receipts::Receipts),
    /// List what a principal is still owed.
    Obligations(obligations::Obligations),
    /// Send, receive and settle messages, and look after topics and dead letters.
    #[command(subcommand)]
    Mail(mail::Mail),
    /// Ask limits: may this happen now?
    #[command(subcommand)]
    Limit(limit::Limit),
    /// Use nonces: was this seen before?
    #[command(subcommand)]
    Nonce(nonce::Nonce),
    /// Revoke a warrant or a key, or take that back.
    #[command(after_help = "\
Examples:
  asyncgate revoke warrant_id tnu_wrt_0190a0b0c0d0e0f00102030405060708 --reason stolen
  asyncgate revoke issuer_key 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
  asyncgate revoke --undo warrant_id HASH")]
    Revoke(revoke::Revoke),
    /// List what is revoked.
    Revocations(revoke::Revocations),
    /// Copy the ledger into a file that can be verified, or read its signed head.
    #[command(subcommand)]
    Ledger(ledger::Ledger),
    /// Work on tasks with the built-in handlers echo, sleep_then_return and http_get.
    Worker(worker::Worker),
}

impl RemoteCommand {
    /// Does it.
    pub async fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Task(command) => command.run().await,
            Self::Receipts(command) => command.run().await,
            Self::Obligations(command) => command.run().await,
            Self::Mail(command) => command.run().await,
            Self::Limit(command) => command.run().await,
            Self::Nonce(command) => command.run().await,
            Self::Revoke(command) => command.run().await,
            Self::Revocations(command) => command.run().await,
            Self::Ledger(command) => command.run().await,
            Self::Worker(command) => command.run().await,
        }
    }
}

/// An end that is not success and not an accident: it has an exit code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Ended {
    code: u8,
    message: String,
}

impl Ended {
    /// A task that did not end well, or not in time.
    pub fn badly(message: impl Into<String>) -> Self {
        Self {
            code: 6,
            message: message.into(),
        }
    }

    /// A ledger that does not hold.
    pub fn broken(message: impl Into<String>) -> Self {
        Self {
            code: 7,
            message: message.into(),
        }
    }

    /// A decision that was made, and is no.
    pub fn denied(message: impl Into<String>) -> Self {
        Self {
            code: 8,
            message: message.into(),
        }
    }

    /// Something that the server did not do, though it did the rest.
    pub fn refused(message: impl Into<String>) -> Self {
        Self {
            code: 3,
            message: message.into(),
        }
    }

    /// A command line that cannot be meant.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            code: 2,
            message: message.into(),
        }
    }
}

/// The exit code that an error of a command stands for.
pub fn exit_code(error: &anyhow::Error) -> Option<ExitCode> {
    use asyncgate_client::{Error, Kind};

    if let Some(ended) = error.downcast_ref::<Ended>() {
        return Some(ExitCode::from(ended.code));
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
